"""A hash index on the workers of a Dask cluster.

How it works, from the bottom:

* `plugin.ShardHost` is on every worker, late and restarted ones included. It has the worker's
  `shard.Shards`, one `shard_thread.ShardThread` that alone touches them, and handlers for
  requests of other workers. A worker that starts draws a new incarnation, and has no shards.
* A key belongs to part ``owner_of(hash(code), parts)``; a `descriptor.Descriptor` says which worker
  holds which part, in which incarnation, at which epoch. The newest one is kept by the scheduler
  (`registry.Registry`), under the name of the index.
* That is so when it is distributed. `routes` knows the other placements: rows that stay with the
  worker that reads them, and are asked for everywhere (`arrival` and `conflict` put the answers
  together, `doubles` compares unique keys); and copies of all rows on every worker.
* Reading (`probe`): a task encodes the keys of its partition, sends each owner its own over Dask's
  comm, and puts the answers together. Handlers wait for the shard thread, which waits for nobody.
  Rows that need not be asked about stay at home (`asked`): keys that come again, and those that
  no shard has, as a filter says whose bits the task has asked the owners for (`sieve`).
  Every request names epoch and incarnation; a shard at another one raises `IndexChanged` or
  `IndexLost`. A handle then asks the registry for the newest epoch, and all shards again at that.
* Changing (`change.carry_out`), by phases on all owners at once (`phase.on_workers`): *open* an
  inbox; tasks *put* the rows of the partitions (`put`, through an `exchange.Exchange`); *prepare*
  does all that can fail, with one attempt of each partition; *publish* the descriptor of the next
  epoch, which is the moment of the change; *apply*. A shard that is asked for the published epoch
  before it was told to apply, applies. Before publishing, any failure leaves all as it was.
* Bulk phases on arrays that lie on the workers exchange them in lockstep: a `group.Group` of
  workers has an `exchange.Collective` on each, which their shard threads use; when a worker is
  lost, it ends for all. Sets, maps and multimaps in parts (`arrays`) are made of such phases, and
  so are builds, inserts and merges of persisted frames with plain columns (`bulk`), in the place of
  *open*, *put* and *prepare*, or of the tasks of a merge.
* Keys with very many rows (`skew`) have them on all parts; `settling` sends on what tasks of a
  build have spread before it was known that a key is not among these.
* Losses (`request`, `phase`): a comm that breaks, a worker that left, or an event loop that is
  silent for 20 s ends in `IndexLost`. `history.History` knows how the index came to be, for
  `rebuild`; `checkpoint` saves and reads it, and `log` has each change of a durable index on the
  disk between preparing and publishing it. `upkeep` makes lost shards anew and moves shards to
  other workers: a build in which parts that stay are kept (`mending` gives them new rows of heavy
  keys), and whose rows come from old owners.
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
