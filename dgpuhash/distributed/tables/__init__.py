"""Distributed hash tables: bulk verbs on Dask arrays.

* `base.DistributedTable` is the client's handle. `batch` checks the arguments of a verb, finds or
  makes their chunks on the workers, and turns answers into arrays of the same form while workers
  compute them (`batch.EarlyAnswer`).
* A verb is one collective on all workers (`pipeline.verb.run_verb`): each rank makes the same
  `pipeline.slices.RoundPlan` of the chunks of all ranks, and carries it out
  (`pipeline.verb.VerbExecution`).
* `pipeline.rounds.PipelinedRounds` overlaps its steps: a piece is partitioned by owner, sent to the
  owners, served by their `shards.table_shard.TableShard`, and answered, several slices at a time.
* `pruning` leaves out keys that need no lookup, where that is wanted and pays.
* `shards.table_shard.EntryLayout` is the encoding of keys and values while they travel.
* `maintenance.TableMaintenance` has the verbs of a table as a whole; its worker side is `contents`,
  and `saved` reads and writes its manifests. `leases.TableLease` frees what workers hold for a
  handle that is gone; tables of a client share groups of ranks (`collective.group_cache`).
"""

from __future__ import annotations

from dgpuhash.distributed.tables.base import DistributedTable
from dgpuhash.distributed.tables.bloom_filter import DistributedBloomFilter
from dgpuhash.distributed.tables.count_map import DistributedCountMap
from dgpuhash.distributed.tables.hash_map import DistributedMap
from dgpuhash.distributed.tables.hash_set import DistributedSet
from dgpuhash.distributed.tables.multi_map import DistributedMultiMap

__all__ = [
    "DistributedBloomFilter",
    "DistributedCountMap",
    "DistributedMap",
    "DistributedMultiMap",
    "DistributedSet",
    "DistributedTable",
]
