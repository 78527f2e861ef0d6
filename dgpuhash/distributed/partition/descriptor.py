"""Descriptor: the published state of an index, shared by client, tasks and workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from dgpuhash.distributed.cluster.serialization import EmptyFramePickle
from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.partition.row_order import add_arrival_column
from dgpuhash.distributed.partition.skew import NO_HEAVY, HeavyKeys
from dgpuhash.frames import KeyEncoder
from dgpuhash.frames.grouped.aggregation import Aggregation
from dgpuhash.frames.keys.table import AUTO, KeyTableMethod
from dgpuhash.typing import Device


class Placement(Enum):
    """Placement mode: which shards store a key.

    `DistributedIndex.placement` returns it.

    Examples
    --------
    >>> [placement.value for placement in Placement]
    ['distributed', 'independent', 'replicated']

    `DistributedIndex.build` takes one of these texts as `mode`.

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

    #: Each key has one owner, by its hash; rows and queries are sent to the owner.
    DISTRIBUTED = "distributed"
    #: Rows stay where they are; queries are sent to all shards (WarpCore §IV-E).
    INDEPENDENT = "independent"
    #: Every shard holds all rows; queries are answered locally.
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True)
class ShardAddress:
    """Address of a shard: its worker, and that worker's incarnation.

    Attributes
    ----------
    worker : str
        Address of the Dask worker.
    incarnation : str
        Drawn anew by each start of a worker: distinguishes a worker that came back empty under its
        old address from the one that held the shard.
    """

    worker: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class SavedRevision:
    """Saved rows of an index: the folder, the index and the revision."""

    url: str
    uid: str
    revision: int


@dataclass(frozen=True, slots=True)
class Descriptor(EmptyFramePickle):
    """One epoch of an index: its shards, schema, placement and saves.

    Lazy merges carry it; its Dask token is that of the epoch.

    Attributes
    ----------
    uid : str
        Identifies the index through all its epochs.
    name : str
        `DistributedIndex.open` finds the index by it.
    epoch : int
        Counts the changes of shards; a shard answers only requests of its own epoch.
    shards : tuple of ShardAddress
        The owner of shard *i* is ``shards[i]``.
    encoder : KeyEncoder
    meta : DataFrame
        An empty frame like the stored rows.
    unique : bool or None
        The argument of `DistributedIndex.build`.
    device : str or None
        Device of the key tables; None: the device of the rows.
    method : KeyTableMethod
        Method of the key tables.
    placement : Placement
    reason : str
        Why the index chose this placement, where the user left the choice to it.
    conflict : Conflict
        How a second row of a key is resolved, when keys are `unique` and rows stay where they are.
    saved : Saved or None
        The last checkpoint.
    revision : int
        Counts the changes of rows: the build, inserts and erases, but not moves of shards.
    heavy : Heavy
        The keys whose rows are spread over all shards.
    log : str or None
        URL of the folder of the write-ahead log, which has each change of rows before any client
        sees it.
    turn : str
        Token of the client that may change the index: drawn anew when a change begins.
    groups : Aggregation or None
        What shards that hold the states of groups aggregate; `meta` is like the results then.
    """

    uid: str
    name: str
    epoch: int
    shards: tuple[ShardAddress, ...]
    encoder: KeyEncoder
    meta: Any
    unique: bool | None = None
    device: Device | None = None
    method: KeyTableMethod = AUTO
    placement: Placement = Placement.DISTRIBUTED
    reason: str = ""
    conflict: Conflict = Conflict.ERROR
    saved: SavedRevision | None = None
    revision: int = 1
    heavy: HeavyKeys = NO_HEAVY
    log: str | None = None
    turn: str = ""
    groups: Aggregation | None = None

    def without_rows(self) -> Descriptor:
        """Return the descriptor for queries of an empty index.

        See `KeyEncoder.without_rows`.
        """
        return replace(self, encoder=self.encoder.without_rows(self.meta))

    @property
    def workers(self) -> list[str]:
        """Addresses of the shards' workers, by shard number."""
        return [shard.worker for shard in self.shards]

    @property
    def state(self) -> tuple[str, int, int, SavedRevision | None, str]:
        """Value that differs between any two published states of this name.

        A change that another client has begun makes a new state, too.
        """
        return self.uid, self.epoch, self.revision, self.saved, self.turn

    @property
    def stored(self) -> Any:
        """Empty frame like a shard's rows, with the arrival column if any."""
        if self.placement is Placement.INDEPENDENT:
            return add_arrival_column(self.meta, 0)
        return self.meta

    @property
    def given(self) -> Any:
        """Empty frame like the input rows of a change."""
        return self.meta if self.groups is None else self.groups.source

    @property
    def owned(self) -> bool:
        """Whether each shard has exactly the rows of the keys it owns."""
        return self.placement is Placement.DISTRIBUTED and not self.heavy.codes

    @property
    def several_owners(self) -> bool:
        """Whether keys have owners, and there is more than one shard."""
        return self.placement is Placement.DISTRIBUTED and len(self.shards) > 1

    @property
    def owners_decide(self) -> bool:
        """Whether a key that its owner does not store is stored nowhere."""
        # The owner of a heavy code has rows of that code, but maybe of one of its keys only.
        spread = self.heavy.codes and not self.encoder.exact
        return self.placement is Placement.DISTRIBUTED and not spread

    @property
    def whole(self) -> list[str]:
        """The `workers` whose shards together store each row once."""
        return self.workers[:1] if self.placement is Placement.REPLICATED else self.workers

    def __dask_tokenize__(self) -> tuple[str, str, int]:
        return ("dgpuhash", self.uid, self.epoch)
