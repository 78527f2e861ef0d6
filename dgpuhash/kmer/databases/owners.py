"""Which part of an index on workers has a key, and rows dealt out to the parts that own them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
# Of a device's memory, that rows for one owner may take.
_DEVICE_SHARE = 0.125


def part_numbers(keys: Any, n: int) -> Any:
    """Return which of n parts has each key, by its hash."""
    return (keys.astype(np.uint64) * _FACTOR >> np.uint64(40)) % np.uint64(n)


def stay_on_device(backend: Backend, nbytes: int) -> bool:
    """Return whether rows of so many bytes for an owner travel from a device to another.

    Else they wait in the memory of the host, from which they travel slower.
    """
    return nbytes <= backend.memory()[1] * _DEVICE_SHARE


def dealt(
    backend: Backend, n: int, keys: Any, values: Any, *, stay: bool = False
) -> list[tuple[Any, Any]]:
    """Return the keys of each of n parts and their values, in the order of rows.

    They are on the host, or where they were if they `stay`.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> keys, values = np.arange(6, dtype=np.uint64), np.arange(0, 60, 10)
    >>> [pairs[1].tolist() for pairs in dealt(backend.get("cpu"), 2, keys, values)]
    [[0, 40, 50], [10, 20, 30]]
    """
    ends, sizes = [len(keys)], [len(keys)]
    if n > 1:
        order, counts = backend.multisplit(part_numbers(keys, n).astype(np.uint32), n)
        keys, values = keys[order], values[order]
        ends, sizes = np.cumsum(counts).tolist(), counts.tolist()
    if not stay:
        keys, values = backend.to_host(keys), backend.to_host(values)
    return [
        (keys[end - size : end], values[end - size : end])
        for end, size in zip(ends, sizes, strict=True)
    ]


def on_device(backend: Backend, array: Any) -> Any:
    """Return an array of rows that were dealt out, on the device of their owner."""
    return backend.asarray(array) if hasattr(array, "get") else backend.from_host(array)
