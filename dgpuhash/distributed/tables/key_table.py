"""Common verbs of distributed sets, maps and multimaps: contains, count, erase, keys."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, overload

import numpy as np

from dgpuhash.distributed.partition.descriptor import Placement
from dgpuhash.distributed.partition.table_mode import TableMode
from dgpuhash.distributed.pruning.policy import PruningOptions, Switch
from dgpuhash.distributed.shards import table_store
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.distributed.tables import contents
from dgpuhash.distributed.tables.base import MASK
from dgpuhash.distributed.tables.batch import AnswerColumn
from dgpuhash.distributed.tables.maintenance import TableMaintenance
from dgpuhash.errors import UnsupportedError
from dgpuhash.spec import TableSpec, check_capacity
from dgpuhash.typing import Array, ArrayKind, DistributedKeySettings, KeysLike

_WHERE = ("client", "workers", "exchange", "device", "piece_rows")
# What `table_spec` takes beside the settings of a method, and its defaults.
_OPTIONS = {"max_load": None, "seed": None, "method": "auto"}


class DistributedKeyTable(TableMaintenance):
    """Base of distributed tables with enumerable keys.

    Parameters
    ----------
    make_spec : callable
        As `table_spec`, with the dtypes given; raises as it does.
    capacity : int
    settings : mapping
        Those of the table, of its method, and of where it is.
    make_mode : callable
        Returns the mode by its name and the dtype of the values.
    """

    def __init__(
        self,
        make_spec: Callable[..., TableSpec],
        capacity: int,
        settings: DistributedKeySettings,
        make_mode: Callable[[str, np.dtype[Any] | None], TableMode] = lambda mode, _: TableMode.of(
            mode
        ),
    ) -> None:
        given: dict[str, Any] = {**settings}
        mode = given.pop("mode", "distributed")
        where = {name: given.pop(name) for name in _WHERE if name in given}
        options = {name: given.pop(name, default) for name, default in _OPTIONS.items()}
        spec = make_spec(**options, settings=given)
        super().__init__(spec, capacity, mode=make_mode(mode, spec.value), **where)

    @property
    def placement(self) -> Placement:
        """Whether a row is stored by its key's owner or by the worker that had it (``mode=``)."""
        return self._mode.placement

    def __len__(self) -> int:
        return sum(self._run_if_opened(table_store.size_of))

    @overload
    def contains(
        self, keys: ArrayKind, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> ArrayKind: ...
    @overload
    def contains(
        self, keys: KeysLike, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> Array: ...
    def contains(
        self, keys: KeysLike, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> Array:
        """Return a mask of stored keys, in input order and the form of `keys`.

        Parameters
        ----------
        keys : Dask array, or array of the client's
        bloom_filter : {"auto", True, False}
            Whether workers prune nearly all absent keys before they send keys to others, by a Bloom
            filter of about 11 bits for each key of the table, of which every worker keeps a copy
            until keys are added. ``"auto"``: where earlier lookups had many absent keys: since the
            last change, as many as the table has keys, and in the last lookup at least a quarter,
            on GPUs three quarters of very many.
        deduplicate : {"auto", True, False}
            Whether each worker looks each of its distinct keys up once. ``"auto"``: where a sample
            says that keys repeat often enough for that to pay.
        """
        verb = Verb("contains", sparing=PruningOptions.of(bloom_filter, deduplicate))
        return self._ask(verb, keys, shown=[MASK])[0]

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
        """Return how often each key is stored, as int64, in the form of `contains`."""
        verb = Verb("count", sparing=PruningOptions.of(bloom_filter, deduplicate))
        return self._ask(verb, keys, shown=[AnswerColumn(np.dtype(np.int64))])[0]

    @overload
    def erase(self, keys: ArrayKind) -> ArrayKind: ...
    @overload
    def erase(self, keys: KeysLike) -> Array: ...
    def erase(self, keys: KeysLike) -> Array:
        """Remove keys; return a mask, true in one row of each stored key."""
        return self._ask(Verb("erase"), keys, shown=[MASK])[0]

    def _check_in_order(self) -> None:
        """Raise UnsupportedError for an independent table."""
        if self._mode.independent:
            raise UnsupportedError(
                f"a mixed batch of an independent {type(self).__name__}is not supported, because "
                f"several workers may store a key; make the table with mode='distributed'"
            )

    def keys(self) -> Array:
        """Return the distinct keys, in no particular order.

        They are a Dask array with one chunk a shard. It lies on the workers, computed already;
        later changes of the table do not change it.
        """
        with self._at_work():
            keys = self._contents("keys", [self.key_dtype])[0]
            if self._mode.independent:
                # Several workers may store a key.
                shown = [AnswerColumn(np.dtype(np.int64), by_row=False)]
                shown.append(AnswerColumn(self.key_dtype, by_row=False))
                _, keys = self._ask(Verb("distinct", matching=True), keys, shown=shown)
        return keys

    def reserve(self, keys: int) -> None:
        """Make room for `keys` distinct keys in all.

        Inserts up to that number do not grow the shards.

        Raises
        ------
        SpecError
            When `keys` is negative or absurd.
        OutOfMemoryError
            When a worker has not enough memory; the content stays unchanged. Before the first
            arrays have decided on a device, their verb is refused instead, once.
        IndexLost
            When a worker was lost, or the table has been.
        """
        wanted = check_capacity(keys, "reserve")
        with self._at_work():
            before, self._capacity = self._capacity, max(self._capacity, wanted)
            try:
                if self._open:
                    self._held = self._phase(contents.reserve_table_shard, self._share)
            except BaseException:
                # Shards that are made anew later would be as large.
                self._capacity = before
                raise


class EntryTable(DistributedKeyTable):
    """Mixin of distributed sets, maps and multimaps: run user functions on shards."""

    def for_each(self, keys: KeysLike, fn: Callable[..., object]) -> list[Any]:
        """Call a function for the entries of keys, on the workers of their shards.

        Parameters
        ----------
        keys : Dask array, or array of the client's
            Of the table's dtype.
        fn : callable
            It gets arrays ``(keys, values, rows)`` of the table's device, some queries after
            others: stored keys, their values (None for sets), and the rows of `keys` (int64),
            numbered over all chunks. A multimap's key is there once for each value. Kernels of its
            own may work on them. It travels to the workers, where it must not use the table.

        Returns
        -------
        list
            What the function returned, worker by worker in the order of `workers`.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When the keys do not fit the table.
        UnsupportedError
            For text in C++.
        IndexLost
            When a worker was lost, or the table has been.

        Examples
        --------
        >>> from distributed import Client
        >>> from dgpuhash.distributed import DistributedMap
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> table = DistributedMap.from_arrays([1, 2, 3], [10, 20, 30], client=client)
        >>> sums = table.for_each([3, 7, 1], lambda keys, values, rows: int(values.sum()))
        >>> sum(sums)
        40
        >>> table.close(); client.close()
        """
        _check_callable(fn)
        return list(self._ask(Verb("for_each", call=fn), keys))

    def for_all(self, fn: Callable[..., object]) -> list[Any]:
        """Call a function for all entries, as `for_each` without row numbers."""
        _check_callable(fn)
        return list(chain.from_iterable(self._run_if_opened(contents.visit_table_shard, fn)))


def _check_callable(fn: object) -> None:
    if not callable(fn):
        raise UnsupportedError(
            f"for_each and for_all on workers call a Python function, not {type(fn).__name__}; "
            "give one that launches the kernel with the arrays that it gets"
        )


class PairTable(EntryTable):
    """Base of distributed maps and multimaps."""

    def match(
        self, keys: KeysLike, *, bloom_filter: Switch = "auto", deduplicate: Switch = "auto"
    ) -> tuple[Array, Array]:
        """Return the matched rows and their values: an inner join.

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
        """Return all values, in the order of `items`."""
        return self._contents("values", [self.value_dtype])[0]
