"""Benchmark of joins under change: answers kept by what changes, beside the same anew."""

from __future__ import annotations

import gc
import itertools
import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import require, short
from dgpuhash.bench.peers import OURS
from dgpuhash.bench.peers.cudf import share_pool
from dgpuhash.bench.refresh.anew import Anew, Answers, DuckDB, Polars
from dgpuhash.bench.refresh.frames import DataFrames, rows_of
from dgpuhash.bench.refresh.kept import Kept
from dgpuhash.bench.refresh.tables import Change, Frames, changes, generate, read_tables
from dgpuhash.errors import DeviceError, SpecError

FRACTIONS = (1e-4, 1e-3, 1e-2, 1e-1)
QUICK_SCALE, QUICK_FRACTIONS = 0.01, (1e-3, 1e-2)
_ROUNDS = 3
# Orders whose lines are added at once where the answers begin.
_BATCH_ON_GPU = 2_000_000
# Sums of cents overflow 64 bits beyond.
_LARGEST_SCALE = 50


def run(
    backend: Backend,
    *,
    scale: float | None = None,
    fractions: Sequence[float] = (),
    folder: str | Path | None = None,
    quick: bool = False,
    repeats: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each fraction and library, and at last the fraction that breaks even.

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
        Whether scale 0.01, two fractions and one round are enough.
    repeats : int, optional
        Rounds of each fraction, of which the median is taken; default: 3. One before does not
        count.

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
    libraries = list(_libraries(backend, tables))
    # The first round does not count.
    coming = changes(tables, [fractions[0], *(each for each in fractions for _ in range(rounds))])
    _round(libraries, next(coming))
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
        yield {**what, "verb": "break-even", "library": OURS, "fraction": share, "amount": share}


def _libraries(backend: Backend, tables: dict[str, pa.Table]) -> Iterator[Anew]:
    """Yield ours, then those that compute all anew."""
    on_gpu = backend.name == "cuda"
    if on_gpu:
        name, cudf = share_pool(), import_module("cudf")
        yield _Ours(tables, cudf, _BATCH_ON_GPU)
        yield DataFrames(tables, cudf, name)
    else:
        yield _Ours(tables)
    yield DuckDB(tables)
    if find_spec("cudf_polars" if on_gpu else "polars"):
        yield Polars(tables, on_gpu=on_gpu)


def break_even(curve: Sequence[tuple[float, float]]) -> float | None:
    """Return the first fraction at which a round takes as long as all anew; None if none does.

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


def _round(libraries: Sequence[Anew], change: Change) -> list[_Times]:
    """Return the seconds of each library's change and answers, and of the CPU; check answers."""
    spent: list[_Times] = []
    expected: Answers = {}
    for library in reversed(libraries):
        own = library.prepare(change)
        gc.collect()
        begun, cpu = time.perf_counter(), time.process_time()
        library.change(own)
        changed = time.perf_counter()
        answers = library.answers()
        times = changed - begun, time.perf_counter() - changed, time.process_time() - cpu
        spent.insert(0, times)
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


class _Ours(Anew):
    """Answers kept by what changes."""

    name = OURS

    def __init__(self, tables: dict[str, pa.Table], library: Any = pd, batch: int = 10**5) -> None:
        self._frames = Frames(tables, library)
        frames = {name: self._frames.frame(table) for name, table in tables.items()}
        self._kept = Kept(frames, batch)

    def prepare(self, change: Change) -> Any:
        return [self._frames.frame(each) for each in (change.orders, change.lineitem, change.keys)]

    def change(self, change: Any) -> None:
        self._kept.refresh(*change)

    def answers(self) -> Answers:
        return {number: rows_of(answer) for number, answer in self._kept.answers().items()}

    @property
    def standing_bytes(self) -> int:
        groups = [each.index.nbytes for each in self._kept.groups.values()]
        return sum(groups) + sum(each.stats().table_nbytes for each in self._kept.sides.values())
