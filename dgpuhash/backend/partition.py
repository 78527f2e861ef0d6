"""Stable partition of a batch: count by segment, sum, scatter; in two passes for many parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend import partition_args as structs
from dgpuhash.errors import SpecError

if TYPE_CHECKING:
    from dgpuhash.backend.base import Backend

__all__ = [
    "MAX_PARTS",
    "Ordered",
    "Partitioned",
    "multisplit",
    "order_by_bucket",
    "partition",
    "sort_by_hash",
    "split",
]

MAX_PARTS = 2**16
# Segments enough for a device's blocks or threads; more would cut more of a GPU's granules.
_SEGMENTS = {"cpu": 16, "cuda": 2048}
# The fewest rows of a segment, of which the others have a multiple: on a GPU whole steps.
_LEAST_ROWS = {"cpu": 2**12, "cuda": 2**13}
# A part is crowded with so many times the mean of rows, and some that come by chance in small ones.
_CROWDED, _CROWD_ROWS = 2, 2**10


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A batch in the order of its parts, rows of one part in input order."""

    keys: Any
    values: Any
    """None when there were none."""
    numbers: Any
    """The rows' numbers in the batch, int64; None when not asked for."""


@dataclass(frozen=True, slots=True)
class _Digit:
    """Which part of a pass a key belongs to; see `Digit` in kernels/batch/partition.cuh."""

    seed: int
    spread: int
    shift: int
    mask: int
    parts: int


def partition(
    backend: Backend, keys: Any, values: Any, *, parts: int, seed: int, numbered: bool
) -> Partitioned:
    """See `Backend.partition`."""
    low, *high = _digits(backend, parts, seed, spread=parts)
    if not high:
        return _pass(backend, keys, values, low, numbered=numbered)[0]
    if not numbered:
        moved = _pass(backend, keys, values, low)[0]
        return _pass(backend, moved.keys, moved.values, high[0])[0]
    # A pass moves one column beside the keys: here the numbers, by which the values follow.
    moved = _pass(backend, keys, None, low, numbered=True)[0]
    moved = _pass(backend, moved.keys, moved.numbers.view(np.uint64), high[0])[0]
    numbers = moved.values.view(np.int64)
    return Partitioned(moved.keys, None if values is None else values[numbers], numbers)


def split(
    backend: Backend, keys: Any, values: Any, *, parts: int, seed: int, numbered: bool
) -> tuple[Partitioned, Any]:
    """See `Backend.split`."""
    low, *high = _digits(backend, parts, seed, spread=parts)
    if not high:
        return _pass(backend, keys, values, low, numbered=numbered)
    moved = partition(backend, keys, values, parts=parts, seed=seed, numbered=numbered)
    owners = backend.owner_of(backend.hash_keys(moved.keys, seed), parts)
    edges = backend.xp.arange(parts + 1, dtype=np.uint32)
    return moved, backend.xp.searchsorted(owners, edges)


def sort_by_hash(
    backend: Backend, keys: Any, values: Any, *, bits: int, seed: int
) -> tuple[Any, Any]:
    """See `Backend.sort_by_hash`; a pass for each digit, from the lowest."""
    most = structs.PASS_PARTS[backend.name].bit_length() - 1
    width = math.ceil(bits / math.ceil(bits / most))
    for shift in range(0, bits, width):
        parts = 2 ** min(width, bits - shift)
        digit = _Digit(seed, 2**bits - 1, shift, parts - 1, parts)
        moved = _pass(backend, keys, values, digit)[0]
        keys, values = moved.keys, moved.values
    return keys, values


def multisplit(backend: Backend, destinations: Any, parts: int) -> tuple[Any, np.ndarray]:
    """See `Backend.multisplit`."""
    low, *high = _digits(backend, parts, seed=0, spread=0)
    destinations = backend.asarray(destinations, np.uint32)
    moved, starts = _pass(backend, destinations, None, low, keyed=bool(high), numbered=True)
    order = moved.numbers
    if high:
        moved, _ = _pass(backend, moved.keys, order.view(np.uint64), high[0])
        order = moved.values.view(np.int64)
        edges = backend.xp.arange(parts + 1, dtype=np.uint32)
        starts = backend.xp.searchsorted(moved.keys, edges)
    return order, np.diff(backend.to_host(starts).astype(np.int64))


