"""Changes and merges of an index in one phase on all workers, whose ranks exchange columns.

Tasks stand for themselves, and each costs messages and Python; a phase costs as much as one of them
for all partitions of a worker. It serves persisted frames whose columns are plain arrays, of
distributed indexes; for all others, and when it is refused, tasks do the same work.
"""

from __future__ import annotations

from dgpuhash.distributed.bulk.merge import merge_together
from dgpuhash.distributed.bulk.put import put_together

__all__ = ["merge_together", "put_together"]
