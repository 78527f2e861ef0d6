"""Base of all tables: device, encoding, verbs, growth, statistics, copies and saves."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, overload

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import FormatError, SpecError
from dgpuhash.seeds import draw_seed
from dgpuhash.spec import TableSpec, check_capacity
from dgpuhash.tables.arguments.checksums import Pieces
from dgpuhash.tables.arguments.encoding import key_memory, key_words, keys_of, word_dtype, words_of
from dgpuhash.tables.arguments.interop import (
    ArrayArgument,
    as_argument,
    as_device_array,
    same_length,
)
from dgpuhash.tables.arguments.lookup_keys import LookupKeys, as_lookup_keys
from dgpuhash.tables.commit import assigner
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.rwlock import ReadWriteLock, read_locked, write_locked
from dgpuhash.tables.serialization import Buffers, check_absent, read_file, write_file
from dgpuhash.tables.stats import TableStats, format_bytes, html_table
from dgpuhash.tables.store import Store
from dgpuhash.tables.stores.method import resolve_spec, store_for
from dgpuhash.typing import Array, ArrayKind, Device, KeysLike, Number


class Keyed(ABC):
    """Base of tables and filters with keys of one dtype on one device.

    A subclass opens its store on a device, and says what a file has of it.
    """

    kind = ""

    def __init__(self, spec: TableSpec, device: Device | None) -> None:
        self._spec, self._key = spec, spec.key
        self._backend: Backend | None = None if device is None else backends.get(device)
        self._store: Any = None
        self._turns = ReadWriteLock()
        if self._backend is not None:
            self._open(self._backend)
            # Whatever stream uses it next: its slots are empty.
            self._backend.synchronize()

    @property
    def spec(self) -> TableSpec:
        """The settings of the table."""
        return self._spec

    @property
    def key_dtype(self) -> np.dtype[Any]:
        """The keys' dtype."""
        return self._key

    @property
    def device(self) -> Device | None:
        """``"cpu"``, ``"cuda"``, or None until the first arrays decide."""
        return None if self._backend is None else self._backend.name

    @translates_memory_errors
    @read_locked
    def copy(self) -> Self:
        """Return an independent table with the same content and device."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._turns = ReadWriteLock(self._turns.check_device)
        if self._store is not None:
            made._store = self._store.copy()
        return made

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __getstate__(self) -> dict[str, Any]:
        # Pickle a copy: other threads may change the table before pickling ends.
        return self.copy().__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._backend is not None:
            # The arrays are on the device on which they were just unpickled.
            self._turns.check_device = self._backend.check_device()

    @translates_memory_errors
    @read_locked
    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the table atomically to one file, at a path or an fsspec URL.

        Parameters
        ----------
        path : path or fsspec URL
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ExistsError
            When `path` exists before or after the write, and `overwrite` is False. On remote file
            systems, two writers at the same moment are not detected.
        OSError
            When the disk is full or not writable; an existing file is then untouched.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from dgpuhash import HashSet
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "seen.dgph"
        >>> HashSet.from_keys([3, 1]).save(path)
        >>> HashSet.from_keys([3, 1, 4]).save(path, overwrite=True)
        >>> len(HashSet.load(path))
        3
        """
        check_absent(path, overwrite=overwrite)
        self._opened()
        spec = replace(self._spec, seed=self._seed)
        header = {"spec": spec.to_json(), "size": self._entries()}
        write_file(path, header, self._saved_buffers(), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: Device | None = None) -> Self:
        """Load the table saved under `path`, to any device.

        Raises
        ------
        FormatError
            When the file is not dgpuhash's, truncated or damaged, or holds another kind of table.
        """
        header, buffers = read_file(path)
        if "spec" not in header and "kind" in header:
            raise FormatError(
                f"{path} holds a {header['kind']} and not a table; use dgpuhash.load for any kind"
            )
        try:
            spec = TableSpec.from_json(header["spec"])
            size = check_capacity(header["size"], "size")
            chosen = _kinds(cls).get(spec.kind)
            if chosen is not None:
                spec = chosen._check_spec(spec)
        except (KeyError, TypeError, SpecError) as error:
            raise FormatError(f"{path} describes no table ({error}); save it again") from error
        if chosen is None:
            raise FormatError(
                f"{path} holds a {spec.kind} and not a {cls.kind}; use dgpuhash.load for any kind"
            )
        made: Any = chosen._of(spec, 0, device or "cpu")
        made._restore(Buffers(os.fspath(path), buffers), size)
        if (held := made._entries()) != size:
            raise FormatError(
                f"{path} is damaged: it holds {held:,} distinct entries and claims {size:,}; "
                "save the table again"
            )
        return made

    @property
    def _seed(self) -> int:
        """Seed of the hash function in use."""
        return self._spec.seed

    @classmethod
    def _check_spec(cls, spec: TableSpec) -> TableSpec:
        """Return a saved spec; raise SpecError if it is invalid."""
        return spec

    @classmethod
    @abstractmethod
    def _of(cls, spec: TableSpec, capacity: int, device: Device | None) -> Self:
        """Return an empty object for a spec of its kind."""

    @abstractmethod
    def _open(self, backend: Backend) -> None:
        """Create the store on `backend`, and keep to this backend."""

    @abstractmethod
    def _entries(self) -> int:
        """Return the size to save, for a check after loading."""

    @abstractmethod
    def _saved_buffers(self) -> Mapping[str, np.ndarray | Pieces]:
        """Return the content as buffers for a file."""

    @abstractmethod
    def _restore(self, buffers: Buffers, size: int) -> None:
        """Fill the store from a file's buffers."""

    def _opened(self) -> Any:
        """Return the store; open it on the CPU if no array chose a device."""
        if self._store is None:
            self._open(backends.get("cpu"))
        assert self._store is not None
        return self._store

    def _home(self, *arguments: ArrayArgument) -> Backend:
        """Return the backend of the arguments and of the table."""
        backend = self._backend
        if backend is not None:
            for taken in arguments:
                if taken.location not in (None, backend.name):
                    break
            else:
                return backend
        placed = [taken.data for taken in arguments if taken.location is not None]
        return backends.get(self.device, *placed)

    def _keys(self, keys: Any) -> tuple[ArrayArgument, Any]:
        """Open the table; return the argument and its canonical words."""
        taken, bits = self._stored_as(keys)
        return taken, words_of(bits)

    def _stored_as(self, keys: Any) -> tuple[ArrayArgument, Any]:
        """Return the argument and words as `_keys`, in any dtype of equal width."""
        taken = as_argument(keys, "keys")
        backend = self._home(taken)
        bits = key_memory(backend, as_device_array(backend, taken, self._key, "keys"))
        self._turns.begin()
        if self._store is None:
            self._open(backend)
        return taken, bits

    def _asked(self, keys: Any) -> tuple[ArrayArgument, LookupKeys, Any]:
        """Return a lookup argument, its `LookupKeys`, and their words."""
        taken = as_argument(keys, "keys")
        backend = self._home(taken)
        asked = as_lookup_keys(backend, taken, self._key, "keys")
        bits = key_memory(backend, asked.keys)
        if self._store is None:
            self._open(backend)
        return taken, asked, bits

    def _stored_keys(self, bits: Any) -> Any:
        assert self._backend is not None
        return keys_of(self._backend, bits, self._key)

    def _restored_bits(self, raw: np.ndarray) -> Any:
        """Return saved key words on the device, made canonical."""
        backend = self._home()
        return key_words(backend, keys_of(backend, backend.from_host(raw), self._key))


