"""Benchmark bare memory accesses, the reference for all table benchmarks."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.bench.figure import rate, require
from dgpuhash.bench.keys import keys_of, unique_keys
from dgpuhash.bench.timing import REPEATS, median_time
from dgpuhash.errors import SpecError

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


FOOTPRINTS = {
    "cuda": (2**22, 2**25, 2**28, 2**31, 2**34),
    "cpu": (2**18, 2**20, 2**22, 2**25, 2**28),
}
_OPERATIONS = {"cuda": 2**26, "cpu": 2**21}
_LEAST, _MOST = 2**10, 2**40


def run(
    backend: Backend,
    *,
    footprints: Sequence[int] | None = None,
    n: int | None = None,
    repeats: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield one row for each kind of access and footprint.

    Parameters
    ----------
    backend : Backend
        The device to measure.
    footprints : sequence of int, optional
        Bytes accessed, powers of two. By default five sizes that fit the
        caches and the memory of this kind of device, without those that exceed a quarter of its
        free memory.
    n : int, optional
        Random accesses in one launch.
    repeats : int, optional
        Runs whose median counts.

    Raises
    ------
    SpecError
        When a footprint is no power of two or out of bounds.
    DgpuhashError
        When the check of an access fails: `dgpuhash.bench.limits` describes each check.
    """
    repeats = repeats or REPEATS[backend.name]
    operations = _OPERATIONS[backend.name] if n is None else n
    if footprints is None:
        # The partition pass takes most: its input, the outputs of two runs, and the check.
        footprints = [each for each in FOOTPRINTS[backend.name] if 4 * each < backend.memory()[0]]
    for nbytes in footprints:
        if nbytes & (nbytes - 1) or not _LEAST <= nbytes <= _MOST:
            raise SpecError(
                f"a footprint of {nbytes:,} bytes; use a power of two from {_LEAST:,} to "
                f"{_MOST:,}, such as {2**28:,}"
            )
    keys = {
        bits: unique_keys(backend, 1, operations, np.dtype(f"u{bits // 8}")) for bits in (32, 64)
    }
    for nbytes in footprints:
        found = copy_rate(backend, nbytes, repeats)
        yield rate(found, None, unit="TB/s", limit="streaming copy", footprint=nbytes, n=nbytes)
        what: dict[str, Any] = {"footprint": nbytes, "n": operations}
        for width in (32, 64, 128):
            found = gather_rate(backend, width, nbytes, operations, repeats)
            yield rate(found, None, limit=f"gather {width} B", **what)
        found = cas_rate(backend, nbytes, operations, repeats)
        yield rate(found, None, limit="CAS 64 bit", **what)
        for bits, made in keys.items():
            found = lookup_floor(backend, made, nbytes, repeats)
            yield rate(found, None, limit=f"lookup floor {bits}/{bits}", **what)
            found = insert_floor(backend, made, nbytes, repeats)
            yield rate(found, None, limit=f"insert floor {bits}/{bits}", **what)
        for bits in keys:
            found = partition_rate(backend, bits, nbytes, repeats)
            what["n"] = nbytes * 4 // bits
            yield rate(found, None, limit=f"partition pass {bits}/{bits}", **what)
