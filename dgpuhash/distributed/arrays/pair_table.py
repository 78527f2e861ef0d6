"""What distributed maps and multimaps share."""

from __future__ import annotations

from typing import Any

from dgpuhash.distributed.arrays.upkeep import Upkeep

__all__ = ["PairTable"]


class PairTable(Upkeep):
    """A distributed table whose keys have values."""

    def items(self) -> tuple[Any, Any]:
        """All keys and their values; of a multimap equal keys together, their values in order.

        Returns
        -------
        keys, values : Dask array
            With a chunk for each part. They lie on the workers, computed already; later changes of
            the table do not change them.

        Raises
        ------
        OutOfMemoryError
            When a worker has no memory for them.
        IndexLost
            When a worker was lost, or the table has been.
        """
        keys, values = self._contents("items", [self.key_dtype, self.value_dtype])
        return keys, values

    def values(self) -> Any:
        """The values alone, in the order of `items`."""
        return self._contents("values", [self.value_dtype])[0]
