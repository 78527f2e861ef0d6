"""Benchmark factorize, unique, value_counts and group_reduce."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import duration, require
from dgpuhash.bench.keys import Distribution, KeyDraw, draw, keys_of, uniform_floats
from dgpuhash.bench.limits import Floors
from dgpuhash.bench.memory import rows_that_fit
from dgpuhash.bench.options import Spreads
from dgpuhash.bench.peers import measured_libraries
from dgpuhash.bench.timing import REPEATS, median_time

GROUPS = {"cuda": (100, 2**16, 2**20, 2**24, 2**26), "cpu": (100, 2**12, 2**16, 2**20)}
# Least bytes of the table that the floor is measured on.
_LEAST_NBYTES = 2**20
_ROWS = {"cuda": 2**27, "cpu": 2**21}
_KEY = np.dtype(np.int64)
# Values are small, so that float64 holds every sum exactly.
_LARGEST_VALUE = 1000
_SUMS = "sum + count"
VERBS = (_SUMS, "factorize", "value_counts", "unique")
# Aggregates of each group that a verb has.
_TOTALS = {_SUMS: ("sum", "count"), "value_counts": ("count",)}


def run(
    backend: Backend,
    *,
    n: Sequence[int] | None = None,
    groups: Sequence[int] | None = None,
    distributions: Spreads = (),
    compare: bool = False,
    repeats: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each verb, number of groups and library.

    Keys and values are int64.

    Parameters
    ----------
    backend : Backend
        The device to measure.
    n : sequence of int, optional
        Rows.
    groups : sequence of int, optional
        Numbers of distinct keys that rows draw from; default: several, up to the number of rows.
    distributions : sequence of str
        Distributions of keys, instead of `groups`.
    compare : bool
        Measure the installed peers on the same data, too.
    repeats : int, optional
        Runs whose median counts.

    Raises
    ------
    SpecError
        When an option is impossible, or there is no peer.
    DgpuhashError
        When an answer on the timed data, ours or a peer's, is wrong. The distinct keys, their
        counts and sums follow from the numbers that the keys are made of; each code must number its
        row's key.

    Notes
    -----
    The floor is one access of each row to a table of the groups: read a key, gather its slot, and
    write 8 bytes (or read 8 more). The table has at least 1 MiB: in a smaller one the requests of
    all rows would queue at a few cache lines, which kernels avoid by a copy for each block.
    """
    repeats = repeats or REPEATS[backend.name]
    floors = Floors(backend, repeats)
    for library in measured_libraries(backend, compare):
        for rows in n or (rows_that_fit(backend, _ROWS[backend.name], 2 * _KEY.itemsize),):
            for what, sample in _cases(backend, rows, groups, distributions):
                keys = keys_of(sample.numbers, _KEY)
                expected = ExpectedGroups(backend, sample, keys)
                nbytes = max(_LEAST_NBYTES, 2 * _KEY.itemsize * len(expected.keys))
                floor = rows / floors.lookup(8 * _KEY.itemsize, rows, nbytes)
                tasks = {_SUMS: library.aggregated(keys, expected.values, "sum", "count")}
                tasks |= library.columns(keys)
                for verb in [verb for verb in VERBS if verb in tasks]:
                    where: dict[str, Any] = {"n": rows, **what, "library": library.name}
                    where["verb"], task = verb, tasks[verb]
                    seconds, made = median_time(backend, task.work, repeats=repeats)
                    expected.check(verb, task.read(made), where)
                    del made
                    yield duration(seconds, floor, **where)


def _cases(
    backend: Backend, rows: int, groups: Sequence[int] | None, distributions: Sequence[str]
) -> Iterator[tuple[dict[str, Any], KeyDraw]]:
    """Yield the fields that name each batch, and its rows."""
    for text in distributions:
        yield {"distribution": text}, Distribution.of(text).sample(backend, rows)
    if not distributions:
        fitting_groups = [most for most in GROUPS[backend.name] if most <= rows] or [rows]
        for each in groups or fitting_groups:
            yield {"groups": each}, draw(backend, rows, each)


class ExpectedGroups:
    """Expected answer for a batch, computed without a hash table.

    It is computed from the numbers that the keys are made of.

    Attributes
    ----------
    keys : array
        The distinct keys, ascending.
    values : array of int64
        The batch's values.
    """

    def __init__(self, backend: Backend, sample: KeyDraw, batch: Any) -> None:
        self._backend, self._batch = backend, batch
        self.values: Any = (uniform_floats(backend, len(sample), 2) * _LARGEST_VALUE).astype(
            np.int64
        )
        numbers = sample.present()
        totals = backend.xp.bincount(sample.numbers, weights=self.values, minlength=sample.most + 1)
        keys = keys_of(numbers, _KEY)
        order = backend.xp.argsort(keys)
        self.keys: Any = keys[order]
        self._counts = sample.counts()[numbers][order]
        self._sums = totals[numbers][order].astype(np.int64)

    def check(self, verb: str, found: tuple[Any, ...], where: dict[str, Any]) -> None:
        """Raise if an answer differs; `found` is what `Task.read` returned."""
        xp = self._backend.xp
        totals = {}
        if verb == "factorize":
            codes, keys = found
            least, most = int(codes.min()), int(codes.max())
            require(least >= 0 and most < len(keys), "a code numbers nothing", **where)
            require((keys[codes] == self._batch).all(), "a code numbers another key", **where)
        else:
            keys, *others = found
            totals = dict(zip(_TOTALS.get(verb, ()), others, strict=True))
        require(len(keys) == len(self.keys), "the number of groups was wrong", **where)
        order = xp.argsort(keys)
        require((keys[order] == self.keys).all(), "a key was wrong", **where)
        for what, total in totals.items():
            right = self._counts if what == "count" else self._sums
            require((total[order] == right).all(), f"a {what} was wrong", **where)
