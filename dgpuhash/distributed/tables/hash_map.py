"""DistributedMap: one value for each key, on the workers of a cluster."""

from __future__ import annotations

from functools import partial
from typing import Unpack, overload

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.distributed.partition.table_mode import TableMode
from dgpuhash.distributed.pruning.policy import PruningOptions, Switch
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.distributed.tables.base import MASK
from dgpuhash.distributed.tables.batch import AnswerColumn, dtype_of
from dgpuhash.distributed.tables.key_table import PairTable
from dgpuhash.errors import SpecError
from dgpuhash.tables.arguments.combine import check_combine
from dgpuhash.tables.arguments.interop import default_row
from dgpuhash.tables.stores.method import table_spec
from dgpuhash.typing import (
    Array,
    ArrayKind,
    Combine,
    ConflictName,
    DistributedKeySettings,
    DistributedMapSettings,
    KeepRow,
    KeysLike,
    Scalar,
    ValuesLike,
)


class DistributedMap(PairTable):
    """Map from keys to values, sharded over the workers of a Dask cluster.

    Each worker has a `HashMap` of its keys, which their hash gives to it. See `DistributedSet` for
    how verbs work, their arguments and answers, and when a table is lost.

    Parameters
    ----------
    key_dtype, value_dtype : dtype
        As for `HashMap`.
    capacity : int
        Keys to make room for in all; the shards grow by themselves beyond.
    max_load : float, optional
        Share of the slots in use above which a shard grows; 0.9 when None.
    device : {"cpu", "cuda"}, optional
        None: where the first arrays are.
    seed : int, optional
        Seed of the shards' hash function; default: a new one. The hash partition has another one.
    mode : {"distributed", "independent"}, default "distributed"
        As for `DistributedSet`.
    conflict : {"error", "first", "last", "min", "max", "sum"}
        Which value a find gives when several workers of an independent map have one. Error: none,
        it is refused. First and last: that of the first or last of `workers`. Others: the least,
        greatest or summed value, NaN and NaT left out; numbers and, but for sums, times.
    client, workers, exchange, piece_rows, method, **settings
        As for `DistributedSet`.

    Raises
    ------
    KeyTypeError, SpecError, DeviceError, UnsupportedError
        As for `DistributedSet`.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
    >>> keys = da.arange(6, chunks=3)
    >>> squares = DistributedMap.from_arrays(keys, keys * keys, client=client)
    >>> values, found = squares.find(da.arange(4, 8, chunks=2), default=-1)
    >>> values.compute(), found.compute()
    (array([16, 25, -1, -1]), array([ True,  True, False, False]))
    >>> squares.match([9, 2])
    (array([1]), array([4]))
    >>> keys, values = squares.items()
    >>> bool((values == keys * keys).all().compute())
    True
    >>> squares.save("memory://squares")
    >>> len(DistributedMap.load("memory://squares", client=client))
    6
    >>> squares.close(); client.close()
    """

    kind = "map"

    def __init__(
        self,
        key_dtype: DTypeLike,
        value_dtype: DTypeLike,
        capacity: int = 0,
        *,
        conflict: ConflictName = "error",
        **settings: Unpack[DistributedKeySettings],
    ) -> None:
        super().__init__(
            partial(table_spec, "map", key_dtype, value_dtype),
            capacity,
            settings,
            lambda mode, value: TableMode.of(mode, conflict, value),
        )

    @classmethod
    def from_arrays(
        cls,
        keys: KeysLike,
        values: ValuesLike,
        *,
        keep: KeepRow = "any",
        **settings: Unpack[DistributedMapSettings],
    ) -> DistributedMap:
        """Return a map of `keys` to `values`, of their dtypes, on their device."""
        made = cls(dtype_of(keys, "keys"), dtype_of(values, "values"), **settings)
        with made._closed_on_error():
            if keep == "any":
                made._ask(Verb("add"), keys, values)
            else:
                made.insert(keys, values, keep=keep)
        return made

    @overload
    def insert(
        self,
        keys: ArrayKind,
        values: ValuesLike,
        *,
        keep: KeepRow | None = None,
        combine: Combine | None = None,
    ) -> ArrayKind: ...
    @overload
    def insert(
        self,
        keys: KeysLike,
        values: ValuesLike,
        *,
        keep: KeepRow | None = None,
        combine: Combine | None = None,
    ) -> Array: ...
    def insert(
        self,
        keys: KeysLike,
        values: ValuesLike,
        *,
        keep: KeepRow | None = None,
        combine: Combine | None = None,
    ) -> Array:
        """Add pairs with new keys; stored keys keep their value.

        With `combine`, a key gets the sum, minimum, maximum or bitwise or of the value that it has,
        if any, and of the values of all its rows.

        Parameters
        ----------
        keys, values : Dask arrays, or arrays of the client's
            One value for each key.
        keep : {"any", "first", "last"}
            Which pair counts when a new key comes more than once: any one of them, whole (the
            fastest and the default), or the one in the first or the last row.
        combine : {"sum", "min", "max", "or"}, optional
            As for `HashMap.insert`; of an independent map each worker combines its own rows.

        Returns
        -------
        array of bool
            True in the row of each new key that counts; in the form of `keys`. With `combine`, true
            in one row of each new key.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, SpecError, UnsupportedError
            When an argument does not fit the table, which stays unchanged.
            Also when ``keep`` and ``combine`` are both given, or the values cannot be combined so.
        IndexLost
            When a worker was lost, or the table has been.
        OutOfMemoryError
            When a shard cannot grow; the table is lost.
        """
        if keep not in (None, "any", "first", "last"):
            raise SpecError(f"keep={keep!r}; use 'any', 'first' or 'last'")
        if combine is not None:
            check_combine(combine, keep, self.value_dtype)
        verb = Verb("insert", keep=keep or "any", combine=combine)
        return self._ask(verb, keys, values, shown=[MASK])[0]

    def upsert(self, keys: KeysLike, values: ValuesLike) -> None:
        """Store pairs, replacing values; of equal keys the last row counts.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, UnsupportedError, IndexLost, OutOfMemoryError
            As for `insert`.
        """
        self._ask(Verb("upsert"), keys, values)

    @overload
    def find(
        self,
        keys: ArrayKind,
        default: Scalar | None = None,
        *,
        bloom_filter: Switch = "auto",
        deduplicate: Switch = "auto",
    ) -> tuple[ArrayKind, ArrayKind]: ...
    @overload
    def find(
        self,
        keys: KeysLike,
        default: Scalar | None = None,
        *,
        bloom_filter: Switch = "auto",
        deduplicate: Switch = "auto",
    ) -> tuple[Array, Array]: ...
    def find(
        self,
        keys: KeysLike,
        default: Scalar | None = None,
        *,
        bloom_filter: Switch = "auto",
        deduplicate: Switch = "auto",
    ) -> tuple[Array, Array]:
        """Return the value of each key, and a mask of stored keys.

        Parameters
        ----------
        keys : Dask array, or array of the client's
        default : scalar, optional
            The value where a key is absent; zero bytes when None.
        bloom_filter, deduplicate
            As for `contains`.

        Returns
        -------
        values, found : array
            In input order and in the form of `keys`; `found` is a mask.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, UnsupportedError, SpecError
            When an argument does not fit the table.
            Also when several workers have a value, and the map no rule for `conflict`.
        IndexLost
            When a worker was lost, or the table has been.
        """
        assert self.value_dtype is not None
        default_row(default, self.value_dtype)
        shown = [AnswerColumn(self.value_dtype, default=default), AnswerColumn(np.dtype(bool))]
        verb = Verb("find", default=default, sparing=PruningOptions.of(bloom_filter, deduplicate))
        values, found = self._ask(verb, keys, shown=shown)
        return values, found

    def execute(
        self,
        ops: KeysLike,
        keys: KeysLike,
        values: ValuesLike | None = None,
        default: Scalar | None = None,
    ) -> tuple[Array, Array]:
        """Find, store and remove pairs in one call, side by side.

        Operations on the same key happen one after another, in no particular order: all together
        answer as if they had been called one by one. They reach their workers in one exchange, as
        those of `HashMap.execute` reach the table in one launch.

        Parameters
        ----------
        ops : Dask array, or array of the client's, of uint8
            An `Op` for each row.
        keys : Dask array, or array of the client's
            Keys of any number of rows may be equal.
        values : array, optional
            A value for each row; only those of rows that store are read. None where none does.
        default : scalar, optional
            The value of rows that find nothing; zero bytes when None.

        Returns
        -------
        values, flags : array
            Values that were found, and the default in all other rows; whether the row's key was
            found, created or removed. In input order and in the form of `keys`.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, SpecError
            When an argument does not fit the map, or a code is no operation; the map is unchanged.
        UnsupportedError
            When maps of this method have no mixed batches, or the map is independent.
        OutOfMemoryError
            When a worker has no memory for its new keys; the map is unchanged, as no row takes
            effect before all workers have room.
        IndexLost
            When a worker was lost, or the map has been.

        Examples
        --------
        >>> from distributed import Client
        >>> from dgpuhash import Op
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> stock = DistributedMap("uint32", "uint32", method="slab", client=client)
        >>> stock.upsert([1, 2], [10, 20])
        >>> ops = [Op.FIND, Op.UPSERT, Op.ERASE, Op.FIND]
        >>> values, flags = stock.execute(ops, [1, 3, 2, 9], [0, 30, 0, 0])
        >>> values, flags
        (array([10,  0,  0,  0], dtype=uint32), array([ True,  True,  True, False]))
        >>> stock.close(); client.close()
        """
        assert self.value_dtype is not None
        self._check_in_order()
        default_row(default, self.value_dtype)
        given = [] if values is None else [values]
        shown = [AnswerColumn(self.value_dtype, default=default), MASK]
        verb = Verb("execute", default=default, valued=bool(given))
        found, flags = self._ask(verb, keys, *given, ops=ops, shown=shown)
        return found, flags
