"""What distributed maps and multimaps share."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.distributed.pruning.policy import Sparing, Switch
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.distributed.tables.batch import Shown
from dgpuhash.distributed.tables.maintenance import Upkeep

__all__ = ["PairTable"]


class PairTable(Upkeep):
    """A distributed table whose keys have values."""

    def match(
        self, keys: Any, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> tuple[Any, Any]:
        """The rows whose keys are stored, and their values: an inner join with this table.

        Parameters
        ----------
        keys : Dask array, or array of the client's
        bloom_filter, deduplicate
            As for `contains`.

        Returns
        -------
        rows, values : array
            Row numbers (int64) in input order, those of a multimap as often as the key has values,
            and the value of each; in the form of `keys`. The rows of a Dask array are those of all
            its chunks; both answers have a chunk for each, of the length that came.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, UnsupportedError, SpecError
            When an argument does not fit the table.
        IndexLost
            When a worker was lost, or the table has been.
        """
        assert self.value_dtype is not None
        shown = [
            Shown(np.dtype(np.int64), by_row=False, numbers=True),
            Shown(self.value_dtype, by_row=False),
        ]
        verb = Verb("find", sparing=Sparing.of(bloom_filter, deduplicate), matching=True)
        rows, values = self._ask(verb, keys, shown=shown)
        return rows, values

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
