"""Hash multimap: any number of values for each key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.backend import Backend
from dgpuhash.backend.launches import Step
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.encoding import value_words, values_of, word_dtype, words_of
from dgpuhash.tables.arguments.interop import ArrayArgument, as_argument
from dgpuhash.tables.arguments.validate import as_device_array, natural_dtype
from dgpuhash.tables.base import Table
from dgpuhash.tables.bucket_list import table as bucket_list
from dgpuhash.tables.bucket_list.grouping import GroupedBatch, group_by_key
from dgpuhash.tables.bucket_list.pool import ValueLists, list_numbers
from dgpuhash.tables.commit import assigner
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.open_addressing.wide_values import ValueRows
from dgpuhash.tables.rwlock import read_locked, write_locked
from dgpuhash.tables.serialization import Buffers

__all__ = ["MultiMap"]

_INT64 = np.dtype(np.int64)
_GARBAGE_ROWS = 1024


class MultiMap(Table):
    """Map from keys to lists of values on a CPU or a GPU.

    A key's only value is stored in its slot; several values are contiguous in one pool. Values of
    later inserts go to a chain of geometrically growing buckets (the bucket list hash table of
    WarpCore, Jünger et al. 2020, §IV-C), until `compact` makes them contiguous. The values of a key
    keep their insertion order.

    Parameters
    ----------
    key_dtype : dtype
        Any bool, integer, float, datetime64 or timedelta64 of at most 8 bytes. Every value can be
        stored; -0.0 is 0.0, all NaNs are one key, and so is NaT.
    value_dtype : dtype
        Any fixed size; values of more than 8 bytes are stored in an array of their own.
    capacity : int
        Distinct keys to reserve slots for; beyond that number the table grows by itself.
    max_load : float
        Load factor (share of the key slots in use) above which the table grows.
    device : {"cpu", "cuda"}, optional
        None: the device of the first arrays.
    seed : int, optional
        Seed of the hash function; drawn anew when None, unless ``DGPUHASH_SEED`` fixes it.
    initial_bucket : int
        Values in the first bucket of a key's chain.
    growth : float
        Factor by which each further bucket is larger.

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
    ``len`` is the number of pairs, `n_keys` the number of distinct keys.

    Threads may share a table (read-write lock): lookups run concurrently, a change runs alone.
    A thread that re-enters a table in a signal handler or a finaliser may read while it reads; a
    call that would wait for itself raises ReentranceError. A forked process may use tables on the
    CPU; a table that another thread was changing during the fork raises TableBroken. On a GPU all
    work runs on CuPy's current stream; synchronize different streams as for CuPy's arrays.

    Examples
    --------
    >>> import numpy as np
    >>> routes = MultiMap("int32", "int64")
    >>> routes.insert(np.array([1, 2, 1], "int32"), np.array([10, 20, 30]))
    >>> routes.find(np.array([1, 3, 2], "int32"))
    (array([10, 30, 20]), array([0, 2, 2, 3]))
    >>> len(routes), routes.n_keys
    (3, 2)
    """

    kind = "multimap"
    # None: unknown since an interrupted change.
    _known_size: int | None
    _lists: ValueLists
    _payload: ValueRows | None

    def __init__(
        self,
        key_dtype: DTypeLike,
        value_dtype: DTypeLike,
        capacity: int = 0,
        *,
        max_load: float = 0.9,
        device: str | None = None,
        seed: int | None = None,
        initial_bucket: int = 1,
        growth: float = 1.1,
    ) -> None:
        settings = {"max_load": max_load, "initial_bucket": initial_bucket, "growth": growth}
        spec = TableSpec.of("multimap", key_dtype, value_dtype, seed=seed, **settings)
        super().__init__(spec, capacity, device)

    @classmethod
    def from_arrays(cls, keys: Any, values: Any, **settings: Any) -> MultiMap:
        """Return a multimap of `keys` and `values`, of their dtypes and device.

        Examples
        --------
        >>> MultiMap.from_arrays([1, 1], [0.5, 0.25]).count([1, 2])
        array([2, 0])
        """
        key = natural_dtype(as_argument(keys, "keys"), "keys")
        value = natural_dtype(as_argument(values, "values"), "values")
        made = cls(key, value, **settings)
        made.insert(keys, values)
        return made

    @property
    @read_locked
    def n_keys(self) -> int:
        """Distinct keys stored."""
        return super().__len__()

    def _filled(self) -> str:
        return f"{len(self):,} rows, {self.n_keys:,} of {self.capacity:,} keys"

    @property
    def nbytes(self) -> int:
        """Memory that the table holds, in bytes."""
        if self._store is None:
            return 0
        beside = 0 if self._payload is None else self._payload.nbytes
        return super().nbytes + self._lists.nbytes + beside

    @read_locked
    def __len__(self) -> int:
        return 0 if self._store is None else self._size

    @translates_memory_errors
    @write_locked
    def insert(self, keys: Any, values: Any) -> None:
        """Append each value to its key's list, in row order.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When an argument does not fit the table.
        CapacityError
            When the pool would have too many slots to be numbered.
        OutOfMemoryError
            When the table cannot grow; it is unchanged.

        Examples
        --------
        >>> lists = MultiMap("int8", "S2")
        >>> lists.insert([5, 5], [b"b", b"a"])
        >>> lists.find([5])[0]
        array([b'b', b'a'], dtype='|S2')
        """
        _, bits, rows = self._pairs(keys, values)
        if len(bits):
            self._insert(words_of(bits), rows)

    @translates_memory_errors
    @read_locked
    def find(self, keys: Any, *, stable: bool = False) -> tuple[Any, Any]:
        """Return all values of each key.

        Parameters
        ----------
        keys : array
            Any kind; keys that `key_dtype` does not hold are absent.
        stable : bool
            Request insertion order within each key. It is always kept.

        Returns
        -------
        values : array
            The values of the first key, of the second, and so on; of the same kind as `keys`, or a
            NumPy array where that kind lacks the dtype.
        offsets : array of int64
            One more than `keys`: key *i* has ``values[offsets[i]:offsets[i + 1]]``.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When an argument does not fit the table.

        Examples
        --------
        >>> MultiMap.from_arrays([1, 2, 1], [10, 20, 30]).find([2, 1])
        (array([20, 10, 30]), array([0, 1, 3]))
        """
        taken, asked, bits = self._asked(keys)
        found = bucket_list.find_handles(self._opened(), self._lists, words_of(bits))
        words, offsets = self._lists.gather(*found)
        values = taken.wrap(self._decode(words), self._value, by_row=False)
        return values, taken.wrap(asked.offsets(offsets), _INT64, by_row=False)

    @translates_memory_errors
    @read_locked
    def count(self, keys: Any) -> Any:
        """Return each key's number of values (int64), of the kind of `keys`."""
        taken, asked, bits = self._asked(keys)
        return taken.wrap(asked.by_row(self._counts(words_of(bits))), _INT64)

    @translates_memory_errors
    @write_locked
    def erase(self, keys: Any) -> Any:
        """Remove keys with all their values.

        Returns
        -------
        array of bool
            True in one row of each key that was stored; of the same kind as `keys`.

        Examples
        --------
        >>> lists = MultiMap.from_arrays([1, 1, 2], [10, 11, 20])
        >>> lists.erase([1, 3])
        array([ True, False])
        >>> len(lists)
        1
        """
        taken, asked, bits = self._asked(keys)
        bits = words_of(bits)
        store = self._opened()
        counts, size = self._counts(bits), self._size
        self._known_size = None
        erased = store.erase(bits)
        self._known_size = size - int((counts * erased).sum())
        return taken.wrap(asked.by_row(erased), np.dtype(bool))

    @translates_memory_errors
    @read_locked
    def items(self) -> tuple[Any, Any]:
        """Return all pairs as arrays: by key, each key's values in order.

        Examples
        --------
        >>> MultiMap.from_arrays([4, 4], [0.5, 0.25]).items()
        (array([4, 4]), array([0.5 , 0.25]))
        """
        bits, offsets, words = bucket_list.all_lists(self._opened(), self._lists)
        owners = list_numbers(self._home(), offsets, len(words))
        return self._stored_keys(bits[owners]), self._decode(words)

    @translates_memory_errors
    @write_locked
    def compact(self) -> None:
        """Store each key's values contiguously, in the least memory.

        This makes lookups fastest. A table filled by one insert is already compact.

        Raises
        ------
        OutOfMemoryError
            When there is no room for a second copy; the table is unchanged.

        Examples
        --------
        >>> lists = MultiMap.from_arrays([1, 2], [10, 20])
        >>> lists.insert([1], [11])
        >>> lists.compact()
        >>> lists.find([1])[0]
        array([10, 11])
        """
        self._turns.begin()
        if self._store is not None and not (
            self._lists.compact and self._lists.appended == self._size
        ):
            self._compact()

    @write_locked
    def clear(self) -> None:
        """Remove every pair; the capacity stays."""
        self._turns.begin()
        if self._store is not None:
            store = self._store.cleared()
            lists, payload = self._lists.emptied(), self._no_payload(store.backend)
            assigner(self, _store=store, _lists=lists, _payload=payload, _known_size=0)()
            store.slots.fill()

    @read_locked
    def copy(self) -> Self:
        """Return an independent multimap with the same content and device."""
        made = super().copy()
        if self._store is not None:
            made._lists = self._lists.copy()
            made._payload = None if self._payload is None else self._payload.copy()
        return made

    def _value_word(self) -> np.dtype[Any]:
        plain = self._value.itemsize in (1, 2, 4, 8)
        return word_dtype(self._value) if plain else np.dtype(np.uint64)

    def _open(self, backend: Backend) -> None:
        self._known_size = 0
        self._payload, self._lists = self._no_payload(backend), self._new_lists(backend)
        super()._open(backend)

    def _no_payload(self, backend: Backend) -> ValueRows | None:
        return None if self._value.itemsize in (1, 2, 4, 8) else ValueRows(backend, self._value)

    @property
    def _size(self) -> int:
        if self._known_size is None:
            entries = self._opened().items()[1]
            self._known_size = int(self._lists.count(self._lists.open(entries)).sum())
        return self._known_size

    def _new_lists(self, backend: Backend) -> ValueLists:
        spec = self._spec
        word, first = self._value_word(), spec.initial_bucket
        return ValueLists(backend, word, first=first, growth=spec.growth)

    @translates_memory_errors
    @write_locked
    def _insert_then(self, keys: Any, values: Any, *then: Step) -> None:
        """Insert pairs as `insert` does, and run `then` in the same call."""
        _, bits, rows = self._pairs(keys, values)
        self._insert(words_of(bits), rows, *then)

    def _insert(self, bits: Any, rows: Any, *then: Step) -> None:
        """Add at least one pair."""
        self._tidy()
        store, size = self._opened(), self._size + len(rows)
        if size == len(rows):
            payload, words = self._store_payload(self._no_payload(store.backend), rows)
            lists = self._new_lists(store.backend)
            store = bucket_list.build_lists(store.lent(), lists, bits, words)
            after = assigner(self, _store=store, _lists=lists, _payload=payload, _known_size=size)
            store.backend.in_one_call([after, *then])
            return
        payload, words = self._store_payload(self._payload, rows)
        batch = group_by_key(store.backend, bits, words, store.slots.seed)
        made = bucket_list.prepare_append(store, self._lists, batch)
        if made is None:
            self._compact(len(batch.keys))
            store = self._opened()
            made = bucket_list.prepare_append(store, self._lists, batch)
            assert made is not None
        after = assigner(self, _lists=made.lists, _payload=payload, _known_size=size)
        self._known_size = None
        store.commit(*made.steps, store.replacing(batch.keys, made.entries), after, *then)

    def _store_payload(self, payload: ValueRows | None, rows: Any) -> tuple[ValueRows | None, Any]:
        """Return the payload with the rows added, if any, and the rows' words."""
        return (None, value_words(rows, self._value)) if payload is None else payload.appended(rows)

    def _counts(self, bits: Any) -> Any:
        return self._lists.count(bucket_list.find_handles(self._opened(), self._lists, bits)[0])

    def _decode(self, words: Any) -> Any:
        if self._payload is None:
            return values_of(self._home(), words, self._value)
        return self._payload.take(words.view(np.int64))

    def _tidy(self) -> None:
        """Compact when erased values take more room than live ones."""
        if self._lists.appended - self._size > max(self._size, _GARBAGE_ROWS):
            self._compact()

    def _compact(self, room: int = 0) -> None:
        """Move all pairs to new runs; on failure the old lists stay in use.

        Reserves numbers for `room` further lists. With `room`, wide values keep their row numbers,
        because the batch to insert already has its own.
        """
        bits, offsets, words = bucket_list.all_lists(self._opened(), self._lists)
        store, payload = self._opened(), self._payload
        if payload is not None and room == 0:
            payload = payload.kept(words.view(np.int64))
            words = store.backend.xp.arange(len(words), dtype=np.uint64)
        made = self._new_lists(store.backend)
        entries = made.settle(words, offsets, len(bits), room)
        if store.value == entries.dtype:
            after = assigner(self, _lists=made, _payload=payload, _known_size=self._size)
            self._known_size = None
            store.commit(store.replacing(bits, entries), after)
        else:
            store = store.emptied(entries.dtype, store.capacity)
            store.add(bits, entries)
            assigner(self, _store=store, _lists=made, _payload=payload)()

    def _saved_buffers(self) -> Mapping[str, np.ndarray]:
        backend = self._home()
        bits, offsets, words = bucket_list.all_lists(self._opened(), self._lists)
        saved = {"keys": bits, "offsets": offsets, "values": self._decode(words)}
        return {name: backend.to_host(column) for name, column in saved.items()}

    def _restore(self, buffers: Buffers, size: int) -> None:
        backend = self._home()
        raw = buffers.get("keys", word_dtype(self._key))
        offsets = buffers.get("offsets", _INT64, len(raw) + 1)
        values = buffers.get("values", self._value, size)
        buffers.check(
            offsets[0] == 0 and offsets[-1] == size and bool((np.diff(offsets) > 0).all()),
            "its offsets do not fit its values",
        )
        if size:
            rows = as_device_array(backend, ArrayArgument(values, None), self._value, "values")
            self._payload, words = self._store_payload(self._payload, rows)
            bits = self._restored_bits(raw)
            batch = GroupedBatch(bits, backend.from_host(offsets), words.copy())
            self._store = bucket_list.build_grouped(self._opened(), self._lists, batch)
            self._known_size = size
        buffers.check(self.n_keys == len(raw), "its keys are not distinct")
