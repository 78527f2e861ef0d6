"""Benchmark groupbys of frames on several workers against cudf-polars and Dask."""

from __future__ import annotations

import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import futures_of

import dgpuhash
from dgpuhash import backend
from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.bench.figure import duration, require
from dgpuhash.bench.options import ChunkSize, Devices, Option, PoolSize, Protocol, Runs
from dgpuhash.bench.peers import OURS
from dgpuhash.bench.timing import latency
from dgpuhash.bench.workers.cluster import BenchWorkers, check_counts, most_workers, start
from dgpuhash.errors import SpecError
from dgpuhash.frames import frames_named
from dgpuhash.typing import Device

#: What is asked of the groups: a sum and a count, the number of different values, the median.
VERBS = ("sum + count", "nunique", "median")
# Values are below that, so that every sum is exact.
_VALUES = 2**20
# Keys whose answers are compared, and rows that they may have together.
_MOST_KEYS, _MOST_ROWS = 1000, 2**21
_SEED = 57


def made_rows(device: Device, rank: int, n: int, groups: int) -> Any:
    """Return the rows of a worker: keys below `groups`, and values."""
    xp: Any = backend.get(device).xp
    random = xp.random.default_rng(_SEED + rank)
    keys = random.integers(0, groups, n, dtype=np.int64)
    values = random.integers(0, _VALUES, n, dtype=np.int64)
    return frames_named("cudf" if device == "cuda" else "pandas").make({"k": keys, "v": values})


def _among(keys: Any, sample: Any) -> Any:
    """Return a mask of the keys within a sorted sample."""
    xp: Any = backend.get(None, keys).xp
    known = xp.asarray(sample)
    places = xp.minimum(xp.searchsorted(known, keys), len(known) - 1)
    return known[places] == keys


def _arrays(frame: Any) -> list[Any]:
    frames = frames_named("cudf" if type(frame).__module__.startswith("cudf") else "pandas")
    return [frames.array(frame[label]) for label in frame.columns]


def rows_of_keys(frame: Any, groups: int, sample: Any) -> tuple[Any, Any, Any]:
    """Return flags of a worker's keys, and the rows of some keys."""
    keys, values = _arrays(frame)
    device = backend.get(None, keys)
    there = device.xp.zeros(groups, bool)
    there[keys] = True
    rows = device.xp.flatnonzero(_among(keys, sample))
    bits = device.to_host(device.xp.packbits(there))
    return bits, device.to_host(keys[rows]), device.to_host(values[rows])


def answers_of(part: Any, sample: Any) -> tuple[int, pd.DataFrame]:
    """Return the rows of a result partition, and those of some keys."""
    frame = part.reset_index()
    keys = _arrays(frame.iloc[:, :1])[0]
    chosen = frame.take(backend.get(None, keys).xp.flatnonzero(_among(keys, sample)))
    return len(frame), chosen.to_pandas() if hasattr(chosen, "to_pandas") else chosen


