"""Benchmark of aggregates by group of one frame, beside cuDF or pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

import dgpuhash
from dgpuhash.backend import Backend
from dgpuhash.bench.figure import duration, require
from dgpuhash.bench.fit_memory import rows_that_fit
from dgpuhash.bench.peers import OURS
from dgpuhash.bench.peers.cudf import CuDF
from dgpuhash.bench.peers.pandas import Pandas
from dgpuhash.bench.timing import REPEATS, median_time
from dgpuhash.errors import SpecError
from dgpuhash.frames import frames_named

__all__ = ["GROUPS", "ROWS", "VERBS", "run"]

#: Columns and aggregates; integers and floats have the same values, but for a factor.
VERBS: dict[str, tuple[str, str | list[str]]] = {
    "sum + count": ("v", ["sum", "count"]),
    "sum of floats": ("f", "sum"),
    "var": ("v", "var"),
    "first": ("v", "first"),
    "median": ("v", "median"),
    "nunique": ("v", "nunique"),
}
GROUPS = {"cuda": (100, 2**16, 2**20, 2**24), "cpu": (100, 2**16, 2**20)}
ROWS = {"cuda": 2**27, "cpu": 2**21}
# Bits of a value, so few that float64 holds the sums of both columns exactly, and int64 those of
# the squares of a group; keys and values, or keys and rows, fit one word.
_VALUE_BITS, _MOST_GROUPS = 20, 2**27
_FLOATS = 2.0**-10
_ROW_NBYTES = 24
_SEED = 31
_TOLERANCE = 1e-9


def run(
    backend: Backend,
    *,
    n: Sequence[int] | None = None,
    groups: Sequence[int] = (),
    verbs: Sequence[str] = (),
    compare: bool = False,
    repeats: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of groups, aggregate and library.

    The frame is cuDF's on a GPU, else pandas'; the groups are made anew for each aggregate.

    Parameters
    ----------
    backend : Backend
    n : sequence of int, optional
        Rows; default: 2**27 on a GPU, 2**21 on the CPU, or what the memory has room for.
    groups : sequence of int, optional
        Keys are below each of them; default: several, up to the number of rows.
    verbs : sequence of str
        Which of `VERBS`; default: all.
    compare : bool
        Measure cuDF, or pandas, on the same frame, too.
    repeats : int, optional
        Runs whose median counts.

    Raises
    ------
    SpecError
        When an option is impossible.
    UnsupportedError
        When cuDF is not installed.
    DgpuhashError
        When an answer on the timed data, ours or the peer's, is wrong: sorting gives the expected
        one.
    """
    if foreign := [verb for verb in verbs if verb not in VERBS]:
        raise SpecError(f"verb {foreign[0]!r}; use {', '.join(VERBS)}")
    if groups and max(groups) > _MOST_GROUPS:
        raise SpecError(f"--groups {max(groups)}; give at most {_MOST_GROUPS:,}")
    repeats = repeats or REPEATS[backend.name]
    frames = frames_named("cudf" if backend.name == "cuda" else "pandas")
    # cuDF's has it allocate from a pool, whoever is measured.
    peer = (CuDF if backend.name == "cuda" else Pandas)()
    for rows in n or (rows_that_fit(backend, ROWS[backend.name], _ROW_NBYTES),):
        for number in groups or [most for most in GROUPS[backend.name] if most <= rows] or [rows]:
            columns: dict[Any, Any] = _columns(backend, rows, number)
            expected = Expected(backend, columns["k"], columns["v"])
            frame = frames.make(columns)
            made: dict[str, Callable[..., Any]] = {OURS: partial(dgpuhash.groupby, frame)}
            if compare:
                made[peer.name] = frame.groupby
            for verb in verbs or VERBS:
                column, how = VERBS[verb]
                for library, groupby in made.items():
                    where: dict[str, Any] = {"n": rows, "groups": number, "library": library}
                    where["verb"] = verb
                    work = partial(_aggregated, groupby, column, how)
                    seconds, answer = median_time(backend, work, repeats=repeats)
                    answer = answer.reset_index()
                    arrays = [frames.array(answer[label]) for label in answer.columns]
                    expected.check(verb, arrays, where)
                    del answer, arrays
                    yield duration(seconds, None, **where)


def _columns(backend: Backend, n: int, groups: int) -> dict[str, Any]:
    random = backend.xp.random.default_rng(_SEED)
    keys = random.integers(0, groups, n, dtype=np.int64)
    values = random.integers(0, 2**_VALUE_BITS, n, dtype=np.int64)
    return {"k": keys, "v": values, "f": values * _FLOATS}


def _aggregated(groupby: Callable[..., Any], column: str, how: str | list[str]) -> Any:
    return groupby("k", sort=False)[column].agg(how)


class Expected:
    """Expected aggregates of a batch of integer keys and values, from sorted words."""

    def __init__(self, backend: Backend, keys: Any, values: Any) -> None:
        self._xp: Any = backend.xp
        self._words: Any = (keys << _VALUE_BITS) | values
        self._words.sort()
        self._values: Any = self._words & (2**_VALUE_BITS - 1)
        sorted_keys = self._words >> _VALUE_BITS
        self._starts: Any = self._xp.flatnonzero(self._xp.diff(sorted_keys, prepend=-1))
        self._ends: Any = self._xp.append(self._starts[1:], len(keys))
        self._keys: Any = sorted_keys[self._starts]
        self._first: Any = values[self._first_rows(keys)]

    def _first_rows(self, keys: Any) -> Any:
        bits = len(keys).bit_length()
        rows = (keys << bits) | self._xp.arange(len(keys))
        rows.sort()
        return rows[self._starts] & (2**bits - 1)

    def _sums(self, column: Any) -> Any:
        sums = self._xp.append(self._xp.zeros(1, np.int64), self._xp.cumsum(column))
        return sums[self._ends] - sums[self._starts]

    def columns(self, verb: str) -> list[Any]:
        """Return the aggregates of all groups in the order of their keys, as floats."""
        sizes, values = self._ends - self._starts, self._values
        if verb == "sum + count":
            found = [self._sums(values), sizes]
        elif verb == "sum of floats":
            found = [self._sums(values) * _FLOATS]
        elif verb == "var":
            total = self._sums(values).astype(np.float64)
            # Of one row there is none.
            others = self._xp.where(sizes > 1, sizes - 1, np.nan)
            found = [(self._sums(values * values) - total * total / sizes) / others]
        elif verb == "first":
            found = [self._first]
        elif verb == "median":
            low, high = (self._starts + (sizes - odd) // 2 for odd in (1, 0))
            found = [(values[low] + values[high]) / 2]
        else:
            fresh = self._xp.diff(self._words, prepend=-1) != 0
            found = [self._sums(fresh.astype(np.int64))]
        return [column.astype(np.float64) for column in found]

    def check(self, verb: str, found: Sequence[Any], where: dict[str, Any]) -> None:
        """Raise unless keys and aggregates are right, in any order of the groups.

        Raises
        ------
        DgpuhashError
        """
        keys, *columns = found
        require(len(keys) == len(self._keys), "the number of groups was wrong", **where)
        order = self._xp.argsort(keys)
        require((keys[order] == self._keys).all(), "a key was wrong", **where)
        tolerance = _TOLERANCE if verb == "var" else 0
        for column, right in zip(columns, self.columns(verb), strict=True):
            same = self._xp.allclose(
                column[order].astype(np.float64), right, rtol=tolerance, atol=0, equal_nan=True
            )
            require(same, f"a {verb} was wrong", **where)
