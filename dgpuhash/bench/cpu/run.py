"""Benchmark of batches of every size on a CPU, beside pandas, Polars, DuckDB and NumPy."""

from __future__ import annotations

import gc
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from dgpuhash.backend import Backend
from dgpuhash.bench.cpu.columns import KINDS, KeyColumns
from dgpuhash.bench.cpu.libraries import LIBRARIES, VERBS, WIDE, Library, Task, wide_frames
from dgpuhash.bench.figure import require, short
from dgpuhash.bench.peers import OURS
from dgpuhash.errors import DeviceError, SpecError

ROWS = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
QUICK_ROWS = (100, 10_000)
REPEATS = 5
# Short work is called again and again in this time of a turn.
_SECONDS = 0.02
_MOST_CALLS = 200
_WIDE_ROWS = 10
_MOST_COLUMNS, _ROWS_OF_COLUMNS = 50, 200_000


def run(
    backend: Backend,
    *,
    n: Sequence[int] = (),
    keys: Sequence[str] = (),
    verbs: Sequence[str] = (),
    quick: bool = False,
    repeats: int | None = None,
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
        Which kinds of keys: ``arange``, ``shuffled`` and ``random``; default: all.
    verbs : sequence of str, optional
        Which of `VERBS`, or the merge of 300 columns; default: all.
    quick : bool
        Whether few rows and one turn are enough where nothing else is given.
    repeats : int, optional
        Turns; default: 5.

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
    known = (*VERBS, WIDE)
    if foreign := [verb for verb in verbs if verb not in known]:
        raise SpecError(f"--verb {foreign[0]!r}; use {', '.join(known)}")
    asked = list(verbs or known)
    repeats = repeats or (1 if quick else REPEATS)
    libraries = [library() for library in LIBRARIES if find_spec(library.package)]
    for rows in n or (QUICK_ROWS if quick else ROWS):
        for kind in keys or KINDS:
            yield from _rows(_columns(rows, kind), libraries, asked, repeats)
    if WIDE in asked:
        frames = wide_frames()
        found = {library: library.wide(*frames) for library in libraries}
        tasks = {library: [task] for library, task in found.items() if task is not None}
        yield from _measured(tasks, repeats, n=_WIDE_ROWS, keys="arange", verb=WIDE)


def _columns(rows: int, kind: str) -> list[KeyColumns]:
    """Return columns that calls take in turns, several where they are short.

    A CPU learns the order of a short column's keys by heart, which no program asks for again and
    again.
    """
    several = 1 if kind == "arange" else max(1, min(_MOST_COLUMNS, _ROWS_OF_COLUMNS // rows))
    return [KeyColumns(rows, kind, number) for number in range(several)]


def _rows(
    columns: Sequence[KeyColumns], libraries: Sequence[Library], verbs: Sequence[str], repeats: int
) -> Iterator[dict[str, Any]]:
    gc.collect()
    every = {library: [library.tasks(each) for each in columns] for library in libraries}
    what = {"n": len(columns[0]), "keys": columns[0].kind}
    for verb in verbs:
        tasks = {
            library: [each[verb] for each in its]
            for library, its in every.items()
            if verb in its[0]
        }
        if tasks:
            yield from _measured(tasks, repeats, **what, verb=verb)


def _measured(
    tasks: dict[Library, list[Task]], repeats: int, **what: Any
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one question, after all libraries have answered it."""
    calls: dict[Library, int] = {}
    for library, its in tasks.items():
        for task in its:
            right = task.is_right(_timed([task], 1)[2])
            require(right, "an answer was wrong", library=library.name, **what)
        # What is loaded at the first call is no part of the others.
        calls[library] = max(1, min(_MOST_CALLS, math.ceil(_SECONDS / _timed(its, 1)[0])))
    least = dict.fromkeys(tasks, (math.inf, math.inf))
    for _ in range(repeats):
        for library, its in tasks.items():
            wall, cpu, _ = _timed(its, calls[library])
            before = least[library]
            least[library] = min(before[0], wall), min(before[1], cpu)
    ours = next((spent for library, spent in least.items() if library.name == OURS), None)
    for library, (wall, cpu) in least.items():
        row = {**what, "library": library.name, "time": short(wall * 1e6), "unit": "us"}
        row["cpu"] = short(cpu * 1e6)
        if ours and library.name != OURS:
            row |= {"ratio": short(wall / ours[0]), "cpu_ratio": short(cpu / ours[1])}
        yield {**row, "correct": True}


def _timed(tasks: Sequence[Task], calls: int) -> tuple[float, float, Any]:
    """Return the seconds of the wall and of the CPU of a call, and the last one's result."""
    clocks: tuple[Callable[[], float], ...] = time.perf_counter, time.process_time
    made = None
    turns = itertools.islice(itertools.cycle(tasks), calls)
    prepared = [(task.work, task.before()) for task in turns]
    begun = [clock() for clock in clocks]
    for work, given in prepared:
        made = work(given)
    wall, cpu = (clock() - before for clock, before in zip(clocks, begun, strict=True))
    return max(wall, 1e-9) / calls, max(cpu, 1e-9) / calls, made
