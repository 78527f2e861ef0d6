"""Benchmark joins and groupbys of dataframes against pandas, Polars, DuckDB and Dask."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Any

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import require, short
from dgpuhash.bench.frames.compared import CASES, MOST_ROWS, compared_engines, measure
from dgpuhash.bench.frames.groupings import (
    FEWEST_ROWS,
    GROUPINGS,
    JOINS,
    Checksum,
    GroupFrames,
    JoinFrames,
    Totals,
)
from dgpuhash.bench.frames.on_dask import ENGINES_ON_DASK
from dgpuhash.bench.options import Option, Turns
from dgpuhash.bench.peers import DuckDB, Grouping, Join, Library, Ours, Pandas, Polars, Standing
from dgpuhash.bench.timing import by_turns
from dgpuhash.bench.workers.cluster import start
from dgpuhash.errors import DeviceError, SpecError, UnsupportedError

# Kept of both kinds alike: frames whose `work` and `checksum` take their questions.
QUESTIONS: dict[str, Any] = {**JOINS, **GROUPINGS}
ENGINES: dict[str, type[Library]] = {
    "pandas": Pandas,
    "polars": Polars,
    "duckdb": DuckDB,
    "dgpuhash": Ours,
    "standing": Standing,
}

ROWS = 10**7
QUICK_ROWS = 10**5
REPEATS = 2


def run(
    backend: Backend,
    *,
    rows: int | None = None,
    questions: Annotated[Sequence[str], Option(choices=tuple(QUESTIONS))] = (),
    engines: Annotated[Sequence[str], Option(choices=(*ENGINES, *ENGINES_ON_DASK))] = (),
    workers: int | None = None,
    compare: bool = False,
    only: Annotated[Sequence[str], Option(metavar="TEXT")] = (),
    quick: bool = False,
    repeats: Turns = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each query and library: CPU time and wall time.

    Questions are those of the db-benchmark of h2o.ai and DuckDB, see `JOINS` and `GROUPINGS`.
    Libraries answer
    a question one after the other, in `repeats` turns, and the least of each time counts. For each
    turn a library gets new frames, converted outside the time; indexes of ``standing`` are built
    then, too. Before the first question each joins a few rows. An answer is complete when it lies
    in memory: of Dask, on the workers.

    With `compare` there is a row of each of `CASES` and library instead, also on a GPU: merges and
    groupbys of few and of many rows, by integers and texts, of unique and of repeated keys. Frames
    are made on the device; the libraries, cuDF on a GPU, pandas and Polars on the CPU, take turns.

    Parameters
    ----------
    backend : Backend
        The CPU; with `compare` also a GPU.
    rows : int, optional
        Rows of the left frame, or of the one that is grouped, with `compare` of any at most;
        default: 10**7, with `compare` 2**27 on a GPU and 2**20 on the CPU. Sizes of a larger case
        shrink in proportion.
    questions : sequence of str, optional
        Joins and groupbys, of `JOINS` and `GROUPINGS`; default: all.
    engines : sequence of str, optional
        Libraries; default: all that are installed.
    workers : int, optional
        Processes of a cluster, with a thread each, for ``dask``, and of one for ``dgpuhash-dask``;
        default: no cluster, and none of the two.
    compare : bool
        Measure merges and groupbys of `CASES` beside cuDF or pandas instead.
    only : sequence of str, optional
        With `compare`: cases whose name has one of these texts; default: all.
    quick : bool
        Measure 10**5 rows in one turn, where nothing else is given.
    repeats : int, optional
        Turns, of which the best counts; default: 2, with `compare` 5.

    Raises
    ------
    DeviceError
        When the backend is another device.
    SpecError
        When an option is impossible, or a library is not installed.
    DgpuhashError
        When an answer was wrong: its rows, the sums of its values, or which values stand beside
        each other or a key.

    Notes
    -----
    With `compare`, ``time`` is the least wall time of a call on an idle device, ``floor`` that of
    `join_indices` of the keys and a bare gather of each column, and rows of up to 1,000 rows have
    the ``calls`` of Python functions, and the ``c_calls`` of others. A library that fails, or gives
    another answer than the first one, has a ``problem`` instead, and the others go on.

    ``amount`` is the CPU time of all processes in seconds, ``seconds`` the wall time. Rows of this
    package have the least CPU time of the other libraries, in the same process or on a cluster as
    large, as ``peer``. What a library cannot do (`UnsupportedError`) has no row.
    """
    if compare:
        if questions or engines or workers:
            raise SpecError("--compare has cases of its own; choose among them by --only TEXT")
        cases = [case for case in CASES if any(text in case.name for text in only or [""])]
        if not cases:
            raise SpecError(
                f"--only {only[0]!r}; use a part of {', '.join(case.name for case in CASES)}"
            )
        rows = rows or (QUICK_ROWS if quick else MOST_ROWS[backend.name])
        used = compared_engines(backend)
        for case in cases:
            yield from measure(backend, case.scaled(rows), used, repeats or (1 if quick else 5))
        return
    if only:
        raise SpecError("--only chooses among the cases of --compare; give --compare, too")
    if backend.name != "cpu":
        raise DeviceError(
            "the benchmark 'frames' measures the CPU; leave out --device, use 'cpu', or give "
            "--compare"
        )
    rows = rows or (QUICK_ROWS if quick else ROWS)
    repeats = repeats or (1 if quick else REPEATS)
    _check_engines(engines, workers)
    asked = [QUESTIONS[name] for name in questions or QUESTIONS]
    with ExitStack() as stack:
        there = [name for name, kind in ENGINES.items() if find_spec(kind.package)]
        used = [kind() for name, kind in ENGINES.items() if name in (engines or there)]
        if workers:
            # Each has workers of its own: ours change how their C library keeps memory.
            used += [
                kind(stack.enter_context(start(backend, workers)))
                for name, kind in ENGINES_ON_DASK.items()
                if name in (engines or [name])
            ]
        _warm_up(used)
        for kind, frames_of in ((Join, JoinFrames), (Grouping, GroupFrames)):
            own = [question for question in asked if isinstance(question, kind)]
            frames = frames_of(rows) if own else None
            for question in own:
                yield from _rows(question, frames, used, repeats)


