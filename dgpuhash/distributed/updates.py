"""Verbs of `DistributedIndex` for changing rows: insert, upsert and erase."""

from __future__ import annotations

import dask.dataframe as dd

from dgpuhash.distributed.handle import Handle
from dgpuhash.errors import UnsupportedError
from dgpuhash.frames import keys_frame
from dgpuhash.typing import QueryLike, RowsLike


class UpdateMixin(Handle):
    """Base of `DistributedIndex`: insert, upsert and erase."""

    def insert(self, rows: RowsLike) -> int:
        """Add rows, all of them or none; return their number.

        The rows are added to the newest epoch of the index, whichever client made it.

        Parameters
        ----------
        rows : Dask, pandas or cuDF DataFrame, or mapping of arrays
            Rows with at least the stored columns.

        Raises
        ------
        ColumnError, KeyTypeError
            When columns are missing or do not fit, or a key of a unique index has a second row.
        ShapeError, UnsupportedError
            When arrays differ in length, or one array is given for several columns.
        IndexNotFound
            When another client has closed the index, or the scheduler has forgotten it.
        IndexLost
            When a worker is lost.
        IndexChanged
            When this client stalled during the change, so that another client took over; the rows
            were not added.
        OutOfMemoryError
            When a worker's memory, or a device's, does not hold the rows, or the tasks that compute
            them.
        OSError
            When the log of a durable index cannot be written.
        """
        return self._change("insert", rows, self._descriptor.meta.columns)

    def upsert(self, rows: RowsLike) -> int:
        """Replace all rows of the given rows' keys, all or none; return the number of rows.

        Rows of keys that the index does not have are added as by `insert`; a key of which it has
        several rows has one row then. Nulls are keys as others are.

        Parameters
        ----------
        rows : as for `insert`
            With one row a key at most, as nothing says which of two rows is to stay. Drop the
            doubles; or, to give a key several rows, `erase` it and `insert` them.

        Raises
        ------
        ColumnError
            When two rows have one key, wherever they lie; nothing is changed then. Also as for
            `insert`.
        UnsupportedError
            When the method of the key tables cannot erase, and as for `insert`.
        KeyTypeError, ShapeError, IndexNotFound, IndexLost, IndexChanged, OutOfMemoryError, OSError
            As for `insert`.

        Examples
        --------
        >>> import pandas as pd
        >>> from distributed import Client
        >>> from dgpuhash import DistributedIndex
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> ages = pd.DataFrame({"name": ["Ada", "Bo", "Bo"], "age": [36, 7, 8]})
        >>> with DistributedIndex.build(ages, on="name", client=client) as index:
        ...     index.upsert(pd.DataFrame({"name": ["Bo", "Cy"], "age": [9, 50]}))
        ...     index.lookup(["Ada", "Bo", "Cy"])["age"].tolist()
        2
        [36, 9, 50]
        >>> client.close()
        """
        return self._change("upsert", rows, self._descriptor.meta.columns)

    def erase(self, keys: QueryLike) -> int:
        """Remove all rows of the keys, or none; return the number of rows.

        Parameters
        ----------
        keys : as for `lookup`, or a Dask DataFrame, or a Dask Series for one key column

        Raises
        ------
        ColumnError, KeyTypeError, ShapeError, UnsupportedError
            When keys do not fit the key columns, or are of another lazy type.
        IndexLost, OutOfMemoryError, OSError
            As for `insert`.
        """
        if isinstance(keys, dd.Series) and len(self.on) == 1:
            keys = keys.to_frame(self.on[0])
        if hasattr(keys, "__dask_graph__") and not isinstance(keys, dd.DataFrame):
            raise UnsupportedError(
                f"a lazy {type(keys).__name__} names no key columns; give a Dask DataFrame with "
                f"the columns {self.on!r}, or compute() it first"
            )
        if not isinstance(keys, dd.DataFrame):
            keys = keys_frame(keys, self._descriptor.encoder, self._descriptor.meta)
        return self._change("erase", keys, self.on)