def _kinds(cls: type[Keyed]) -> dict[str, type[Keyed]]:
    """Return every concrete subclass of `cls`, by kind."""
    found = {cls.kind: cls} if cls.kind else {}
    for child in cls.__subclasses__():
        found |= _kinds(child)
    return found


_BOOL = np.dtype(bool)


class Table(Keyed):
    """Common base of sets, maps and multimaps."""

    _store: Store | None

    def __init__(self, spec: TableSpec, capacity: int, device: Device | None) -> None:
        self._least_capacity = self._first_capacity = check_capacity(capacity)
        self._value_dtype = spec.value
        super().__init__(resolve_spec(spec), device)

    @classmethod
    def _of(cls, spec: TableSpec, capacity: int, device: Device | None) -> Self:
        made = object.__new__(cls)
        Table.__init__(made, spec, capacity, device)
        return made

    @classmethod
    def _check_spec(cls, spec: TableSpec) -> TableSpec:
        return resolve_spec(spec)

    def _entries(self) -> int:
        return len(self)

    @property
    def method(self) -> str:
        """Name of the method that stores the keys, from `dgpuhash.methods`."""
        return self._spec.method

    @property
    def value_dtype(self) -> np.dtype[Any] | None:
        """The values' dtype; None for sets."""
        return self._value_dtype

    @property
    def capacity(self) -> int:
        """Number of distinct keys at which the table grows."""
        return self._least_capacity if self._store is None else self._store.capacity

    @property
    def nbytes(self) -> int:
        """Memory of the table, in bytes."""
        return 0 if self._store is None else self._store.nbytes

    @read_locked
    def __len__(self) -> int:
        return 0 if self._store is None else len(self._store)

    @overload
    def contains(self, keys: ArrayKind) -> ArrayKind: ...
    @overload
    def contains(self, keys: KeysLike) -> Array: ...
    @translates_memory_errors
    @read_locked
    def contains(self, keys: KeysLike) -> Array:
        """Return a mask of stored keys, in input order and of the kind of `keys`.

        Keys of other dtypes are compared by value: a key that `key_dtype` does not hold is absent.
        """
        taken, asked, bits = self._asked(keys)
        return taken.wrap(asked.by_row(self._opened().contains(bits)), _BOOL)

    def __contains__(self, key: Number) -> bool:
        """Return whether one key is stored."""
        return bool(self.contains([key])[0])

    @overload
    def count(self, keys: ArrayKind) -> ArrayKind: ...
    @overload
    def count(self, keys: KeysLike) -> Array: ...
    @translates_memory_errors
    @read_locked
    def count(self, keys: KeysLike) -> Array:
        """Return how often each key is stored (int64), in input order and of the kind of `keys`."""
        taken, asked, bits = self._asked(keys)
        return taken.wrap(asked.by_row(self._counts(bits)), np.dtype(np.int64))

    def _counts(self, bits: Any) -> Any:
        return self._opened().contains(bits).astype(np.int64)

    @overload
    def erase(self, keys: ArrayKind) -> ArrayKind: ...
    @overload
    def erase(self, keys: KeysLike) -> Array: ...
    @translates_memory_errors
    @write_locked
    def erase(self, keys: KeysLike) -> Array:
        """Remove keys; return a mask like `keys`, true once per removed key."""
        taken, asked, bits = self._asked(keys)
        return taken.wrap(asked.by_row(self._opened().erase(bits)), _BOOL)

    @write_locked
    def clear(self) -> None:
        """Remove every key; the capacity stays."""
        self._turns.begin()
        if self._store is not None:
            self._store = self._store.empty_in_place()
            self._store.fill()

    @translates_memory_errors
    @write_locked
    def reserve(self, keys: int) -> None:
        """Reserve room for `keys` keys in total, so that inserts up to it do not grow the table.

        Raises
        ------
        SpecError
            When `keys` is negative or absurd.
        OutOfMemoryError
            When there is not enough memory; the table is unchanged. If the table has no device
            yet, the first verb with arrays raises it, once.
        """
        wanted = check_capacity(keys, "reserve")
        self._turns.begin()
        if self._store is None:
            self._least_capacity = max(self._least_capacity, wanted)
        else:
            self._store.reserve(wanted)

    @translates_memory_errors
    @write_locked
    def rehash(self, seed: int | None = None) -> None:
        """Rebuild the table with another seed of the hash function.

        A growing table does so by itself if its keys are clustered under the current seed. Content
        and answers stay the same.

        Parameters
        ----------
        seed : int, optional
            From 0 to 2**64 - 1; None draws a new one.

        Raises
        ------
        SpecError, OutOfMemoryError
            For a `seed` out of range; when no copy fits into memory. The table is unchanged.

        Examples
        --------
        >>> from dgpuhash import HashSet
        >>> table = HashSet.from_keys([1, 2, 3])
        >>> table.rehash(seed=5)
        >>> table.stats().seed, table.contains([2, 4]).tolist()
        (5, [True, False])
        """
        spec = replace(self._spec, seed=draw_seed() if seed is None else seed)
        self._turns.begin()
        if self._store is not None:
            self._store.rehash(spec.seed)
        self._spec = spec

    @translates_memory_errors
    @read_locked
    def stats(self) -> TableStats:
        """Return size, load, memory and lines per lookup; read the whole table."""
        figures, size = self._opened().figures(), len(self)
        width = 0 if self._value_dtype is None else self._value_dtype.itemsize
        payload = figures.occupied * self._key.itemsize + size * width
        return TableStats.of(
            figures, size=size, capacity=self.capacity, nbytes=self.nbytes, payload=payload
        )

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def _repr_html_(self) -> str:
        rows = [] if self._store is None or self._store.broken else self.stats().rows()
        return html_table(self._title(), rows)

    def _title(self) -> str:
        value, store = self.value_dtype, self._store
        types = str(self._key) if value is None else f"{self._key} -> {value}"
        where = self.device or "no device yet"
        if self.method != "auto":
            types += f" ({self.method})"
        if store is not None and store.broken:
            return f"{type(self).__name__} {types}: broken by a change that failed, {where}"
        filled = self._filled()
        memory, reseeds = format_bytes(self.nbytes), 0 if store is None else store.reseeds
        again = f" (reseeded: {reseeds})" if reseeds else ""
        return (
            f"{type(self).__name__} {types}: {filled}, {memory}, {where}, seed {self._seed}{again}"
        )

    @property
    def _seed(self) -> int:
        """Seed of the hash function in use."""
        return self._spec.seed if self._store is None else self._store.seed

    def _filled(self) -> str:
        return f"{len(self):,} of {self.capacity:,}"

    @property
    def _value(self) -> np.dtype[Any]:
        assert self._value_dtype is not None
        return self._value_dtype

    def _value_word(self) -> np.dtype[Any] | None:
        """Return the dtype of the value words in slots."""
        return None

    def _open(self, backend: Backend) -> None:
        spec = self._spec
        try:
            store = store_for(
                backend, spec, word_dtype(self._key), self._value_word(), self._least_capacity
            )
        except MemoryError:
            # The reserved capacity may exceed the memory.
            self._least_capacity = self._first_capacity
            raise
        guarding = assigner(self._turns, check_device=backend.check_device())
        backend.in_one_call([guarding, assigner(self, _store=store, _backend=backend)])

    def _pairs(self, keys: Any, values: Any) -> tuple[ArrayArgument, Any, Any]:
        """Return the argument, key words and rows of values, all checked."""
        taken, given = as_argument(keys, "keys"), as_argument(values, "values")
        backend = self._home(taken, given)
        adopted = as_device_array(backend, taken, self._key, "keys")
        rows = as_device_array(backend, given, self._value, "values")
        same_length(adopted, rows)
        self._turns.begin()
        if self._store is None:
            self._open(backend)
        return taken, key_memory(backend, adopted), rows
