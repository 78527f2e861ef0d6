"""Collective merge: exchange keys and matches between all workers in one phase."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
from distributed import Client

from dgpuhash import backend
from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.cluster.client import check_same_cluster
from dgpuhash.distributed.cluster.dask_internals import FromGraph, new_collection
from dgpuhash.distributed.cluster.device_thread import ThreadProgress
from dgpuhash.distributed.cluster.locality import (
    DataNotLocal,
    InputSpec,
    LocalInputs,
    PartitionLocation,
    TaskOutput,
    partitions_spec,
)
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.collective.endpoint import throttle_loop
from dgpuhash.distributed.collective.group_cache import run_collective
from dgpuhash.distributed.events import log_event, log_execution
from dgpuhash.distributed.ingest.source import persisted_futures
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement
from dgpuhash.distributed.pruning.bloom_replica import BloomReplica, FilterVote
from dgpuhash.distributed.pruning.policy import AbsentKeyStats, PruningOptions
from dgpuhash.distributed.pruning.worker_cache import BloomCache
from dgpuhash.distributed.query.merge_tasks import Probe
from dgpuhash.distributed.query.plan import IndexMerge
from dgpuhash.distributed.query.rank_merge import RankProbe, all_matches, shard_matches
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.frames import FrameIndex, frames_of


def merge_replicated(
    host: ShardHost, seal: CachedPickle[Probe], given: LocalInputs
) -> TaskOutput[RankResult]:
    """Merge the partitions on this worker with its copy of the whole index.

    Runs on each worker.
    """
    probe = seal.opened()
    descriptor = probe.descriptor
    try:
        lefts = given.things
    except KeyError as error:
        return TaskOutput(RankResult(f"partition {error} has left its worker"), {})
    shard = descriptor.shards[given.rank]
    index = host.shards.at(descriptor.uid, descriptor.epoch, shard.incarnation).index
    made = {}
    with throttle_loop(host.worker.loop.asyncio_loop, frames_of(descriptor.meta).device):
        for one, (left,) in zip(given.own, lefts, strict=True):
            made[result_label(given, one)] = merge_partition(index, probe, left)
        backend.get(frames_of(descriptor.meta).device).synchronize()
    return TaskOutput(RankResult(), made)


def merge_partition(index: FrameIndex, probe: Probe, left: Any) -> Any:
    """Return the merge of a partition with a complete index."""
    asking = probe.asking(left)
    rows, found = all_matches(index, asking.keys, probe.how, probe.moved, named=False)
    whole = rows is None or (index.one_row_per_key and len(rows) == len(left))
    return probe.put_together(asking, rows, found, whole=whole)


@dataclass(frozen=True, slots=True)
class RankResult:
    """Result of a rank, or the reason why tasks must do the merge.

    Of its `rows`, `spared_rows` were pruned: no shard was sent their keys.
    `absent_rows` are known to have no match.
    """

    refused: str = ""
    rows: int = 0
    spared_rows: int = 0
    absent_rows: int = 0


def result_label(given: LocalInputs, partition: PartitionLocation) -> tuple[str, int]:
    """Return the label under which the worker stores a partition's result."""
    return f"dgpuhash-merged-{given.token}", partition.number


def collective_merge(client: Client, plan: IndexMerge, left: Any, absences: AbsentKeyStats) -> Any:
    """Merge a persisted Dask DataFrame; None if tasks must do it.

    The result is persisted as well. `absences` says how often keys were absent in earlier
    merges with this epoch.

    Raises
    ------
    IndexLost
        When a worker is lost, or the index was changed.
    """
    probe = plan.probe
    descriptor = probe.descriptor
    what, start = f"merge with index {descriptor.uid}", time.perf_counter()
    about: dict[str, Any] = {
        "index": descriptor.name, "uid": descriptor.uid, "epoch": descriptor.epoch,
        "strategy": "standing",
    }  # fmt: skip
    sparing = absences.with_stats(probe.sparing, frames_of(descriptor.meta).device)
    seal = plan.sealed.seal
    try:
        partitions = _reachable(client, plan, left)
        if _everywhere(descriptor):
            made = run_on_workers(
                client, descriptor.workers, merge_replicated, seal, needed=partitions
            )
        else:
            made = run_collective(
                client, descriptor.shards, merge_on_rank, seal, sparing, needed=partitions
            )
    except DataNotLocal as elsewhere:
        log_execution(what, str(elsewhere))
        log_event(client, "merge", **about, by="tasks", why=str(elsewhere))
        return None
    shares = [each.result for each in made]
    rows = sum(share.rows for share in shares)
    absences.note(rows=rows, absent_rows=sum(share.absent_rows for share in shares))
    if sparing.bloom_filter and rows:
        what += f" (without {sum(share.spared_rows for share in shares):,} of {rows:,} rows)"
    refused = [share.refused for share in shares if share.refused]
    log_execution(what, *refused[:1])
    if refused:
        log_event(client, "merge", **about, by="tasks", why=refused[0])
        return None
    seconds = time.perf_counter() - start
    log_event(client, "merge", **about, by="one phase", rows=rows, seconds=seconds)
    layer = {key: future for each in made for key, future in each.data.items()}
    keys = sorted(layer)
    divisions = (None,) * (len(keys) + 1)
    # The name is new and serves as token: to tokenize an empty frame on a GPU takes 4 ms.
    return new_collection(
        FromGraph(layer, probe.meta, divisions, keys, "dgpuhash-merge", _determ_token=keys[0][0])
    )


