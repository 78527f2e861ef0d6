"""Store a map's values: words in the slots, or rows of an array."""

from __future__ import annotations

import sys
from typing import Any, Protocol, Self

import numpy as np

from dgpuhash.backend import Backend, is_out_of_memory
from dgpuhash.tables.arguments.encoding import (
    carrier_dtype,
    value_memory,
    value_words,
    values_of,
    word_dtype,
)
from dgpuhash.tables.commit import assigner
from dgpuhash.tables.open_addressing.wide_values import ValueRows
from dgpuhash.tables.store import Store

_BOOL = np.dtype(bool)
_CHUNK_NBYTES = 16


class SlotValues(Protocol):
    """Values of one dtype, in the slots of a `Store` or in an array."""

    word: np.dtype[Any]
    """Dtype of the words that the slots hold."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory outside the slots."""

    def insert(self, store: Store, bits: Any, values: Any) -> Any:
        """Insert absent keys; return a mask of the rows that created keys."""

    def add(self, store: Store, bits: Any, values: Any) -> None:
        """Insert absent keys without returning a mask."""

    def upsert(self, store: Store, bits: Any, values: Any) -> None:
        """Store pairs with distinct keys; overwrite the values of stored keys."""

    def find(self, store: Store, bits: Any, default: np.ndarray) -> tuple[Any, Any]:
        """Return the values of keys and a mask of the stored keys."""

    def find_to(
        self, store: Store, bits: Any, default: np.ndarray, values: Any, found: Any
    ) -> bool:
        """Write the result of `find` to `values` and `found`.

        Returns False, and writes nothing, where the arrays do not allow it.
        """

    def make_room(self, rows: int) -> None:
        """Allocate memory for the values of `rows` more rows."""

    def execute(
        self, store: Any, ops: Any, bits: Any, values: Any, default: np.ndarray
    ) -> tuple[Any, Any]:
        """Execute a mixed batch; return values and flags.

        `values` may be None where no row stores.
        """

    def words_of(self, values: Any) -> Any:
        """Return the words of values for slots; None for values outside them."""

    def decode(self, words: Any) -> Any:
        """Return the values of words from the slots."""

    def emptied(self) -> Self:
        """Return an empty storage of the same kind."""

    def copy(self) -> Self:
        """Return an independent copy."""


def values_for(backend: Backend, dtype: np.dtype[Any]) -> SlotValues:
    """Return the storage for values of `dtype`.

    Values of 1, 2, 4 or 8 bytes are stored in the slots, others in an array.
    """
    if dtype.itemsize in (1, 2, 4, 8):
        return InlineValues(backend, dtype)
    return WideValues(backend, dtype)


class InlineValues:
    """Values stored as words in the slots."""

    nbytes = 0

    def __init__(self, backend: Backend, dtype: np.dtype[Any]) -> None:
        self._backend, self._dtype = backend, dtype
        self.word: np.dtype = word_dtype(dtype)
        carried = carrier_dtype(backend, dtype)
        # Where words are as wide as values, `find` writes arrays of the values' own dtype.
        self._found = carried if self.word.itemsize == carried.itemsize else None

    def insert(self, store: Store, bits: Any, values: Any) -> Any:
        """Implement `SlotValues.insert`."""
        return store.insert(bits, value_memory(values, self._dtype))

    def add(self, store: Store, bits: Any, values: Any) -> None:
        """Implement `SlotValues.add`."""
        store.add(bits, value_memory(values, self._dtype))

    def upsert(self, store: Store, bits: Any, values: Any) -> None:
        """Implement `SlotValues.upsert`."""
        store.upsert(bits, value_memory(values, self._dtype))

    def find(self, store: Store, bits: Any, default: np.ndarray) -> tuple[Any, Any]:
        """Implement `SlotValues.find`."""
        words, found = store.find(bits, _word_of(default), self._found)
        return (self.decode(words) if self._found is None else words), found

    def find_to(
        self, store: Store, bits: Any, default: np.ndarray, values: Any, found: Any
    ) -> bool:
        """Implement `SlotValues.find_to`."""
        # Kernels write answers in 16-byte chunks.
        aligned = not any(self._backend.pointer(each) % _CHUNK_NBYTES for each in (values, found))
        if self._found is None or not aligned:
            return False
        store.find_to(bits, values, found, _word_of(default))
        return True

    def make_room(self, rows: int) -> None:
        """Implement `SlotValues.make_room`."""

    def execute(
        self, store: Any, ops: Any, bits: Any, values: Any, default: np.ndarray
    ) -> tuple[Any, Any]:
        """Implement `SlotValues.execute`."""
        rows = None if values is None else value_words(values, self._dtype)
        words, flags = store.execute(ops, bits, rows, _word_of(default))
        return self.decode(words), flags

    def words_of(self, values: Any) -> Any:
        """Implement `SlotValues.words_of`."""
        return value_words(values, self._dtype)

    def decode(self, words: Any) -> Any:
        """Implement `SlotValues.decode`."""
        return values_of(self._backend, words, self._dtype)

    def emptied(self) -> Self:
        """Implement `SlotValues.emptied`."""
        return self

    def copy(self) -> Self:
        """Implement `SlotValues.copy`."""
        return self


