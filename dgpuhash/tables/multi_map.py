"""MultiMap: any number of values for each key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Unpack, cast, overload

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.backend.launches import Step
from dgpuhash.errors import ShapeError
from dgpuhash.tables.arguments.checksums import Pieces
from dgpuhash.tables.arguments.encoding import word_dtype, words_of
from dgpuhash.tables.arguments.interop import (
    ArrayArgument,
    as_argument,
    as_device_array,
    checked_offsets,
    natural_dtype,
)
from dgpuhash.tables.base import Table
from dgpuhash.tables.bucket_list.streaming import Keep
from dgpuhash.tables.bucket_list.values import ListStore
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.open_addressing.slot_order import SlotOrder
from dgpuhash.tables.rwlock import read_locked, write_locked
from dgpuhash.tables.serialization import Buffers
from dgpuhash.tables.stores.list_batches import ExecutesLists
from dgpuhash.tables.stores.method import multimap_spec, require_order
from dgpuhash.tables.user_kernels.verbs import UserKernels
from dgpuhash.typing import (
    Array,
    ArrayKind,
    Device,
    KeysLike,
    MethodSettings,
    MultiMapSettings,
    ValuesLike,
)

_INT64 = np.dtype(np.int64)


class MultiMap(ExecutesLists, UserKernels, Table):
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
    max_load : float, optional
        Load factor (share of the key slots in use) above which the table grows; 0.9 when None.
    device : {"cpu", "cuda"}, optional
        None: the device of the first arrays.
    seed : int, optional
        Seed of the hash function; drawn anew when None, unless ``DGPUHASH_SEED`` fixes it.
    initial_bucket : int, optional
        Values in the first bucket of a key's chain; 1 when None.
    growth : float, optional
        Factor by which each further bucket is larger; 1.1 when None.
    cap : int, optional
        Values of each key that stay: the smallest ones, whatever the order in which they come; the
        order of a key's values is not kept then. Values are integers, the method is ``"auto"``.
    method : str
        How keys and values are stored: a name of `dgpuhash.methods`, of which ``"auto"`` is
        described above.
    **settings
        Settings of the method, as `dgpuhash.methods` shows them.

    Raises
    ------
    KeyTypeError, SpecError, UnsupportedError, DeviceError
        When a dtype cannot be stored, a setting is impossible, the method has no `cap`, or there
        is no such device.
    OutOfMemoryError
        When `capacity` does not fit.

    Notes
    -----
    ``len`` is the number of pairs, `n_keys` that of distinct keys.
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
    >>> first_two = MultiMap("int32", "int64", cap=2)
    >>> first_two.insert(np.array([7, 7, 7], "int32"), np.array([30, 10, 20]))
    >>> first_two.find(np.array([7], "int32"))[0]
    array([10, 20])
    """

    kind = "multimap"

    def __init__(
        self, key_dtype: DTypeLike, value_dtype: DTypeLike, capacity: int = 0, *,
        max_load: float | None = None, device: Device | None = None, seed: int | None = None,
        initial_bucket: int | None = None, growth: float | None = None, cap: int | None = None,
        method: str = "auto", **settings: Unpack[MethodSettings],
    ) -> None:  # fmt: skip
        spec = multimap_spec(
            key_dtype, value_dtype, max_load=max_load, seed=seed, method=method,
            settings=settings, initial_bucket=initial_bucket, growth=growth, cap=cap,
        )  # fmt: skip
        super().__init__(spec, capacity, device)

    @classmethod
    def from_arrays(
        cls, keys: KeysLike, values: ValuesLike, **settings: Unpack[MultiMapSettings]
    ) -> MultiMap:
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

    @classmethod
    def from_batches(
        cls, batches: Iterable[tuple[KeysLike, ValuesLike]], key_dtype: DTypeLike,
        value_dtype: DTypeLike, *, memory: int | None = None, keep: Keep | None = None,
        **settings: Unpack[MultiMapSettings],
    ) -> MultiMap:  # fmt: skip
        """Return a multimap of pairs from a stream of batches, as if they were one.

        The method ``"auto"`` deals pairs out by their keys, then stores part by part in contiguous
        lists, with little memory beside pairs and lists; others insert batch after batch.

        Parameters
        ----------
        batches : iterable of (keys, values)
            Arrays of one device.
        key_dtype, value_dtype, **settings
            As for the class.
        memory : int, optional
            Bytes of pairs that are held, more go to a temporary file; None: all.
        keep : callable, optional
            Takes some distinct keys, and how many values each has; returns a mask of those to keep.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, OutOfMemoryError
            As for `insert`; OutOfMemoryError also when the disk is full.

        Examples
        --------
        >>> batches = [([1, 2], [10, 20]), ([1], [11])]
        >>> MultiMap.from_batches(batches, "int64", "int64").find([1])[0]
        array([10, 11])
        """
        made = cls(key_dtype, value_dtype, **settings)
        made._fill(batches, memory, keep)
        return made

    @translates_memory_errors
    def _fill(self, batches: Iterable[Any], memory: int | None, keep: Keep | None) -> None:
        # Nobody else has the table yet, so that batches are made without its lock.
        pairs = (self._pairs(keys, values)[1:] for keys, values in batches)
        filled = ((words_of(bits), rows) for bits, rows in pairs if len(bits))
        asked = keep and (lambda bits, counts: keep(self._stored_keys(bits), counts))
        for first in filled:
            self._lists.insert_all(chain([first], filled), memory, asked)

    @classmethod
    def from_lists(
        cls, keys: KeysLike, offsets: KeysLike, values: ValuesLike,
        **settings: Unpack[MultiMapSettings],
    ) -> MultiMap:  # fmt: skip
        """Return a multimap of distinct keys and their lists, in the form of `lists`.

        Parameters
        ----------
        keys, values : array
            Of the multimap's dtypes.
        offsets : array of int64
            One more than `keys`: key *i* has ``values[offsets[i]:offsets[i + 1]]``, one or more.

        Raises
        ------
        KeyTypeError, ShapeError
            Also when offsets do not part the values, or keys are not distinct.

        Examples
        --------
        >>> MultiMap.from_lists([4, 6], [0, 2, 3], [1, 2, 3]).find([6, 4])
        (array([3, 1, 2]), array([0, 1, 3]))
        """
        key = natural_dtype(as_argument(keys, "keys"), "keys")
        value = natural_dtype(as_argument(values, "values"), "values")
        made = cls(key, value, **settings)
        made._build(keys, offsets, values)
        return made

    @translates_memory_errors
    @write_locked
    def _build(self, keys: Any, offsets: Any, values: Any, order: SlotOrder | None = None) -> None:
        taken, words = self._keys(keys)
        backend = self._home(taken)
        rows = as_device_array(backend, as_argument(values, "values"), self._value, "values")
        ends = checked_offsets(backend, offsets, len(words), len(rows), self.spec.cap)
        if len(words):
            self._lists.build(words, ends, rows, order)
        if len(self._lists) != len(words):
            raise ShapeError("some keys occur twice; give each key once, or insert pairs")

    @property
    @read_locked
    def n_keys(self) -> int:
        """Number of distinct keys."""
        return super().__len__()

    def _filled(self) -> str:
        return f"{len(self):,} rows, {self.n_keys:,} of {self.capacity:,} keys"

    @read_locked
    def __len__(self) -> int:
        return 0 if self._store is None else self._lists.pairs

    @translates_memory_errors
    @write_locked
    def insert(self, keys: KeysLike, values: ValuesLike) -> None:
        """Append each value to its key's list, in row order.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When an argument does not fit the table.
        CapacityError, OutOfMemoryError
            When the pool cannot number its slots, or the table cannot grow; it is unchanged.

        Examples
        --------
        >>> lists = MultiMap("int8", "S2")
        >>> lists.insert([5, 5], [b"b", b"a"])
        >>> lists.find([5])[0]
        array([b'b', b'a'], dtype='|S2')
        """
        _, bits, rows = self._pairs(keys, values)
        if len(bits):
            self._lists.insert(words_of(bits), rows)

    @overload
    def find(self, keys: ArrayKind, *, stable: bool = False) -> tuple[ArrayKind, ArrayKind]: ...
    @overload
    def find(self, keys: KeysLike, *, stable: bool = False) -> tuple[Array, Array]: ...
    @translates_memory_errors
    @read_locked
    def find(self, keys: KeysLike, *, stable: bool = False) -> tuple[Array, Array]:
        """Return all values of each key.

        Parameters
        ----------
        keys : array
            Any kind; keys that `key_dtype` does not hold are absent.
        stable : bool
            Request insertion order within each key, which most methods always keep.

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
        UnsupportedError
            When `stable` is set, and the table's method keeps no order, or it has a `cap`.

        Examples
        --------
        >>> MultiMap.from_arrays([1, 2, 1], [10, 20, 30]).find([2, 1])
        (array([20, 10, 30]), array([0, 1, 3]))
        """
        if stable:
            require_order(self.spec)
        taken, asked, bits = self._asked(keys)
        found, offsets = self._lists.find(words_of(bits))
        values = taken.wrap(found, self._value, by_row=False)
        return values, taken.wrap(asked.offsets(offsets), _INT64, by_row=False)

    def _counts(self, bits: Any) -> Any:
        return self._lists.counts(words_of(bits))

    @overload
    def erase(self, keys: ArrayKind) -> ArrayKind: ...
    @overload
    def erase(self, keys: KeysLike) -> Array: ...
    @translates_memory_errors
    @write_locked
    def erase(self, keys: KeysLike) -> Array:
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
        erased = self._lists.erase(words_of(bits))
        return taken.wrap(asked.by_row(erased), np.dtype(bool))

    @translates_memory_errors
    @read_locked
    def items(self) -> tuple[Array, Array]:
        """Return all pairs as arrays: by key, each key's values in order.

        Examples
        --------
        >>> MultiMap.from_arrays([4, 4], [0.5, 0.25]).items()
        (array([4, 4]), array([0.5 , 0.25]))
        """
        bits, values = self._lists.items()
        return self._stored_keys(bits), values

    @translates_memory_errors
    @read_locked
    def lists(self) -> tuple[Array, Array, Array]:
        """Return the distinct keys, the offset of each one's list (int64), and all values.

        There is one more offset than keys: the end of the last list.

        Examples
        --------
        >>> MultiMap.from_arrays([4, 4], [0.5, 0.25]).lists()
        (array([4]), array([0, 2]), array([0.5 , 0.25]))
        """
        bits, offsets, values = self._lists.lists()
        return self._stored_keys(bits), offsets, values

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
        if self._store is not None:
            self._lists.compact()

    @translates_memory_errors
    @write_locked
    def _insert_then(self, keys: Any, values: Any, *then: Step) -> None:
        """Insert pairs as `insert` does, and run `then` in the same call."""
        _, bits, rows = self._pairs(keys, values)
        self._lists.insert(words_of(bits), rows, *then)

    @property
    def _lists(self) -> ListStore:
        """The store; opened on the CPU if no array chose a device."""
        return cast(ListStore, self._opened())

    def _saved_buffers(self) -> Mapping[str, np.ndarray | Pieces]:
        return self._lists.saved_lists()

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
            bits, order = self._restored_bits(raw), SlotOrder.of_buffers(buffers)
            self._lists.build(bits, backend.from_host(offsets), rows, order)
        buffers.check(self.n_keys == len(raw), "its keys are not distinct")
