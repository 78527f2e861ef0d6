"""HashSet: distinct keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack, overload

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.tables.arguments.encoding import word_dtype
from dgpuhash.tables.arguments.interop import as_argument, natural_dtype
from dgpuhash.tables.base import Table
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.open_addressing.slot_order import saved_items, store_in_order
from dgpuhash.tables.rwlock import read_locked, write_locked
from dgpuhash.tables.serialization import Buffers
from dgpuhash.tables.stores.method import table_spec
from dgpuhash.tables.stores.mixed import ExecutesKeys
from dgpuhash.tables.user_kernels.verbs import UserKernels
from dgpuhash.typing import Array, ArrayKind, Device, KeysLike, MethodSettings, TableSettings


class HashSet(UserKernels, ExecutesKeys, Table):
    """Set of distinct keys on a CPU or a GPU.

    Open addressing with cooperative probing (WarpCore, Jünger et al. 2020, §IV-B): double hashing
    between buckets of 64 bytes, inside a segment of 64 KiB. Overflow bits, which tell whether a key
    has passed a full bucket, end the search for an absent key early.

    Parameters
    ----------
    key_dtype : dtype
        Any bool, integer, float, datetime64 or timedelta64 of at most 8 bytes, or a record of
        integers of 16 bytes, which is compared whole. Every value can be stored; -0.0 is 0.0, all
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
        How keys are stored: a name of `dgpuhash.methods`, of which ``"auto"`` is described above.
    **settings
        Settings of the method, as `dgpuhash.methods` shows them.

    Raises
    ------
    KeyTypeError
        When the dtype cannot be a key.
    SpecError
        When a setting is impossible.
    DeviceError
        When there is no such device.
    OutOfMemoryError
        When `capacity` does not fit.

    Notes
    -----
    Threads may share a table (read-write lock): lookups run concurrently, a change runs alone.
    A thread that re-enters a table in a signal handler or a finaliser may read while it reads; a
    call that would wait for itself raises ReentranceError. A forked process may use tables on the
    CPU; a table that another thread was changing during the fork raises TableBroken. On a GPU all
    work runs on CuPy's current stream; synchronize different streams as for CuPy's arrays.

    Examples
    --------
    >>> import numpy as np
    >>> seen = HashSet("int64")
    >>> seen.insert(np.array([3, 1, 3]))
    array([ True,  True, False])
    >>> seen.contains(np.array([1, 2]))
    array([ True, False])
    >>> len(seen)
    2
    """

    kind = "set"

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
            "set", key_dtype, max_load=max_load, seed=seed, method=method, settings=settings
        )
        super().__init__(spec, capacity, device)

    @classmethod
    def from_keys(cls, keys: KeysLike, **settings: Unpack[TableSettings]) -> HashSet:
        """Return a set of `keys`, of their dtype and on their device.

        `settings` are those of the class.

        Examples
        --------
        >>> import numpy as np
        >>> len(HashSet.from_keys(np.array([2.5, 2.5, np.nan])))
        2
        """
        made = cls(natural_dtype(as_argument(keys, "keys"), "keys"), **settings)
        made._add(keys)
        return made

    @overload
    def insert(self, keys: ArrayKind) -> ArrayKind: ...
    @overload
    def insert(self, keys: KeysLike) -> Array: ...
    @translates_memory_errors
    @write_locked
    def insert(self, keys: KeysLike) -> Array:
        """Add keys; return a mask of the rows that added one.

        The mask is of the same kind as `keys`, and true in one row of each key that was not stored.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When the keys do not fit the table.
        OutOfMemoryError
            When the table cannot grow; it is unchanged.

        Examples
        --------
        >>> seen = HashSet("int8")
        >>> seen.insert([5, 7, 5]).sum()
        np.int64(2)
        """
        taken, bits = self._stored_as(keys)
        return taken.wrap(self._opened().insert(bits, None), np.dtype(bool))

    @translates_memory_errors
    @read_locked
    def items(self) -> Array:
        """Return all keys, in no particular order, as a NumPy or CuPy array.

        Examples
        --------
        >>> sorted(HashSet.from_keys([4, 4, 2]).items().tolist())
        [2, 4]
        """
        return self._stored_keys(self._opened().items()[0])

    @translates_memory_errors
    @write_locked
    def _add(self, keys: Any) -> None:
        """Add keys as `insert` does, but return nothing."""
        _, bits = self._keys(keys)
        self._opened().add(bits, None)

    def _saved_buffers(self) -> Mapping[str, np.ndarray]:
        store = self._opened()
        bits, _, order = saved_items(store)
        return {"keys": store.backend.to_host(bits), **order}

    def _restore(self, buffers: Buffers, size: int) -> None:
        store = self._opened()
        raw = buffers.get("keys", word_dtype(self.key_dtype), size)
        bits = self._restored_bits(raw)
        if not store_in_order(store, bits, None, buffers):
            store.reserve(size)
            store.add(bits, None)
