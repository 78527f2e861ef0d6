"""Bulk verbs on arrays that lie on the workers: local tables in parts, one on each worker.

* A `base.DistributedTable` is the client's handle; `batch` finds or makes the chunks of its
  arguments, and turns answers into arrays of the same form; `claims` takes over what workers keep.
* A verb is one phase on all workers (`hosted.carry_out`, through a `group.Group`): each makes the
  same `plan.Plan` of everybody's chunks, and goes through it (`asking.Asking`).
* `rounds.Rounds` are its course: a piece in the order of its owners, to them, through their
  `part.Part` of the table, and back, three pieces on their way at once.
* `thinning` leaves out what need not be asked, where that is wanted and pays.
* `layout.Layout` says what keys and values are while they travel.
* `upkeep.Upkeep` has the verbs of a table as a whole, of which `contents` is what workers do: its
  items, copies, and files, which `columns` and `saved` read and write. `holding.Holding` frees what
  workers hold for a handle that is gone; tables of a client share groups (`sharing`).
"""

from __future__ import annotations

from dgpuhash.distributed.tables.base import DistributedTable
from dgpuhash.distributed.tables.hash_map import DistributedMap
from dgpuhash.distributed.tables.hash_set import DistributedSet
from dgpuhash.distributed.tables.multi_map import DistributedMultiMap

__all__ = ["DistributedMap", "DistributedMultiMap", "DistributedSet", "DistributedTable"]
