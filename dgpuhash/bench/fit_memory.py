"""Batch sizes that fit the device's free memory."""

from __future__ import annotations

from dgpuhash.backend import Backend

# Peak bytes for each byte of a batch: input, table, peers' copies, checks.
_COPIES = 16


def rows_that_fit(backend: Backend, rows: int, row_bytes: int) -> int:
    """Halve `rows` until the batch fits the device's free memory.

    The peak memory is taken to be 16 times that of a batch with `row_bytes` bytes a row.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> rows_that_fit(backend.get("cpu"), 1024, 16)
    1024
    """
    free = backend.memory()[0]
    while rows > 1 and _COPIES * rows * row_bytes > free:
        rows //= 2
    return rows
