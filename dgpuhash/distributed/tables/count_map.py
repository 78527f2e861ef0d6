"""DistributedCountMap: counts of keys on the workers of a cluster."""

from __future__ import annotations

from functools import partial
from typing import Any, SupportsIndex, Unpack, overload

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.partition.table_mode import TableMode
from dgpuhash.distributed.pruning.policy import PruningOptions, Switch
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.distributed.tables import contents
from dgpuhash.distributed.tables.batch import AnswerColumn, dtype_of
from dgpuhash.distributed.tables.key_table import DistributedKeyTable
from dgpuhash.errors import KeyTypeError
from dgpuhash.spec import TableSpec
from dgpuhash.tables.count_map import as_count, is_column
from dgpuhash.tables.stores.method import methods, table_spec
from dgpuhash.typing import (
    Array,
    ArrayKind,
    DistributedKeySettings,
    DistributedTableSettings,
    KeysLike,
)

_COUNT = np.dtype(np.uint64)


def _count_spec(key_dtype: DTypeLike, *, method: str, **options: Any) -> TableSpec:
    spec = table_spec("count", key_dtype, _COUNT, method=method, **options)
    methods()[method].require("combine", "count")
    return spec


def _count_mode(mode: str, _: object) -> TableMode:
    placed = TableMode.of(mode)
    return TableMode(placed.placement, Conflict.SUM) if placed.independent else placed


class DistributedCountMap(DistributedKeyTable):
    """Map from keys to exact counts, sharded over the workers of a Dask cluster.

    Each worker has a `CountMap` of its keys, which their hash gives to it. A worker adds up its own
    rows of frequent keys before they travel. See `DistributedSet` for how verbs work, their
    arguments and answers, and when a table is lost.

    Parameters
    ----------
    key_dtype : dtype
        As for `CountMap`.
    capacity : int
        Keys to make room for in all; the shards grow by themselves beyond.
    max_load : float, optional
        Share of the slots in use above which a shard grows; 0.9 when None.
    device : {"cpu", "cuda"}, optional
        None: where the first arrays are.
    seed : int, optional
        Seed of the shards' hash function; default: a new one. The hash partition has another one.
    mode : {"distributed", "independent"}, default "distributed"
        As for `DistributedSet`; a key's counts on several workers are added by `find` and `count`.
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
    >>> seen = DistributedCountMap("int64", client=client)
    >>> seen.insert(da.arange(6, chunks=3) // 2)
    >>> seen.insert([2, 9], counts=[5, 0])
    >>> counts, found = seen.find(da.arange(4, chunks=2))
    >>> counts.compute(), found.compute()
    (array([2, 2, 7, 0], dtype=uint64), array([ True,  True,  True, False]))
    >>> len(seen), seen.total
    (4, 11)
    >>> seen.close(); client.close()
    """

    kind = "count"

    def __init__(
        self,
        key_dtype: DTypeLike,
        capacity: int = 0,
        **settings: Unpack[DistributedKeySettings],
    ) -> None:
        super().__init__(partial(_count_spec, key_dtype), capacity, settings, _count_mode)

    @classmethod
    def from_keys(
        cls,
        keys: KeysLike,
        counts: KeysLike | SupportsIndex = 1,
        **settings: Unpack[DistributedTableSettings],
    ) -> DistributedCountMap:
        """Return the counts of `keys`, of their dtype and on their device.

        `settings` are those of the class.
        """
        made = cls(dtype_of(keys, "keys"), **settings)
        with made._closed_on_error():
            made.insert(keys, counts)
        return made

    @property
    def total(self) -> int:
        """Sum of all counts, exact."""
        return sum(self._run_if_opened(contents.count_total))

    def insert(self, keys: KeysLike, counts: KeysLike | SupportsIndex = 1) -> None:
        """Add to the counts of keys; absent keys start at 0.

        Parameters
        ----------
        keys : Dask array, or array of the client's
            A key may come in any number of rows.
        counts : int, or array of integers in the form of `keys`
            What each row adds, not negative; 0 stores the key.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, SpecError, UnsupportedError
            When an argument does not fit the table, or a count is negative.
        CountOverflowError
            When a count would not fit into 64 bits; no count has changed.
        IndexLost
            When a worker was lost, or the table has been.
        OutOfMemoryError
            When a shard cannot grow; the table is lost.
        """
        if is_column(counts):
            self._ask(Verb("insert"), keys, counts)
        else:
            self._ask(Verb("insert", term=as_count(counts)), keys)

    def merge(self, other: DistributedCountMap) -> None:
        """Add all counts of another table of the same client.

        Raises
        ------
        KeyTypeError, DeviceError
            When the keys or devices differ.
        CountOverflowError
            When a count would not fit into 64 bits; no count has changed.
        """
        keys, counts = other.items()
        self.insert(keys, counts)

    @overload
    def find(
        self, keys: ArrayKind, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> tuple[ArrayKind, ArrayKind]: ...
    @overload
    def find(
        self, keys: KeysLike, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> tuple[Array, Array]: ...
    def find(
        self, keys: KeysLike, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> tuple[Array, Array]:
        """Return the count of each key, and a mask of stored keys.

        Parameters
        ----------
        keys : Dask array, or array of the client's
        bloom_filter, deduplicate
            As for `contains`.

        Returns
        -------
        counts, found : array
            uint64, 0 where a key is absent, and a mask; in input order and in the form of `keys`.
        """
        shown = [AnswerColumn(_COUNT), AnswerColumn(np.dtype(bool))]
        verb = Verb("find", sparing=PruningOptions.of(bloom_filter, deduplicate))
        counts, found = self._ask(verb, keys, shown=shown)
        return counts, found

    @overload
    def count(
        self, keys: ArrayKind, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> ArrayKind: ...
    @overload
    def count(
        self, keys: KeysLike, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> Array: ...
    def count(
        self, keys: KeysLike, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> Array:
        """Return each key's count (uint64), 0 if absent; as `find` without the mask."""
        return self.find(keys, bloom_filter=bloom_filter, deduplicate=deduplicate)[0]

    def items(self) -> tuple[Any, Any]:
        """Return all keys and their counts (uint64), in no particular order.

        Returns
        -------
        keys, counts : Dask array
            One chunk a shard. They lie on the workers, computed already; later changes of the table
            do not change them.
        """
        keys, counts = self._contents("items", [self.key_dtype, _COUNT])
        return keys, counts

    def _as_values(self, values: Any) -> tuple[Any, str]:
        dtype = dtype_of(values, "counts")
        if dtype.kind not in "iu":
            raise KeyTypeError(
                f"counts of dtype {dtype} are not integers; convert them with .astype('uint64')"
            )
        return dtype, "counts"
