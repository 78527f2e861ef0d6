"""KeyIds: an id for each key, and the key of each id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, Unpack, overload

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.backend import Backend
from dgpuhash.errors import IdError, KeyTypeError
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.encoding import word_dtype, words_of
from dgpuhash.tables.arguments.interop import (
    ArrayArgument,
    as_argument,
    as_device_array,
    natural_dtype,
    one_dimension,
)
from dgpuhash.tables.base import Keyed
from dgpuhash.tables.commit import assigner
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.rwlock import read_locked, write_locked
from dgpuhash.tables.select import gather_rows
from dgpuhash.tables.serialization import Buffers
from dgpuhash.tables.stats import TableStats, format_bytes, html_table
from dgpuhash.tables.store import IdStore
from dgpuhash.tables.stores.method import resolve_spec, store_for, table_spec
from dgpuhash.typing import Array, ArrayKind, Device, IdSettings, KeysLike, MethodSettings

_BOOL, _INT64 = np.dtype(bool), np.dtype(np.int64)


class KeyIds(Keyed):
    """Two-way index of distinct keys and their ids 0, 1, 2 …, on a CPU or a GPU.

    The compacting hash table of Alcantara's thesis (2011), §6.3: a table gives the id of a key, and
    an array of the keys by id gives the key of an id. It is built once, by `from_keys`, and never
    changes; copies share its memory.

    Parameters
    ----------
    key_dtype : dtype
        Any bool, integer, float, datetime64 or timedelta64 of at most 8 bytes. Every value can be
        stored; -0.0 is 0.0, all NaNs are one key, and so is NaT.
    device : {"cpu", "cuda"}, optional
        None: the device of the first arrays.
    seed : int, optional
        Seed of the hash function, from 0 to 2**64 - 1; drawn anew when None, unless the variable
        ``DGPUHASH_SEED`` fixes it.
    method : str
        How keys are stored: a name of `dgpuhash.methods` that has ``"ids"``. With ``"auto"`` ids
        follow the first appearance of keys, as those of `factorize` do; with others, the slots of
        the table.
    **settings
        Settings of the method, as `dgpuhash.methods` shows them.

    Raises
    ------
    KeyTypeError
        When the dtype cannot be a key.
    SpecError
        When a setting is impossible, or the method has no ids.
    DeviceError
        When there is no such device.

    Notes
    -----
    Threads may share an index, as they may share a `HashSet`.

    Examples
    --------
    >>> import numpy as np
    >>> names = KeyIds.from_keys(np.array([30, 10, 30, 20]))
    >>> names.ids_of(np.array([20, 30, 99]))
    (array([ 2,  0, -1]), array([ True,  True, False]))
    >>> names.keys_of(np.array([2, 0]))
    array([20, 30])
    >>> names
    <KeyIds int64: 3 keys with ids 0 to 2, ... B, cpu, seed ...>
    """

    kind = "ids"
    _store: IdStore | None

    def __init__(
        self,
        key_dtype: DTypeLike,
        *,
        device: Device | None = None,
        seed: int | None = None,
        method: str = "auto",
        **settings: Unpack[MethodSettings],
    ) -> None:
        spec = table_spec(
            self.kind, key_dtype, max_load=None, seed=seed, method=method, settings=settings
        )
        super().__init__(spec, device)

    @classmethod
    def from_keys(
        cls, keys: KeysLike, method: str = "auto", **settings: Unpack[IdSettings]
    ) -> KeyIds:
        """Return the index of the distinct `keys`, of their dtype and on their device.

        Parameters
        ----------
        keys : array
            A key may come several times; it gets one id.
        method : str
            As for the class, like the other `settings`.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When `keys` is not a valid column of keys.
        CapacityError
            When a method finds no places for the keys.
        OutOfMemoryError
            When the index does not fit into memory.

        Examples
        --------
        >>> import numpy as np
        >>> made = KeyIds.from_keys(np.array([2.5, np.nan, 2.5, np.nan]), method="cops")
        >>> len(made), made.method
        (2, 'cops')
        """
        dtype = natural_dtype(as_argument(keys, "keys"), "keys")
        made = cls(dtype, method=method, **settings)
        made._build(keys)
        return made

    @property
    def method(self) -> str:
        """Name of the method that stores the keys, from `dgpuhash.methods`."""
        return self._spec.method

    @property
    def nbytes(self) -> int:
        """Memory of the table and of the keys by id, in bytes."""
        return 0 if self._store is None else self._store.nbytes

    @read_locked
    def __len__(self) -> int:
        return 0 if self._store is None else len(self._store)

    @overload
    def ids_of(self, keys: ArrayKind) -> tuple[ArrayKind, ArrayKind]: ...
    @overload
    def ids_of(self, keys: KeysLike) -> tuple[Array, Array]: ...
    @translates_memory_errors
    @read_locked
    def ids_of(self, keys: KeysLike) -> tuple[Array, Array]:
        """Return the ids of keys, and a mask of the keys with one, in input order.

        Parameters
        ----------
        keys : array
            Keys of other dtypes are compared by value: a key that `key_dtype` does not hold has no
            id.

        Returns
        -------
        ids : array of int64
            Of the kind of `keys`; -1 where a key has no id.
        found : array of bool
            Mask of the keys that have one.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When the keys do not fit the index.

        Examples
        --------
        >>> KeyIds.from_keys([7, 5]).ids_of([5, 6])
        (array([ 1, -1]), array([ True, False]))
        """
        taken, asked, bits = self._asked(keys)
        store = self._opened()
        ids, found = store.find(words_of(bits))
        if asked.rows is not None:
            ids = asked.by_row(ids, store.backend.full(1, -1, np.int64))
        return taken.wrap(ids, _INT64), taken.wrap(asked.by_row(found), _BOOL)

    @translates_memory_errors
    @read_locked
    def keys_of(self, ids: KeysLike) -> Array:
        """Return the keys of ids, in input order.

        Parameters
        ----------
        ids : array of integers
            Each from 0 to ``len(self) - 1``, any number of times.

        Returns
        -------
        array
            Of dtype `key_dtype`, and of the kind of `ids`.

        Raises
        ------
        IdError
            When no key has an id; an IndexError. Negative ids do not count from the end.
        KeyTypeError, ShapeError, DeviceError
            When `ids` are no column of integers on this device.

        Examples
        --------
        >>> made = KeyIds.from_keys([30, 10])
        >>> ids, found = made.ids_of([10, 99])
        >>> made.keys_of(ids[found])
        array([10])
        """
        taken = as_argument(ids, "ids")
        backend = self._home(taken)
        rows = _integers(backend, taken)
        store = self._opened()
        wrong = (rows < 0) | (rows >= len(store))
        if bool(wrong.any()):
            row = int(wrong.argmax())
            last = f"0 to {len(store) - 1:,}" if len(store) else "none, as there are no keys"
            raise IdError(
                f"id {int(rows[row]):,} in row {row:,} has no key; ids are {last}; leave out rows "
                f"that ids_of did not find: ids[found]"
            )
        keys = self._stored_keys(gather_rows(store.keys, rows))
        return taken.wrap(keys, self._key)

    @overload
    def contains(self, keys: ArrayKind) -> ArrayKind: ...
    @overload
    def contains(self, keys: KeysLike) -> Array: ...
    @translates_memory_errors
    @read_locked
    def contains(self, keys: KeysLike) -> Array:
        """Return a mask of the keys with an id, in input order and of the kind of `keys`.

        Keys of other dtypes are compared by value, as `ids_of` does.
        """
        taken, asked, bits = self._asked(keys)
        return taken.wrap(asked.by_row(self._opened().find(words_of(bits))[1]), _BOOL)

    @translates_memory_errors
    @read_locked
    def items(self) -> Array:
        """Return all keys in the order of their ids, as a NumPy or CuPy array.

        Examples
        --------
        >>> KeyIds.from_keys([30, 10, 30]).items()
        array([30, 10])
        """
        return self._stored_keys(self._opened().keys.copy())

    @translates_memory_errors
    @read_locked
    def stats(self) -> TableStats:
        """Return size, load, memory, and the method's own figures; read the whole table."""
        store = self._opened()
        figures, size = store.figures(), len(store)
        payload = size * self._key.itemsize
        return TableStats.of(
            figures, size=size, capacity=size, nbytes=store.nbytes, payload=payload
        )

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def _repr_html_(self) -> str:
        return html_table(self._title(), [] if self._store is None else self.stats().rows())

    def _title(self) -> str:
        size = len(self)
        keys = "1 key with id 0" if size == 1 else f"{size:,} keys with ids 0 to {size - 1:,}"
        method = "" if self.method == "auto" else f" ({self.method})"
        return (
            f"{type(self).__name__} {self._key}{method}: {keys if size else 'no keys'}, "
            f"{format_bytes(self.nbytes)}, {self.device or 'no device yet'}, seed {self._seed}"
        )

    @translates_memory_errors
    @write_locked
    def _build(self, keys: Any) -> None:
        """Assign ids to the keys of an empty index."""
        _, bits = self._keys(keys)
        self._opened().build(bits)

    @classmethod
    def _of(cls, spec: TableSpec, capacity: int, device: Device | None) -> Self:
        made = object.__new__(cls)
        Keyed.__init__(made, resolve_spec(spec), device)
        return made

    @classmethod
    def _check_spec(cls, spec: TableSpec) -> TableSpec:
        return resolve_spec(spec)

    @property
    def _seed(self) -> int:
        return self._spec.seed if self._store is None else self._store.seed

    def _open(self, backend: Backend) -> None:
        word = word_dtype(self._key)
        store = store_for(backend, self._spec, word, word, 0)
        guarding = assigner(self._turns, check_device=backend.check_device())
        backend.in_one_call([guarding, assigner(self, _store=store, _backend=backend)])

    def _entries(self) -> int:
        return len(self)

    def _saved_buffers(self) -> Mapping[str, np.ndarray]:
        store = self._opened()
        return {"keys": store.backend.to_host(store.keys)}

    def _restore(self, buffers: Buffers, size: int) -> None:
        raw = buffers.get("keys", word_dtype(self._key), size)
        self._opened().restore(self._restored_bits(raw))


def _integers(backend: Backend, taken: ArrayArgument) -> Any:
    """Return ids on the device, as int64 or uint64."""
    dtype = natural_dtype(taken, "ids")
    if len(taken.data) and dtype.kind not in "iu":
        raise KeyTypeError(f"ids of dtype {dtype}; pass integers, as ids_of gives them")
    if dtype == np.uint64:
        # No int64 holds all of them.
        return one_dimension(backend.asarray(taken.data), "ids")
    return as_device_array(backend, taken, _INT64, "ids")
