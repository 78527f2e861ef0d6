"""Interface of multimap stores: key words with lists of values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dgpuhash.backend.launches import Step
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.checksums import Pieces
from dgpuhash.tables.arguments.encoding import value_words, values_of, word_dtype
from dgpuhash.tables.bucket_list.pool import list_numbers
from dgpuhash.tables.bucket_list.streaming import Keep
from dgpuhash.tables.open_addressing.slot_order import SlotOrder
from dgpuhash.tables.open_addressing.wide_values import ValueRows
from dgpuhash.tables.stats import Figures
from dgpuhash.tables.store import AnyStore


class ListStore(AnyStore):
    """Store of key words with lists of values, on one device.

    Values are in the form in which `as_device_array` gives them. Those of more than 8 bytes are in
    a payload, whose row numbers are their words.
    """

    _payload: ValueRows | None

    def _set_values(self, spec: TableSpec) -> np.dtype[Any]:
        """Set the dtype of the values; return their word dtype."""
        assert spec.value is not None
        self._dtype: np.dtype[Any] = spec.value
        self._inline: bool = self._dtype.itemsize in (1, 2, 4, 8)
        return word_dtype(self._dtype) if self._inline else np.dtype(np.uint64)

    @property
    @abstractmethod
    def pairs(self) -> int:
        """Number of stored pairs."""

    @abstractmethod
    def insert(self, bits: Any, rows: Any, *then: Step) -> None:
        """Append one or more values to their keys' lists; run `then` in the same call."""

    @abstractmethod
    def find(self, bits: Any) -> tuple[Any, Any]:
        """Return the values of all keys, and their offsets (int64)."""

    @abstractmethod
    def counts(self, bits: Any) -> Any:
        """Return each key's number of values (int64)."""

    @abstractmethod
    def compact(self) -> None:
        """Store each key's values so that lookups are fastest."""

    @abstractmethod
    def _list_words(self) -> tuple[Any, Any, Any]:
        """Return the distinct key words, the offsets of their lists, and all value words."""

    def lists(self) -> tuple[Any, Any, Any]:
        """Return the distinct key words, the offsets of their lists, and all values."""
        bits, offsets, words = self._list_words()
        return bits, offsets, self._decode(words)

    def items(self) -> tuple[Any, Any]:
        """Return the key words and values of all pairs."""
        bits, offsets, values = self.lists()
        return bits[list_numbers(self.backend, offsets, len(values))], values

    def build(self, bits: Any, offsets: Any, rows: Any, order: Any = None) -> None:
        """Store non-empty lists of values in this empty store.

        `order` is that in which the keys stood in other slots, or None.
        """
        self.insert(bits[list_numbers(self.backend, offsets, len(rows))], rows)

    def insert_all(
        self,
        batches: Iterable[tuple[Any, Any]],
        memory: int | None = None,
        keep: Keep | None = None,
    ) -> None:
        """Insert non-empty batches of pairs, into lists that end up contiguous.

        Where `memory` bytes are not enough for all pairs, these go to a file. `keep` returns a mask
        of the keys that stay.
        """
        for bits, rows in batches:
            self.insert(bits, rows)
        if keep is not None:
            bits, offsets, _ = self.lists()
            self.erase(bits[~keep(bits, offsets[1:] - offsets[:-1])])
        self.compact()

    def ordered_lists(self) -> tuple[Any, Any, Any, SlotOrder | None]:
        """Return keys, offsets and values as `lists`, and the order of keys in slots."""
        return (*self.lists(), None)

    def saved_lists(self) -> dict[str, np.ndarray | Pieces]:
        """Return the lists for a file: keys, offsets, values, and the keys' order if any.

        The store must not change while pieces are read.
        """
        keys, offsets, values = map(self.backend.to_host, self.lists())
        return {"keys": keys, "offsets": offsets, "values": values}

    def pair_slices(self) -> Iterator[tuple[Any, Any]]:
        """Yield keys and values as `items`, in slices of keys."""
        yield self.items()

    def longest_list(self) -> int:
        """Return the number of values of the key with the most."""
        return max((int(each.max()) for each in self._sizes() if len(each)), default=0)

    def _sizes(self) -> Iterator[Any]:
        """Yield the number of values of each key, in slices of keys."""
        _, offsets, _ = self._list_words()
        yield offsets[1:] - offsets[:-1]

    def _no_payload(self) -> ValueRows | None:
        return None if self._inline else ValueRows(self.backend, self._dtype)

    def _store_payload(self, payload: ValueRows | None, rows: Any) -> tuple[ValueRows | None, Any]:
        """Return the payload with any rows appended, and the rows' words."""
        return (None, value_words(rows, self._dtype)) if payload is None else payload.appended(rows)

    def _decode(self, words: Any) -> Any:
        """Return the values of words."""
        if self._payload is None:
            return values_of(self.backend, words, self._dtype)
        return self._payload.take(words.view(np.int64))


class KeyedListStore(ListStore):
    """Base of stores whose keys are in another store, with words that lead to their lists."""

    _keys: AnyStore

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def capacity(self) -> int:
        """Number of distinct keys at which the slots grow."""
        return self._keys.capacity

    @property
    def seed(self) -> int:
        """Seed of the hash function in use."""
        return self._keys.seed

    @property
    def reseeds(self) -> int:
        """Number of seed changes since the table was last empty."""
        return self._keys.reseeds

    @property
    def broken(self) -> bool:
        """Whether a change has failed half-way."""
        return self._keys.broken

    def contains(self, bits: Any) -> Any:
        """Return a mask of the keys that are stored."""
        return self._keys.contains(bits)

    def reserve(self, keys: int) -> None:
        """Grow until `capacity` is at least `keys`."""
        self._keys.reserve(keys)

    def rehash(self, seed: int) -> None:
        """Rehash all keys with another seed."""
        self._keys.rehash(seed)

    def fill(self) -> None:
        """Write the slots that `cleared` only marked empty."""
        self._keys.fill()

    def figures(self) -> Figures:
        """Return the figures of the slots; reads all of them."""
        return self._keys.figures()

    def ready(self) -> None:
        """Allocate the memory for large batches in advance."""
        self._keys.ready()
