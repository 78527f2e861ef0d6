"""Benchmark merges and groupbys of frames on one device against its libraries."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import duration, read_data, require, short
from dgpuhash.bench.frames.groupings import SCALE, Totals
from dgpuhash.bench.keys import Distribution, keys_of, uniform_floats
from dgpuhash.bench.peers import (
    COMPARED,
    Grouping,
    Join,
    Library,
    Standing,
    Work,
    available_libraries,
    measured_libraries,
)
from dgpuhash.bench.timing import count_calls, latency
from dgpuhash.frames import frames_named
from dgpuhash.tables import join_indices

#: Rows of the largest frame.
MOST_ROWS = {"cuda": 2**27, "cpu": 2**20}
# Bits of a number in the second of two key columns.
_LOW_BITS = 4
_LARGEST_VALUE = 100
# A standing index is measured beside merges with frames of at most so many rows.
_STANDING = 10**6
# Calls of Python functions are counted where frames are that short.
_COUNTED = 1000
# Library of the rows of what a merge takes without frames.
_BARE = "join_indices + gathers"
# Short calls are repeated within a turn.
_SECONDS, _MOST_CALLS = 0.02, 50


@dataclass(frozen=True, slots=True)
class Case:
    """Merge or groupby of frames generated on the device.

    Attributes
    ----------
    name : str
    how : str
        The join; ``aggregate`` or ``drop_duplicates`` for a groupby.
    n : int
        Rows of the left frame, or of the grouped one.
    build : int
        Rows of the right frame; 0 for a groupby.
    keys : tuple of {"int64", "int32", "dense", "text"}
        Kinds of the one or two key columns: random integers; integers from 0 on; texts of 20
        letters.
    rows_of_key : int
        Right rows of a key.
    hit_rate : float
        Share of left rows whose key the right frame has.
    zipf : bool
        Whether left keys follow Zipf's law.
    groups : int
        Keys of a groupby are below that.
    column : {"v", "f"}
        The aggregated column: int64 or float64.
    aggregates : tuple of str
    """

    name: str
    how: str
    n: int
    build: int = 0
    keys: tuple[str, ...] = ("int64",)
    rows_of_key: int = 1
    hit_rate: float = 1.0
    zipf: bool = False
    groups: int = 0
    column: str = "v"
    aggregates: tuple[str, ...] = ()

    def scaled(self, rows: int) -> Case:
        """Return the case with at most `rows` rows a frame, and all sizes in proportion.

        Examples
        --------
        >>> case = Case("inner", "inner", 2**20, 2**10).scaled(2**12)
        >>> case.n, case.build
        (4096, 4)
        """
        share = min(1.0, rows / max(self.n, self.build))
        sizes = {name: getattr(self, name) for name in ("n", "build", "groups")}
        return replace(self, **{name: math.ceil(size * share) for name, size in sizes.items()})

    @property
    def labels(self) -> list[str]:
        """The names of the key columns."""
        return [f"k{number}" for number in range(len(self.keys))]

    def frames(self, backend: Backend) -> tuple[Any, ...]:
        """Return the left and the right frame, or the frame to group, on the device."""
        if not self.build:
            numbers = (uniform_floats(backend, self.n, 1) * self.groups).astype(np.int64)
            columns = self._keys(backend, numbers)
            if self.aggregates:
                values = (uniform_floats(backend, self.n, 2) * 2**20).astype(np.int64)
                columns[self.column] = values if self.column == "v" else values / 2**10
            return (_library(backend).make(columns),)
        distinct = max(1, self.build // self.rows_of_key)
        if self.zipf:
            left = Distribution("zipf").sample(backend, self.n).numbers % distinct
        else:
            most = distinct / self.hit_rate
            left = (uniform_floats(backend, self.n, 1) * most).astype(np.int64)
        right = backend.xp.argsort(uniform_floats(backend, self.build, 2)) % distinct
        sides = []
        for number, (label, numbers) in enumerate((("v1", left), ("v2", right)), 3):
            values = uniform_floats(backend, len(numbers), number) * (_LARGEST_VALUE * SCALE)
            columns = {**self._keys(backend, numbers), label: backend.xp.floor(values) / SCALE}
            sides.append(_library(backend).make(columns))
        return tuple(sides)

    def _keys(self, backend: Backend, numbers: Any) -> dict[Any, Any]:
        """Return the key columns of numbers; the second of two has their low bits."""
        low = numbers & (2**_LOW_BITS - 1)
        parts = (numbers >> _LOW_BITS, low) if len(self.keys) > 1 else (numbers,)
        named = zip(self.labels, self.keys, parts, strict=True)
        return {label: _key_column(backend, kind, part) for label, kind, part in named}

    def work(self, engine: Library, frames: Sequence[Any]) -> Work:
        """Return a function that runs a library's verb on the frames."""
        on = self.labels
        if self.build:
            return engine.join(
                Join(self.name, self.how, "", on[0] if len(on) == 1 else on), *frames
            )
        asked = tuple((self.column, how) for how in self.aggregates)
        return engine.group(Grouping(self.name, self.how, tuple(on), asked), *frames)

    def checksum(self, backend: Backend, engine: Library, answer: Any) -> tuple[Any, ...]:
        """Return the number of rows of a library's answer, and an order-independent checksum.

        It is exact but for means and variances, whose last bits depend on the order of additions.
        """
        frame, array = engine.flat(answer), _library(backend).array
        keys = [
            frame[label].astype("uint64") if kind == "text" else frame[label]
            for label, kind in zip(self.labels, self.keys, strict=True)
        ]
        values = [array(frame[name].fillna(0)) for name in frame.columns if name not in self.labels]
        words = [array(key).astype(np.int64) for key in keys]
        if {"mean", "var"} & set(self.aggregates):
            return len(frame), Totals.of(words, values)
        mixed = words[0]
        for word in (*words[1:], *(each.astype(np.float64).view(np.int64) for each in values)):
            mixed = keys_of(mixed, word.dtype) + word
        return len(frame), int(keys_of(mixed, mixed.dtype).sum())

    def bare(self, backend: Backend, frames: Sequence[Any]) -> Work:
        """Return the join of the keys' row numbers, and a gather of each column of the result.

        Keys are one array, or a hash of 64 bits of texts and of several columns.
        """
        left, right = frames
        added = [] if self.how in ("semi", "anti") else [right["v2"]]
        columns = [left[name] for name in left.columns], added
        gathers = [[_gather_of(backend, column) for column in side] for side in columns]

        def join() -> Any:
            keys = (self._word(backend, side) for side in frames)
            rows = join_indices(*keys, how=self.how)  # type: ignore[arg-type, misc]
            return [gather(one) for side, one in zip(gathers, rows, strict=True) for gather in side]

        return join

    def _word(self, backend: Backend, frame: Any) -> Any:
        if len(self.keys) == 1 and self.keys[0] != "text":
            return _library(backend).array(frame["k0"])
        keys = frame[self.labels]
        if backend.name == "cuda":
            return keys.hash_values(method="xxhash64").values
        return pd.util.hash_pandas_object(keys, index=False, categorize=False).to_numpy()


