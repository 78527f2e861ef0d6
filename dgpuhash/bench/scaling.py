"""What do more workers bring, with as many rows for each (weak), or as many in all (strong)?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import dask
import dask.dataframe as dd

from dgpuhash.backend import Backend
from dgpuhash.bench.bulk import Bulk, bulk
from dgpuhash.bench.copies import copies_floor, merge_with_copies
from dgpuhash.bench.figure import duration, rate, require
from dgpuhash.bench.peers import OURS
from dgpuhash.bench.steps import Steps, build_and_insert
from dgpuhash.bench.timing import REPEATS
from dgpuhash.bench.worker_limits import LIMITS, limits, message_seconds
from dgpuhash.bench.workers import Workers, check_counts, counts_for, start
from dgpuhash.bench.workload import Seen, Workload
from dgpuhash.distributed import DistributedIndex
from dgpuhash.errors import SpecError
from dgpuhash.frames import frames_of

__all__ = ["CHUNKS", "MODES", "VERBS", "run"]

#: Rows of a worker: 2 GiB of pairs a GPU, as in WarpCore §V-A.
CHUNKS = {"cuda": 2**27, "cpu": 2**20}
MODES = ("weak", "strong")
BULK = ("bulk insert", "bulk find")
VERBS = (
    *("build", "insert", "find", "multi build", "multi find", "merge", "build + merge"),
    *BULK,
    "replicated merge",
)
_KEY_NBYTES, _ANSWER_NBYTES = 8, 16
# What a row of a bulk verb sends away and gets back, with the bytes of masks.
_BULK_NBYTES = {"bulk insert": 17, "bulk find": 17}


def run(
    backend: Backend,
    *,
    workers: Sequence[int] | None = None,
    modes: Sequence[str] = MODES,
    chunk_size: int | None = None,
    frac_match: float = 0.3,
    multiplicity: int = 8,
    protocol: str | None = None,
    devs: str | None = None,
    rmm_pool_size: str | None = None,
    compare: bool = False,
    repeats: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows for each verb of the distributed index and number of workers, 8 + 8-byte pairs.

    ``build`` and ``insert`` place unique pairs; ``find`` asks for as many stored keys, answers back
    in order; ``multi build`` and ``multi find`` are the same with several values a key, all of
    them read; ``merge`` is the inner merge of a frame of key and payload with an index that stands,
    and ``build + merge`` has the build in it. A frame has one partition for each worker.
    ``bulk insert`` and ``bulk find`` are verbs of a `DistributedMap` with room for the pairs, on
    arrays that lie on the workers; ``worker_seconds`` are those that the slowest was at work.
    ``replicated merge`` is that of a frame with an index of 2**20 rows on every worker.

    Parameters
    ----------
    backend : Backend
        What the workers compute with.
    workers : sequence of int, optional
        Numbers of workers; default: 1, 2, 4 … up to the GPUs, or CPUs, that there are.
    modes : sequence of {"weak", "strong"}
        Whether `chunk_size` is what each worker has, or what all have together.
    chunk_size : int, optional
        Rows.
    frac_match : float
        The share of rows of the merge that have a partner.
    multiplicity : int
        Rows of a key for ``multi``.
    protocol : {"tcp", "ucxx"}, optional
        Of the cluster; default: ``"ucxx"`` for GPUs, ``"tcp"`` for CPUs.
    devs : str, optional
        GPUs to use, e.g. ``"0,1"``.
    rmm_pool_size : str, optional
        Of each GPU's memory pool.
    compare : bool
        Run Dask's own merge of the same frames, too.
    repeats : int, optional
        Runs whose median counts, after one that does not.

    Raises
    ------
    SpecError
        When an option is impossible.
    DgpuhashError
        When an answer on the timed data is wrong.

    Notes
    -----
    The floor is one partition pass of a worker's rows and the insert or lookup floor, as all
    workers reach them at once; what travels between workers is in no floor. ``efficiency`` is the
    rate beside that of one worker times their number. ``steps`` are of a run apart, see
    `dgpuhash.bench.steps`; lookups do not tell theirs. ``exchanged_bytes`` of a build or insert are
    counted there; those of a lookup follow from the number of keys, 8 bytes to their owner and 16
    back for each row found.
    """
    if not 0 < frac_match <= 1:
        raise SpecError(f"--frac-match {frac_match}; give a share above 0, up to 1")
    if foreign := [mode for mode in modes if mode not in MODES]:
        raise SpecError(f"mode {foreign[0]!r}; use {' or '.join(MODES)}")
    gpus = None if devs is None else devs.split(",")
    counts = sorted(set(workers or counts_for(backend, gpus)))
    check_counts(counts, gpus, backend)
    repeats = repeats or REPEATS[backend.name]
    chunk = chunk_size or CHUNKS[backend.name]
    if chunk // max(counts) < multiplicity:
        raise SpecError(f"--chunk-size {chunk}; give at least {multiplicity * max(counts)} rows")
    alone: dict[tuple[str, str, str], float] = {}
    options = {"protocol": protocol, "devs": gpus, "rmm_pool_size": rmm_pool_size}
    for count in counts:
        with start(backend, count, **options) as crew:  # type: ignore[arg-type]
            measured: dict[int, list[dict[str, Any]]] = {}
            for mode in modes:
                rows = chunk if mode == "weak" else chunk // count
                found: Iterable[dict[str, Any]] = measured.get(rows, [])
                if rows not in measured:
                    measured[rows] = []
                    load = Workload(count, rows, frac_match, multiplicity)
                    found = _Run(crew, load, repeats).rows(compare)
                for row in found:
                    yield _beside_one({"mode": mode, **row}, alone)
                    if found is not measured[rows]:
                        measured[rows].append(row)