def _digits(backend: Backend, parts: int, seed: int, spread: int) -> list[_Digit]:
    """The passes, that of the lowest digit first."""
    if not 1 <= parts <= MAX_PARTS:
        raise SpecError(f"{parts:,} parts; a batch is split into 1 to {MAX_PARTS:,} parts")
    if parts <= structs.PASS_PARTS[backend.name]:
        return [_Digit(seed, spread, 0, 2**32 - 1, parts)]
    bits = math.ceil((parts - 1).bit_length() / 2)
    low = _Digit(seed, spread, 0, 2**bits - 1, 2**bits)
    return [low, _Digit(seed, spread, bits, 2**32 - 1, math.ceil(parts / 2**bits))]


def _pass(
    backend: Backend,
    keys: Any,
    values: Any,
    digit: _Digit,
    *,
    keyed: bool = True,
    numbered: bool = False,
    to: Partitioned | None = None,
) -> tuple[Partitioned, Any]:
    """The batch in the order of one digit, and where each of its parts begins and the last ends.

    Written to the arrays of another batch where they are given.
    """
    rows, xp = len(keys), backend.xp
    moved = to or Partitioned(
        backend.empty(rows, keys.dtype) if keyed else None,
        None if values is None else backend.empty(rows, values.dtype),
        backend.empty(rows, np.int64) if numbered else None,
    )
    if rows == 0:
        return moved, backend.zeros(digit.parts + 1, np.uint64)
    if rows > structs.PASS_ROWS:
        raise SpecError(
            f"{rows:,} rows; {structs.PASS_ROWS:,} at most are partitioned at once: split the batch"
        )
    value = None if values is None else values.dtype
    segment_rows = _segment_rows(backend.name, rows)
    segments = math.ceil(rows / segment_rows)
    counters = backend.empty(digit.parts * segments, np.uint64)
    places = backend.zeros(digit.parts * segments + 1, np.uint64)
    batch = {
        "digit": (digit.seed, digit.spread, digit.shift, digit.mask),
        "keys": keys, "values": values,
        "keys_to": moved.keys, "values_to": moved.values, "numbers_to": moved.numbers,
        "rows": rows, "parts": digit.parts, "segment_rows": segment_rows,
    }  # fmt: skip
    count, scatter = (
        structs.partition_count(keys.dtype),
        structs.partition_scatter(keys.dtype, value),
    )
    backend.run(count, structs.PARTITION, segments, counters=counters, **batch)
    xp.cumsum(counters, out=places[1:])
    backend.run(scatter, structs.PARTITION, segments, counters=places, **batch)
    return moved, places[::segments]


def _segment_rows(device: str, rows: int) -> int:
    least = _LEAST_ROWS[device]
    return least * math.ceil(rows / _SEGMENTS[device] / least)


@dataclass(frozen=True, slots=True)
class Ordered:
    """A batch in the order of the buckets, shifted, where its keys begin."""

    keys: Any
    values: Any
    spare_keys: Any
    """Of the same sizes, for other uses."""
    spare_values: Any


def order_by_bucket(
    backend: Backend, keys: Any, values: Any, *, buckets: int, seed: int, shift: int
) -> Ordered | None:
    """The batch by ``first bucket >> shift``; None where a part is crowded, or it is too large.

    One block, or one thread, works off a part.
    """
    if buckets >= 2**32 or len(keys) > structs.PASS_ROWS:
        return None
    rows, bits = len(keys), max(1, (-(-buckets >> shift) - 1).bit_length())
    most = structs.PASS_PARTS[backend.name].bit_length() - 1
    width = math.ceil(bits / math.ceil(bits / most))
    ordered = spare = None
    for low in range(0, bits, width):
        digit = _Digit(seed, buckets, shift + low, 2**width - 1, 2 ** min(width, bits - low))
        moved, starts = _pass(backend, keys, values, digit, to=spare)
        if low == 0:
            largest = int(np.diff(backend.to_host(starts).astype(np.int64)).max())
            if largest * digit.parts > _CROWDED * (rows + digit.parts * _CROWD_ROWS):
                return None
        ordered, spare = moved, ordered
        keys, values = ordered.keys, ordered.values
    if spare is None:
        spare_values = None if values is None else backend.empty(rows, values.dtype)
        spare = Partitioned(backend.empty(rows, keys.dtype), spare_values, None)
    return Ordered(keys, values, spare.keys, spare.values)
