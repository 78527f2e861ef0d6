"""A change of an index from one epoch to the next, and what is read again when parts are lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dgpuhash.distributed.cluster.serialization import WithMetas
from dgpuhash.distributed.partition.descriptor import Placement, ShardAddress
from dgpuhash.distributed.partition.skew import NO_HEAVY, Heavy
from dgpuhash.frames import KeyEncoder

__all__ = ["LOOSE", "Change", "Lost"]

# Parcels of keys that may turn out not to be heavy have this number or the next ones, and those of
# rows that went on to their owners twice this number or more.
LOOSE = 1 << 30


@dataclass(frozen=True, slots=True)
class Lost:
    """What is to be read again.

    Attributes
    ----------
    parts : int
        Of the index.
    gone : frozenset of int
        Those of them whose rows are read again.
    heavy : Heavy
        Keys that had rows in any part; all their rows are read again, and spread anew.
    arrivals : frozenset of int
        Of the rows that are there, where rows have no owner.
    """

    parts: int
    gone: frozenset[int]
    heavy: Heavy = NO_HEAVY
    arrivals: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Change(WithMetas):
    """A change of all shards of an index from one epoch to the next.

    Attributes
    ----------
    transaction : str
        Tells this attempt to change from others to the same epoch.
    verb : str
        ``"build"``, ``"insert"`` or ``"erase"``.
    epoch : int
        The epoch after the change.
    placement : Placement
        Which shards the rows go to.
    revision : int
        Of the rows after the change.
    kept : frozenset of int
        The parts that a build leaves as they are, but for their epoch, and rows of heavy keys.
    lost : Lost, optional
        Whose rows alone a build takes out of those it is given; default: all rows.
    heavy : Heavy, optional
        The keys whose rows are spread over all parts; None: a build finds them.
    partitions : int
        Of how many the rows come.
    """

    uid: str
    transaction: str
    verb: str
    epoch: int
    shards: tuple[ShardAddress, ...]
    encoder: KeyEncoder
    meta: Any
    unique: bool | None
    device: str | None
    placement: Placement = Placement.DISTRIBUTED
    revision: int = 1
    kept: frozenset[int] = frozenset()
    lost: Lost | None = None
    heavy: Heavy | None = NO_HEAVY
    partitions: int = 1

    @property
    def workers(self) -> list[str]:
        """The addresses of the shards' workers, by part."""
        return [shard.worker for shard in self.shards]

    @property
    def writers(self) -> list[str]:
        """Those of `workers` whose shards together get each row, or key, of the change once."""
        everywhere = self.placement is Placement.REPLICATED or (
            self.placement is Placement.INDEPENDENT and self.verb == "erase"
        )
        return self.workers[:1] if everywhere else self.workers
