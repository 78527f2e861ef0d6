"""Time and check the verbs of a DistributedIndex and a DistributedMap.

The seconds are those of the client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import dask
import dask.dataframe as dd
from distributed import futures_of

from dgpuhash import backend
from dgpuhash.bench.figure import require
from dgpuhash.bench.limits import Floors
from dgpuhash.bench.workers.bulk import VerbSeconds, time_bulk_verbs
from dgpuhash.bench.workers.cluster import BenchWorkers
from dgpuhash.bench.workers.workload import AnswerSummary, Workload
from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.host import current_worker, plugin_of
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.query.merge_collective import merge_partition
from dgpuhash.distributed.query.merge_tasks import Probe
from dgpuhash.typing import Device, IndexHow

REPLICATED = "replicated merge"
_BITS, _PAIR_NBYTES, _LOAD = 64, 16, 0.8


def merge_replicated(workers: BenchWorkers, load: Workload, repeats: int) -> VerbSeconds:
    """Merge each worker's rows with a replicated index of `Workload.few`.

    All rows have a partner.

    Returns
    -------
    VerbSeconds
        ``seconds`` of the merge of a persisted frame with one partition a worker;
        ``worker_seconds`` of the merge of one partition alone, on the slowest worker.

    Raises
    ------
    DgpuhashError
        When an answer is wrong.
    """
    client = workers.client
    stored, left = workers.made(load.few), workers.made(load.replicated_keys)
    metas = [client.submit(_empty, futures[0]).result() for futures in (stored, left)]
    source, asking = (
        client.persist(dd.from_delayed(futures, meta=meta, verify_meta=False))
        for futures, meta in zip((stored, left), metas, strict=True)
    )
    workers.finish(futures_of([source, asking]))
    with DistributedIndex.build(
        source, "key", mode="replicated", client=client, workers=workers.addresses,
        **load.method.chosen,
    ) as index:  # fmt: skip
        require(len(index) == load.few_rows, "rows were lost", verb=REPLICATED)
        # The second merge counts, as for other existing indexes.
        for _ in range(2):
            answers: list[Any] = []
            start = time.perf_counter()
            answers = workers.computed(index.merge(asking, persist=True))
            seconds = time.perf_counter() - start
        checks = client.map(load.check_replicated, [workers.device] * load.workers, left, answers)
        require(all(client.gather(checks)), "an answer was wrong", verb=REPLICATED)
        del answers, checks
        probe = Probe.of(metas[1], index._descriptor, ("key",), "inner", None, ("_x", "_y"))
        seal = CachedPickle.of(probe)
        alone = [
            client.submit(
                _time, workers.device, seal, rank, frame, repeats,
                workers=[address], allow_other_workers=False, pure=False,
            )
            for rank, (frame, address) in enumerate(zip(left, workers.addresses, strict=True))
        ]  # fmt: skip
        return VerbSeconds(seconds, max(client.gather(alone)))


def replicated_floor(workers: BenchWorkers, load: Workload, repeats: int) -> float:
    """Return the slowest worker's bare lookups each second.

    They are lookups in a table of the size of `Workload.few`.
    """
    return min(workers.gather_each(_floor, load.rows, load.few_rows, repeats))


def _time(device: Device, seal: CachedPickle[Probe], rank: int, left: Any, repeats: int) -> float:
    used, probe = backend.get(device), seal.opened()
    descriptor = probe.descriptor
    copy = descriptor.shards[rank]
    shards = plugin_of(current_worker()).shards
    index = shards.at(descriptor.uid, descriptor.epoch, copy.incarnation).index
    seconds = []
    for _ in range(repeats + 1):
        used.synchronize()
        start = time.perf_counter()
        answer = merge_partition(index, probe, left)
        used.synchronize()
        seconds.append(time.perf_counter() - start)
        del answer
    return sorted(seconds[1:])[repeats // 2]


def _floor(device: Device, rank: int, rows: int, stored: int, repeats: int) -> float:
    floors = Floors(backend.get(device), repeats)
    return floors.lookup(_BITS, rows, int(_PAIR_NBYTES * stored / _LOAD))


BULK = ("bulk insert", "bulk find")
MULTI = ("multi build", "multi find")


class VerbTimer:
    """Timer of each verb, for one number of workers and rows.

    Frames are made when a verb first needs them; verbs on arrays need none.
    """

    def __init__(
        self,
        workers: BenchWorkers,
        load: Workload,
        where: dict[str, Any],
        verbs: Sequence[str],
        partitions: Sequence[int],
    ) -> None:
        self._workers, self._load, self._where = workers, load, where
        self._asked, self._partitions = set(verbs), partitions

    @cached_property
    def stored(self) -> list[Any]:
        """Futures of the frames of a build, one on each worker."""
        return self._workers.made(self._load.stored)

    @cached_property
    def frames_to_insert(self) -> list[Any]:
        """Futures of the frames to insert; empty without the verb ``insert``."""
        return self._workers.made(self._load.stored, 1) if "insert" in self._asked else []

    @cached_property
    def meta(self) -> Any:
        """An empty frame with the columns of `stored`."""
        return self._workers.client.submit(_empty, self.stored[0]).result()

    @cached_property
    def _source(self) -> Any:
        return self._persist(self.stored, self.meta)

    @cached_property
    def _left(self) -> Any:
        parts = self._workers.made(self._load.left)
        return self._persist(parts, self._workers.client.submit(_empty, parts[0]).result())

    def seconds(self, checked: bool) -> dict[str, float]:
        """Return the seconds of the requested verbs, and of verbs they need.

        Answers are checked if `checked`.
        """
        seconds: dict[str, float] = {}
        if self._partitions or self._asked - {*MULTI, *BULK, REPLICATED}:
            self._unique(seconds, checked)
        bulky = {}
        if self._asked & {*BULK}:
            bulky = self._bulk()
        if REPLICATED in self._asked:
            bulky[REPLICATED] = merge_replicated(self._workers, self._load, 1)
        for verb, took in bulky.items():
            seconds[verb], seconds[worker_seconds_name(verb)] = took.seconds, took.worker_seconds
        if self._asked & {*MULTI}:
            self._several(seconds, checked)
        return seconds

    def _unique(self, seconds: dict[str, float], checked: bool) -> None:
        load, source, left = self._load, self._source, self._left
        if "build + merge" in self._asked:
            with _Clock(seconds, "build + merge"):
                # Timed as one verb: there is no wait for the devices in between.
                index = self._build(source)
                answers = self._workers.computed(index.merge(left, on="key", persist=True))
            index.close()
            self._check_merge("build + merge", checked, load, left, answers)
            del answers
        with _Clock(seconds, "build"):
            index = self._build(source)
            self._workers.finish([])
        with index:
            rows = load.workers * load.rows
            require(len(index) == rows, "rows were lost", verb="build", **self._where)
            if "find" in self._asked:
                seconds["find"] = self._ask(index, "find", "left", load.asked, load.found, checked)
            if "merge" in self._asked:
                at_once = partial(index.merge, persist=True)
                # The second merge counts: that of an index that was merged with before.
                for _ in range(2):
                    seconds["merge"] = self._merge(at_once, "merge", checked, load, left)
            for count in self._partitions:
                verb = partitioned_merge_name(count)
                seconds[verb] = self._merge(index.merge, verb, checked, *self._cut(count))
            if "insert" not in self._asked:
                return
            more = self._persist(self.frames_to_insert, self.meta)
            with _Clock(seconds, "insert"):
                index.insert(more)
                self._workers.finish([])
            require(len(index) == 2 * rows, "rows were lost", verb="insert", **self._where)
            if checked:
                self._ask(index, "insert", "left", load.asked, load.found, True, 1)

    def _several(self, seconds: dict[str, float], checked: bool) -> None:
        load = self._load
        source = self._persist(self._workers.made(load.several), self.meta)
        with _Clock(seconds, "multi build"):
            index = self._build(source)
            self._workers.finish([])
        with index:
            seconds["multi find"] = self._ask(
                index, "multi find", "inner", load.multi_keys, load.check_multi, checked
            )

    def _bulk(self) -> dict[str, VerbSeconds]:
        arrays = [self._workers.made(make) for make in (self._load.keys, self._load.values)]
        return time_bulk_verbs(self._workers, self._load, *arrays)

    def _cut(self, count: int) -> tuple[Workload, Any]:
        """Return the workload and the left frame of `count` partitions.

        The partitions are distributed over the workers round robin.
        """
        rows = self._load.workers * self._load.rows // count
        load = replace(self._load, workers=count, rows=rows)
        parts = self._workers.dealt(load.left, count)
        return load, dd.from_delayed(parts, meta=self._left._meta, verify_meta=False)

    def _persist(self, parts: Sequence[Any], meta: Any) -> Any:
        """Persist a Dask DataFrame of these futures and wait for it."""
        frame = dd.from_delayed(parts, meta=meta, verify_meta=False)
        kept = self._workers.client.persist(frame)
        self._workers.finish(futures_of(kept))
        return kept

    def _build(self, source: Any) -> DistributedIndex:
        client, method = self._workers.client, self._load.method
        return DistributedIndex.build(source, on="key", client=client, **method.chosen)

    def _ask(
        self,
        index: DistributedIndex,
        verb: str,
        how: IndexHow,
        asked: Callable[..., Any],
        found: Callable[..., AnswerSummary],
        checked: bool,
        *batch: int,
    ) -> float:
        """Merge each worker's keys with the index and return the seconds."""
        keys = self._workers.made(asked, *batch)
        frame = self._persist(keys, self.meta[["key"]])
        start = time.perf_counter()
        answers = self._workers.computed(index.merge(frame, how=how, persist=True))
        seconds = time.perf_counter() - start
        if checked:
            wanted = None
            if verb == "multi find":
                wanted = _total(self._workers.gather_each(self._load.all_values))
            self._check(verb, answers, found, wanted, *batch)
        return seconds

    def _merge(
        self, merge: Callable[..., Any], verb: str, checked: bool, load: Workload, left: Any
    ) -> float:
        start = time.perf_counter()
        answers = self._workers.computed(merge(left, on="key"))
        seconds = time.perf_counter() - start
        self._check_merge(verb, checked, load, left, answers)
        return seconds

    def _check_merge(
        self, verb: str, checked: bool, load: Workload, left: Any, answers: Sequence[Any]
    ) -> None:
        if checked:
            partners = self._workers.dealt(load.partners, left.npartitions)
            wanted = _total(self._workers.client.gather(partners))
            self._check(verb, answers, load.merged, wanted)

    def dask_seconds(self, checked: bool) -> dict[str, float]:
        """Return the seconds of Dask's own merge of the same frames."""
        method = "tasks" if self._workers.device == "cuda" else None
        with dask.config.set({"dataframe.shuffle.method": method}):
            own = self._merge(
                lambda left, on: left.merge(self._source, on=on),
                "Dask's merge", checked, self._load, self._left,
            )  # fmt: skip
        return {"merge": own}

    def _check(
        self,
        verb: str,
        answers: Sequence[Any],
        found: Callable[..., AnswerSummary],
        wanted: AnswerSummary | None,
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


class _Clock:
    """Context manager that stores its block's seconds in a dictionary."""

    def __init__(self, seconds: dict[str, float], verb: str) -> None:
        self._seconds, self._verb = seconds, verb

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._seconds[self._verb] = time.perf_counter() - self._start


def worker_seconds_name(verb: str) -> str:
    """Return the name under which a verb's seconds on the workers stand."""
    return f"{verb} on workers"


def partitioned_merge_name(count: int) -> str:
    """Return the name of the merge of a frame in `count` partitions."""
    return f"merge, {count} partitions"


def _total(seen: Sequence[AnswerSummary]) -> AnswerSummary:
    return sum(seen[1:], start=seen[0])


def _empty(frame: Any) -> Any:
    return frame.iloc[:0]
