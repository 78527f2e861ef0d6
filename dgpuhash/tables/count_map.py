"""CountMap: a count for each key."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, SupportsIndex, Unpack, overload

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.backend import Backend
from dgpuhash.errors import CountOverflowError, KeyTypeError, SpecError
from dgpuhash.tables.arguments.combine import SUM_OF_COUNTS
from dgpuhash.tables.arguments.encoding import sortable, word_dtype, words_of
from dgpuhash.tables.arguments.interop import (
    ArrayArgument,
    as_argument,
    as_device_array,
    has_python_values,
    natural_dtype,
    one_dimension,
    same_length,
)
from dgpuhash.tables.base import Table
from dgpuhash.tables.columns.block_counts import counted_by_block
from dgpuhash.tables.commit import assigner
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.open_addressing.slot_order import saved_items, store_in_order
from dgpuhash.tables.rwlock import read_locked, write_locked
from dgpuhash.tables.serialization import Buffers
from dgpuhash.tables.store import Store
from dgpuhash.tables.stores.method import methods, store_for, table_spec
from dgpuhash.typing import Array, ArrayKind, Device, KeysLike, MethodSettings, TableSettings

_COUNT = np.dtype(np.uint64)
_NARROW = np.dtype(np.uint32)
_BOOL = np.dtype(bool)
_HALF = 2**32


class CountMap(Table):
    """Map from keys to exact counts, on a CPU or a GPU.

    A counting hash table (WarpCore, Jünger et al. 2020, §IV-A). Equal keys of a large batch are
    added up in the shared memory of blocks before the table sees them. Counts are of 64 bits;
    beside keys of at most 4 bytes they take 4 bytes until one needs more.

    Parameters
    ----------
    key_dtype : dtype
        Any bool, integer, float, datetime64 or timedelta64 of at most 8 bytes, or a record of
        integers of 16 bytes, which is compared whole. Every value can be counted; -0.0 is 0.0, all
        NaNs are one key, and so is NaT.
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
        How the table stores its keys: a name of `dgpuhash.methods` that can combine.
    **settings
        The method's own settings.

    Raises
    ------
    KeyTypeError
        When the dtype cannot be a key.
    SpecError, UnsupportedError
        When a setting is impossible, or the method cannot combine.
    DeviceError
        When there is no such device.
    OutOfMemoryError
        When `capacity` does not fit.

    Notes
    -----
    Threads may share a table, as they may share a `HashMap`.

    Examples
    --------
    >>> import numpy as np
    >>> words = CountMap("int64")
    >>> words.insert(np.array([7, 8, 7]))
    >>> words.insert(np.array([8, 9]), counts=np.array([10, 0]))
    >>> words.find(np.array([7, 8, 9, 5]))
    (array([ 2, 11,  0,  0], dtype=uint64), array([ True,  True,  True, False]))
    >>> len(words), words.total
    (3, 13)
    """

    kind = "count"

    def __init__(
        self,
        key_dtype: DTypeLike,
        capacity: int = 0,
        *,
        max_load: float | None = None,
        device: Device | None = None,
        seed: int | None = None,
        method: str = "auto",
        **settings: Unpack[MethodSettings],
    ) -> None:
        spec = table_spec(
            "count", key_dtype, _COUNT,
            max_load=max_load, seed=seed, method=method, settings=settings,
        )  # fmt: skip
        methods()[method].require("combine", self.kind)
        super().__init__(spec, capacity, device)

    # No count is higher.
    _most = 0

    @classmethod
    def from_keys(
        cls, keys: KeysLike, counts: KeysLike | SupportsIndex = 1, **settings: Unpack[TableSettings]
    ) -> CountMap:
        """Return the counts of `keys`, of their dtype and on their device.

        `settings` are those of the class.

        Examples
        --------
        >>> sorted(CountMap.from_keys([5, 3, 5]).items()[1].tolist())
        [1, 2]
        """
        made = cls(natural_dtype(as_argument(keys, "keys"), "keys"), **settings)
        made.insert(keys, counts)
        return made

    @property
    def most(self) -> int:
        """Upper bound of all counts, known without reading them."""
        return self._most

    @property
    def total(self) -> int:
        """Sum of all counts, exact."""
        counts = self.items()[1]
        return sum(int(half.sum(dtype=_COUNT)) * weight for half, weight in _halves(counts))

    @translates_memory_errors
    @write_locked
    def insert(self, keys: KeysLike, counts: KeysLike | SupportsIndex = 1) -> None:
        """Add to the counts of keys; absent keys start at 0.

        Parameters
        ----------
        keys : array
            A key may come in any number of rows.
        counts : int or array of integers
            What each row adds, not negative; 0 stores the key.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, SpecError
            When an argument does not fit the table, or a count is negative.
        CountOverflowError
            When a count would not fit into 64 bits; no count has changed.
        OutOfMemoryError
            When the table cannot grow; it is unchanged.

        Examples
        --------
        >>> seen = CountMap("int8")
        >>> seen.insert([5, 7, 5], counts=3)
        >>> seen.find([5])[0]
        array([6], dtype=uint64)
        """
        given = as_argument(counts, "counts") if is_column(counts) else None
        term = 0 if given is not None else as_count(counts)
        taken = as_argument(keys, "keys")
        if given is not None:
            # Decides the device, and refuses arrays of two.
            self._home(taken, given)
        _, bits = self._stored_as(keys)
        store = self._opened()
        terms = term if given is None else terms_of(store.backend, given)
        if given is not None:
            same_length(bits, terms)
        if len(bits) == 0:
            return
        added = term * len(bits) if given is None else sum_of(terms)
        store = self._fitting(store, bits, terms, added)
        assert store.value is not None
        if not isinstance(terms, int):
            terms = terms.astype(store.value)
        pairs, sums = counted_by_block(store.backend, bits, terms, store.value)
        self._most = min(self._most + added, 2**64 - 1)
        store.combine(pairs, sums, SUM_OF_COUNTS)

    _add = insert

    def merge(self, other: CountMap) -> None:
        """Add all counts of another table on the same kind of device.

        Raises
        ------
        KeyTypeError, DeviceError
            When the keys or devices differ.
        CountOverflowError
            When a count would not fit into 64 bits; no count has changed.

        Examples
        --------
        >>> left, right = CountMap.from_keys([1, 2]), CountMap.from_keys([2, 3])
        >>> left.merge(right)
        >>> left.find([1, 2, 3])[0]
        array([1, 2, 1], dtype=uint64)
        """
        keys, counts = other.items()
        self.insert(keys, counts)

    @overload
    def find(self, keys: ArrayKind) -> tuple[ArrayKind, ArrayKind]: ...
    @overload
    def find(self, keys: KeysLike) -> tuple[Array, Array]: ...
    @translates_memory_errors
    @read_locked
    def find(self, keys: KeysLike) -> tuple[Array, Array]:
        """Return the count of each key, and whether the key is stored.

        Parameters
        ----------
        keys : array
            Any kind; keys that `key_dtype` does not hold are absent.

        Returns
        -------
        counts, found : array
            uint64, 0 where a key is absent, and a mask; in input order and of the same kind as
            `keys`.

        Examples
        --------
        >>> CountMap.from_keys([1, 2, 1]).find([1, 5])
        (array([2, 0], dtype=uint64), array([ True, False]))
        """
        taken, asked, bits = self._asked(keys)
        store = self._opened()
        words, found = store.find(bits)
        counts = words.astype(_COUNT, copy=False)
        if asked.rows is not None:
            absent = store.backend.zeros(1, _COUNT)
            counts, found = asked.by_row(counts, absent), asked.by_row(found)
        return taken.wrap(counts, _COUNT), taken.wrap(found, _BOOL)

    @overload
    def count(self, keys: ArrayKind) -> ArrayKind: ...
    @overload
    def count(self, keys: KeysLike) -> Array: ...
    def count(self, keys: KeysLike) -> Array:
        """Return each key's count (uint64), 0 if absent; as `find` without the mask.

        Examples
        --------
        >>> CountMap.from_keys([1, 2, 1]).count([1, 5])
        array([2, 0], dtype=uint64)
        """
        return self.find(keys)[0]

    @translates_memory_errors
    @read_locked
    def items(self) -> tuple[Array, Array]:
        """Return all keys and counts (uint64), unordered, as NumPy or CuPy arrays.

        Examples
        --------
        >>> CountMap.from_keys([4, 4]).items()
        (array([4]), array([2], dtype=uint64))
        """
        bits, words = self._opened().items()
        return self._stored_keys(bits), words.astype(_COUNT, copy=False)

    @write_locked
    def clear(self) -> None:
        """Remove every key; the capacity stays."""
        super().clear()
        self._most = 0

    def _fitting(self, store: Store, bits: Any, terms: Any, added: int) -> Store:
        """Return the store, widened if a count could overflow.

        Raises CountOverflowError when one would. `added` is the sum of all `terms`.
        """
        if self._most + added <= _largest(store):
            return store
        self._most = int(store.items()[1].max()) if len(store) else 0
        if self._most + added <= _largest(store):
            return store
        if store.value == _NARROW:
            store = self._widened(store)
        if self._most + added > _largest(store):
            _refuse_wrap(store, bits, terms)
        return store

    def _widened(self, store: Store) -> Store:
        """Replace the store by one of 64-bit counts, and return it."""
        made = store_for(store.backend, self._spec, word_dtype(self._key), _COUNT, store.capacity)
        keys, counts = store.items()
        if len(keys):
            made.add(keys, counts.astype(_COUNT))
        store.backend.in_one_call([assigner(self, _store=made)])
        return made

    def _value_word(self) -> np.dtype[Any]:
        return _NARROW if word_dtype(self._key) == _NARROW else _COUNT

    def _saved_buffers(self) -> Mapping[str, np.ndarray]:
        store = self._opened()
        bits, words, order = saved_items(store)
        keys, counts = map(store.backend.to_host, (bits, words))
        return {"keys": keys, "counts": counts.astype(_COUNT, copy=False), **order}

    def _restore(self, buffers: Buffers, size: int) -> None:
        store = self._opened()
        raw = buffers.get("keys", word_dtype(self._key), size)
        counts = buffers.get("counts", _COUNT, size)
        most = int(counts.max()) if size else 0
        if most > _largest(store):
            store = self._widened(store)
        words = store.backend.from_host(counts.astype(store.value))
        bits = self._restored_bits(raw)
        if not store_in_order(store, bits, words, buffers):
            store.reserve(size)
            store.add(bits, words)
        self._most = most


def _largest(store: Store) -> int:
    assert store.value is not None
    return int(np.iinfo(store.value).max)


def is_column(counts: Any) -> bool:
    """Return whether counts are an array, rather than one for all rows."""
    return hasattr(counts, "__len__") or getattr(counts, "ndim", 0) > 0


def as_count(counts: Any) -> int:
    """Return one count as an int, checked."""
    try:
        term = operator.index(counts)
    except TypeError as error:
        raise KeyTypeError(
            f"counts={counts!r} is not an integer; pass one, or an array of one for each key"
        ) from error
    if not 0 <= term < 2**64:
        raise SpecError(f"counts={term}; use 0 to 2**64 - 1")
    return term


def terms_of(backend: Backend, given: ArrayArgument) -> Any:
    """Return an argument as uint64 on the device."""
    if has_python_values(given):
        return as_device_array(backend, given, _COUNT, "counts")
    array = one_dimension(backend.asarray(given.data), "counts")
    if array.dtype.kind not in "iu":
        raise KeyTypeError(
            f"counts of dtype {array.dtype} are not integers; convert them with .astype('uint64')"
        )
    if array.dtype.kind == "i" and len(array) and int(array.min()) < 0:
        raise SpecError("counts has negative numbers; a CountMap only counts up")
    return array.astype(_COUNT)


def sum_of(terms: Any) -> int:
    """Return the exact sum of uint64 numbers."""
    most = int(terms.max()) if len(terms) else 0
    if most * len(terms) < 2**64:
        return int(terms.sum(dtype=_COUNT))
    return sum(int(half.sum(dtype=_COUNT)) * weight for half, weight in _halves(terms))


def _halves(numbers: Any) -> list[tuple[Any, int]]:
    """Return the lower and upper halves of uint64 numbers, and their weights."""
    return [(numbers & np.uint64(_HALF - 1), 1), (numbers >> np.uint64(32), _HALF)]


def _refuse_wrap(store: Store, bits: Any, terms: Any) -> None:
    """Raise CountOverflowError if a key's count does not fit into 64 bits."""
    backend = store.backend
    words = words_of(bits)
    distinct, inverse = np.unique(sortable(backend.to_host(words)), return_inverse=True)
    held = backend.to_host(store.find(backend.from_host(words_of(distinct)))[0])
    rows = np.full(len(words), terms, _COUNT) if isinstance(terms, int) else backend.to_host(terms)
    sums = np.zeros(len(distinct), object)
    for (half, weight), (old, _) in zip(_halves(rows), _halves(held), strict=True):
        added = old.copy()
        np.add.at(added, inverse, half)
        sums += added.astype(object) * weight
    if (sums >= 2**64).any():
        raise CountOverflowError(
            f"the counts of {int((sums >= 2**64).sum()):,} keys would be above 2**64 - 1; "
            "nothing was counted: add smaller counts, or clear the table"
        )