def _check_engines(engines: Sequence[str], workers: int | None) -> None:
    """Raise SpecError for libraries that cannot be measured."""
    for name in engines:
        if name in ENGINES_ON_DASK:
            if not workers:
                raise SpecError(f"--engine {name} needs a cluster; give --workers 2, too")
        elif not find_spec(package := ENGINES[name].package):
            raise SpecError(
                f"--engine {name} needs {package}, which is not installed; install it with "
                f"'pip install {package}'"
            )


def _warm_up(libraries: Sequence[Library]) -> None:
    """Join a few rows with every library, so that no measured turn pays for imports."""
    few, join = JoinFrames(FEWEST_ROWS), JOINS["j5"]
    for library in libraries:
        with suppress(UnsupportedError):
            few.work(library, join)()


def _rows(
    question: Any, frames: Any, libraries: Sequence[Library], repeats: int
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one query, after all libraries have answered it."""
    gc.collect()
    expected = frames.expected(question)
    turns = by_turns(
        {
            library: partial(_seconds, question, frames, library, expected)
            for library in libraries
            if question.how in library.hows
        },
        repeats,
    )
    least = {library: list(map(min, *times, times[0])) for library, times in turns.items()}
    for library, (cpu, wall) in least.items():
        row = {
            "n": len(frames), "verb": question.name, "how": question.how,
            "library": library.name, "answer_rows": expected.rows, "amount": short(cpu),
            "unit": "CPU s", "seconds": short(wall),
        }  # fmt: skip
        if library.workers:
            row["workers"] = library.workers
        theirs = [
            spent[0]
            for peer, spent in least.items()
            if not peer.ours and peer.workers == library.workers
        ]
        if library.ours and theirs:
            row["peer"] = short(min(theirs))
        yield {**row, "correct": True}


def _seconds(
    question: Any, frames: Any, library: Library, expected: Checksum | Totals
) -> tuple[float, float]:
    """Return the CPU and wall seconds of one answer, after checking it."""
    work = frames.work(library, question)
    cpu, wall = library.cpu_seconds(), time.perf_counter()
    answer = work()
    wall = time.perf_counter() - wall
    cpu = library.cpu_seconds() - cpu
    found = frames.checksum(library, question, answer)
    require(
        found == expected, f"the answer was {found}, and should be {expected},",
        question=question.name, how=question.how, library=library.name, n=len(frames),
    )  # fmt: skip
    return cpu, wall
