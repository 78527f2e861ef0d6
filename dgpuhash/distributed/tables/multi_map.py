"""DistributedMultiMap: any number of values for each key, on the workers of a cluster."""

from __future__ import annotations

from functools import partial
from typing import Unpack, overload

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.distributed.pruning.policy import PruningOptions, Switch
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.distributed.tables import contents
from dgpuhash.distributed.tables.base import MASK
from dgpuhash.distributed.tables.batch import AnswerColumn, dtype_of
from dgpuhash.distributed.tables.key_table import PairTable
from dgpuhash.tables.stores.method import multimap_spec
from dgpuhash.typing import (
    Array,
    ArrayKind,
    DistributedKeySettings,
    DistributedMultiMapSettings,
    KeysLike,
    ValuesLike,
)


class DistributedMultiMap(PairTable):
    """Map from keys to lists of values, sharded over a cluster's workers.

    Each worker has a `MultiMap` of its keys, which their hash gives to it. See `DistributedSet` for
    how verbs work, their arguments and answers, and when a table is lost. The values of a key keep
    the order of the rows that they were inserted in, over all chunks.

    Parameters
    ----------
    key_dtype, value_dtype : dtype
        As for `MultiMap`.
    capacity : int
        Distinct keys to make room for in all; the shards grow by themselves beyond.
    max_load : float, optional
        Share of the key slots in use above which a shard grows; 0.9 when None.
    device : {"cpu", "cuda"}, optional
        None: where the first arrays are.
    seed : int, optional
        Seed of the shards' hash function; default: a new one. The hash partition has another one.
    initial_bucket, growth
        As for `MultiMap`.
    mode : {"distributed", "independent"}, default "distributed"
        As for `DistributedSet`. Lists of an independent multimap follow each other in the order of
        `workers`.
    client, workers, exchange, piece_rows, method, **settings
        As for `DistributedSet`. Some methods keep no order of a key's values; `dgpuhash.methods`
        tells which.

    Raises
    ------
    KeyTypeError, SpecError, DeviceError, UnsupportedError
        As for `DistributedSet`.

    Examples
    --------
    >>> import numpy as np
    >>> from distributed import Client
    >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
    >>> routes = DistributedMultiMap("int64", "int64", client=client)
    >>> routes.insert(np.array([1, 2, 1]), np.array([10, 20, 30]))
    >>> routes.find(np.array([1, 3, 2]))
    (array([10, 30, 20]), array([0, 2, 2, 3]))
    >>> len(routes)
    3
    >>> routes.close(); client.close()
    """

    kind = "multimap"

    def __init__(
        self,
        key_dtype: DTypeLike,
        value_dtype: DTypeLike,
        capacity: int = 0,
        *,
        initial_bucket: int | None = None,
        growth: float | None = None,
        **settings: Unpack[DistributedKeySettings],
    ) -> None:
        make_spec = partial(
            multimap_spec, key_dtype, value_dtype, initial_bucket=initial_bucket, growth=growth
        )
        super().__init__(make_spec, capacity, settings)

    @classmethod
    def from_arrays(
        cls, keys: KeysLike, values: ValuesLike, **settings: Unpack[DistributedMultiMapSettings]
    ) -> DistributedMultiMap:
        """Return a multimap of `keys` and `values`, with their dtypes and device."""
        made = cls(dtype_of(keys, "keys"), dtype_of(values, "values"), **settings)
        with made._closed_on_error():
            made.insert(keys, values)
        return made

    @property
    def n_keys(self) -> int:
        """Number of distinct keys that are stored."""
        if self._mode.independent:
            return len(self.keys())
        return sum(self._run_if_opened(contents.key_count))

    def insert(self, keys: KeysLike, values: ValuesLike) -> None:
        """Append each value to its key's list, in row order.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, UnsupportedError
            When an argument does not fit the table, which stays unchanged.
        IndexLost
            When a worker was lost, or the table has been.
        OutOfMemoryError, CapacityError
            When a shard cannot grow; the table is lost.
        """
        self._ask(Verb("insert"), keys, values)

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
        """Return all values of each key.

        Parameters are those of `contains`.

        Returns
        -------
        values : array
            The values of the first key, of the second, and so on, in the order of their rows; in
            the form of `keys`.
        offsets : array of int64
            One more than `keys`: key *i* has ``values[offsets[i]:offsets[i + 1]]``. For a Dask
            array this holds chunk by chunk: both answers have its chunks, and a chunk of offsets
            has one more element than the chunk of keys, and begins with 0.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, UnsupportedError, SpecError
            When an argument does not fit the table.
        IndexLost
            When a worker was lost, or the table has been.
        """
        assert self.value_dtype is not None
        shown = [
            AnswerColumn(self.value_dtype, by_row=False),
            AnswerColumn(np.dtype(np.int64), by_row=False, offsets=True),
        ]
        verb = Verb("find", sparing=PruningOptions.of(bloom_filter, deduplicate))
        values, offsets = self._ask(verb, keys, shown=shown)
        return values, offsets

    def execute(
        self, ops: KeysLike, keys: KeysLike, values: ValuesLike | None = None
    ) -> tuple[Array, Array, Array]:
        """Find all values of keys, append values and remove keys, in one call.

        Operations on the same key happen one after another: those of a chunk of at most
        `piece_rows` rows in the order of their rows, chunks in any order. All reach their workers
        in one exchange. A batch that changes anything works on copies of the shards, which replace
        them once all workers have carried out all rows.

        Parameters
        ----------
        ops, keys, values
            As for `MultiMap.execute`: Dask arrays, or arrays of the client's.

        Returns
        -------
        values, offsets : array
            As those of `find`, for rows that find.
        flags : array of bool
            Whether the row's key was found, created or removed.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, SpecError
            When an argument does not fit the table, or a code is none of these operations; the
            table is unchanged.
        UnsupportedError
            When multimaps of this method erase no keys, or the table is independent.
        IndexLost
            When a worker was lost, or the table has been.
        OutOfMemoryError, CapacityError
            When a worker has no room for its rows, or for the copy; the table is unchanged.

        Examples
        --------
        >>> from distributed import Client
        >>> from dgpuhash import Op
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> lists = DistributedMultiMap.from_arrays([1, 1], [10, 11], client=client)
        >>> ops = [Op.FIND, Op.ERASE_ALL, Op.INSERT, Op.FIND]
        >>> lists.execute(ops, [1, 1, 1, 1], [0, 0, 12, 0])
        (array([10, 11, 12]), array([0, 2, 2, 2, 3]), array([ True,  True,  True,  True]))
        >>> lists.close(); client.close()
        """
        assert self.value_dtype is not None
        self._check_in_order()
        given = [] if values is None else [values]
        shown = [
            AnswerColumn(self.value_dtype, by_row=False),
            AnswerColumn(np.dtype(np.int64), by_row=False, offsets=True),
            MASK,
        ]
        verb = Verb("execute", valued=bool(given))
        found, offsets, flags = self._ask(verb, keys, *given, ops=ops, shown=shown)
        return found, offsets, flags

    def compact(self) -> None:
        """Make each key's values contiguous, in as little memory as possible.

        Lookups are fastest then. A table that was filled by one insert is compact already.

        Raises
        ------
        OutOfMemoryError
            When a worker has no room for a second copy; the content stays unchanged.
        IndexLost
            When a worker was lost, or the table has been.
        """
        with self._at_work():
            self._held = self._phase(contents.compact_table_shard)
