"""Methods that distributed maps and multimaps share."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.distributed.pruning.policy import PruningOptions, Switch
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.distributed.tables.batch import AnswerColumn
from dgpuhash.distributed.tables.maintenance import TableMaintenance

__all__ = ["PairTable"]


class PairTable(TableMaintenance):
    """Distributed table whose keys have values."""

    def match(
        self, keys: Any, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> tuple[Any, Any]:
        """Return the rows with stored keys, and their values: an inner join.

        Parameters
        ----------
        keys : Dask array, or array of the client's
        bloom_filter, deduplicate
            As for `contains`.

        Returns
        -------
        rows, values : array
            Row numbers (int64) in input order, in a multimap as often as the key has values, and
            the value of each; in the form of `keys`. Rows of a Dask array are numbered over all its
            chunks; both answers have one chunk for each, with its matches.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, UnsupportedError, SpecError
            When an argument does not fit the table.
        IndexLost
            When a worker was lost, or the table has been.
        """
        assert self.value_dtype is not None
        shown = [
            AnswerColumn(np.dtype(np.int64), by_row=False, numbers=True),
            AnswerColumn(self.value_dtype, by_row=False),
        ]
        verb = Verb("find", sparing=PruningOptions.of(bloom_filter, deduplicate), matching=True)
        rows, values = self._ask(verb, keys, shown=shown)
        return rows, values

    def items(self) -> tuple[Any, Any]:
        """Return all keys and their values.

        In a multimap equal keys are adjacent, with their values in order.

        Returns
        -------
        keys, values : Dask array
            One chunk a shard. They lie on the workers, computed already; later changes of the table
            do not change them.

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
        """Return the values alone, in the order of `items`."""
        return self._contents("values", [self.value_dtype])[0]
