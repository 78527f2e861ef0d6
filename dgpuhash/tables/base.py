"""Common part of all tables: verbs, growth, statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self, overload

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.seeds import draw_seed
from dgpuhash.spec import TableSpec, check_capacity
from dgpuhash.tables.arguments.encoding import key_memory, word_dtype
from dgpuhash.tables.arguments.interop import ArrayArgument, as_argument
from dgpuhash.tables.arguments.validate import as_device_array, same_length
from dgpuhash.tables.commit import assigner
from dgpuhash.tables.keyed import Keyed
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.rwlock import read_locked, write_locked
from dgpuhash.tables.stats import TableStats, format_bytes, html_table
from dgpuhash.tables.store import Store
from dgpuhash.tables.stores.method import resolved, store_for
from dgpuhash.typing import Array, ArrayKind, Device, KeysLike, Number

_BOOL = np.dtype(bool)


class Table(Keyed):
    """Common base of sets, maps and multimaps."""

    _store: Store | None

    def __init__(self, spec: TableSpec, capacity: int, device: Device | None) -> None:
        self._least_capacity = self._first_capacity = check_capacity(capacity)
        self._value_dtype = spec.value
        super().__init__(resolved(spec), device)

    @classmethod
    def _of(cls, spec: TableSpec, capacity: int, device: Device | None) -> Self:
        made = object.__new__(cls)
        Table.__init__(made, spec, capacity, device)
        return made

    @classmethod
    def _checked(cls, spec: TableSpec) -> TableSpec:
        return resolved(spec)

    def _entries(self) -> int:
        return len(self)

    @property
    def method(self) -> str:
        """How the table stores its keys: a name of `dgpuhash.methods`."""
        return self._spec.method

    @property
    def value_dtype(self) -> np.dtype[Any] | None:
        """The values' dtype; None for sets."""
        return self._value_dtype

    @property
    def capacity(self) -> int:
        """Distinct keys that fit before the table grows."""
        return self._least_capacity if self._store is None else self._store.capacity

    @property
    def nbytes(self) -> int:
        """Memory that the table holds, in bytes."""
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
        """Remove keys; return a mask like `keys`, true once per stored key."""
        taken, asked, bits = self._asked(keys)
        return taken.wrap(asked.by_row(self._opened().erase(bits)), _BOOL)

    @write_locked
    def clear(self) -> None:
        """Remove every key; the capacity stays."""
        self._turns.begin()
        if self._store is not None:
            self._store = self._store.cleared()
            self._store.fill()

    @translates_memory_errors
    @write_locked
    def reserve(self, keys: int) -> None:
        """Reserve room for `keys` keys in total, up to which inserts do not grow.

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
        """Return the dtype of the words beside keys in slots."""
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
