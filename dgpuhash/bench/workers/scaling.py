"""Benchmark weak and strong scaling of the distributed verbs.

Weak: as many rows for each worker; strong: as many rows in all.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any

import dask

from dgpuhash import backend
from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.bench.figure import duration, rate, short
from dgpuhash.bench.limits import Floors, partition_rate
from dgpuhash.bench.method import AUTO, MeasuredMethod
from dgpuhash.bench.options import (
    ChunkSize,
    Devices,
    Method,
    Modes,
    Option,
    PoolSize,
    Protocol,
    Runs,
    Settings,
)
from dgpuhash.bench.peers import OURS
from dgpuhash.bench.timing import REPEATS, latency
from dgpuhash.bench.workers.bulk import bulk_steps
from dgpuhash.bench.workers.cluster import BenchWorkers, check_counts, counts_for, start
from dgpuhash.bench.workers.index_verbs import (
    BULK,
    MULTI,
    REPLICATED,
    VerbTimer,
    partitioned_merge_name,
    replicated_floor,
    worker_seconds_name,
)
from dgpuhash.bench.workers.steps import Steps, build_and_insert
from dgpuhash.bench.workers.workload import Workload
from dgpuhash.distributed.cluster.dask_internals import sync
from dgpuhash.distributed.cluster.host import current_worker
from dgpuhash.distributed.cluster.rpc import call_handler
from dgpuhash.distributed.ingest.commit import shard_addresses
from dgpuhash.errors import SpecError
from dgpuhash.frames import frames_of
from dgpuhash.typing import Device

_BITS = 64
_LOAD = 0.8
_PAIR_NBYTES = 2 * _BITS // 8
# Messages to time, and how many a worker has in flight to each other worker.
_MESSAGES, _AT_ONCE = 300, 4
# With their units: bytes or rows each second.
LIMITS = {"copy": "TB/s", "partition": "G/s", "insert": "G/s", "lookup": "G/s"}


def limits_of(workers: BenchWorkers, rows: int, repeats: int) -> dict[str, float]:
    """Return the slowest worker's rates while all workers run at once.

    Each works on `rows` pairs of 8 + 8 bytes. ``copy``: bytes read and written; ``partition``:
    pairs of one partition pass; ``insert`` and ``lookup``: the floors of a table that these pairs
    fill to a load of 0.8.
    """
    found = workers.gather_each(_limits, rows, repeats)
    return {name: min(each[name] for each in found) for name in LIMITS}


def _limits(device: Device, rank: int, rows: int, repeats: int) -> dict[str, float]:
    used = backend.get(device)
    floors = Floors(used, repeats)
    nbytes = _PAIR_NBYTES * rows
    slots = int(nbytes / _LOAD)
    return {
        "copy": floors.copy(nbytes),
        "partition": partition_rate(used, _BITS, nbytes, repeats),
        "insert": floors.insert(_BITS, rows, slots),
        "lookup": floors.lookup(_BITS, rows, slots),
    }


def message_seconds(workers: BenchWorkers, repeats: int) -> tuple[float, float]:
    """Return the seconds of an RPC without rows: alone, and among many.

    The message is of the kind that an index sends; its acknowledgement is in the seconds.

    Returns
    -------
    float, float
        ``latency``: of one message while nothing else runs; ``message``: of each message while all
        workers send as many to the others as they can.
    """
    shard_addresses(workers.client, workers.addresses)
    one, many, others = [], [], workers.addresses[1:]
    for _ in range(repeats + 1):
        sole = workers.client.submit(
            _send, workers.device, 0, workers.addresses, 1,
            workers=[workers.addresses[0]], allow_other_workers=False, pure=False,
        )  # fmt: skip
        one.append(sole.result())
        many.append(max(workers.gather_each(_send, workers.addresses, _AT_ONCE * len(others))))
    return statistics.median(one[1:]), statistics.median(many[1:])


def _send(device: Device, rank: int, addresses: Sequence[str], at_once: int) -> float:
    worker = current_worker()
    others = [address for address in addresses if address != worker.address]

    async def some(first: int) -> None:
        for number in range(first, _MESSAGES, at_once):
            await call_handler(worker, others[number % len(others)], "dgpuhash_ping", {})

    async def all_of_them() -> None:
        await asyncio.gather(*(some(first) for first in range(at_once)))

    start = time.perf_counter()
    sync(worker.loop, all_of_them)
    return (time.perf_counter() - start) / _MESSAGES


#: Rows of a worker: 2 GiB of pairs a GPU, as in WarpCore §V-A.
CHUNKS = {"cuda": 2**27, "cpu": 2**20}
MODES = ("weak", "strong")
VERBS = ("build", "insert", "find", *MULTI, "merge", "build + merge", *BULK, REPLICATED)
_KEY_NBYTES, _ANSWER_NBYTES = 8, 16
#: Bytes that a row of a bulk verb sends and receives, with those of masks.
BULK_NBYTES = {"bulk insert": 17, "bulk find": 17}


def run(
    backend: Backend,
    *,
    workers: Sequence[int] | None = None,
    modes: Modes = MODES,
    chunk_size: ChunkSize = None,
    frac_match: Annotated[float, Option(most=1)] = 0.3,
    multiplicity: int = 8,
    verbs: Annotated[Sequence[str], Option(choices=VERBS, metavar="VERB")] = VERBS,
    partitions: Sequence[int] = (),
    protocol: Protocol = None,
    devs: Devices = None,
    rmm_pool_size: PoolSize = None,
    compare: bool = False,
    repeats: Runs = None,
    method: Method = "auto",
    settings: Settings = (),
) -> Iterator[dict[str, Any]]:
    """Yield rows for each verb and number of workers, 8 + 8-byte pairs.

    The verbs are those of a `DistributedIndex` and a `DistributedMap`. ``build`` and ``insert``
    place unique pairs; ``find`` looks up as many stored keys, with answers in order; ``multi
    build`` and ``multi find`` are the same with several values a key, all of them read; ``merge``
    is the inner merge of a frame of key and payload with an existing index, and ``build + merge`` a
    build and the first merge with it, timed as one. A frame is persisted, with one partition on
    each worker. ``bulk insert`` and ``bulk find`` are verbs of a `DistributedMap` with room for the
    pairs, on arrays that lie on the workers; ``worker_seconds`` are the seconds that the slowest
    worker was working. ``replicated merge`` is the merge of a frame with a replicated index of
    2**20 rows, and ``merge, 16 partitions`` a lazy merge of a frame in more partitions than
    workers; the limit ``16 tasks`` is the time that Dask takes for as many tasks that do nothing.

    Parameters
    ----------
    backend : Backend
        Backend of the workers.
    workers : sequence of int, optional
        Numbers of workers; default: 1, 2, 4 … up to the number of GPUs, or CPUs.
    modes : sequence of {"weak", "strong"}
        ``weak``: fixed rows per worker; ``strong``: fixed rows in all.
    chunk_size : int, optional
        Rows of a worker, or in all.
    frac_match : float
        The share of the merge's rows that have a partner.
    multiplicity : int
        Rows of a key for ``multi``.
    verbs : sequence of str, optional
        Verbs, e.g. build or merge; default: all.
    partitions : sequence of int, optional
        Numbers of partitions, in all, of the left frame of a further merge.
    protocol : {"tcp", "ucx", "ucxx"}, optional
        Protocol of the cluster; default: ``"ucxx"``, the older name of ``"ucx"``, for GPUs,
        ``"tcp"`` for CPUs.
    devs : str, optional
        GPUs to use, e.g. ``"0,1"``.
    rmm_pool_size : str, optional
        Size of each GPU's memory pool.
    compare : bool
        Run Dask's own merge of the same frames, too.
    repeats : int, optional
        Runs whose median counts, after one that does not.
    method : str
        Of `dgpuhash.methods`: how all tables store keys. Indexes with several values a key are left
        out where it has no multimap, and so are the steps of builds and inserts.
    settings : sequence of str
        Settings of the method, as ``"width=8"``.

    Raises
    ------
    SpecError
        When an option is impossible.
    DgpuhashError
        When an answer on the timed data is wrong.

    Notes
    -----
    The floor is one partition pass of a worker's rows and the insert or lookup floor, at the rates
    that all workers reach at once; the exchange is in no floor. ``efficiency`` is the rate over the
    rate of one worker times the number of workers. ``steps`` are of a separate run: of ``build``
    and ``insert`` by the tasks of lazy frames, see `dgpuhash.bench.workers.steps`; of bulk verbs
    one after the other, see `dgpuhash.bench.workers.bulk`, where ``overlap`` is how much less
    the verb itself takes, in milliseconds. Other lookups have no steps. ``exchanged_bytes`` of a
    build or insert are counted in the separate run; those of a lookup follow from the number of
    keys, 8 bytes to their owner and 16 back for each row found.
    """
    if not 0 < frac_match <= 1:
        raise SpecError(f"--frac-match {frac_match}; give a share above 0, up to 1")
    gpus = None if devs is None else devs.split(",")
    counts = sorted(set(workers or counts_for(backend, gpus)))
    check_counts(counts, gpus, backend)
    measured_method = MeasuredMethod.of(method, settings)
    if not measured_method.serves("map"):
        raise SpecError(
            f"--method {method}; the benchmark needs maps, which this method does not have"
        )
    if not measured_method.serves("multimap"):
        verbs = [verb for verb in verbs if verb not in MULTI]
    repeats = repeats or REPEATS[backend.name]
    chunk = chunk_size or CHUNKS[backend.name]
    if chunk // max(counts) < multiplicity:
        raise SpecError(f"--chunk-size {chunk}; give at least {multiplicity * max(counts)} rows")
    fewest = min(chunk // count * count for count in counts)
    if partitions and max(partitions) > fewest:
        raise SpecError(f"--partitions {max(partitions)}; there are {fewest} rows")
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
                    load = Workload(count, rows, frac_match, multiplicity, measured_method)
                    found = _Run(crew, load, repeats, verbs, partitions).rows(compare)
                for row in found:
                    yield _with_efficiency({"mode": mode, **row}, alone)
                    if found is not measured[rows]:
                        measured[rows].append(row)


def _with_efficiency(
    row: dict[str, Any], alone: dict[tuple[str, str, str], float]
) -> dict[str, Any]:
    """Add the efficiency to a row if one worker was measured before."""
    if "verb" not in row:
        return row
    whose = (row["mode"], row["library"], row["verb"])
    if row["workers"] == 1:
        alone[whose] = row["rate"]
    if whose in alone:
        row["efficiency"] = short(row["rate"] / (alone[whose] * row["workers"]))
    return row


class _Run:
    """Run of all verbs with one number of workers and rows."""

    def __init__(
        self,
        workers: BenchWorkers,
        load: Workload,
        repeats: int,
        verbs: Sequence[str],
        partitions: Sequence[int],
    ) -> None:
        self._workers, self._load, self._repeats = workers, load, repeats
        self._asked, self._partitions = verbs, partitions
        self._where: dict[str, Any] = {
            "workers": load.workers,
            "rows": load.workers * load.rows,
            "protocol": workers.addresses[0].partition(":")[0],
        }
        self._verbs = VerbTimer(workers, load, self._where, verbs, partitions)

    def rows(self, compare: bool) -> Iterator[dict[str, Any]]:
        found = limits_of(self._workers, self._load.rows, self._repeats)
        for name, unit in LIMITS.items():
            limit = rate(found[name], None, unit=unit, limit=name, **self._where)
            yield limit | {"n": self._load.rows}
        seconds = self._median(self._verbs.seconds)
        steps, apart = self._steps(), {}
        if {*BULK} & {*self._asked}:
            apart = bulk_steps(self._workers, self._load, self._repeats)
        floors = self._floors(found)
        for verb, floor in floors.items():
            more = {} if verb not in steps else _step_fields(steps[verb])
            if verb in ("find", "merge", *BULK):
                more = {"exchanged_bytes": self._exchanged_bytes(verb)}
            if worker_seconds_name(verb) in seconds:
                more["worker_seconds"] = short(seconds[worker_seconds_name(verb)])
            if verb in apart:
                more["steps"] = _milliseconds(apart[verb])
                spared = sum(apart[verb].values()) - seconds[worker_seconds_name(verb)]
                if self._load.workers > 1:
                    more["overlap"] = short(1e3 * spared)
            more |= self._load.method.label
            whose = " ".join([OURS, *self._load.method.label.values()])
            yield self._row(verb, whose, seconds[verb], floor, **more)
        if compare:
            name = f"Dask {dask.__version__} with {frames_of(self._verbs.meta).name}"
            theirs = self._median(self._verbs.dask_seconds)
            yield self._row("merge", name, theirs["merge"], sum(self._bare(found)))
        yield from self._tasks()
        if self._load.workers > 1:
            took = message_seconds(self._workers, self._repeats)
            for name, each in zip(("latency", "message"), took, strict=True):
                yield duration(each, None, limit=name, **self._where, n=self._load.rows)

    def _floors(self, found: dict[str, float]) -> dict[str, float]:
        """Return the seconds of each requested verb at the rate of its floor."""
        rows = self._load.rows
        insert, lookup = self._bare(found)
        lists = self._load.lists
        several = lists / found["partition"]
        several += lists * self._load.multiplicity / found["lookup"]
        floors = {
            "build": insert, "insert": insert, "find": lookup, "multi build": insert,
            "multi find": several, "merge": lookup, "build + merge": insert + lookup,
            "bulk insert": insert, "bulk find": lookup,
        }  # fmt: skip
        if REPLICATED in self._asked:
            floors[REPLICATED] = rows / replicated_floor(self._workers, self._load, self._repeats)
        floors = {verb: floors[verb] for verb in VERBS if verb in self._asked}
        return floors | dict.fromkeys(map(partitioned_merge_name, self._partitions), lookup)

    def _bare(self, found: dict[str, float]) -> tuple[float, float]:
        """Return the floors of an insert and of a lookup of all rows, in seconds.

        The partition of the rows is in both.
        """
        rows = self._load.rows
        parted = rows / found["partition"]
        return parted + rows / found["insert"], parted + rows / found["lookup"]

    def _tasks(self) -> Iterator[dict[str, Any]]:
        """Yield the time that Dask takes for one empty task a partition."""
        client = self._workers.client
        for count in self._partitions:

            def work(count: int = count) -> None:
                client.gather(client.map(_empty_task, range(count), pure=False))

            took, _ = latency(backends.get("cpu"), work, calls=self._repeats)
            yield duration(took, None, limit=f"{count} tasks", **self._where, n=self._load.rows)

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
        row["seconds"] = short(seconds)
        row["rate_per_worker"] = short(row["rate"] / self._load.workers)
        return row | more

    def _median(self, once: Callable[[bool], dict[str, float]]) -> dict[str, float]:
        """Return the median of each verb; the last run's answers are checked."""
        runs = [once(number == self._repeats) for number in range(self._repeats + 1)][1:]
        return {verb: statistics.median(each[verb] for each in runs) for verb in runs[0]}

    def _steps(self) -> dict[str, Steps]:
        if not {"build", "insert"} & set(self._asked) or self._load.method != AUTO:
            return {}
        verbs = self._verbs
        runs = [
            build_and_insert(self._workers, verbs.stored, verbs.frames_to_insert, verbs.meta)
            for _ in range(self._repeats)
        ]
        runs.sort(key=lambda run: sum(run[0].seconds.values()))
        # Without an insert only the build has steps.
        return dict(zip(("build", "insert"), runs[len(runs) // 2], strict=False))

    def _exchanged_bytes(self, verb: str) -> int:
        """Return the expected bytes of keys and answers sent between workers."""
        rows = self._load.workers * self._load.rows
        if verb in BULK:
            return round(rows * BULK_NBYTES[verb] * (1 - 1 / self._load.workers))
        found = rows if verb == "find" else rows * self._load.frac_match
        away = (self._load.workers - 1) / self._load.workers
        return round(away * (rows * _KEY_NBYTES + found * _ANSWER_NBYTES))


def _step_fields(steps: Steps) -> dict[str, Any]:
    return {"exchanged_bytes": steps.exchanged_bytes, "steps": _milliseconds(steps.seconds)}


def _milliseconds(seconds: dict[str, float]) -> dict[str, float]:
    return {name: short(1e3 * each) for name, each in seconds.items()}


def _empty_task(number: int) -> None:
    """Do nothing, as a task."""
