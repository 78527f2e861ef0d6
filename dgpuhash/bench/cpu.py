"""Benchmark batches of every size on a CPU against pandas, Polars, DuckDB and NumPy."""

from __future__ import annotations

import gc
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
import pandas as pd

import dgpuhash
from dgpuhash.backend import Backend
from dgpuhash.bench.figure import require, short
from dgpuhash.bench.options import Option, Turns
from dgpuhash.bench.peers import (
    OURS,
    DuckDB,
    Join,
    Library,
    NumPy,
    Ours,
    Pandas,
    Polars,
    Task,
    available_libraries,
    rows_by_key,
)
from dgpuhash.bench.timing import by_turns
from dgpuhash.errors import DeviceError

VERBS = (
    *("build", "find", "isin", "factorize", "unique", "sum + mean", "join", "merge", "upsert"),
    *("find of one", "insert of one", "multi find of one", "multi insert of one"),
)
WIDE = "merge of 300 columns"
LIBRARIES: tuple[type[Library], ...] = (Ours, Pandas, Polars, DuckDB, NumPy)
_WIDE_ROWS, _WIDE_COLUMNS, _ROWS_OF_ONE = 10, 300, 1000

KINDS = ("arange", "shuffled", "random")
_SEED = 34
_ROWS_PER_GROUP = 10
# Sums of quarters are exact.
_SCALE = 4


