"""Collective shuffle of a build or insert, one all-to-all on all workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from distributed import Client

from dgpuhash import backend
from dgpuhash.backend import Backend
from dgpuhash.distributed.cluster.device_thread import ThreadProgress
from dgpuhash.distributed.cluster.locality import (
    DataNotLocal,
    InputSpec,
    LocalInputs,
    PartitionLocation,
    partitions_spec,
)
from dgpuhash.distributed.cluster.serialization import CachedPickle, are_plain, plain_arrays
from dgpuhash.distributed.collective.base import Collective, Destination, Received
from dgpuhash.distributed.collective.group_cache import run_collective
from dgpuhash.distributed.events import log_execution
from dgpuhash.distributed.ingest.history import RowOperation
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.descriptor import Placement
from dgpuhash.distributed.partition.hash_partition import (
    PartitionedColumns,
    partition_columns,
    partition_rows,
)
from dgpuhash.distributed.partition.skew import (
    NO_COUNTS,
    NO_HEAVY,
    HeavyKeys,
    KeyCounts,
    consensus,
    heavy_candidates,
)
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.distributed.shards.stats import ShardSize, shard_size
from dgpuhash.errors import DgpuhashError
from dgpuhash.frames import frames_of
from dgpuhash.tables.cached import cached

REFUSED = "another worker cannot take part"


def shuffle_together(
    client: Client, change: Change, acts: Sequence[RowOperation]
) -> tuple[HeavyKeys, list[ShardSize]] | None:
    """Open a change, and prepare it with the rows of `acts` on all shards.

    Returns the heavy keys, and for a build the size that each shard is going to have; None, with no
    shard prepared, where Dask tasks have to shuffle the rows.

    Raises
    ------
    IndexLost
        When a worker is lost.
    ColumnError
        When a key of a unique index occurs twice.
    """
    what = f"{change.verb} of index {change.uid}"
    try:
        partitions = _reachable(change, acts)
        shares = run_collective(
            client, change.shards, shuffle_on_rank, CachedPickle.of(change), needed=partitions
        )
    except DataNotLocal as elsewhere:
        log_execution(what, str(elsewhere))
        return None
    refused = sorted((share.refused for share in shares if share.refused), key=REFUSED.__eq__)
    log_execution(what, *refused[:1])
    if refused:
        return None
    for share in shares:
        if share.error is not None:
            raise share.error
    return shares[0].heavy, [share.measure for share in shares]


def _reachable(change: Change, acts: Sequence[RowOperation]) -> InputSpec:
    """Return the partitions; raise DataNotLocal if tasks must shuffle them."""
    if change.placement is not Placement.DISTRIBUTED:
        raise DataNotLocal("the index is replicated or independent")
    if len(acts) != 1 or change.verb == "erase" or change.kept or change.lost is not None:
        raise DataNotLocal("the change does more than add rows")
    if change.verb == "upsert" and change.heavy:
        raise DataNotLocal("all workers have rows of the heavy keys")
    if not are_plain(change.meta):
        raise DataNotLocal("columns are not plain arrays")
    return partitions_spec(acts[0].partitions, change.meta)


@dataclass(frozen=True, slots=True)
class ShuffleResult:
    """Result of a rank.

    Attributes
    ----------
    refused : str
        Why no rank has done anything.
    error : DgpuhashError or None
        Why the rows cannot be stored.
    heavy : Heavy
    measure : Measure
        Size of the shard that a build has made.
    """

    refused: str = ""
    error: DgpuhashError | None = None
    heavy: HeavyKeys = NO_HEAVY
    measure: ShardSize = (0, None)


@dataclass(frozen=True, slots=True)
class Vote:
    """Message of a rank to the others before rows travel."""

    refused: bool
    rows: int
    tally: KeyCounts
    segments: list[list[int]]
    """Rows from each partition, by receiving rank, where the order of rows depends on them."""


def shuffle_on_rank(
    host: ShardHost, collective: Collective, seal: CachedPickle[Change], given: LocalInputs
) -> ShuffleResult:
    """Run one rank's share of the shuffle.

    The rank is the number of its shard.
    """
    change = seal.opened()
    host.shards.open(change, given.rank)
    progress = ThreadProgress(change.uid, change.verb, "partition rows")
    quiet = collective.with_quiet_loop(frames_of(change.meta).device)
    with quiet, host.thread.telling(progress):
        return _put(host, collective, change, given, progress)


def _put(
    host: ShardHost,
    collective: Collective,
    change: Change,
    given: LocalInputs,
    progress: ThreadProgress,
) -> ShuffleResult:
    """Send this rank's rows, and prepare its shard with the rows received."""
    lying, leaving = given.dealt, OutgoingRows(change, given)
    if host.shards.mixed(change.uid):
        # Each shard would have to check the numbers that come.
        leaving.refused = "other numbers are stored than were planned with"
    numbers = [one.number for each in lying for one in each]
    told = numbers != sorted(numbers)
    if not leaving.refused:
        leaving.part(change.heavy or NO_HEAVY, told)
    votes = _votes(collective, leaving, told)
    if any(vote.refused for vote in votes):
        return ShuffleResult(leaving.refused or REFUSED)
    heavy = change.heavy
    if heavy is None:
        rows = sum(vote.rows for vote in votes)
        heavy = consensus([vote.tally for vote in votes], rows, len(votes))
        if heavy:
            leaving.part(heavy, told)
            votes = _votes(collective, leaving, told)
    mine = [vote.segments[collective.rank] for vote in votes] if told else []
    sent = leaving.parted
    progress.go_on("exchange rows", leaving.rows)
    if told and all(len(each) <= 1 for each in lying):
        to = _places(sent.columns, lying, mine)
        columns = collective.start(sent.columns, sent.counts, to=to).wait().columns
    else:
        came = collective.all_to_all(sent.columns, sent.counts)
        columns = _in_order(came, lying, mine) if told else came.columns
        del came
    del leaving, sent
    progress.go_on("store rows", len(columns[0]))
    try:
        host.shards.prepare_arrays(change.uid, change.transaction, columns)
    except DgpuhashError as error:
        return ShuffleResult(error=error)
    made = host.shards.made(change.uid, change.transaction)
    return ShuffleResult(heavy=heavy, measure=(0, None) if made is None else shard_size(made))


