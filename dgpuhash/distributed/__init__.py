"""A hash index on the workers of a Dask cluster."""

from __future__ import annotations

from dgpuhash.distributed.accessor import IndexAccessor
from dgpuhash.distributed.descriptor import Placement
from dgpuhash.distributed.index import DistributedIndex

__all__ = ["DistributedIndex", "IndexAccessor", "Placement"]