class Int64Keys:
    """Columns of int64 keys of one kind, the same ones for each number of rows.

    Parameters
    ----------
    rows : int
        Rows of each column.
    kind : {"arange", "shuffled", "random"}
        Keys 0, 1, 2 and so on in order; the same in random order; or random 63 bits.
    number : int
        Of several such columns, which are drawn anew.

    Attributes
    ----------
    keys : array
        Distinct keys.
    probes : array
        The same keys, in another order where they are not in order.
    positions : array
        Where in `keys` each of `probes` is.
    others : array
        Half of the keys, and as many that are not in `keys`.
    grouped : array
        As many rows, of a tenth of as many keys.
    values : array of float64
        Beside `grouped`.

    Examples
    --------
    >>> columns = Int64Keys(20, "arange")
    >>> columns.keys[:3], columns.grouped[[0, 9, 10]]
    (array([0, 1, 2]), array([0, 0, 1]))
    >>> bool((columns.keys[columns.positions] == columns.probes).all())
    True
    """

    def __init__(self, rows: int, kind: str, number: int = 0) -> None:
        random = np.random.default_rng((_SEED, number))
        self.rows: int = rows
        self.kind = kind
        # As many again that the columns do not hold.
        all_keys = _random_keys(random, 2 * rows) if kind == "random" else np.arange(2 * rows)
        numbers = np.arange(rows)
        self.positions: np.ndarray = numbers
        order = numbers
        if kind != "arange":
            order, self.positions = random.permutation(rows), random.permutation(rows)
        self.keys: np.ndarray = all_keys[order]
        self.probes: np.ndarray = self.keys[self.positions]
        self.others: np.ndarray = np.concatenate(
            [self.keys[::2], all_keys[rows : rows + rows // 2]]
        )
        self.groups: int = max(rows // _ROWS_PER_GROUP, 1)
        self.numbers: np.ndarray = numbers * self.groups // max(rows, 1)
        if kind == "shuffled":
            self.numbers = random.permutation(self.numbers)
        elif kind == "random":
            self.numbers = random.integers(0, self.groups, rows)
        self.grouped: np.ndarray = all_keys[self.numbers]
        self.values: np.ndarray = random.integers(0, 1000, rows) / _SCALE
        self.new: np.ndarray = all_keys[rows:]

    def __len__(self) -> int:
        return self.rows

    def changes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return half of the keys and as many new ones, with new values."""
        half = len(self) // 2
        changed = np.concatenate([self.keys[::2], self.new[:half]])
        return changed, np.arange(len(changed)) + len(self)

    def sums(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the keys of `grouped`, ascending, their sums and their means."""
        kinds, numbers = np.unique(self.numbers, return_inverse=True)
        keys = self.grouped[np.unique(self.numbers, return_index=True)[1]]
        sums = np.bincount(numbers, self.values, len(kinds))
        order = np.argsort(keys)
        return keys[order], sums[order], (sums / np.bincount(numbers))[order]


def _random_keys(random: np.random.Generator, count: int) -> np.ndarray:
    """Return distinct keys of 63 random bits."""
    while True:
        keys: Any = random.integers(0, 2**63 - 1, count)
        if len(np.unique(keys)) == count:
            return np.asarray(keys)


def tasks(library: Library, columns: Int64Keys) -> dict[str, Task]:
    """Return the calls of a library by their names in `VERBS`."""
    keys, grouped = columns.keys, columns.grouped
    work: dict[str, Task] = {}
    # DuckDB has joins alone: its other verbs would convert their columns at each call.
    if not isinstance(library, DuckDB):
        of_keys, of_groups = library.columns(keys, columns.others), library.columns(grouped)
        named = {"isin": of_keys, "factorize": of_groups, "unique": of_groups}
        work = {verb: theirs[verb] for verb, theirs in named.items() if verb in theirs}
        if library.hows:
            work["sum + mean"] = library.aggregated(grouped, columns.values, "sum", "mean")
    if library.hows:
        sides = rows_by_key(columns.probes, "left"), rows_by_key(keys, "right")
        work["merge"] = library.pairs(Join("", "inner"), *sides)
        work["join"] = library.pairs(Join("", "inner", columns=("left", "right")), *sides)
    if isinstance(library, Ours):
        work["join"] = library.joins(columns.probes, keys)["inner"]
        return work | _tables(columns)
    if isinstance(library, Pandas):
        work |= _indexes(columns)
    if isinstance(library, Pandas | Polars):
        changed, added = columns.changes()
        old = {"key": keys, "value": np.arange(len(keys))}
        work["upsert"] = library.upsert(old, {"key": changed, "value": added})
    return work


def _tables(columns: Int64Keys) -> dict[str, Task]:
    """Return the verbs of this package's tables, with default arguments."""
    keys, rows = columns.keys, np.arange(len(columns))
    table, lists = (kind.from_arrays(keys, rows) for kind in (dgpuhash.HashMap, dgpuhash.MultiMap))
    changed, added = columns.changes()
    single, first = keys[:1].copy(), rows[:1].copy()
    starts = range(min(len(columns), _ROWS_OF_ONE))
    more = itertools.cycle([columns.new[start : start + 1] for start in starts])
    grown, longer = table.copy(), lists.copy()

    def upsert(copied: Any) -> Any:
        copied.upsert(changed, added)
        return copied

    return {
        "build": Task(
            lambda: dgpuhash.HashMap.from_arrays(keys, rows),
            lambda built: built.find(columns.probes),
        ),
        "find": Task(lambda: table.find(columns.probes), lambda answer: answer),
        "upsert": Task(
            upsert,
            lambda copied: (len(copied), (copied.find(changed)[0] == added).all()),
            table.copy,
        ),
        "find of one": Task(lambda: table.find(single), lambda answer: answer),
        "insert of one": Task(lambda: grown.insert(next(more), first), lambda fresh: (fresh,)),
        "multi find of one": Task(lambda: lists.find(single), lambda answer: answer[:1]),
        "multi insert of one": Task(
            lambda: longer.insert(next(more), first),
            lambda _: (longer.items()[0][len(lists) :][:1],),
        ),
    }


def _indexes(columns: Int64Keys) -> dict[str, Task]:
    """Return the calls of a pandas Index; its hash table is made at first use."""
    keys: Any = columns.keys
    probes: Any = columns.probes

    def build() -> Any:
        index = pd.Index(keys)
        index.get_indexer(keys[:1])
        return index

    index = build()
    return {
        "build": Task(build, lambda built: (built.get_indexer(probes),)),
        "find": Task(lambda: index.get_indexer(probes), lambda places: (places,)),
        "find of one": Task(lambda: index.get_indexer(keys[:1]), lambda places: (places,)),
    }


def is_right(verb: str, columns: Int64Keys, arrays: Sequence[Any]) -> bool:
    """Return whether the arrays of a task are the right answer."""
    first, *others = arrays
    if verb == WIDE:
        return len(first) == _WIDE_ROWS and len(first.columns) == _WIDE_COLUMNS + 2
    match verb:
        case "build" | "find":
            return _same(first, columns.positions) and all(map(np.all, others))
        case "isin":
            return bool(first[::2].all() and not first[1::2].any())
        case "factorize":
            (distinct,), groups = others, len(np.unique(columns.numbers))
            return len(distinct) == groups and _same(distinct[first], columns.grouped)
        case "unique":
            return _same(np.sort(first), columns.sums()[0])
        case "sum + mean":
            order = np.argsort(first)
            pairs = zip(arrays, columns.sums(), strict=True)
            return all(np.allclose(each[order], right, rtol=1e-12) for each, right in pairs)
        case "join" | "merge":
            partners = np.full(len(columns), -1)
            partners[first] = others[0]
            return len(first) == len(columns) and _same(partners, columns.positions)
        case "upsert":
            return bool(first == len(columns) + len(columns) // 2 and all(others))
        case "find of one" | "multi find of one":
            return _same(first, [0])
    return len(first) == 1


def _same(array: Any, expected: Any) -> bool:
    return bool(np.array_equal(np.asarray(array), expected))


def wide_frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two short frames of many columns, with keys in opposite orders.

    Examples
    --------
    >>> left, right = wide_frames()
    >>> left.shape, right.shape
    ((10, 301), (10, 2))
    """
    keys = np.arange(_WIDE_ROWS)
    values = np.tile(keys[:, None], _WIDE_COLUMNS)
    left = pd.DataFrame(values, columns=[f"v{i}" for i in range(_WIDE_COLUMNS)])
    return left.assign(key=keys), pd.DataFrame({"key": keys[::-1], "right": keys})


ROWS = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
QUICK_ROWS = (100, 10_000)
REPEATS = 5
# Short work is called again and again in this time of a turn.
_SECONDS = 0.02
_MOST_CALLS = 200
_MOST_COLUMNS, _ROWS_OF_COLUMNS = 50, 200_000


def run(
    backend: Backend,
    *,
    n: Sequence[int] = (),
    keys: Annotated[Sequence[str], Option(choices=KINDS)] = (),
    verbs: Annotated[Sequence[str], Option(choices=(*VERBS, WIDE), metavar="VERB")] = (),
    quick: bool = False,
    repeats: Turns = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of rows, kind of keys, verb and library.

    All go through the public functions with their default arguments. The libraries that are
    installed take turns, and the least time of each counts: of the wall, and of the CPU, which
    tells what all cores did. Short calls are repeated within a turn.

    Parameters
    ----------
    backend : Backend
        The CPU.
    n : sequence of int, optional
        Rows; default: 100 to 10**7.
    keys : sequence of str, optional
        Kinds of keys: ``arange``, ``shuffled`` and ``random``; default: all.
    verbs : sequence of str, optional
        Verbs, e.g. build or merge; default: all.
    quick : bool
        Measure 100 and 10,000 rows in one turn, where nothing else is given.
    repeats : int, optional
        Turns, of which the best counts; default: 5.

    Raises
    ------
    DeviceError
        When the backend is another device.
    SpecError
        When there is no such verb or kind of keys.
    DgpuhashError
        When an answer on the timed data was wrong.

    Notes
    -----
    ``build`` makes a map of row numbers, an Index of pandas; ``find`` looks up as many keys, all
    of which are stored; ``isin`` tells which of the keys are among as many others, half of them;
    ``factorize``, ``unique`` and ``sum + mean`` are of a column in which a key has ten rows;
    ``join`` gives the row numbers of an inner join, ``merge`` joins two pandas frames of a key
    and a column; ``upsert`` changes the values of half of the keys and adds as many new ones. A
    library that has no such function has no row.
    """
    if backend.name != "cpu":
        raise DeviceError("the benchmark 'cpu' measures the CPU; leave out --device, or use 'cpu'")
    wanted = verbs or (*VERBS, WIDE)
    repeats = repeats or (1 if quick else REPEATS)
    libraries = [kind() for kind in available_libraries(LIBRARIES)]
    for rows in n or (QUICK_ROWS if quick else ROWS):
        for kind in keys or KINDS:
            yield from _rows(_columns(rows, kind), libraries, wanted, repeats)
    if WIDE in wanted:
        frames = wide_frames()
        merges = {
            library: [Task(library.join(Join("", "inner"), *frames), lambda made: (made,))]
            for library in libraries
            if library.hows and not isinstance(library, DuckDB)
        }
        yield from _measure(merges, [], repeats, n=_WIDE_ROWS, keys="arange", verb=WIDE)


def _columns(rows: int, kind: str) -> list[Int64Keys]:
    """Return key columns for calls to take in turns, several if they are short.

    A CPU's branch predictor learns the order of one short column's keys by heart.
    """
    several = 1 if kind == "arange" else max(1, min(_MOST_COLUMNS, _ROWS_OF_COLUMNS // rows))
    return [Int64Keys(rows, kind, number) for number in range(several)]


def _rows(
    columns: Sequence[Int64Keys], libraries: Sequence[Library], verbs: Sequence[str], repeats: int
) -> Iterator[dict[str, Any]]:
    gc.collect()
    every = {library: [tasks(library, each) for each in columns] for library in libraries}
    what = {"n": len(columns[0]), "keys": columns[0].kind}
    for verb in verbs:
        able = {
            library: [each[verb] for each in its]
            for library, its in every.items()
            if verb in its[0]
        }
        if able:
            yield from _measure(able, columns, repeats, **what, verb=verb)


def _measure(
    able: dict[Library, list[Task]], columns: Sequence[Int64Keys], repeats: int, *, verb: str,
    **what: Any,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the rows of one verb, after all libraries have answered it."""
    works = {}
    for library, its in able.items():
        for task, its_columns in itertools.zip_longest(its, columns):
            right = is_right(verb, its_columns, task.read(task.ready()()))
            require(right, "an answer was wrong", library=library.name, **what, verb=verb)
        # What is loaded at the first call is no part of the others.
        calls = max(1, min(_MOST_CALLS, math.ceil(_SECONDS / _seconds(its, 1)[0])))
        works[library] = partial(_seconds, its, calls)
    least = {
        library: list(map(min, *turns, turns[0]))
        for library, turns in by_turns(works, repeats).items()
    }
    ours = next((spent for library, spent in least.items() if library.name == OURS), None)
    for library, (wall, cpu) in least.items():
        row = {**what, "verb": verb, "library": library.name, "time": short(wall * 1e6)}
        row |= {"unit": "us", "cpu": short(cpu * 1e6)}
        if ours and library.name != OURS:
            row |= {"ratio": short(wall / ours[0]), "cpu_ratio": short(cpu / ours[1])}
        yield {**row, "correct": True}


def _seconds(its: Sequence[Task], calls: int) -> tuple[float, float]:
    """Return the seconds of the wall and of the CPU of a call."""
    clocks: tuple[Callable[[], float], ...] = time.perf_counter, time.process_time
    works = [task.ready() for task in itertools.islice(itertools.cycle(its), calls)]
    starts = [clock() for clock in clocks]
    for work in works:
        work()
    wall, cpu = (clock() - start for clock, start in zip(clocks, starts, strict=True))
    return max(wall, 1e-9) / calls, max(cpu, 1e-9) / calls