def _reachable(client: Client, plan: IndexMerge, left: Any) -> InputSpec:
    """Return the partitions; raise DataNotLocal if tasks must merge them."""
    descriptor = plan.probe.descriptor
    partitions = (persisted_futures(left) if isinstance(left, dd.DataFrame) else None) or []
    check_same_cluster(client, partitions, "rows")
    if not _everywhere(descriptor):
        if descriptor.placement is Placement.INDEPENDENT:
            raise DataNotLocal("the index is replicated or independent")
        if not plan.plain:
            raise DataNotLocal("columns are not plain arrays")
    return partitions_spec(partitions, descriptor.meta)


def _everywhere(descriptor: Descriptor) -> bool:
    """Return whether each worker of the index stores all rows."""
    only = descriptor.placement is Placement.DISTRIBUTED and len(descriptor.shards) == 1
    return only or descriptor.placement is Placement.REPLICATED


def merge_on_rank(
    host: ShardHost,
    collective: Collective,
    seal: CachedPickle[Probe],
    sparing: PruningOptions,
    given: LocalInputs,
) -> TaskOutput[RankResult]:
    """Run one rank's share of a collective merge.

    A rank that cannot merge its partitions sends no rows, and still answers the others.
    """
    probe = seal.opened()
    descriptor = probe.descriptor
    incarnation = descriptor.shards[collective.rank].incarnation
    shard = host.shards.at(descriptor.uid, descriptor.epoch, incarnation)
    with collective.with_quiet_loop(frames_of(descriptor.meta).device):
        asking, replica = RankProbe(probe, given), None
        if sparing.bloom_filter and descriptor.owners_decide:
            replica = _replica(shard.index, shard.sieve, sparing, collective)
        told = ThreadProgress(descriptor.uid, "merge", "exchange keys", asking.rows)
        with host.thread.telling(told) as progress:
            made = _merge(collective, shard.index, asking, replica, given, progress)
        shard.sieve.add_spared_rows(made.result.spared_rows)
        backend.get(frames_of(descriptor.meta).device).synchronize()
        return made


def _merge(
    collective: Collective,
    index: FrameIndex,
    asking: RankProbe,
    replica: BloomReplica | None,
    given: LocalInputs,
    progress: ThreadProgress,
) -> TaskOutput[RankResult]:
    """Return the frame of each partition; none if tasks must make them."""
    asked, spared = asking.asked(replica)
    came = collective.all_to_all(asked.columns, asked.counts)
    progress.go_on("look keys up")
    answers, refused = shard_matches(index, came, asking.probe)
    del came
    progress.go_on("return rows")
    back = collective.all_to_all(answers.columns, answers.counts)
    del answers
    refused = asking.refused or refused
    if refused:
        return TaskOutput(RankResult(refused), {})
    frames = asking.results(asked, back)
    made = {result_label(given, one): frame for one, frame in zip(given.own, frames, strict=True)}
    return TaskOutput(RankResult("", asking.rows, spared, asking.rows - asking.matched), made)


def _replica(
    index: FrameIndex, sieve: BloomCache, sparing: PruningOptions, collective: Collective
) -> BloomReplica | None:
    """Return a Bloom filter of all shards' keys, if it pays."""
    device = backend.get(frames_of(index.meta).device)
    told = collective.gather(FilterVote.of(sieve.replica, len(index), device))
    replica = BloomReplica.agreed(
        sieve.replica, told, sparing, collective, device, index.codes, index.encoder.seeds.owners
    )
    # Else keep the filter that tasks may have fetched here, though other ranks have none.
    sieve.replica = replica or sieve.replica
    return replica
