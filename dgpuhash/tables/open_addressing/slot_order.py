"""Save the slot order of keys, to restore slots without searching."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np

from dgpuhash.backend import kernel_named, struct_named
from dgpuhash.backend.constants import BUCKET_BYTES, overflow_bits
from dgpuhash.tables.open_addressing.extent import Extent, side_items, slot_nbytes
from dgpuhash.tables.open_addressing.slots import Slots
from dgpuhash.tables.serialization import Buffers
from dgpuhash.tables.store import AnyStore

# Of the probe sequence, the hash and what buffers mean; slots are the same on a CPU and a GPU.
_VERSION = 1
_LAYOUT, _COUNTS, _OVERFLOW = "bucket layout", "bucket counts", "bucket overflow"
_INT64, _BYTE, _FILTER = np.dtype(np.int64), np.dtype(np.uint8), np.dtype(np.uint32)
# Of fewer keys an insert takes a millisecond, and slots that are mostly free are better made anew.
_LEAST_KEYS = 2**16
_MOST_SLOTS = 4
# Buckets that are filled at once: on a CPU, what is in the caches.
_SLICE = {"cpu": 2**16, "cuda": 2**22}
_SAMPLES = 2**8


class SlotOrder(NamedTuple):
    """Bucket of each key in the order of `Slots.items`.

    Attributes
    ----------
    extent : Extent
    strayed : int
        Keys beyond the segments in which their probe sequences begin.
    counts : array of uint8
        Keys of each bucket, on the host.
    overflow : array of uint32
        Words of the overflow filter, on the host.
    """

    extent: Extent
    strayed: int
    counts: np.ndarray
    overflow: np.ndarray

    def buffers(self) -> dict[str, np.ndarray]:
        """Return the order as named buffers for a file."""
        layout = [_VERSION, self.strayed, *self.extent]
        return {_LAYOUT: np.array(layout, _INT64), _COUNTS: self.counts, _OVERFLOW: self.overflow}

    @classmethod
    def of_buffers(cls, buffers: Buffers) -> Self | None:
        """Return the order in a file, or None if it has none in a known form.

        Raises
        ------
        FormatError
            When the file is damaged.
        """
        if not buffers.has(_LAYOUT):
            return None
        layout = buffers.get(_LAYOUT, _INT64).tolist()
        if len(layout) != 5 or layout[0] != _VERSION:
            return None
        _, strayed, buckets, segment, slots = layout
        buffers.check(
            0 < segment <= buckets
            and segment & (segment - 1) == 0
            and buckets % segment == 0
            and 0 < slots <= buckets * BUCKET_BYTES,
            "the layout of its slots is impossible",
        )
        counts, overflow = buffers.get(_COUNTS, _BYTE, buckets), buffers.get(_OVERFLOW, _FILTER)
        return cls(Extent(buckets, segment, slots), strayed, counts, overflow)

    def fits(self, key: np.dtype[Any], value: np.dtype[Any] | None, keys: int) -> bool:
        """Return whether the order fits a number of keys in slots of some word dtypes."""
        extent, nbytes = self.extent, slot_nbytes(key, value)
        per_bucket = BUCKET_BYTES // nbytes
        left = keys - int(self.counts.sum(dtype=np.int64))
        return (
            extent.slots == extent.buckets * per_bucket
            and extent.slots <= _MOST_SLOTS * keys
            and len(self.overflow) == _filter_words(extent, nbytes)
            and int(self.counts.max()) <= per_bucket
            # Keys that stand aside.
            and 0 <= left <= 2
        )


def order_in(slots: Slots) -> SlotOrder | None:
    """Return the order of keys of `Slots.items`, or None if not worth saving.

    Keys do not stand where a search would find them again once marks of erased ones are gone.
    """
    state = slots.state()
    few = state.occupied < _LEAST_KEYS or slots.slots > _MOST_SLOTS * state.occupied
    if few or state.erased:
        return None
    backend, counts = slots._backend, slots._counts(slots.buckets)
    words = _filter_words(slots.extent, slot_nbytes(slots.key, slots.value))
    return SlotOrder(
        slots.extent,
        state.strayed,
        backend.to_host(counts.astype(_BYTE)),
        backend.to_host(slots._overflow[:words]),
    )


def ordered_items(slots: Slots) -> tuple[Any, Any, SlotOrder | None]:
    """Return keys and values as `Slots.items`, and their order; see `order_in`."""
    return (*slots.items(), order_in(slots))


def item_slices(slots: Slots) -> Iterator[tuple[Any, Any]]:
    """Yield keys and values as `Slots.items`, in arrays of bounded size."""
    slots.fill()
    backend, per_bucket = slots._backend, slots.slots // slots.buckets
    for buckets in _ranges(slots.buckets, _SLICE[backend.name]):
        part, n = _part(slots, buckets), buckets.stop - buckets.start
        counts = backend.empty(n, np.uint32)
        kernel = kernel_named("open_count", slots.key, slots.value)
        backend.run(kernel, n, table=part, counts=counts)
        offsets = backend.zeros(n + 1, np.uint64)
        backend.xp.cumsum(counts, dtype=np.uint64, out=offsets[1:])
        keys, values = backend.empty(n * per_bucket, slots.key), None
        if slots.value is not None:
            values = backend.empty(n * per_bucket, slots.value)
        kernel = kernel_named("open_items", slots.key, slots.value)
        backend.run(kernel, n, table=part, offsets=offsets, keys=keys, values=values)
        held = int(offsets[-1])
        yield keys[:held], None if values is None else values[:held]
    beside, its_values = side_items(slots._host_state(), slots.key, slots.value)
    put = backend.from_host
    yield put(beside), None if its_values is None else put(its_values)


def saved_items(store: AnyStore) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """Return keys and values as `AnyStore.items`, and the buffers of any order."""
    slots = getattr(store, "slots", None)
    if not isinstance(slots, Slots):
        return (*store.items(), {})
    keys, values, order = ordered_items(slots)
    return keys, values, {} if order is None else order.buffers()


def store_in_order(store: AnyStore, keys: Any, values: Any, buffers: Buffers) -> bool:
    """Store distinct keys in an empty store by the order in a file; False if it has none."""
    slots, order = getattr(store, "slots", None), SlotOrder.of_buffers(buffers)
    take = getattr(store, "take", None)
    if order is None or take is None or not isinstance(slots, Slots):
        return False
    return bool(take(in_order(slots, keys, values, order)))


def in_order(slots: Slots, keys: Any, values: Any, order: SlotOrder) -> Slots | None:
    """Return slots like others, filled with distinct keys in a known order.

    None where the keys cannot stand so, or searches would not find them: by another seed, or the
    hash of another release.

    Parameters
    ----------
    slots : Slots
        Whose dtypes and seed they get.
    keys, values : array
        Of this device, or the host; values may be narrower than words.
    order : SlotOrder
    """
    if not order.fits(slots.key, slots.value, len(keys)):
        return None
    backend = slots._backend
    made = Slots(backend, slots.key, slots.value, slots=order.extent, seed=slots.origin)
    made.reseed(slots.generation)
    made.forget()
    made._overflow.fill(0)
    made._overflow[: len(order.overflow)] = backend.from_host(order.overflow)
    placed, stored = backend.zeros(1, np.uint64), 0
    for buckets, offsets in _slices(order.counts, _SLICE[backend.name]):
        rows = slice(stored, stored + int(offsets[-1]))
        stored = rows.stop
        backend.run(
            kernel_named("open_place", made.key, made.value), len(offsets) - 1,
            table=_part(made, buckets), offsets=backend.from_host(offsets),
            keys=_words(made, keys[rows], made.key),
            values=None if made.value is None else _words(made, values[rows], made.value),
            placed=placed,
        )  # fmt: skip
    if int(placed[0]) != stored:
        return None
    state = made._state
    state[0] = stored
    made.hold()
    made._change()
    aside = slice(stored, len(keys))
    if stored < len(keys):
        beside = None if made.value is None else _words(made, values[aside], made.value)
        made.insert(_words(made, keys[aside], made.key), beside)
    state[3] = order.strayed
    made._change()
    made.taken_bound = len(keys)
    return made if _are_found(made, keys, values) else None


def _are_found(slots: Slots, keys: Any, values: Any) -> bool:
    """Return whether a sample of the keys is found with its values."""
    some = slice(None, None, max(len(keys) // _SAMPLES, 1))
    wanted, found = slots.find(_words(slots, keys[some], slots.key), 0)
    if not bool(found.all()):
        return False
    if slots.value is None:
        return True
    return bool((wanted == _words(slots, values[some], slots.value)).all())


def _slices(counts: np.ndarray, size: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield ranges of buckets, with the key offsets of each bucket."""
    for buckets in _ranges(len(counts), size):
        offsets = np.zeros(buckets.stop - buckets.start + 1, np.uint64)
        np.cumsum(counts[buckets], dtype=np.uint64, out=offsets[1:])
        yield buckets, offsets


