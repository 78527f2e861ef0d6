"""Merge with a small replicated index, which needs no exchange."""

from __future__ import annotations

import time
from typing import Any

import dask.dataframe as dd
from distributed import futures_of

from dgpuhash import backend
from dgpuhash.bench.figure import require
from dgpuhash.bench.floors import Floors
from dgpuhash.bench.workers.bulk import VerbSeconds
from dgpuhash.bench.workers.cluster import Workers
from dgpuhash.bench.workers.workload import Workload
from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.host import current_worker, plugin_of
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.query.merge_collective import merge_partition
from dgpuhash.distributed.query.merge_tasks import Probe
from dgpuhash.typing import Device

VERB = "replicated merge"
_BITS, _PAIR_NBYTES, _LOAD = 64, 16, 0.8


def merge_replicated(workers: Workers, load: Workload, repeats: int) -> VerbSeconds:
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
        require(len(index) == load.few_rows, "rows were lost", verb=VERB)
        # The second merge counts, as for other existing indexes.
        for _ in range(2):
            answers: list[Any] = []
            start = time.perf_counter()
            answers = workers.computed(index.merge(asking, persist=True))
            seconds = time.perf_counter() - start
        checks = client.map(load.check_replicated, [workers.device] * load.workers, left, answers)
        require(all(client.gather(checks)), "an answer was wrong", verb=VERB)
        del answers, checks
        probe = Probe.of(metas[1], index._descriptor, ("key",), "inner", None, ("_x", "_y"))
        seal = CachedPickle.of(probe)
        alone = [
            client.submit(
                _timed, workers.device, seal, rank, frame, repeats,
                workers=[address], allow_other_workers=False, pure=False,
            )
            for rank, (frame, address) in enumerate(zip(left, workers.addresses, strict=True))
        ]  # fmt: skip
        return VerbSeconds(seconds, max(client.gather(alone)))


def replicated_floor(workers: Workers, load: Workload, repeats: int) -> float:
    """Return the slowest worker's bare lookups each second.

    They are lookups in a table of the size of `Workload.few`.
    """
    return min(workers.gather_each(_floor, load.rows, load.few_rows, repeats))


def _timed(device: Device, seal: CachedPickle[Probe], rank: int, left: Any, repeats: int) -> float:
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


def _empty(frame: Any) -> Any:
    return frame.iloc[:0]
