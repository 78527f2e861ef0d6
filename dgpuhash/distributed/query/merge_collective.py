"""Collective merge: keys to their owners, and matches back into frames."""

from __future__ import annotations

import sys
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import dask.dataframe as dd
import numpy as np
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr.io.io import FromGraph
from distributed import Client

from dgpuhash import backend
from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.cluster.client import check_same_cluster
from dgpuhash.distributed.cluster.device_thread import Progress
from dgpuhash.distributed.cluster.locality import (
    DataNotLocal,
    InputSpec,
    LocalInputs,
    PartitionLocation,
    TaskOutput,
    partitions_spec,
)
from dgpuhash.distributed.cluster.serialization import CachedPickle, is_plain, plain_arrays
from dgpuhash.distributed.collective.base import Collective, Received
from dgpuhash.distributed.collective.endpoint import throttle_loop
from dgpuhash.distributed.collective.group_cache import run_collective
from dgpuhash.distributed.events import log_event, log_execution
from dgpuhash.distributed.ingest.source import persisted_futures
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement
from dgpuhash.distributed.partition.hash_partition import (
    PartitionedColumns,
    partition_columns,
    partition_rows_with_heavy,
)
from dgpuhash.distributed.partition.row_order import combine_semi_joins
from dgpuhash.distributed.partition.skew import NO_HEAVY
from dgpuhash.distributed.pruning.bloom_replica import BloomReplica, FilterVote
from dgpuhash.distributed.pruning.policy import NO_PRUNING, AbsentKeyStats, PruningOptions
from dgpuhash.distributed.pruning.probe_keys import PrunedKeys
from dgpuhash.distributed.pruning.worker_cache import BloomCache
from dgpuhash.distributed.query.merge_tasks import Probe
from dgpuhash.distributed.query.plan import MergePlan
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.frames import FrameIndex, Matches, frames_of, sort_by_query_row
from dgpuhash.tables.select import gather_rows

__all__ = [
    "RankResult",
    "all_matches",
    "collective_merge",
    "merge_partition",
    "merge_replicated",
    "result_label",
]


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
    """Return the merge of a partition with an index that has all rows."""
    asking = probe.asking(left)
    rows, found = all_matches(index, asking.keys, probe.how, probe.moved, named=False)
    whole = rows is None or (index.one_row_per_key and len(rows) == len(left))
    return probe.put_together(asking, rows, found, whole=whole)


@dataclass(frozen=True, slots=True)
class RankResult:
    """Result of a rank, or why tasks must do the merge.

    Of its `rows`, `spared_rows` were pruned: no shard was sent their keys.
    `absent_rows` are known to have no match.
    """

    refused: str = ""
    rows: int = 0
    spared_rows: int = 0
    absent_rows: int = 0


def result_label(given: LocalInputs, partition: PartitionLocation) -> tuple[str, int]:
    """Return the label that the result of a partition is kept under."""
    return f"dgpuhash-merged-{given.token}", partition.number


def all_matches(
    index: FrameIndex, keys: Any, how: str, columns: Sequence[Hashable], *, named: bool = True
) -> Matches:
    """Return all matches of `keys`, a frame or a tuple of arrays, in an index.

    The matched rows are a tuple of arrays, not a frame, where their columns are plain. Unless all
    are `named`, `query_rows` may be None where each key matches, in order.
    """
    if how in {"semi", "anti"}:
        return index.match(keys, how=how)
    page = index.page(keys, nbytes=sys.maxsize, columns=columns, plain=True, named=named)
    return page.matches


# Positions of keys that one rank sends to another one travel in 32 bits.
_MOST_ROWS = 2**32


