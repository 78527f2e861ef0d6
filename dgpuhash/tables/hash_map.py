"""HashMap: one value for each key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Self, Unpack, overload

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.backend import Backend
from dgpuhash.backend.launches import Step
from dgpuhash.errors import SpecError
from dgpuhash.tables.arguments.combine import Update, check_combine
from dgpuhash.tables.arguments.encoding import value_memory, word_dtype, words_of
from dgpuhash.tables.arguments.interop import (
    ArrayArgument,
    as_argument,
    as_device_array,
    default_row,
    host_as_device_array,
    natural_dtype,
)
from dgpuhash.tables.arguments.lca import Lca, LcaChange, check_lca
from dgpuhash.tables.base import Table
from dgpuhash.tables.columns.distinct import deduplicated_rows
from dgpuhash.tables.commit import MakeSteps
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.open_addressing.slot_order import item_slices, saved_items, store_in_order
from dgpuhash.tables.open_addressing.slots import Slots
from dgpuhash.tables.open_addressing.values import SlotValues, values_for
from dgpuhash.tables.rwlock import read_locked, write_locked
from dgpuhash.tables.select import select_found
from dgpuhash.tables.serialization import Buffers
from dgpuhash.tables.stores.method import methods, table_spec
from dgpuhash.tables.stores.mixed import ExecutesPairs
from dgpuhash.tables.user_kernels.verbs import UserKernels
from dgpuhash.typing import (
    Array,
    ArrayKind,
    Combine,
    Device,
    KeepRow,
    KeysLike,
    MethodSettings,
    Number,
    Scalar,
    TableSettings,
    ValuesLike,
)

_BOOL = np.dtype(bool)


class FindsPairs:
    """Lookup verbs of a map."""

    @overload
    def find(
        self: Any, keys: ArrayKind, default: Scalar | None = None, *, in_order: Literal[True] = True
    ) -> tuple[ArrayKind, ArrayKind]: ...
    @overload
    def find(
        self: Any, keys: KeysLike, default: Scalar | None = None, *, in_order: Literal[True] = True
    ) -> tuple[Array, Array]: ...
    @overload
    def find(
        self: Any, keys: KeysLike, default: Scalar | None = None, *, in_order: bool
    ) -> tuple[Array, ...]: ...
    @translates_memory_errors
    @read_locked
    def find(
        self: Any, keys: KeysLike, default: Scalar | None = None, *, in_order: bool = True
    ) -> tuple[Array, ...]:
        """Return the value of each key, and whether the key is stored.

        Parameters
        ----------
        keys : array
            Any kind; keys that `key_dtype` does not hold are absent.
        default : scalar, optional
            The value where a key is absent; zero bytes when None.
        in_order : bool
            False: tables of a method that reorders batches, as ``"supernode"``, answer in the order
            of the keys' places in the table, so that rows near each other read the same memory.

        Returns
        -------
        values, found : array
            In input order and of the same kind as `keys`, or NumPy arrays where that kind lacks
            the dtype; `found` is a mask.
        rows : array of int64
            Only with ``in_order=False``: the rows of `keys` that the answers belong to, so that
            ``values[i]`` is that of ``keys[rows[i]]``. Every row occurs once.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When an argument does not fit the table.
        UnsupportedError
            For ``in_order=False`` when tables of this method do not reorder.

        Examples
        --------
        >>> from dgpuhash import HashMap
        >>> HashMap.from_arrays([1, 2], [10, 20]).find([2, 5])
        (array([20,  0]), array([ True, False]))
        >>> prices = HashMap.from_arrays([1, 2], [10, 20], method="supernode")
        >>> values, found, rows = prices.find([2, 5], in_order=False)
        >>> dict(zip(rows.tolist(), values.tolist())) == {0: 20, 1: 0}
        True
        """
        if not in_order:
            methods()[self._spec.method].require("reorder", self.kind)
        taken, asked, bits = self._asked(keys)
        store, rows = self._opened(), None
        row = default_row(default, self._value)
        # Keys of which some are dropped are brought back to their rows, so that these are in order.
        if not in_order and asked.rows is None:
            bits, rows = store.reorder(bits)
        values, found = self._values.find(store, bits, row)
        if asked.rows is not None:
            absent = host_as_device_array(store.backend, row, self._value)
            values, found = asked.by_row(values, absent), asked.by_row(found)
        answers = taken.wrap(values, self._value), taken.wrap(found, _BOOL)
        if in_order:
            return answers
        if rows is None:
            rows = store.backend.xp.arange(len(found))
        return (*answers, taken.wrap(rows, _ROW))

    @translates_memory_errors
    @read_locked
    def _find_to(self: Any, keys: Any, default: Any, values: Any, found: Any) -> bool:
        """Look up keys as `find`, into output arrays of equal width on this device.

        Returns False where that is impossible.
        """
        _, bits = self._stored_as(keys)
        store = self._opened()
        row = default_row(default, self._value)
        return self._values.find_to(store, bits, row, values, found)

    def match(self: Any, keys: KeysLike) -> tuple[Array, Array]:
        """Return the rows with stored keys, and their values (an inner join).

        With row numbers as values, the result is the row pairs of `join_indices` with a table that
        was built before.

        Parameters
        ----------
        keys : array
            Any kind; keys that `key_dtype` does not hold are absent.

        Returns
        -------
        rows, values : array
            Row numbers (int64) in input order and the value of each of these rows; NumPy or CuPy
            arrays.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When an argument does not fit the table.

        Examples
        --------
        >>> from dgpuhash import HashMap
        >>> HashMap.from_arrays([1, 2], [10, 20]).match([2, 5, 1])
        (array([0, 2]), array([20, 10]))
        """
        found: tuple[Any, Any] = self._match(keys, named=True)
        return found

    @translates_memory_errors
    @read_locked
    def _match(self: Any, keys: Any, *, named: bool) -> tuple[Any, Any]:
        """Match as `match` does; rows are None for all rows unless `named`."""
        _, asked, bits = self._asked(keys)
        store = self._opened()
        words, found = store.find(bits)
        named = named or asked.rows is not None
        rows, words = select_found(store.backend, found, words, named=named)
        return asked.numbers(rows), self._values.decode(words)


class HashMap(UserKernels, FindsPairs, ExecutesPairs, Table):
    """Map from keys to values on a CPU or a GPU.

    Open addressing with cooperative probing (WarpCore, Jünger et al. 2020, §IV-B): double hashing
    between buckets of 64 bytes, inside a segment of 64 KiB. Overflow bits, which tell whether a key
    has passed a full bucket, end the search for an absent key early.

    Parameters
    ----------
    key_dtype : dtype
        Any bool, integer, float, datetime64 or timedelta64 of at most 8 bytes, or a record of
        integers of 16 bytes, which is compared whole. Every value can be stored; -0.0 is 0.0, all
        NaNs are one key, and so is NaT.
    value_dtype : dtype
        Any fixed size; values of more than 8 bytes are stored in an array beside the slots.
    capacity : int
        Keys to reserve slots for; beyond that number the table grows by itself.
    max_load : float, optional
        Load factor (share of the slots in use) above which the table grows; 0.9 when None.
    device : {"cpu", "cuda"}, optional
        None: the device of the first arrays.
    seed : int, optional
        Seed of the hash function, from 0 to 2**64 - 1; drawn anew when None, unless the variable
        ``DGPUHASH_SEED`` fixes it.
    method : str
        How keys are stored: a name of `dgpuhash.methods`, of which ``"auto"`` is described above.
    **settings
        Settings of the method, as `dgpuhash.methods` shows them.

    Raises
    ------
    KeyTypeError
        When a dtype cannot be stored.
    SpecError
        When a setting is impossible.
    DeviceError
        When there is no such device.
    OutOfMemoryError
        When `capacity` does not fit.

    Notes
    -----
    CuPy has no arrays of dates, text and records: on a GPU, dates are passed as int64 and the
    others as rows of bytes. cuDF Series of dates are accepted and returned.

    Threads may share a table (read-write lock): lookups run concurrently, a change runs alone.
    A thread that re-enters a table in a signal handler or a finaliser may read while it reads; a
    call that would wait for itself raises ReentranceError. A forked process may use tables on the
    CPU; a table that another thread was changing during the fork raises TableBroken. On a GPU all
    work runs on CuPy's current stream; synchronize different streams as for CuPy's arrays.

    Examples
    --------
    >>> import numpy as np
    >>> ages = HashMap("int64", "float32")
    >>> ages.insert(np.array([7, 8, 7]), np.array([1.5, 2.5, 9.5], "float32"), keep="first")
    array([ True,  True, False])
    >>> ages.find(np.array([8, 9, 7]), default=-1)
    (array([ 2.5, -1. ,  1.5], dtype=float32), array([ True, False,  True]))
    >>> 8 in ages, float(ages[8])
    (True, 2.5)
    """

    kind = "map"
    _values: SlotValues

    def __init__(
        self,
        key_dtype: DTypeLike,
        value_dtype: DTypeLike,
        capacity: int = 0,
        *,
        max_load: float | None = None,
        device: Device | None = None,
        seed: int | None = None,
        method: str = "auto",
        **settings: Unpack[MethodSettings],
    ) -> None:
        spec = table_spec(
            "map", key_dtype, value_dtype, max_load=max_load, seed=seed, method=method,
            settings=settings,
        )  # fmt: skip
        super().__init__(spec, capacity, device)

    @classmethod
    def from_arrays(
        cls,
        keys: KeysLike,
        values: ValuesLike,
        *,
        keep: KeepRow = "any",
        **settings: Unpack[TableSettings],
    ) -> HashMap:
        """Return a map of `keys` to `values`, of their dtypes and on their device.

        Examples
        --------
        >>> HashMap.from_arrays([1, 2], [0.5, 0.25]).find([2])[0]
        array([0.25])
        """
        key = natural_dtype(as_argument(keys, "keys"), "keys")
        value = natural_dtype(as_argument(values, "values"), "values")
        made = cls(key, value, **settings)
        if keep == "any":
            made._add(keys, values)
        else:
            made.insert(keys, values, keep=keep)
        return made

    def __getitem__(self, key: Number) -> Array:
        """Return the value of one key, on the table's device; KeyError if it is absent."""
        values, found = self.find([key])
        if not found[0]:
            raise KeyError(key)
        return values[0]

    # Else Python would count up from 0.
    __iter__ = None

    @property
    def nbytes(self) -> int:
        """Memory of the table, in bytes."""
        return super().nbytes + (0 if self._store is None else self._values.nbytes)

    @overload
    def insert(
        self,
        keys: ArrayKind,
        values: ValuesLike,
        *,
        keep: KeepRow | None = None,
        combine: Combine | Lca | None = None,
    ) -> ArrayKind: ...
    @overload
    def insert(
        self,
        keys: KeysLike,
        values: ValuesLike,
        *,
        keep: KeepRow | None = None,
        combine: Combine | Lca | None = None,
    ) -> Array: ...
    @translates_memory_errors
    @write_locked
    def insert(
        self,
        keys: KeysLike,
        values: ValuesLike,
        *,
        keep: KeepRow | None = None,
        combine: Combine | Lca | None = None,
    ) -> Array:
        """Add pairs with new keys; stored keys keep their value.

        With `combine`, a key gets the sum, minimum, maximum, bitwise or, or lowest common ancestor
        of the value that it has, if any, and of the values of all its rows.

        Parameters
        ----------
        keys, values : array
            One value for each key.
        keep : {"any", "first", "last"}
            Which pair is stored when a new key occurs more than once: any one of them, whole (the
            fastest and the default), or the pair in the first or the last row.
        combine : {"sum", "min", "max", "or"} or `lca` of a tree, optional
            Of integers, bools (not "sum") and floats of 4 or 8 bytes (not "or"). Integers wrap
            around, as in NumPy. Floats are added in any order, so that sums agree to rounding; a
            minimum or maximum with a NaN is NaN, as that of `numpy.minimum`. Of integers that are
            nodes of a tree, ``lca(parents)`` is their lowest common ancestor; stored values that
            are no nodes are replaced.

        Returns
        -------
        array of bool
            True in the row of each pair that was stored; of the same kind as `keys`. With
            `combine`, true in one row of each new key.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, SpecError
            When an argument does not fit the table, or ``keep`` and ``combine`` are both given.
        UnsupportedError
            When values of `value_dtype`, or a table of this method, cannot be combined so.
        OutOfMemoryError
            When the table cannot grow; it is unchanged.

        Examples
        --------
        >>> codes = HashMap("uint8", "S2")
        >>> codes.insert([1, 1, 2], [b"de", b"dk", b"es"], keep="last")
        array([False,  True,  True])
        >>> spent = HashMap("int64", "float64", device="cpu")
        >>> spent.insert([4, 7, 4], [1.5, 2.0, 1.0], combine="sum").sum()
        np.int64(2)
        >>> spent.find([4, 7])[0]
        array([2.5, 2. ])
        """
        if combine is not None:
            return self._combine(keys, values, combine, keep)
        if keep not in (None, "any", "first", "last"):
            raise SpecError(f"keep={keep!r}; use 'any', 'first' or 'last'")
        taken, bits, rows = self._pairs(keys, values)
        store = self._opened()
        chosen = None
        if keep in ("first", "last"):
            chosen = deduplicated_rows(store.backend, words_of(bits), last=keep == "last")
        if chosen is None:
            fresh = self._values.insert(store, bits, rows)
        else:
            fresh = store.backend.zeros(len(bits), _BOOL)
            fresh[chosen] = self._values.insert(store, bits[chosen], rows[chosen])
        return taken.wrap(fresh, _BOOL)

    def _combine(self, keys: Any, values: Any, combine: str | Lca, keep: str | None) -> Any:
        """Insert with `combine`, under the write lock."""
        if isinstance(combine, Lca):
            check_lca(combine, keep, self._value)
            methods()[self._spec.method].require("lca", self.kind)
            _, _, rows = self._pairs(keys, values)
            combine.check_nodes(rows)
            return self._changed(keys, values, combine.on(self._opened().backend))
        change = check_combine(combine, keep, self._value)
        methods()[self._spec.method].require("combine", self.kind)
        return self._changed(keys, values, change)

    @translates_memory_errors
    @write_locked
    def _insert_combined(self, keys: Any, values: Any, change: Update | LcaChange) -> Any:
        """Insert and combine values of any dtype by `change`."""
        return self._changed(keys, values, change)

    def _changed(self, keys: Any, values: Any, change: Update | LcaChange) -> Any:
        taken, bits, rows = self._pairs(keys, values)
        words = value_memory(rows, self._value)
        return taken.wrap(self._opened().combine(bits, words, change), _BOOL)

    @translates_memory_errors
    @write_locked
    def upsert(self, keys: KeysLike, values: ValuesLike) -> None:
        """Store pairs, overwriting stored keys; the last row of a key counts.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When an argument does not fit the table.
        OutOfMemoryError
            When the table cannot grow; it is unchanged.

        Examples
        --------
        >>> stock = HashMap.from_arrays([1, 2], [10, 20])
        >>> stock.upsert([2, 3, 3], [21, 30, 31])
        >>> stock.find([1, 2, 3])[0]
        array([10, 21, 31])
        """
        _, bits, rows = self._pairs(keys, values)
        store = self._opened()
        chosen = deduplicated_rows(store.backend, words_of(bits), last=True)
        if chosen is not None:
            bits, rows = bits[chosen], rows[chosen]
        self._values.upsert(store, bits, rows)

    @translates_memory_errors
    @read_locked
    def items(self) -> tuple[Array, Array]:
        """Return all keys and values, unordered, as NumPy or CuPy arrays.

        Examples
        --------
        >>> keys, values = HashMap.from_arrays([4], [0.5]).items()
        >>> keys, values
        (array([4]), array([0.5]))
        """
        bits, words = self._opened().items()
        return self._stored_keys(bits), self._values.decode(words)

    @translates_memory_errors
    def _value_slices(self) -> Iterator[Any]:
        """Yield the values in arrays of bounded size; no thread may change the map meanwhile."""
        for _, words in item_slices(self._opened().slots):
            yield self._values.decode(words)

    def _value_words(self, size: int) -> Iterator[Any]:
        """Yield the writable value words of all slots, free ones included, in slices.

        Of method auto, with values that are narrower than keys, in a table that nobody else has.
        """
        slots = self._opened().slots
        slots.fill()
        words = slots._values.view(slots.value)
        for start in range(0, len(words), size):
            yield words[start : start + size]

    @translates_memory_errors
    @write_locked
    def _take(self, made: Callable[[Slots], Slots | None]) -> bool:
        """Adopt slots made for this empty map; return whether it did."""
        self._turns.begin()
        store = self._opened()
        return bool(store.take(made(store.slots)))

    @write_locked
    def clear(self) -> None:
        """Remove every pair; the capacity stays."""
        emptied = None if self._store is None else self._values.emptied()
        super().clear()
        if emptied is not None:
            # Between both steps the old values exist, but no key refers to them.
            self._values = emptied

    @read_locked
    def copy(self) -> Self:
        """Return an independent map with the same content and device."""
        made = super().copy()
        if self._store is not None:
            made._values = self._values.copy()
        return made

    @translates_memory_errors
    @write_locked
    def _add(self, keys: Any, values: Any) -> None:
        """Add pairs as `insert` does, but return nothing."""
        _, bits, rows = self._pairs(keys, values)
        self._values.add(self._opened(), bits, rows)

    @translates_memory_errors
    @write_locked
    def _insert_then(self, keys: Any, values: Any, then: MakeSteps) -> Any:
        """Insert values of 4 or 8 bytes, and run the step made by `then`.

        The insert and the step run in one call. `then` makes the step from the insert's result.
        """
        _, bits, rows = self._pairs(keys, values)
        return self._opened().insert(bits, value_memory(rows, self._value), then)

    @translates_memory_errors
    @write_locked
    def _erase_then(self, keys: Any, *then: Step) -> None:
        """Erase keys as `erase` does, and run `then` in the same call."""
        _, bits = self._stored_as(keys)
        store = self._opened()
        store.backend.in_one_call([store.erasing(bits), *then])

    def _value_word(self) -> np.dtype[Any]:
        return self._values_word

    def _open(self, backend: Backend) -> None:
        self._values = values_for(backend, self._value)
        self._values_word = self._values.word
        super()._open(backend)

    def _saved_buffers(self) -> Mapping[str, np.ndarray]:
        store = self._opened()
        bits, words, order = saved_items(store)
        values = store.backend.to_host(self._values.decode(words))
        return {"keys": store.backend.to_host(bits), "values": values, **order}

    def _restore(self, buffers: Buffers, size: int) -> None:
        store = self._opened()
        raw = buffers.get("keys", word_dtype(self._key), size)
        values = buffers.get("values", self._value, size)
        rows = as_device_array(store.backend, ArrayArgument(values, None), self._value, "values")
        bits, words = self._restored_bits(raw), self._values.words_of(rows)
        if words is None or not store_in_order(store, bits, words, buffers):
            store.reserve(size)
            self._values.add(store, bits, rows)


_BOOL, _ROW = np.dtype(bool), np.dtype(np.int64)
