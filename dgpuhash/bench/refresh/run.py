"""Benchmark TPC-H under change: incremental answers against recomputed ones."""

from __future__ import annotations

import gc
import itertools
import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
from distributed import wait

from dgpuhash import DistributedGroupBy, DistributedIndex, FrameIndex
from dgpuhash.backend import Backend
from dgpuhash.bench.figure import require, short
from dgpuhash.bench.options import Folder, Option
from dgpuhash.bench.peers import OURS, SharedCuDF
from dgpuhash.bench.refresh.anew import Anew, Answers, DataFrames, DuckDBRun, PolarsRun, rows_of
from dgpuhash.bench.refresh.kept import KeptQueries, Query, WeightedGroups
from dgpuhash.bench.refresh.tables import Round, Tables, changes, generate, read_tables
from dgpuhash.bench.workers.cluster import BenchWorkers, start
from dgpuhash.errors import DeviceError, SpecError


class GroupsOnWorkers(WeightedGroups):
    """Sums of weighted rows by group on workers; groups that meet a condition are here."""

    def __init__(self, query: Query, rows: Any) -> None:
        self.query = query
        sums = {name: (name, "sum") for name in [*query.sums, "weight"]}
        self.state = DistributedGroupBy.build(rows, query.by, sums)
        self.passing: Any = FrameIndex.build(rows, on=query.by) if query.having else self

    def update(self, rows: Any) -> None:
        """Add rows of weight 1 to their groups, and retract rows of weight -1."""
        before, by, having = self.state.epoch, self.query.by, self.query.having
        gone = rows[rows["weight"] < 0]
        # What was added has the opposite sign.
        gone = gone.assign(**{name: -gone[name] for name in [*self.query.sums, "weight"]})
        self.state.update(rows[rows["weight"] > 0])
        self.state.retract(gone)
        if having:
            groups = self.state.changed(since=before).compute().reset_index()
            self.passing.erase(rows[by].drop_duplicates().compute())
            self.passing.insert(groups[having(groups)])

    def frame(self) -> Any:
        """Return all groups."""
        return self.state.result().compute().reset_index()


class KeptOnWorkers(KeptQueries):
    """Indexes of the tables, and groups of each query, on the current client's workers."""

    build: Any = staticmethod(DistributedIndex.build)
    build_groups = GroupsOnWorkers


class OursHere(Anew):
    """Incremental answers."""

    name = OURS

    kept = KeptQueries

    def __init__(self, tables: dict[str, pa.Table], library: Any = pd, batch: int = 10**5) -> None:
        self._frames = Tables(tables, library)
        frames = {name: self._frames.frame(table) for name, table in tables.items()}
        self._kept: Any = self.kept(frames, batch)

    def prepare(self, change: Round) -> Any:
        return [self._frames.frame(each) for each in (change.orders, change.lineitem, change.keys)]

    def change(self, change: Any) -> None:
        self._kept.refresh(*change)

    def answers(self) -> Answers:
        return {number: rows_of(answer) for number, answer in self._kept.answers().items()}

    @property
    def standing_bytes(self) -> int:
        groups = [each.index.nbytes for each in self._kept.groups.values()]
        return sum(groups) + sum(each.stats().table_nbytes for each in self._kept.sides.values())


class OursOnWorkers(OursHere):
    """Incremental answers on workers, which receive a round's rows before the timed part.

    Parameters
    ----------
    tables : dict
    crew : Workers
    library : module
        pandas or cuDF.
    batch : int
        Orders whose lines are added at once where the answers begin.
    """

    kept = KeptOnWorkers

    def __init__(
        self, tables: dict[str, pa.Table], crew: BenchWorkers, library: Any, batch: int
    ) -> None:
        self._crew, self.name = crew, f"{OURS} on {len(crew)} workers"
        super().__init__(tables, library, batch)

    def prepare(self, change: Round) -> Any:
        several = len(self._crew)
        rows = [
            dd.from_pandas(frame, npartitions=several, sort=False).persist()
            for frame in super().prepare(change)
        ]
        wait(rows)
        return rows

    def cpu_seconds(self) -> float:
        theirs = self._crew.client.run(time.process_time)
        return super().cpu_seconds() + sum(theirs.values())

    @property
    def standing_bytes(self) -> int:
        states = [each.state.stats() for each in self._kept.groups.values()]
        sides = [each.stats()["table_nbytes"] for each in self._kept.sides.values()]
        return sum(int(each.sum()) for each in sides) + sum(
            int((each["row_nbytes"] + each["table_nbytes"]).sum()) for each in states
        )


