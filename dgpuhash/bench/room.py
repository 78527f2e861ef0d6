"""Sizes that the device has room for."""

from __future__ import annotations

from dgpuhash.backend import Backend

__all__ = ["fitting"]

# Bytes at the worst moment for each byte of a batch: input, table, peers' copies, checks.
_COPIES = 16


def fitting(backend: Backend, rows: int, row_bytes: int) -> int:
    """`rows`, or the largest half, quarter … of it that this device's free memory is enough for.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> fitting(backend.get("cpu"), 1024, 16)
    1024
    """
    free = backend.memory()[0]
    while rows > 1 and _COPIES * rows * row_bytes > free:
        rows //= 2
    return rows