def _beside_one(row: dict[str, Any], alone: dict[tuple[str, str, str], float]) -> dict[str, Any]:
    """The row with its efficiency, where one worker was measured before."""
    if "verb" not in row:
        return row
    whose = (row["mode"], row["library"], row["verb"])
    if row["workers"] == 1:
        alone[whose] = row["rate"]
    if whose in alone:
        row["efficiency"] = float(f"{row['rate'] / (alone[whose] * row['workers']):.4g}")
    return row


class _Run:
    """All verbs with one number of workers and rows."""

    def __init__(self, workers: Workers, load: Workload, repeats: int) -> None:
        self._workers, self._load, self._repeats = workers, load, repeats
        self._where: dict[str, Any] = {
            "workers": load.workers,
            "rows": load.workers * load.rows,
            "protocol": workers.addresses[0].partition(":")[0],
        }
        self._stored = workers.made(load.stored)
        self._inserted = workers.made(load.stored, 1)
        self._left = workers.made(load.left)
        self._meta = workers.client.submit(_empty, self._stored[0]).result()
        self._left_meta = workers.client.submit(_empty, self._left[0]).result()

    def rows(self, compare: bool) -> Iterator[dict[str, Any]]:
        found = limits(self._workers, self._load.rows, self._repeats)
        for name, unit in LIMITS.items():
            limit = rate(found[name], None, unit=unit, limit=name, **self._where)
            yield limit | {"n": self._load.rows}
        seconds = self._median(self._verbs)
        steps = self._steps()
        rows = self._load.rows
        parted = rows / found["partition"]
        insert, lookup = parted + rows / found["insert"], parted + rows / found["lookup"]
        lists = self._load.lists
        several = lists / found["partition"]
        several += lists * self._load.multiplicity / found["lookup"]
        floors = {
            "build": insert, "insert": insert, "find": lookup, "multi build": insert,
            "multi find": several, "merge": lookup, "build + merge": insert + lookup,
            "bulk insert": insert, "bulk find": lookup,
            "replicated merge": rows / copies_floor(self._workers, self._load, self._repeats),
        }  # fmt: skip
        for verb in VERBS:
            more = {} if verb not in steps else _told(steps[verb])
            if verb in ("find", "merge", *BULK):
                more = {"exchanged_bytes": self._travelling(verb)}
            if verb in (*BULK, "replicated merge"):
                more["worker_seconds"] = float(f"{seconds[_of_workers(verb)]:.4g}")
            yield self._row(verb, OURS, seconds[verb], floors[verb], **more)
        if compare:
            name = f"Dask {dask.__version__} with {frames_of(self._meta).name}"
            seconds = self._median(self._of_dask)
            yield self._row("merge", name, seconds["merge"], insert + lookup)
        if self._load.workers > 1:
            took = message_seconds(self._workers, self._repeats)
            for name, each in zip(("latency", "message"), took, strict=True):
                yield duration(each, None, limit=name, **self._where, n=self._load.rows)

    def _row(
        self, verb: str, library: str, seconds: float, floor: float, **more: Any
    ) -> dict[str, Any]:
        each = self._load.rows
        if verb.startswith("multi"):
            each = self._load.lists * self._load.multiplicity
        rows = self._load.workers * each
        what: dict[str, Any] = {
            **self._where,
            "rows": rows,
            "n": each,
            "library": library,
            "verb": verb,
        }
        row = rate(rows / seconds, rows / floor, **what)
        row["seconds"] = float(f"{seconds:.4g}")
        row["rate_per_worker"] = float(f"{row['rate'] / self._load.workers:.4g}")
        return row | more

    def _median(self, once: Callable[[bool], dict[str, float]]) -> dict[str, float]:
        """The median of each verb; the last run's answers are checked."""
        runs = [once(number == self._repeats) for number in range(self._repeats + 1)][1:]
        return {verb: statistics.median(each[verb] for each in runs) for verb in runs[0]}

    def _verbs(self, checked: bool) -> dict[str, float]:
        load = self._load
        seconds: dict[str, float] = {}
        source = dd.from_delayed(self._stored, meta=self._meta, verify_meta=False)
        with _Clock(seconds, "build"):
            index = self._build(source)
        with index:
            rows = load.workers * load.rows
            require(len(index) == rows, "rows were lost", verb="build", **self._where)
            seconds["find"] = self._ask(index, "find", "left", load.asked, load.found, checked)
            seconds["merge"] = self._merge(
                lambda left: index.merge(left, on="key"), "merge", checked
            )
            seconds["build + merge"] = seconds["build"] + seconds["merge"]
            more = dd.from_delayed(self._inserted, meta=self._meta, verify_meta=False)
            with _Clock(seconds, "insert"):
                index.insert(more)
                self._workers.finish([])
            require(len(index) == 2 * rows, "rows were lost", verb="insert", **self._where)
            if checked:
                self._ask(index, "insert", "left", load.asked, load.found, True, 1)
        copied = merge_with_copies(self._workers, self._load, self._repeats)
        for verb, took in {**self._bulk(), "replicated merge": copied}.items():
            seconds[verb], seconds[_of_workers(verb)] = took.seconds, took.worker_seconds
        several = self._workers.made(load.several)
        source = dd.from_delayed(several, meta=self._meta, verify_meta=False)
        with _Clock(seconds, "multi build"):
            index = self._build(source)
        with index:
            seconds["multi find"] = self._ask(
                index, "multi find", "inner", load.asked_lists, load.found_lists, checked
            )
        return seconds

    def _bulk(self) -> dict[str, Bulk]:
        arrays = [self._workers.made(make) for make in (self._load.keys, self._load.values)]
        return bulk(self._workers, self._load, *arrays)

    def _build(self, source: Any) -> DistributedIndex:
        index = DistributedIndex.build(source, on="key", client=self._workers.client)
        self._workers.finish([])
        return index

    def _ask(
        self,
        index: DistributedIndex,
        verb: str,
        how: str,
        asked: Callable[..., Any],
        found: Callable[..., Seen],
        checked: bool,
        *batch: int,
    ) -> float:
        """Seconds until the answers to the keys of each worker are there."""
        keys = self._workers.made(asked, *batch)
        frame = dd.from_delayed(keys, meta=self._left_meta[["key"]], verify_meta=False)
        start = time.perf_counter()
        answers = self._computed(index.merge(frame, how=how))
        seconds = time.perf_counter() - start
        if checked:
            wanted = None
            if verb == "multi find":
                wanted = _total(self._workers.of_each(self._load.all_values))
            self._check(verb, answers, found, wanted, *batch)
        return seconds

    def _merge(self, merge: Callable[[Any], Any], verb: str, checked: bool) -> float:
        left = dd.from_delayed(self._left, meta=self._left_meta, verify_meta=False)
        start = time.perf_counter()
        answers = self._computed(merge(left))
        seconds = time.perf_counter() - start
        if checked:
            wanted = _total(self._workers.of_each(self._load.partners))
            self._check(verb, answers, self._load.merged, wanted)
        return seconds

    def _of_dask(self, checked: bool) -> dict[str, float]:
        right = dd.from_delayed(self._stored, meta=self._meta, verify_meta=False)
        method = "tasks" if self._workers.device == "cuda" else None
        with dask.config.set({"dataframe.shuffle.method": method}):
            merge = self._merge(lambda left: left.merge(right, on="key"), "Dask's merge", checked)
        return {"merge": merge}

    def _computed(self, frame: Any) -> list[Any]:
        """Futures of the partitions, all of them there."""
        futures = self._workers.client.compute(frame.to_delayed())
        self._workers.finish(futures)
        return list(futures)

    def _check(
        self,
        verb: str,
        answers: Sequence[Any],
        found: Callable[..., Seen],
        wanted: Seen | None,
        *batch: int,
    ) -> None:
        device, client = self._workers.device, self._workers.client
        seen = _total(
            client.gather(
                [
                    client.submit(found, device, rank, answer, *batch, pure=False)
                    for rank, answer in enumerate(answers)
                ]
            )
        )
        require(seen.right, "an answer was wrong", verb=verb, **self._where)
        require(wanted in (None, seen), "answers were lost", verb=verb, **self._where)

    def _steps(self) -> dict[str, Steps]:
        runs = [
            build_and_insert(self._workers, self._stored, self._inserted, self._meta)
            for _ in range(self._repeats)
        ]
        runs.sort(key=lambda run: sum(run[0].seconds.values()))
        return dict(zip(("build", "insert"), runs[len(runs) // 2], strict=True))

    def _travelling(self, verb: str) -> int:
        """Bytes of keys and answers that pass from one worker to another, in the mean."""
        rows = self._load.workers * self._load.rows
        if verb in BULK:
            return round(rows * _BULK_NBYTES[verb] * (1 - 1 / self._load.workers))
        found = rows if verb == "find" else rows * self._load.frac_match
        away = (self._load.workers - 1) / self._load.workers
        return round(away * (rows * _KEY_NBYTES + found * _ANSWER_NBYTES))


class _Clock:
    """Puts what its block takes into a dictionary."""

    def __init__(self, seconds: dict[str, float], verb: str) -> None:
        self._seconds, self._verb = seconds, verb

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._seconds[self._verb] = time.perf_counter() - self._start


def _of_workers(verb: str) -> str:
    """Under which name the seconds of a verb stand that the workers were at work."""
    return f"{verb} on workers"


def _told(steps: Steps) -> dict[str, Any]:
    milliseconds = {name: float(f"{each * 1e3:.4g}") for name, each in steps.seconds.items()}
    return {"exchanged_bytes": steps.exchanged_bytes, "steps": milliseconds}


def _total(seen: Sequence[Seen]) -> Seen:
    return sum(seen[1:], start=seen[0])


def _empty(frame: Any) -> Any:
    return frame.iloc[:0]