def _votes(collective: Collective, leaving: OutgoingRows, told: bool) -> list[Vote]:
    """Return the votes of all ranks."""
    segments = leaving.segments if told else []
    vote = Vote(bool(leaving.refused), leaving.rows, leaving.tally, segments)
    found: list[Vote] = collective.gather(vote)
    return found


class OutgoingRows:
    """Rows of one rank to be sent to their owners."""

    def __init__(self, change: Change, given: LocalInputs) -> None:
        self._change = change
        self._frames = frames_of(change.meta)
        self.device: Backend = backend.get(self._frames.device)
        self.refused: str = ""
        self.segments: list[list[int]] = []
        self.parted: PartitionedColumns
        try:
            partitions = [self._arrays(frame) for (frame,) in given.things]
        except KeyError as error:
            self.refused = f"partition {error} has left its worker"
            return
        except DgpuhashError as error:
            self.refused = str(error)
            return
        if any(arrays is None for arrays in partitions):
            self.refused = "a column has nulls, or another dtype than the index"
            return
        partitions = partitions or [plain_arrays(change.meta, change.meta)]
        self._ends = np.cumsum([len(arrays[0]) for arrays in partitions])
        xp = self._frames.xp
        self._columns = [
            column[0] if len(column) == 1 else xp.concatenate(column)
            for column in zip(*partitions, strict=True)
        ]
        labels = list(change.meta)
        self._keys = [labels.index(name) for name in change.encoder.names]
        keys = [self._columns[position] for position in self._keys]
        self._encoded = change.encoder.encode_arrays(keys, self._frames)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return 0 if self.refused else len(self._columns[0])

    @cached
    def tally(self) -> KeyCounts:
        """Tally of candidates for heavy keys, if the change looks for any."""
        if self._change.heavy is not None or self.refused:
            return NO_COUNTS
        parts, seeds = len(self._change.shards), self._change.encoder.seeds
        return heavy_candidates(self._encoded.codes, parts, parts, seeds.owners)

    def part(self, heavy: HeavyKeys, told: bool) -> None:
        """Partition the rows by owner; spread heavy keys' rows over all shards."""
        encoder, parts = self._change.encoder, len(self._change.shards)
        owned: Any = partition_rows(self._encoded, encoder, parts, heavy) if heavy else parts
        key = self._keys[0] if encoder.codes_are_keys else None
        several = told and len(self._ends) > 1
        self.parted = partition_columns(
            self._columns, key, self._encoded, owned,
            owner_seed=encoder.seeds.owners, numbered=several,
        )  # fmt: skip
        self.segments = self._row_counts() if several else self.parted.counts[:, None].tolist()

    def _row_counts(self) -> list[list[int]]:
        """Return for each shard the rows from each partition."""
        xp = self._frames.xp
        edges = xp.asarray(self._ends)
        ends = np.concatenate([[0], np.cumsum(self.parted.counts)]).tolist()
        cuts = [
            xp.searchsorted(self.parted.numbers[start:end], edges) for start, end in pairwise(ends)
        ]
        found = self.device.to_host(xp.stack(cuts))
        return np.diff(found, axis=1, prepend=0).tolist()

    def _arrays(self, frame: Any) -> Any:
        like = self._change.meta
        # A partition that is no frame is refused here.
        frames_of(frame)
        arrays = plain_arrays(frame, like) if list(frame) == list(like) else None
        return arrays or plain_arrays(self._frames.conform(frame, like), like)


def _places(
    columns: Sequence[Any],
    lying: Sequence[Sequence[PartitionLocation]],
    segments: Sequence[Sequence[int]],
) -> Destination:
    """Return the destination of received rows, in the order of partitions.

    Each rank sends the rows of one partition at most.
    """
    starts, place = np.zeros(len(lying), np.int64), 0
    ranks = [rank for rank, each in enumerate(lying) if each]
    for rank in sorted(ranks, key=lambda rank: lying[rank][0].number):
        starts[rank] = place
        place += segments[rank][0]
    device = backend.get(None, *columns)
    return Destination([device.empty(place, column.dtype) for column in columns], starts)


def _in_order(
    came: Received, lying: Sequence[Sequence[PartitionLocation]], segments: Sequence[Sequence[int]]
) -> list[Any]:
    """Return the received rows, in the order of their partitions.

    Parameters
    ----------
    came : Received
    lying : sequence of sequence of PartitionLocation
        Partitions of each rank.
    segments : sequence of sequence of int
        Rows received of each partition.
    """
    found, place = {}, 0
    for each, counts in zip(lying, segments, strict=True):
        for one, count in zip(each, counts, strict=False):
            found[one.number] = slice(place, place + count)
            place += count
    spans = [found[number] for number in sorted(found)]
    xp = backend.get(None, *came.columns).xp
    return [xp.concatenate([column[span] for span in spans]) for column in came.columns]