def collective_merge(client: Client, plan: MergePlan, left: Any, absences: AbsentKeyStats) -> Any:
    """Merge a persisted Dask DataFrame; None where it takes tasks.

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
    about = {"index": descriptor.name, "uid": descriptor.uid, "epoch": descriptor.epoch}
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


def _reachable(client: Client, plan: MergePlan, left: Any) -> InputSpec:
    """Return the partitions; raise DataNotLocal where tasks are needed."""
    descriptor = plan.probe.descriptor
    partitions = (persisted_futures(left) if isinstance(left, dd.DataFrame) else None) or []
    check_same_cluster(client, partitions, "rows")
    if not _everywhere(descriptor):
        if descriptor.placement is Placement.INDEPENDENT:
            raise DataNotLocal("keys have no owners")
        if not plan.plain:
            raise DataNotLocal("columns are no plain arrays")
    return partitions_spec(partitions, descriptor.meta)


def _everywhere(descriptor: Descriptor) -> bool:
    """Return whether each worker of the index has all of its rows."""
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
        told = Progress(descriptor.uid, "merge", "exchange keys", asking.rows)
        with host.thread.telling(told) as progress:
            made = _merged(collective, shard.index, asking, replica, given, progress)
        shard.sieve.spared(made.result.spared_rows)
        backend.get(frames_of(descriptor.meta).device).synchronize()
        return made


def _merged(
    collective: Collective,
    index: FrameIndex,
    asking: RankProbe,
    replica: BloomReplica | None,
    given: LocalInputs,
    progress: Progress,
) -> TaskOutput[RankResult]:
    """Return the frame of each partition; none where tasks must make them."""
    asked, spared = asking.asked(replica)
    came = collective.all_to_all(asked.columns, asked.counts)
    progress.go_on("look keys up")
    answers, refused = _answers(index, came, asking.probe)
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
    """Return a Bloom filter of the keys of all shards, where one pays."""
    device = backend.get(frames_of(index.meta).device)
    told = collective.gather(FilterVote.of(sieve.replica, len(index), device))
    replica = BloomReplica.agreed(
        sieve.replica, told, sparing, collective, device, index.codes, index.encoder.seeds.owners
    )
    # Else keep the filter that tasks may have fetched here, though other ranks have none.
    sieve.replica = replica or sieve.replica
    return replica


class RankProbe:
    """Partitions of one rank, and the keys that it sends to the shards.

    Attributes
    ----------
    probe : Probe
    refused : str
        Why tasks must do the merge.
    matched : int
        Rows that have a match, known after `results`.
    """

    def __init__(self, probe: Probe, given: LocalInputs) -> None:
        self.probe = probe
        self._frames = frames_of(probe.descriptor.meta)
        lefts: list[Any] = []
        self.refused: str = ""
        try:
            lefts = [left for (left,) in given.things]
        except KeyError as error:
            self.refused = f"partition {error} has left its worker"
        self._partitions = [probe.asking(left) for left in lefts]
        self._lengths = list(map(len, lefts))
        self.matched: int = 0
        if not all(is_plain(each.keys) for each in self._partitions):
            self.refused = "a key column has nulls, or another dtype than the index"
        elif self.rows >= _MOST_ROWS:
            self.refused = "a worker has too many rows"
        self._keys = [each.keys for each in self._partitions]
        if self.refused or not lefts:
            like = probe.descriptor.meta[list(probe.descriptor.encoder.names)]
            self._keys = [plain_arrays(like, like)]

    @property
    def rows(self) -> int:
        """Rows of all partitions."""
        return sum(self._lengths)

    def asked(self, replica: BloomReplica | None) -> tuple[PartitionedColumns, int]:
        """Return the keys by shard, and the number of keys that were pruned.

        Pruned keys are absent, as the Bloom filter says.
        """
        probe, xp = self.probe, self._frames.xp
        descriptor = probe.descriptor
        encoder, parts = descriptor.encoder, len(descriptor.shards)
        columns = [
            column[0] if len(column) == 1 else xp.concatenate(column)
            for column in zip(*self._keys, strict=True)
        ]
        encoded, pruned = encoder.encode_arrays(columns, self._frames), None
        if replica is not None:
            pruned = PrunedKeys.of(encoded, replica.filter, NO_PRUNING)
            columns = [gather_rows(column, pruned.rows) for column in columns]
            encoded = pruned.encoded
        only_owners = encoder.exact and probe.how in {"semi", "anti"}
        heavy = NO_HEAVY if only_owners else descriptor.heavy
        owned: Any = partition_rows_with_heavy(encoded, encoder, parts, heavy) if heavy else parts
        key = 0 if encoder.codes_are_keys else None
        made = partition_columns(
            columns, key, encoded, owned, owner_seed=encoder.seeds.owners, numbered=True
        )
        if pruned is None:
            return made, 0
        return replace(made, numbers=gather_rows(pruned.rows, made.numbers)), pruned.absent

    def results(self, asked: PartitionedColumns, back: Received) -> list[Any]:
        """Return the merged frame of each partition."""
        probe, frames = self.probe, self._frames
        xp = frames.xp
        rows, *payload = back.columns
        rows = gather_rows(asked.numbers, _shifted(rows, back.counts, _firsts(asked.counts), xp))
        if probe.how in {"semi", "anti"}:
            rows = combine_semi_joins(rows, self.rows, probe.how, xp)
            self.matched = len(rows) if probe.how == "semi" else self.rows - len(rows)
        else:
            rows, order, self.matched = sort_by_query_row(rows, self.rows, xp)
            payload = [gather_rows(column, order) for column in payload]
        whole = len(rows) == self.matched == self.rows
        if len(self._partitions) == 1:
            return [self._result(self._partitions[0], rows, payload, whole)]
        firsts = np.concatenate([[0], np.cumsum(self._lengths)])
        cuts = backend.get(frames.device).to_host(xp.searchsorted(rows, xp.asarray(firsts)))
        return [
            self._result(
                one, rows[start:end] - int(first), [each[start:end] for each in payload], whole
            )
            for one, first, (start, end) in zip(
                self._partitions, firsts, pairwise(cuts.tolist()), strict=False
            )
        ]

    def _result(self, partition: Any, rows: Any, payload: Sequence[Any], whole: bool) -> Any:
        found = None if self.probe.how in {"semi", "anti"} else tuple(payload)
        return self.probe.put_together(partition, rows, found, whole=whole)


def _answers(index: FrameIndex, came: Received, probe: Probe) -> tuple[PartitionedColumns, str]:
    """Return the matches for each rank, and why tasks must do the merge.

    The matches are positions of the rank's keys, and the index rows that match.
    """
    frames, refused = frames_of(index.meta), ""
    xp, moved = frames.xp, list(probe.moved)
    how = "semi" if probe.how in {"semi", "anti"} else probe.how
    rows, found = all_matches(index, tuple(came.columns), how, moved)
    if found is None:
        found = ()
    elif not is_plain(found):
        refused = "a stored column has nulls"
        like = index.meta[moved]
        rows, found = rows[:0], plain_arrays(like, like)
    ends = xp.asarray(np.cumsum(came.counts))
    ends = backend.get(frames.device).to_host(xp.searchsorted(rows, ends))
    counts = np.diff(ends, prepend=0).astype(np.int64)
    positions = _shifted(rows, counts, -_firsts(came.counts), xp).astype(np.uint32)
    return PartitionedColumns([positions, *found], None, counts), refused


def _firsts(counts: np.ndarray) -> np.ndarray:
    return np.cumsum(counts) - counts


def _shifted(rows: Any, counts: np.ndarray, firsts: np.ndarray, xp: Any) -> Any:
    """Return row numbers with each rank's first row added.

    The numbers of a rank, `counts` of them, are shifted by its entry in `firsts`.
    """
    shifted = xp.empty(len(rows), np.int64)
    stops = np.cumsum(counts)
    for first, start, stop in zip(firsts, stops - counts, stops, strict=True):
        xp.add(rows[start:stop], int(first), out=shifted[start:stop], dtype=np.int64)
    return shifted
