"""How a map keeps its values: as words in the slots, or as rows beside them."""

from __future__ import annotations

import sys
from typing import Any, Protocol, Self

import numpy as np

from dgpuhash.backend import Backend, ran_out
from dgpuhash.tables.arguments.encoding import carrier, value_memory, values_of, word
from dgpuhash.tables.commit import assigning
from dgpuhash.tables.open_addressing.growth import Storage
from dgpuhash.tables.open_addressing.wide_values import Payload

__all__ = ["Values", "values_for"]

_BOOL = np.dtype(bool)
_QUARTER = 16


class Values(Protocol):
    """Values of one dtype beside, or inside, a `Storage`."""

    word: np.dtype[Any]
    """The words that the slots hold."""

    @property
    def nbytes(self) -> int:
        """Memory held outside the slots."""

    def insert(self, store: Storage, bits: Any, values: Any) -> Any:
        """Store the pairs of new keys; true in the row that created each."""

    def add(self, store: Storage, bits: Any, values: Any) -> None:
        """As `insert`, and tells nothing."""

    def upsert(self, store: Storage, bits: Any, values: Any) -> None:
        """Store pairs with distinct keys."""

    def find(self, store: Storage, bits: Any, default: np.ndarray) -> tuple[Any, Any]:
        """Values and 1 where found."""

    def find_to(
        self, store: Storage, bits: Any, default: np.ndarray, values: Any, found: Any
    ) -> bool:
        """As `find`, written to `values` and `found`; False where that cannot be."""

    def decode(self, words: Any) -> Any:
        """The values that words from the slots stand for."""

    def emptied(self) -> Self:
        """Others, without any value."""

    def copy(self) -> Self:
        """An independent copy."""


def values_for(backend: Backend, dtype: np.dtype[Any]) -> Values:
    """Where values of `dtype` are kept: in the slots when they have 1, 2, 4 or 8 bytes."""
    if dtype.itemsize in (1, 2, 4, 8):
        return InlineValues(backend, dtype)
    return WideValues(backend, dtype)


class InlineValues:
    """Values that are words in the slots."""

    nbytes = 0

    def __init__(self, backend: Backend, dtype: np.dtype[Any]) -> None:
        self._backend, self._dtype = backend, dtype
        self.word = word(dtype)
        carried = carrier(backend, dtype)
        # Where no word is narrowed, values are found in arrays of their own dtype.
        self._found = carried if self.word.itemsize == carried.itemsize else None

    def insert(self, store: Storage, bits: Any, values: Any) -> Any:
        """See `Values`."""
        return store.insert(bits, value_memory(values, self._dtype))

    def add(self, store: Storage, bits: Any, values: Any) -> None:
        """See `Values`."""
        store.add(bits, value_memory(values, self._dtype))

    def upsert(self, store: Storage, bits: Any, values: Any) -> None:
        """See `Values`."""
        store.upsert(bits, value_memory(values, self._dtype))

    def find(self, store: Storage, bits: Any, default: np.ndarray) -> tuple[Any, Any]:
        """See `Values`."""
        words, found = store.find(bits, _word_of(default), self._found)
        return (self.decode(words) if self._found is None else words), found

    def find_to(
        self, store: Storage, bits: Any, default: np.ndarray, values: Any, found: Any
    ) -> bool:
        """See `Values`."""
        # Answers are written as quarters of a bucket.
        aligned = not any(self._backend.pointer(each) % _QUARTER for each in (values, found))
        if self._found is None or not aligned:
            return False
        store.find_to(bits, values, found, _word_of(default))
        return True

    def decode(self, words: Any) -> Any:
        """See `Values`."""
        return values_of(self._backend, words, self._dtype)

    def emptied(self) -> Self:
        """See `Values`."""
        return self

    def copy(self) -> Self:
        """See `Values`."""
        return self


class WideValues:
    """Values in a payload; the slots hold row numbers."""

    word = np.dtype(np.uint64)

    def __init__(self, backend: Backend, dtype: np.dtype[Any]) -> None:
        self._backend, self._dtype = backend, dtype
        self._payload = Payload(backend, dtype)

    @property
    def nbytes(self) -> int:
        """See `Values`."""
        return self._payload.nbytes

    def insert(self, store: Storage, bits: Any, values: Any) -> Any:
        """See `Values`."""
        self._tidy(store)
        rows = store.absent(bits)
        fresh = self._backend.zeros(len(bits), _BOOL)
        # From here on the rows are in use, whether or not keys come to know them.
        self._payload, numbers = self._payload.appended(values[rows])
        fresh[rows] = store.insert(bits[rows], numbers)
        self._tidy(store)
        return fresh

    def add(self, store: Storage, bits: Any, values: Any) -> None:
        """See `Values`."""
        self.insert(store, bits, values)

    def upsert(self, store: Storage, bits: Any, values: Any) -> None:
        """See `Values`."""
        self._tidy(store)
        xp = self._backend.xp
        numbers, found = store.find(bits)
        stored, absent = xp.flatnonzero(found), xp.flatnonzero(~found)
        replaced, replacing = numbers[stored].view(np.int64), values[stored]
        self._payload, added = self._payload.appended(values[absent])
        store.make_room(len(absent))
        store.commit(
            self._payload.putting(replaced, replacing), store.replacing(bits[absent], added)
        )

    def find(self, store: Storage, bits: Any, default: np.ndarray) -> tuple[Any, Any]:
        """See `Values`."""
        numbers, found = store.find(bits)
        return self._payload.take(numbers.view(np.int64), found, default), found

    def find_to(
        self, store: Storage, bits: Any, default: np.ndarray, values: Any, found: Any
    ) -> bool:
        """See `Values`."""
        return False

    def decode(self, words: Any) -> Any:
        """See `Values`."""
        return self._payload.take(words.view(np.int64))

    def emptied(self) -> WideValues:
        """See `Values`."""
        return WideValues(self._backend, self._dtype)

    def copy(self) -> WideValues:
        """See `Values`."""
        made = WideValues(self._backend, self._dtype)
        made._payload = self._payload.copy()
        return made

    def _tidy(self, store: Storage) -> None:
        """Drop the rows that no key knows when they are the larger part, if there is memory."""
        live = len(store)
        if self._payload.used - live <= max(live, 1024):
            return
        try:
            bits, numbers = store.items()
            kept = self._payload.kept(numbers.view(np.int64))
            renumbering = store.replacing(bits, self._backend.xp.arange(live, dtype=np.uint64))
        except Exception as error:
            if not ran_out(error):
                raise
            return
        store.commit(renumbering, assigning(self, _payload=kept))


def _word_of(default: np.ndarray) -> int:
    return int.from_bytes(default.tobytes(), sys.byteorder)
