"""Hash index and hash tables on the workers of a Dask cluster.

The rooms, each of which imports only those above it:

* `cluster`: RPC, broadcasts, liveness and data locality; the room that knows Dask's internals.
* `events`: what verbs did, for Dask's event log and loggers.
* `partition`: which shard owns which rows, at which epoch; the registry on the scheduler.
* `collective`, `storage`: all-to-all between ranks; saves and the write-ahead log of changes.
* `pruning`: Bloom filters and deduplicated keys, which reduce the rows that are sent.
* `shards`: the shards of one worker, and the plugin `ShardHost` that holds them.
* `pipeline`, `ingest`: a collective verb in overlapping slices; builds and two-phase changes.
* `query`, `tables`: merges and lookups; `DistributedSet`, `DistributedMap`, `DistributedMultiMap`,
  `DistributedCountMap`, `DistributedBloomFilter`.
* `dashboard`: the page of Dask's dashboard; its figures are asked of the workers while it is open.
* `handle`, `reads`, `rebuild`, `index`, `accessor`, `load`: the public classes and functions.

A key belongs to shard ``owner_of(hash(code), shards)``. A `Descriptor` says which worker holds
which shard, in which incarnation and at which epoch; the scheduler keeps the newest one under the
name of the index. Requests name epoch and incarnation: a shard at another one raises `IndexChanged`
or `IndexLost`. A change opens an inbox on all owners, puts rows into it, prepares every step that
can fail, publishes the descriptor of the next epoch, which commits the change, and applies it.
If it fails before it is published, the index stays as it was.
"""

from __future__ import annotations

from dgpuhash import config
from dgpuhash.distributed.accessor import IndexAccessor
from dgpuhash.distributed.dashboard.work_progress import WorkProgress
from dgpuhash.distributed.grouped.group_by import DistributedGroupBy
from dgpuhash.distributed.index.index import DistributedIndex
from dgpuhash.distributed.index.rebuild import Rebuilt
from dgpuhash.distributed.load import load
from dgpuhash.distributed.partition.descriptor import Placement
from dgpuhash.distributed.tables import (
    DistributedBloomFilter,
    DistributedCountMap,
    DistributedMap,
    DistributedMultiMap,
    DistributedSet,
)

__all__ = [
    "DistributedBloomFilter",
    "DistributedCountMap",
    "DistributedGroupBy",
    "DistributedIndex",
    "DistributedMap",
    "DistributedMultiMap",
    "DistributedSet",
    "IndexAccessor",
    "Placement",
    "Rebuilt",
    "WorkProgress",
    "load",
]

# So that `dask.config.get("dgpuhash")` shows the settings.
config.register()