FRACTIONS = (1e-4, 1e-3, 1e-2, 1e-1)
QUICK_SCALE, QUICK_FRACTIONS = 0.01, (1e-3, 1e-2)
_ROUNDS = 3
# Orders whose lines are added at once where the answers begin.
_BATCH, _BATCH_ON_GPU = 100_000, 2_000_000
# Sums of cents overflow 64 bits beyond.
_LARGEST_SCALE = 50


def run(
    backend: Backend,
    *,
    scale: float | None = None,
    fractions: Annotated[Sequence[float], Option(most=1)] = (),
    folder: Folder = None,
    quick: bool = False,
    repeats: Annotated[int | None, Option(("--rounds",))] = None,
    workers: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each fraction and library, and finally the break-even fraction.

    A round deletes a fraction of the orders of TPC-H with their lines, adds as many, and reads the
    answers of queries 1, 3, 5, 7, 9, 10, 12 and 18. Ours are kept by deltas; DuckDB and Polars
    change their tables in memory and run the queries. All answers of a round must be equal.

    Parameters
    ----------
    backend : Backend
        The CPU, or a GPU with cuDF.
    scale : float, optional
        Scale of TPC-H's tables; default: 1.
    fractions : sequence of float, optional
        Shares of the orders that go in a round, and come; default: 0.0001 to 0.1.
    folder : path, optional
        Folder of the tables, which are generated if it does not exist; default: a temporary one.
    quick : bool
        Measure one round of two fractions at scale 0.01, where nothing else is given.
    repeats : int, optional
        Rounds of each fraction, of which the median is taken; default: 3. One before does not
        count.
    workers : int, optional
        Workers of a local Dask cluster that keep the answers, one a GPU; default: none, this
        process does.

    Raises
    ------
    DeviceError
        When the device is a GPU, and cuDF is not installed.
    SpecError
        When the scale is too large for sums in 64 bits, DuckDB is not installed, or more orders are
        to go than there are.
    DgpuhashError
        When two libraries' answers differ.
    """
    if backend.name == "cuda" and find_spec("cudf") is None:
        raise DeviceError(
            "'refresh' keeps frames of cuDF on a GPU; install cudf-cu13, or give --device cpu"
        )
    scale = scale or (QUICK_SCALE if quick else 1)
    rounds = repeats or (1 if quick else _ROUNDS)
    fractions = sorted(fractions or (QUICK_FRACTIONS if quick else FRACTIONS))
    if scale > _LARGEST_SCALE:
        raise SpecError(f"scale {scale:g}; sums of cents need at most {_LARGEST_SCALE}")
    if find_spec("duckdb") is None:
        raise SpecError("answers are compared with DuckDB's; install it with 'pip install duckdb'")
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(folder) if folder is not None else Path(temporary) / "tables"
        if not source.exists():
            generate(source, scale)
        tables = read_tables(source)
    # The first round does not count.
    coming = changes(tables, [fractions[0], *(each for each in fractions for _ in range(rounds))])
    with ExitStack() as stack:
        crew = stack.enter_context(start(backend, workers)) if workers else None
        libraries = list(_libraries(backend, tables, crew))
        _round(libraries, next(coming))
        yield from _curve(libraries, coming, fractions, rounds, scale)


def _curve(
    libraries: Sequence[Anew], coming: Iterator[Round], fractions: Sequence[float], rounds: int,
    scale: float,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield a row for each fraction and library, and finally the break-even fraction."""
    curve: list[tuple[float, float]] = []
    for fraction in fractions:
        counts, spent = [], []
        for change in itertools.islice(coming, rounds):
            counts.append(change.rows)
            spent.append(_round(libraries, change))
        what = {"verb": "round", "n": statistics.median_low(counts), "scale": scale}
        rows = [
            {**_figures(times), **what, "fraction": fraction, "library": library.name}
            for library, times in zip(libraries, zip(*spent, strict=True), strict=True)
        ]
        anew = min(row["time"] for row in rows[1:])
        for row in rows:
            row["share"] = short(row["time"] / anew)
        rows[0] |= {"standing_bytes": libraries[0].standing_bytes}
        curve.append((fraction, rows[0]["share"]))
        yield from rows
    if (share := break_even(curve)) is not None:
        name = libraries[0].name
        yield {**what, "verb": "break-even", "library": name, "fraction": share, "amount": share}


def _libraries(
    backend: Backend, tables: dict[str, pa.Table], crew: BenchWorkers | None
) -> Iterator[Anew]:
    """Yield this package, then the libraries that recompute."""
    on_gpu = backend.name == "cuda"
    peer, library, batch = SharedCuDF().name if on_gpu else "", pd, _BATCH
    if on_gpu:
        library, batch = import_module("cudf"), _BATCH_ON_GPU
    yield OursOnWorkers(tables, crew, library, batch) if crew else OursHere(tables, library, batch)
    if on_gpu:
        yield DataFrames(tables, library, peer)
    yield DuckDBRun(tables)
    if find_spec("cudf_polars" if on_gpu else "polars"):
        yield PolarsRun(tables, on_gpu=on_gpu)


def break_even(curve: Sequence[tuple[float, float]]) -> float | None:
    """Return the first fraction at which a round takes as long as recomputing, or None.

    Between two points, the ratio of the times is a power of the fraction.

    Examples
    --------
    >>> break_even([(0.001, 0.25), (0.1, 4.0)])
    0.01
    """
    for (low, faster), (high, slower) in itertools.pairwise(curve):
        if faster <= 1 < slower:
            share = -math.log(faster) / (math.log(slower) - math.log(faster))
            return short(low * (high / low) ** share)
    return None


_Times = tuple[float, float, float]


def _round(libraries: Sequence[Anew], change: Round) -> list[_Times]:
    """Return the seconds of each library's change and answers, and of the CPU; check answers."""
    spent: list[_Times] = []
    expected: Answers = {}
    for library in reversed(libraries):
        own = library.prepare(change)
        gc.collect()
        cpu, begun = library.cpu_seconds(), time.perf_counter()
        library.change(own)
        changed = time.perf_counter()
        answers = library.answers()
        ended = time.perf_counter()
        spent.insert(0, (changed - begun, ended - changed, library.cpu_seconds() - cpu))
        expected = expected or answers
        for number, rows in answers.items():
            require(
                len(rows) == len(expected[number])
                and all(map(_same, itertools.chain(*rows), itertools.chain(*expected[number]))),
                f"answers to query {number} of {library.name} and {libraries[-1].name} differ",
                rows=change.rows,
            )
    return spent


def _same(one: Any, other: Any) -> bool:
    # Averages are the only floats.
    return math.isclose(one, other, rel_tol=1e-12) if isinstance(one, float) else one == other


def _figures(times: Sequence[_Times]) -> dict[str, Any]:
    """Return the medians of rounds in milliseconds."""
    change, answers, cpu = (
        short(1e3 * statistics.median(each)) for each in zip(*times, strict=True)
    )
    whole = statistics.median(sum(each[:2]) for each in times)
    steps = {"change": change, "answers": answers}
    return {"time": short(1e3 * whole), "unit": "ms", "cpu": cpu, "steps": steps}