def _ranges(buckets: int, size: int) -> Iterator[slice]:
    for first in range(0, buckets, size):
        yield slice(first, min(first + size, buckets))


def _part(slots: Slots, buckets: slice) -> bytes:
    """Return a range of buckets as a table for kernels."""
    values = None
    if slots._values is not None:
        assert slots.value is not None
        nbytes = slots.slots // slots.buckets * slots.value.itemsize
        values = slots._values[buckets.start * nbytes : buckets.stop * nbytes]
    return slots._backend.pack(
        struct_named("OpenStorage"),
        keys=slots._keys[buckets.start * BUCKET_BYTES : buckets.stop * BUCKET_BYTES],
        values=values, state=slots._state, overflow=slots._overflow,
        buckets=buckets.stop - buckets.start, seed=slots.seed, segment_shift=0,
    )  # fmt: skip


def _words(slots: Slots, part: Any, word: np.dtype[Any]) -> Any:
    """Return a part of keys or values as words on the device."""
    backend = slots._backend
    if isinstance(part, np.ndarray):
        part = backend.from_host(np.ascontiguousarray(part))
    else:
        part = backend.asarray(part)
    return part.astype(word, copy=False) if part.dtype.itemsize < word.itemsize else part.view(word)


def _filter_words(extent: Extent, nbytes: int) -> int:
    return -(-extent.buckets * overflow_bits(nbytes) // 32)