def _library(backend: Backend) -> Any:
    return frames_named("cudf" if backend.name == "cuda" else "pandas")


def _key_column(backend: Backend, kind: str, numbers: Any) -> Any:
    """Return a column with a key for each number, as an array or a Series of strings."""
    if kind == "dense":
        return numbers
    if kind != "text":
        return keys_of(numbers, np.dtype(kind))
    words = _library(backend).series(keys_of(numbers, np.dtype(np.uint64)))
    return words.astype("str").str.zfill(20)


def _gather_of(backend: Backend, column: Any) -> Callable[[Any], Any]:
    """Return the bare gather of a column's rows, undefined for row -1."""
    if getattr(column.dtype, "kind", "O") in "if":
        values = _library(backend).array(column)
        return lambda rows: values[rows]
    if backend.name == "cpu":
        return lambda rows: column.array.take(rows)
    import pylibcudf as plc

    table = plc.Table([column.to_pylibcudf()[0]])
    unchecked = plc.copying.OutOfBoundsPolicy.DONT_CHECK
    return lambda rows: plc.copying.gather(
        table, plc.Column.from_cuda_array_interface(rows), unchecked
    )


#: Merges, then groupbys.
CASES: tuple[Case, ...] = tuple(
    Case(**row) for row in read_data(__package__, "cases.toml")["cases"]
)


def compared_engines(backend: Backend) -> list[Library]:
    """Return the libraries to compare, beginning with the library of the frames.

    Raises
    ------
    SpecError
        When cuDF is not installed.
    """
    measured_libraries(backend, True)
    return [kind() for kind in available_libraries(COMPARED[backend.name])]


def measure(
    backend: Backend, case: Case, engines: Sequence[Library], repeats: int, *, peers: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield rows of each library, or of this one alone, timed in turns.

    The answers of all are compared with the first one's. A library that fails, or whose answer is
    another one, has a row with a ``problem`` in place of figures.
    """
    gc.collect()
    works: dict[str, Work] = {}
    problems: dict[str, str] = {}
    expected: tuple[Any, ...] = ()
    able = {
        each.name: each
        for each in engines
        if case.how in each.hows and not (isinstance(each, Standing) and case.build > _STANDING)
    }
    names = [*able, _BARE] if case.build else list(able)
    with _note_error(problems, *names):
        frames = case.frames(backend)
    for name in [name for name in names if name not in problems]:
        with _note_error(problems, name):
            if name == _BARE:
                works[name] = case.bare(backend, frames)
                right = not expected or len(works[name]()[-1]) == expected[0]
            else:
                works[name] = case.work(able[name], frames)
                found = case.checksum(backend, able[name], works[name]())
                expected = expected or found
                right = found == expected
            require(right, f"the answer is not that of {names[0]},", library=name)
    if not peers:
        works = {name: work for name, work in works.items() if able[name].ours}
    least, calls = dict.fromkeys(works, math.inf), dict.fromkeys(works, 1)
    for _ in range(repeats):
        for name in [name for name in works if name not in problems]:
            with _note_error(problems, name):
                seconds = latency(backend, works[name], calls=calls[name])[0]
                least[name] = min(least[name], seconds)
                calls[name] = max(1, min(_MOST_CALLS, int(_SECONDS / seconds)))
    ours = [name for name, engine in able.items() if engine.ours]
    best = min((spent for name, spent in least.items() if name not in (*ours, _BARE)), default=0)
    for name in [name for name in names if name in works or name in problems]:
        row: dict[str, Any] = {"verb": case.name, "how": case.how, "library": name, "n": case.n}
        row["build" if case.build else "groups"] = case.build or case.groups
        if name in problems:
            yield {**row, "problem": problems[name], "correct": False}
            continue
        floor = least[_BARE] if _BARE in works.keys() - problems.keys() and name in ours else None
        row = duration(least[name], floor, **row, answer_rows=sum(expected[:1]))
        if name in ours and 0 < best < math.inf:
            row["peer"] = short(1e3 * best)
        if case.n <= _COUNTED:
            row["calls"], row["c_calls"] = count_calls(works[name])
        yield row


@contextmanager
def _note_error(problems: dict[str, str], *names: str) -> Iterator[None]:
    """Record the error of one library, and go on with the others."""
    try:
        yield
    except Exception as error:
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        problems.update(dict.fromkeys(names, said))