class WideValues:
    """Values stored as rows of an array, with row numbers in the slots."""

    word: np.dtype = np.dtype(np.uint64)

    def __init__(self, backend: Backend, dtype: np.dtype[Any]) -> None:
        self._backend, self._dtype = backend, dtype
        self._payload = ValueRows(backend, dtype)

    @property
    def nbytes(self) -> int:
        """Implement `SlotValues.nbytes`."""
        return self._payload.nbytes

    def insert(self, store: Store, bits: Any, values: Any) -> Any:
        """Implement `SlotValues.insert`."""
        self._tidy(store)
        rows = store.absent(bits)
        fresh = self._backend.zeros(len(bits), _BOOL)
        # From here on the array rows are used up, even when the insert of their keys fails.
        self._payload, numbers = self._payload.appended(values[rows])
        fresh[rows] = store.insert(bits[rows], numbers)
        self._tidy(store)
        return fresh

    def add(self, store: Store, bits: Any, values: Any) -> None:
        """Implement `SlotValues.add`."""
        self.insert(store, bits, values)

    def upsert(self, store: Store, bits: Any, values: Any) -> None:
        """Implement `SlotValues.upsert`."""
        self._tidy(store)
        if not store.reserves:
            # Rows in use cannot be overwritten and keys be refused in one change: all are new.
            self._payload, added = self._payload.appended(values)
            store.upsert(bits, added)
            return
        xp = self._backend.xp
        numbers, found = store.find(bits)
        stored, absent = xp.flatnonzero(found), xp.flatnonzero(~found)
        replaced, replacing = numbers[stored].view(np.int64), values[stored]
        self._payload, added = self._payload.appended(values[absent])
        store.make_room(len(absent))
        store.commit(
            self._payload.putting(replaced, replacing), store.replacing(bits[absent], added)
        )

    def find(self, store: Store, bits: Any, default: np.ndarray) -> tuple[Any, Any]:
        """Implement `SlotValues.find`."""
        numbers, found = store.find(bits)
        return self._payload.take(numbers.view(np.int64), found, default), found

    def find_to(
        self, store: Store, bits: Any, default: np.ndarray, values: Any, found: Any
    ) -> bool:
        """Implement `SlotValues.find_to`."""
        return False

    def make_room(self, rows: int) -> None:
        """Implement `SlotValues.make_room`."""
        self._payload = self._payload.with_room(rows)

    def execute(
        self, store: Any, ops: Any, bits: Any, values: Any, default: np.ndarray
    ) -> tuple[Any, Any]:
        """Implement `SlotValues.execute`; each row with a value uses a row of the array."""
        self._tidy(store)
        numbers = None
        if values is not None:
            self._payload, numbers = self._payload.appended(values)
        words, flags = store.execute(ops, bits, numbers, 0)
        found = self._payload.take(words.view(np.int64), flags & (ops == 0), default)
        return found, flags

    def words_of(self, values: Any) -> None:
        """Implement `SlotValues.words_of`."""

    def decode(self, words: Any) -> Any:
        """Implement `SlotValues.decode`."""
        return self._payload.take(words.view(np.int64))

    def emptied(self) -> WideValues:
        """Implement `SlotValues.emptied`."""
        return WideValues(self._backend, self._dtype)

    def copy(self) -> WideValues:
        """Implement `SlotValues.copy`."""
        made = WideValues(self._backend, self._dtype)
        made._payload = self._payload.copy()
        return made

    def _tidy(self, store: Store) -> None:
        """Compact the array if most of its rows belong to no key.

        Leaves the array as it is when memory is short.
        """
        live = len(store)
        if self._payload.used - live <= max(live, 1024):
            return
        try:
            bits, numbers = store.items()
            kept = self._payload.kept(numbers.view(np.int64))
            renumbering = store.replacing(bits, self._backend.xp.arange(live, dtype=np.uint64))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return
        store.commit(renumbering, assigner(self, _payload=kept))


def _word_of(default: np.ndarray) -> int:
    """Return the integer with the bytes of `default`."""
    return int.from_bytes(default.tobytes(), sys.byteorder)
