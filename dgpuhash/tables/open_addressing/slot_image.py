"""Memory image of slots, for mapping a file instead of reading it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np

from dgpuhash.backend import struct_named
from dgpuhash.backend.constants import BUCKET_BYTES, claim_words, overflow_bits
from dgpuhash.tables.open_addressing.extent import Extent, reserved_words, side_items, slot_nbytes
from dgpuhash.tables.open_addressing.slots import Slots
from dgpuhash.tables.serialization import Buffers

# Of the probe sequence, the hash and what buffers mean; slots are the same on a CPU and a GPU.
_VERSION = 1
_LAYOUT, _STATE, _FILTER = "slot layout", "slot state", "slot overflow"
_KEYS, _VALUES = "slot keys", "slot values"
_INT64, _BYTE, _WORD = np.dtype(np.int64), np.dtype(np.uint8), np.dtype(np.uint32)
# Slots that are looked at, or go to a GPU, at once.
_SLICE = 2**20
_SAMPLES = 2**8


class SlotImage(NamedTuple):
    """Memory image of slots on the host, for tables with values outside the slots.

    Attributes
    ----------
    key, value : dtype
        Of words; they differ in size.
    extent : Extent
    state : array of one record
        The counters, and what is stored aside.
    keys, values, overflow : array
        One word for each slot; words of the filter.
    """

    key: np.dtype[Any]
    value: np.dtype[Any]
    extent: Extent
    state: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    overflow: np.ndarray

    @classmethod
    def of(cls, slots: Slots) -> Self:
        """Return the image of slots; on a CPU it shares their memory."""
        assert slots.value is not None
        assert slots.value.itemsize != slots.key.itemsize
        slots.fill()
        host = slots._backend.to_host
        words = _filter_words(slots.extent, slots.key)
        return cls(
            slots.key, slots.value, slots.extent,
            host(slots._state).view(struct_named("OpenState").dtype),
            host(slots._keys).view(slots.key), host(slots._values).view(slots.value),
            host(slots._overflow[:words]),
        )  # fmt: skip

    def buffers(self) -> dict[str, np.ndarray]:
        """Return the image as named buffers for a file."""
        layout = np.array([_VERSION, *self.extent], _INT64)
        return {
            _LAYOUT: layout, _STATE: self.state, _FILTER: self.overflow,
            _KEYS: self.keys, _VALUES: self.values,
        }  # fmt: skip

    @staticmethod
    def is_in(buffers: Buffers) -> bool:
        """Return whether a file has an image."""
        return buffers.has(_LAYOUT)

    @classmethod
    def of_buffers(cls, buffers: Buffers, key: np.dtype[Any], value: np.dtype[Any]) -> Self:
        """Return the image in a file.

        Raises
        ------
        FormatError
            When the file is damaged, or a later release wrote it.
        """
        layout = buffers.get(_LAYOUT, _INT64).tolist()
        buffers.check(
            len(layout) == 4 and layout[0] == _VERSION, "its slots have an unknown layout"
        )
        extent = Extent(*layout[1:])
        per_bucket = BUCKET_BYTES // slot_nbytes(key, value)
        buffers.check(
            0 < extent.segment <= extent.buckets
            and extent.segment & (extent.segment - 1) == 0
            and extent.buckets % extent.segment == 0
            and extent.slots == extent.buckets * per_bucket,
            "the layout of its slots is impossible",
        )
        words = _filter_words(extent, key)
        return cls(
            key, value, extent,
            buffers.get(_STATE, struct_named("OpenState").dtype, 1),
            buffers.get(_KEYS, key, extent.slots), buffers.get(_VALUES, value, extent.slots),
            buffers.get(_FILTER, _WORD, words),
        )  # fmt: skip

    @property
    def beside(self) -> tuple[np.ndarray, np.ndarray]:
        """The stored reserved keys, and their values."""
        keys, values = side_items(self.state[0], self.key, self.value)
        assert values is not None
        return keys, values

    def slices(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the stored keys and values in slices."""
        yield self.beside
        _, mark = reserved_words(self.key)
        for start in range(0, self.extent.slots, _SLICE):
            keys = self.keys[start : start + _SLICE]
            rows = np.flatnonzero(keys < mark)
            yield keys[rows], self.values[start : start + _SLICE][rows]

    def has_values_below(self, most: int) -> bool:
        """Return whether all keys have values below a number, and free slots none."""
        beside, values = self.beside
        _, mark = reserved_words(self.key)
        known, stored = int((values < most).sum()), len(beside)
        for start in range(0, self.extent.slots, _SLICE):
            part = self.values[start : start + _SLICE]
            is_free = part == np.iinfo(self.value).max
            if bool((is_free == (self.keys[start : start + _SLICE] < mark)).any()):
                return False
            known += int(np.count_nonzero(part < most))
            stored += len(part) - int(np.count_nonzero(is_free))
        return known == stored == int(self.state["occupied"][0])

    def slots(self, like: Slots) -> Slots | None:
        """Return slots with these keys, on the backend and with the seed of others.

        On a CPU they are this memory, which changes with them. None where keys are not found: by
        another seed, or the hash of another release.
        """
        backend = like._backend
        made = Slots(backend, self.key, self.value, slots=self.extent, seed=like.origin)
        made.reseed(like.generation)
        made._overflow.fill(0)
        made._overflow[: len(self.overflow)] = backend.from_host(self.overflow)
        made._state[:] = backend.from_host(self.state.view(np.uint64))
        keys, values = self.keys.view(_BYTE), self.values.view(_BYTE)
        if backend.name == "cpu" and not any(map(_is_askew, (keys, values))):
            made._keys, made._values = keys, values
        else:
            assert made._values is not None
            for into, held in ((made._keys, keys), (made._values, values)):
                step = _SLICE * self.key.itemsize
                for start in range(0, len(held), step):
                    into[start : start + step] = backend.from_host(held[start : start + step])
        made.hold()
        made._change()
        made.taken_bound = made.state().taken
        made.erased_bound = made.state().erased
        return made if self._are_found(made) else None

    def _are_found(self, slots: Slots) -> bool:
        """Return whether a sample of the keys is found with its values."""
        put, (keys, values) = slots._backend.from_host, self.beside
        _, mark = reserved_words(self.key)
        some = np.arange(0, self.extent.slots, max(self.extent.slots // _SAMPLES, 1))
        some = some[self.keys[some] < mark]
        keys, values = np.append(keys, self.keys[some]), np.append(values, self.values[some])
        found, there = slots.find(put(keys), 0)
        return bool(there.all()) and bool((found == put(values)).all())


def _is_askew(memory: np.ndarray) -> bool:
    return memory.ctypes.data % BUCKET_BYTES != 0 or not memory.flags.writeable


def _filter_words(extent: Extent, key: np.dtype[Any]) -> int:
    assert claim_words(key.itemsize, 1) == 0
    return -(-extent.buckets * overflow_bits(key.itemsize) // 32)
