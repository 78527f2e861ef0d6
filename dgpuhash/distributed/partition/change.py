"""Change of an index to its next epoch, and the rows to read for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dgpuhash.distributed.cluster.serialization import EmptyFramePickle
from dgpuhash.distributed.partition.descriptor import Placement, ShardAddress
from dgpuhash.distributed.partition.skew import NO_HEAVY, HeavyKeys
from dgpuhash.frames import KeyEncoder
from dgpuhash.frames.grouped.aggregation import Aggregation
from dgpuhash.frames.keys.table import AUTO, KeyTableMethod
from dgpuhash.typing import Device

# Numbers of message chunks: from here on, chunks with rows of candidates for heavy keys; from twice
# this number on, chunks with rows that were redistributed to their owners.
CANDIDATE_CHUNKS = 1 << 30


@dataclass(frozen=True, slots=True)
class LostShards:
    """Lost shards of an index, and the rows to read again for them.

    Attributes
    ----------
    parts : int
        Number of shards of the index.
    gone : frozenset of int
        The shards whose rows are read again.
    heavy : Heavy
        Keys that had rows in any shard; all their rows are read again, and spread anew.
    arrivals : frozenset of int
        The arrival numbers of the rows in surviving shards, if rows have no owner.
    """

    parts: int
    gone: frozenset[int]
    heavy: HeavyKeys = NO_HEAVY
    arrivals: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Change(EmptyFramePickle):
    """Change of all shards of an index from one epoch to the next.

    Attributes
    ----------
    transaction : str
        Distinguishes this attempt from other attempts at the same epoch.
    verb : str
        ``"build"``, ``"insert"``, ``"upsert"`` or ``"erase"``; of groups ``"build"``,
        ``"update"`` or ``"retract"``.
    epoch : int
        The epoch after the change.
    placement : Placement
        Which shards the rows go to.
    revision : int
        Revision of the rows after the change.
    kept : frozenset of int
        The shards that a build leaves as they are, but for their epoch, and rows of heavy keys.
    lost : Lost, optional
        A build stores only the rows of these lost shards; default: all rows that it is given.
    heavy : Heavy, optional
        The keys whose rows are spread over all shards; None: a build finds them.
    partitions : int
        Number of partitions that the rows come from.
    spills : bool
        Whether rows of a build go to the disk where their worker has no memory for them.
    groups : Aggregation or None
        What shards that hold the states of groups aggregate; rows are states then.
    """

    uid: str
    transaction: str
    verb: str
    epoch: int
    shards: tuple[ShardAddress, ...]
    encoder: KeyEncoder
    meta: Any
    unique: bool | None
    device: Device | None
    method: KeyTableMethod = AUTO
    placement: Placement = Placement.DISTRIBUTED
    revision: int = 1
    kept: frozenset[int] = frozenset()
    lost: LostShards | None = None
    heavy: HeavyKeys | None = NO_HEAVY
    partitions: int = 1
    spills: bool = False
    groups: Aggregation | None = None

    @property
    def workers(self) -> list[str]:
        """Addresses of the shards' workers, by shard number."""
        return [shard.worker for shard in self.shards]

    @property
    def writers(self) -> list[str]:
        """The `workers` whose shards together get each row or key once."""
        everywhere = self.placement is Placement.REPLICATED or (
            self.placement is Placement.INDEPENDENT and self.verb == "erase"
        )
        return self.workers[:1] if everywhere else self.workers