@dataclass(frozen=True)
class GroupedRows:
    """Rows of all workers, with a sample of keys for comparison.

    Attributes
    ----------
    n : int
        Rows of a worker.
    groups : int
        Keys are below that.
    workers : int
    """

    n: int
    groups: int
    workers: int

    @functools.cached_property
    def sample(self) -> Any:
        """Keys whose results are compared, in order."""
        of_a_key = max(1, self.n * self.workers // self.groups)
        size = max(1, min(_MOST_KEYS, self.groups, _MOST_ROWS // of_a_key))
        found = np.random.default_rng(_SEED).integers(0, self.groups, size)
        return np.unique(found)

    def expected(self, crew: BenchWorkers, frames: Sequence[Any]) -> Expected:
        """Return the expected result, from a sample of the rows."""
        futures = [
            crew.client.submit(rows_of_keys, each, self.groups, self.sample, pure=False)
            for each in frames
        ]
        bits, keys, values = zip(*crew.client.gather(futures), strict=True)
        there = np.bitwise_or.reduce(np.stack(bits), axis=0)
        rows, theirs = np.concatenate(keys), np.concatenate(values)
        order = np.lexsort([theirs, rows])
        return Expected(int(np.bitwise_count(there).sum()), rows[order], theirs[order])


@dataclass(frozen=True)
class Expected:
    """Expected result: the number of groups, and the rows of sampled keys in order."""

    groups: int
    keys: Any
    values: Any

    def check(self, verb: str, parts: Sequence[tuple[int, pd.DataFrame]], **what: Any) -> None:
        """Raise DgpuhashError if a result is wrong; `parts` come from `answers_of`."""
        found = pd.concat([chosen for _, chosen in parts], ignore_index=True)
        rows = sum(count for count, _ in parts)
        require(rows == self.groups, f"{rows:,} groups, not {self.groups:,},", verb=verb, **what)
        made = found.to_numpy(dtype=np.float64)
        made = made[np.argsort(made[:, 0], kind="stable")]
        wanted = self.answer(verb)
        same = made.shape == wanted.shape and bool((made == wanted).all())
        require(same, "the answer is another one,", verb=verb, **what)

    def answer(self, verb: str) -> Any:
        """Return keys and aggregates as a matrix."""
        groups = pd.DataFrame({"k": self.keys, "v": self.values}).groupby("k")["v"]
        answer = groups.agg(["sum", "count"] if verb == "sum + count" else [verb])
        return answer.reset_index().to_numpy(np.float64)


#: Rows of a worker, and the numbers of groups.
ROWS = {"cuda": 10**8, "cpu": 10**6}
GROUPS = {"cuda": (100, 2**24, 10**8), "cpu": (100, 2**16, 10**6)}
QUICK_ROWS, QUICK_GROUPS = 20_000, (100, 5_000)
ENGINES = ("dgpuhash", "dask", "cudf-polars")
_REPEATS = 5
# Groups from which on Dask's answer has a partition a worker, as its users set it.
_MANY = 2**16


def run(
    backend: Backend,
    *,
    workers: int | None = None,
    chunk_size: ChunkSize = None,
    groups: Sequence[int] = (),
    verbs: Annotated[Sequence[str], Option(choices=VERBS)] = VERBS,
    engines: Annotated[Sequence[str], Option(choices=ENGINES)] = (),
    protocol: Protocol = None,
    devs: Devices = None,
    rmm_pool_size: PoolSize = None,
    quick: bool = False,
    repeats: Runs = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of groups, verb and library: the time seen by the client.

    Rows of an integer key and an integer value are resident on the workers, and answers stay there.
    cudf-polars has a cluster of its own, after the other libraries', and reads the same rows from
    Parquet files before the time begins.

    Parameters
    ----------
    backend : Backend
    workers : int, optional
        Workers; default: 2, or as many as there are GPUs or cores for.
    chunk_size : int, optional
        Rows of a worker; default: 10**8 on GPUs, 10**6 on CPUs.
    groups : sequence of int, optional
        Keys are below each of them; default: 100, 2**24 and 10**8 on GPUs.
    verbs : sequence of str
        Verbs; default: all.
    engines : sequence of str, optional
        Libraries; default: all that are installed. ``dask`` is of cuDF on GPUs, of pandas on CPUs;
        ``cudf-polars`` runs on GPUs alone.
    protocol, devs, rmm_pool_size
        As for the benchmark ``scaling``.
    quick : bool
        Measure 20,000 rows of 100 and 5,000 groups in one run.
    repeats : int, optional
        Runs, of which the median is taken; default: 5.

    Raises
    ------
    SpecError
        When an option is impossible, or a library is not installed.
    DgpuhashError
        When an answer was wrong: the number of groups, or the aggregates of a sample of keys.

    Notes
    -----
    What a peer cannot do has no row. The first run of each is not counted.
    """
    chosen = devs.split(",") if devs else None
    workers = workers or min(2, most_workers(backend, chosen))
    check_counts([workers], chosen, backend)
    n = chunk_size or (QUICK_ROWS if quick else ROWS[backend.name])
    asked = groups or (QUICK_GROUPS if quick else GROUPS[backend.name])
    repeats = repeats or (1 if quick else _REPEATS)
    used = _engines(engines, backend.name)
    with tempfile.TemporaryDirectory() as folder:
        kept: dict[int, Expected] = {}
        with start(
            backend, workers, protocol=protocol, devs=chosen, rmm_pool_size=rmm_pool_size
        ) as crew:
            for number in asked:
                rows = GroupedRows(n, number, workers)
                frames = crew.made(made_rows, n, number)
                kept[number] = rows.expected(crew, frames)
                if "cudf-polars" in used:
                    crew.finish([
                        crew.client.submit(_write, each, str(Path(folder, f"{number}-{rank}")))
                        for rank, each in enumerate(frames)
                    ])  # fmt: skip
                for library in [name for name in used if name != "cudf-polars"]:
                    made = _on_dask(library, crew, rows, frames, kept[number], verbs, repeats)
                    yield from made
                del frames
        if "cudf-polars" in used:
            yield from _with_polars(folder, n, workers, kept, verbs, repeats)


def _engines(engines: Sequence[str], device: Device) -> list[str]:
    """Return the libraries to measure."""
    there = device == "cuda" and find_spec("cudf_polars") is not None
    if "cudf-polars" in engines and not there:
        raise SpecError(
            "--engine cudf-polars needs GPUs and cudf-polars; install it with "
            "'pip install cudf-polars-cu13'"
        )
    return list(engines) or [name for name in ENGINES if name != "cudf-polars" or there]


def _write(frame: Any, path: str) -> None:
    # Random integers are hardly shorter when they are compressed, and take longer to read.
    frame.to_parquet(path, compression=None)


def _on_dask(
    library: str,
    crew: BenchWorkers,
    rows: GroupedRows,
    frames: Sequence[Any],
    expected: Expected,
    verbs: Sequence[str],
    repeats: int,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of this package, or of Dask's own groupby."""
    meta = made_rows("cpu" if crew.device == "cpu" else "cuda", 0, 1, 1).iloc[:0]
    of = {"cpu": "pandas", "cuda": "cuDF"}[crew.device]
    name = OURS if library == "dgpuhash" else f"Dask {dask.__version__} with {of}"
    with crew.client.as_current():
        frame = dd.from_delayed(list(frames), meta=meta, verify_meta=False)
        many = rows.groups >= _MANY
        for verb in verbs:
            work = _ours if library == "dgpuhash" else _theirs

            def once(verb: str = verb, work: Callable[..., Any] = work) -> Any:
                made = work(frame, verb, rows.workers if many else 1).persist()
                crew.finish(futures_of(made))
                return made

            try:
                made = once()
            except Exception:
                if library == "dgpuhash":
                    raise
                # Peers that cannot do it say so in many ways.
                continue
            parts = crew.client.gather([
                crew.client.submit(answers_of, each, rows.sample, pure=False)
                for each in futures_of(made)
            ])  # fmt: skip
            expected.check(verb, parts, library=name, groups=rows.groups)
            del made
            # Of this process, which waits for the workers.
            seconds = latency(backends.get("cpu"), once, calls=repeats)[0]
            yield _row(verb, name, rows.n, rows.groups, rows.workers, seconds)


def _row(
    verb: str, library: str, n: int, groups: int, workers: int, seconds: float
) -> dict[str, Any]:
    return duration(
        seconds, None, verb=verb, library=library, workers=workers, n=n, groups=groups
    )  # fmt: skip


def _ours(frame: Any, verb: str, _: int) -> Any:
    groups = dgpuhash.groupby(frame, "k", sort=False)
    if verb == "sum + count":
        return groups.agg(total=("v", "sum"), n=("v", "count"))
    return groups["v"].nunique() if verb == "nunique" else groups["v"].median()


def _theirs(frame: Any, verb: str, partitions: int) -> Any:
    groups = frame.groupby("k", sort=False)
    if verb == "sum + count":
        return groups.agg({"v": ["sum", "count"]}, split_out=partitions)
    column = groups["v"]
    if verb == "nunique":
        return column.nunique(split_out=partitions)
    return column.median(split_out=partitions)


def _with_polars(
    folder: str, n: int, workers: int, kept: dict[int, Expected], verbs: Sequence[str], repeats: int
) -> Iterator[dict[str, Any]]:
    """Yield the rows of cudf-polars' engine on a cluster of its own, one worker a GPU."""
    import cudf_polars
    import polars
    from cudf_polars.engine.dask import DaskEngine

    name = f"cudf-polars {cudf_polars.__version__}"
    value = polars.col("v")
    asked = {
        "sum + count": [value.sum().alias("total"), value.count().alias("n")],
        "nunique": [value.n_unique().alias("n")],
        "median": [value.median().alias("m")],
    }
    with DaskEngine() as engine:
        for number, expected in kept.items():
            files = [str(Path(folder, f"{number}-{rank}")) for rank in range(workers)]

            def persisted(files: list[str] = files) -> Any:
                # A scan takes the rows out of the engine's memory.
                return engine.execute(polars.scan_parquet(files)).lazy()

            for verb in verbs:
                query = asked[verb]
                sample = GroupedRows(n, number, workers).sample.tolist()
                groups = persisted().group_by("k").agg(query)
                some = groups.filter(polars.col("k").is_in(sample)).collect(engine=engine)
                count = persisted().group_by("k").agg(query).select(polars.len())
                rows = int(count.collect(engine=engine).item())
                expected.check(verb, [(rows, some.to_pandas())], library=name, groups=number)
                spent = []
                for _ in range(repeats + 1):
                    source = persisted()
                    begun = time.perf_counter()
                    answer = engine.execute(source.group_by("k").agg(query))
                    spent.append(time.perf_counter() - begun)
                    answer.release()
                # The first one is not counted.
                seconds = statistics.median(spent[1:])
                yield _row(verb, name, n, number, workers, seconds)
