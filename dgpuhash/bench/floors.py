"""Checked rates of bare memory accesses, the floors of table operations."""

from __future__ import annotations

import functools
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.bench.figure import require
from dgpuhash.bench.keys import keys_of, unique_keys
from dgpuhash.bench.timing import median_time

if TYPE_CHECKING:
    from collections.abc import Callable

# A copy of fewer bytes is repeated inside the launch.
_COPIED_BYTES = {"cuda": 2**31, "cpu": 2**27}
_MARK = 0x5EED
_PARTS = 256
# Rows checked at once, so that the check takes less memory than its input.
_CHECKED_ROWS = 2**27


def copy_rate(backend: Backend, nbytes: int, repeats: int) -> float:
    """Measure the bytes read and written each second by streaming copies.

    A copy has `nbytes`, a power of two. Every copied byte is compared with its source.
    """
    source, target = backend.empty(nbytes, np.uint8), backend.zeros(nbytes, np.uint8)
    source.fill(_MARK % 256)
    rows = nbytes // 16
    passes = max(1, _COPIED_BYTES[backend.name] // (2 * nbytes))
    work = partial(
        backend.run, kernel_named("limit_copy"), rows * passes,
        values=target, slots=source, slot_count=rows,
    )  # fmt: skip
    seconds, _ = median_time(backend, work, repeats=repeats)
    require(target.min() == target.max() == source[0], "a byte was not copied", footprint=nbytes)
    return 2 * nbytes * passes / seconds


def gather_rate(backend: Backend, width: int, nbytes: int, n: int, repeats: int) -> float:
    """Measure random aligned reads of `width` bytes each second.

    `width` is 32, 64 or 128; the reads are spread over `nbytes`. The kernel reports reads of
    nonzero bytes: there must be none in the timed runs, and some in a further run, where each 16
    bytes hold a one.
    """
    lines = backend.zeros(nbytes, np.uint8)
    sink = backend.zeros(1, np.uint64)
    work = partial(
        backend.run, kernel_named("limit_gather", width=width // 16), n,
        values=sink, slots=lines, slot_count=nbytes // width,
    )  # fmt: skip
    seconds, _ = median_time(backend, work, repeats=repeats, again=True)
    require(sink[0] == 0, "a gather read what is not there", footprint=nbytes)
    lines[::16] = 1
    sink.fill(n)
    work()
    require(int(sink[0]) < n, "a gather read nothing", footprint=nbytes)
    return n / seconds


def cas_rate(backend: Backend, nbytes: int, n: int, repeats: int) -> float:
    """Measure uncontended random 64-bit compare-and-swaps each second.

    They are spread over `nbytes`. Each swaps a zero for a zero, so all succeed and the memory stays
    unchanged.
    """
    words = backend.zeros(nbytes // 8, np.uint64)
    work = partial(
        backend.run, kernel_named("limit_cas"), n,
        slots=words, slot_count=nbytes // 8,
    )  # fmt: skip
    seconds, _ = median_time(backend, work, repeats=repeats, again=True)
    require(not words.any(), "a swap changed a word", footprint=nbytes)
    return n / seconds


def lookup_floor(backend: Backend, keys: Any, nbytes: int, repeats: int) -> float:
    """Measure the rate of bare lookups, in keys each second.

    A bare lookup reads the key, gathers its slot and writes its value. Every slot holds the same
    value, which every key must get.
    """
    width = keys.dtype.itemsize
    slots = backend.full((max(nbytes, 64) // (2 * width), 2), 0, keys.dtype)
    slots[:, 1] = _MARK
    values = backend.zeros(len(keys), keys.dtype)
    work = partial(
        backend.run, kernel_named("limit_lookup", keys.dtype), len(keys),
        keys=keys, values=values, slots=slots, slot_count=len(slots),
    )  # fmt: skip
    seconds, _ = median_time(backend, work, repeats=repeats, again=True)
    require((values == _MARK).all(), "a lookup missed its slot", footprint=nbytes)
    return len(keys) / seconds


def insert_floor(backend: Backend, keys: Any, nbytes: int, repeats: int) -> float:
    """Measure the rate of bare inserts, in pairs each second.

    A bare insert reads the pair, reads a sector, and swaps the pair in there. Keys are their own
    values: the halves of a slot are equal, except where two rows write one slot at the same time
    and the device has no 128-bit compare-and-swap.
    """
    width = keys.dtype.itemsize
    empty = keys.dtype.type(-1 % 2 ** (8 * width))
    slots = backend.full((max(nbytes, 64) // (2 * width), 2), empty, keys.dtype)
    work = partial(
        backend.run, kernel_named("limit_insert", keys.dtype), len(keys),
        keys=keys, values=keys, slots=slots, slot_count=len(slots),
    )  # fmt: skip
    seconds, _ = median_time(backend, work, repeats=repeats, again=True)
    whole = float((slots[:, 0] == slots[:, 1]).mean())
    require(whole == 1 or (width == 8 and whole > 0.9), "pairs were torn", footprint=nbytes)
    require((slots[:, 0] != empty).any(), "no pair was stored", footprint=nbytes)
    return len(keys) / seconds


def partition_rate(backend: Backend, bits: int, nbytes: int, repeats: int) -> float:
    """Measure the pairs each second of one partition pass.

    The pass orders pairs by 256 ranges of their keys' hashes. Keys and values of `bits` bits take
    `nbytes` in all. Values are row numbers: each must occur once, beside its key, and the keys'
    ranges must be in ascending order.
    """
    word = np.dtype(f"u{bits // 8}")
    rows = nbytes // (2 * word.itemsize)
    keys = unique_keys(backend, 1, rows, word)
    values = backend.xp.arange(rows, dtype=word)
    work = partial(backend.partition, keys, values, parts=_PARTS, seed=0)
    seconds, moved = median_time(backend, work, repeats=repeats, again=True)
    seen = backend.zeros(rows, bool)
    last = 0
    for first in range(0, rows, _CHECKED_ROWS):
        part = slice(first, first + _CHECKED_ROWS)
        numbers = moved.values[part].astype(np.int64)
        ranges = backend.owner_of(backend.hash_keys(moved.keys[part], 0), _PARTS)
        seen[numbers] = True
        require(
            ranges[0] >= last
            and (ranges[1:] >= ranges[:-1]).all()
            and (keys[numbers] == moved.keys[part]).all(),
            "a pass lost the order",
            footprint=nbytes,
        )
        last = int(ranges[-1])
    require(seen.all(), "a pass lost a row", footprint=nbytes)
    return rows / seconds


class Floors:
    """Floors of one run, each measured once and cached by its sizes."""

    def __init__(self, backend: Backend, repeats: int) -> None:
        self._backend, self._repeats = backend, repeats
        self.lookup: Callable[..., float] = functools.cache(self._lookup)
        self.insert: Callable[..., float] = functools.cache(self._insert)
        self._copy = functools.cache(self._copied)

    def copy(self, nbytes: int) -> float:
        """Return the bytes each second of a copy of about `nbytes`.

        The copy has at least 64 KiB and at most 2 GiB.
        """
        return self._copy(2 ** min(31, max(16, nbytes.bit_length() - 1)))

    def _copied(self, nbytes: int) -> float:
        return copy_rate(self._backend, nbytes, self._repeats)

    def _lookup(self, bits: int, n: int, nbytes: int) -> float:
        return lookup_floor(self._backend, self._keys(bits, n), nbytes, self._repeats)

    def _insert(self, bits: int, n: int, nbytes: int) -> float:
        return insert_floor(self._backend, self._keys(bits, n), nbytes, self._repeats)

    def _keys(self, bits: int, n: int) -> Any:
        numbers = self._backend.xp.arange(1, n + 1, dtype=f"u{bits // 8}")
        return keys_of(numbers, np.dtype(f"u{bits // 8}"))
