"""What a client, a task and a worker must agree on to speak about one state of one index."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from dgpuhash.distributed.cluster.serialization import WithMetas
from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.partition.row_order import with_arrival
from dgpuhash.distributed.partition.skew import NO_HEAVY, Heavy
from dgpuhash.frames import KeyEncoder

__all__ = ["Descriptor", "Placement", "Saved", "ShardAddress"]


class Placement(Enum):
    """Who holds a key, as `DistributedIndex.placement` says.

    Examples
    --------
    >>> [placement.value for placement in Placement]
    ['distributed', 'independent', 'replicated']

    `DistributedIndex.build` takes such a text for its `mode`.

    >>> import dask.dataframe as dd, pandas as pd
    >>> from distributed import Client
    >>> from dgpuhash import DistributedIndex
    >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
    >>> planes = dd.from_pandas(pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [55, 182]}))
    >>> index = DistributedIndex.build(planes, on="tailnum", mode="replicated", client=client)
    >>> index.placement
    <Placement.REPLICATED: 'replicated'>
    >>> index.close(); client.close()
    """

    #: Each key has one owner, by its hash; rows and queries travel to the owner.
    DISTRIBUTED = "distributed"
    #: Rows stay where they are; queries go to all shards (WarpCore §IV-E).
    INDEPENDENT = "independent"
    #: Every shard holds all rows; queries go nowhere.
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True)
class ShardAddress:
    """Where a shard lives.

    Attributes
    ----------
    worker : str
        Address of the Dask worker.
    incarnation : str
        Drawn anew by each start of a worker, so that one which came back empty under its old
        address is told from the one that held the shard.
    """

    worker: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Saved:
    """Rows on a disk: where, of which index, and which revision of them.

    `transaction`: of the last change that was read from a log; None where there was none, or it is
    the index's own log. Nobody may have seen that change, and another one take its place.
    """

    url: str
    uid: str
    revision: int
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Descriptor(WithMetas):
    """One epoch of one index. Lazy merges carry it; its token is that of the epoch.

    Attributes
    ----------
    uid : str
        Of the index, the same through all its epochs.
    name : str
        Under which `DistributedIndex.open` finds it.
    epoch : int
        Counts the changes of shards; a shard answers only requests of its own epoch.
    shards : tuple of ShardAddress
        The owner of part *i* is ``shards[i]``.
    encoder : KeyEncoder
    meta : DataFrame
        An empty frame like the stored rows.
    unique : bool or None
        As `DistributedIndex.build` was told.
    device : str or None
        Where key tables live; None: where the rows do.
    placement : Placement
    reason : str
        Why it was chosen, where the user left that to the index.
    conflict : Conflict
        What a second row of a key does, when keys are `unique` and rows stay where they are.
    saved : Saved or None
        The last checkpoint.
    revision : int
        Counts the changes of rows: the build, inserts and erases, but not moves of shards.
    heavy : Heavy
        The keys whose rows are spread over all parts.
    log : str or None
        The URL of the folder to which each change of rows is written before it is seen.
    turn : str
        Whose turn it is to change the index: drawn anew for each change that is begun.
    """

    uid: str
    name: str
    epoch: int
    shards: tuple[ShardAddress, ...]
    encoder: KeyEncoder
    meta: Any
    unique: bool | None = None
    device: str | None = None
    placement: Placement = Placement.DISTRIBUTED
    reason: str = ""
    conflict: Conflict = Conflict.ERROR
    saved: Saved | None = None
    revision: int = 1
    heavy: Heavy = NO_HEAVY
    log: str | None = None
    turn: str = ""

    def without_rows(self) -> Descriptor:
        """The same for questions while it has no rows; see `KeyEncoder.without_rows`."""
        return replace(self, encoder=self.encoder.without_rows(self.meta))

    @property
    def workers(self) -> list[str]:
        """The addresses of the shards' workers, by part."""
        return [shard.worker for shard in self.shards]

    @property
    def state(self) -> tuple[str, int, int, Saved | None, str]:
        """What tells it from all others of its name, and from what another client changes."""
        return self.uid, self.epoch, self.revision, self.saved, self.turn

    @property
    def stored(self) -> Any:
        """An empty frame like the rows of a shard, which may have a column of our own."""
        if self.placement is Placement.INDEPENDENT:
            return with_arrival(self.meta, 0)
        return self.meta

    @property
    def owned(self) -> bool:
        """Whether a shard has the rows of the keys that its part owns, and no others."""
        return self.placement is Placement.DISTRIBUTED and not self.heavy

    @property
    def several_owners(self) -> bool:
        """Whether keys have owners, of which there are several."""
        return self.placement is Placement.DISTRIBUTED and len(self.shards) > 1

    @property
    def told_by_owners(self) -> bool:
        """Whether a key that its owner has no row of is stored nowhere."""
        # The owner of a heavy code has rows of it, of one of its keys.
        spread = self.heavy and not self.encoder.exact
        return self.placement is Placement.DISTRIBUTED and not spread

    @property
    def whole(self) -> list[str]:
        """Those of `workers` whose shards together hold each row once."""
        return self.workers[:1] if self.placement is Placement.REPLICATED else self.workers

    def __dask_tokenize__(self) -> tuple[str, str, int]:
        return ("dgpuhash", self.uid, self.epoch)
