"""Which part of an index on workers has a key, and rows dealt out to the parts that own them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend

__all__ = ["dealt", "part_numbers"]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def part_numbers(keys: Any, n: int) -> Any:
    """Return which of n parts has each key, by its hash."""
    return (keys.astype(np.uint64) * _FACTOR >> np.uint64(40)) % np.uint64(n)


def dealt(backend: Backend, n: int, keys: Any, values: Any) -> list[tuple[Any, Any]]:
    """Return the keys of each of n parts and their values, on the host, in the order of rows.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> keys, values = np.arange(6, dtype=np.uint64), np.arange(0, 60, 10)
    >>> [pairs[1].tolist() for pairs in dealt(backend.get("cpu"), 2, keys, values)]
    [[0, 40, 50], [10, 20, 30]]
    """
    if n == 1:
        return [(backend.to_host(keys), backend.to_host(values))]
    order, counts = backend.multisplit(part_numbers(keys, n).astype(np.uint32), n)
    keys, values = backend.to_host(keys[order]), backend.to_host(values[order])
    ends = np.cumsum(counts).tolist()
    return [
        (keys[end - count : end], values[end - count : end])
        for end, count in zip(ends, counts.tolist(), strict=True)
    ]
