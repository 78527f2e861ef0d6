"""Stable partition of a batch, in two passes for many parts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend.batch.partition_pass import Digit, Partitioned, run_pass
from dgpuhash.backend.structs import partition as structs
from dgpuhash.errors import SpecError

if TYPE_CHECKING:
    from dgpuhash.backend.base import Backend

__all__ = [
    "MAX_PARTS",
    "digits_of",
    "multisplit",
    "partition",
    "sort_by_hash",
    "split",
]

MAX_PARTS = 2**16


def partition(
    backend: Backend, keys: Any, values: Any, *, parts: int, seed: int, numbered: bool
) -> Partitioned:
    """See `Backend.partition`."""
    low, *high = digits_of(backend, parts, seed, spread=parts)
    if not high:
        return run_pass(backend, keys, values, low, numbered=numbered)[0]
    if not numbered:
        moved = run_pass(backend, keys, values, low)[0]
        return run_pass(backend, moved.keys, moved.values, high[0])[0]
    # A pass moves one column beside the keys: here the numbers, by which the values follow.
    moved = run_pass(backend, keys, None, low, numbered=True)[0]
    moved = run_pass(backend, moved.keys, moved.numbers.view(np.uint64), high[0])[0]
    numbers = moved.values.view(np.int64)
    return Partitioned(moved.keys, None if values is None else values[numbers], numbers)


def split(
    backend: Backend, keys: Any, values: Any, *, parts: int, seed: int, numbered: bool
) -> tuple[Partitioned, Any]:
    """See `Backend.split`."""
    low, *high = digits_of(backend, parts, seed, spread=parts)
    if not high:
        return run_pass(backend, keys, values, low, numbered=numbered)
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
        digit = Digit(seed, 2**bits - 1, shift, parts - 1, parts)
        moved = run_pass(backend, keys, values, digit)[0]
        keys, values = moved.keys, moved.values
    return keys, values


def multisplit(backend: Backend, destinations: Any, parts: int) -> tuple[Any, np.ndarray]:
    """See `Backend.multisplit`."""
    low, *high = digits_of(backend, parts, seed=0, spread=0)
    destinations = backend.asarray(destinations, np.uint32)
    moved, starts = run_pass(backend, destinations, None, low, keyed=bool(high), numbered=True)
    order = moved.numbers
    if high:
        moved, _ = run_pass(backend, moved.keys, order.view(np.uint64), high[0])
        order = moved.values.view(np.int64)
        edges = backend.xp.arange(parts + 1, dtype=np.uint32)
        starts = backend.xp.searchsorted(moved.keys, edges)
    return order, np.diff(backend.to_host(starts).astype(np.int64))


def digits_of(backend: Backend, parts: int, seed: int, spread: int) -> list[Digit]:
    """The passes, that of the lowest digit first."""
    if not 1 <= parts <= MAX_PARTS:
        raise SpecError(f"{parts:,} parts; a batch is split into 1 to {MAX_PARTS:,} parts")
    if parts <= structs.PASS_PARTS[backend.name]:
        return [Digit(seed, spread, 0, 2**32 - 1, parts)]
    bits = math.ceil((parts - 1).bit_length() / 2)
    low = Digit(seed, spread, 0, 2**bits - 1, 2**bits)
    return [low, Digit(seed, spread, bits, 2**32 - 1, math.ceil(parts / 2**bits))]
