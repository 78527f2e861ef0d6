"""A hash index, and hash tables, on the workers of a Dask cluster.

The rooms, each of which imports only those above it:

* `cluster`: remote calls, broadcasts, liveness and data locality; what knows Dask's internals.
* `partition`: which worker owns which rows, at which epoch; the registry on the scheduler.
* `collective`, `storage`: all-to-all between ranks; saves and the durable log of changes.
* `pruning`: Bloom filters and deduplicated keys, before anything is sent.
* `shards`: what one worker owns, and the plugin `ShardHost` that holds it.
* `pipeline`, `ingest`: a collective verb in overlapping slices; builds and two-phase changes.
* `query`, `tables`: merges and lookups; `DistributedSet`, `DistributedMap`, `DistributedMultiMap`.
* `handle`, `reads`, `rebuild`, `index`, `accessor`, `load`: what users hold.

A key belongs to shard ``owner_of(hash(code), shards)``. A `Descriptor` says which worker holds
which shard, in which incarnation and at which epoch; the scheduler keeps the newest one under the
name of the index. Requests name epoch and incarnation: a shard at another one raises `IndexChanged`
or `IndexLost`. A change opens an inbox on all owners, puts rows into it, prepares all that can
fail, publishes the descriptor of the next epoch, which is the moment of the change, and applies.
Before it is published, any failure leaves all as it was.
"""

from __future__ import annotations

from dgpuhash.distributed.accessor import IndexAccessor
from dgpuhash.distributed.index import DistributedIndex
from dgpuhash.distributed.load import load
from dgpuhash.distributed.partition.descriptor import Placement
from dgpuhash.distributed.rebuild import Rebuilt
from dgpuhash.distributed.tables import DistributedMap, DistributedMultiMap, DistributedSet

__all__ = [
    "DistributedIndex",
    "DistributedMap",
    "DistributedMultiMap",
    "DistributedSet",
    "IndexAccessor",
    "Placement",
    "Rebuilt",
    "load",
]
