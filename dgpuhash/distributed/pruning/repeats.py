"""Repeats: lists that are read once, and given to all rows that have the same key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.tables.bucket_list.pool import owners_of
from dgpuhash.tables.columns.distinct import population
from dgpuhash.tables.open_addressing.sampling import Sample

__all__ = ["gathered", "keys_may_repeat", "keys_repeat", "places"]

# Fewer rows of a worker are not sampled.
_LEAST_ROWS = 2**16
# So often must a sampled key come in a batch for its rows to be asked for once; never between GPUs.
_LEAST_REPEATS = {"cpu": 16}


def gathered(backend: Backend, counts: Any, starts: Any, values: Any) -> Any:
    """The values of lists that begin at `starts`, one list after the other."""
    return values[places(backend, counts, starts)[1]]


def places(backend: Backend, counts: Any, starts: Any) -> tuple[Any, Any]:
    """The places of all values of lists that begin at `starts`, and before it whose they are.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> places(backend.get("cpu"), np.array([2, 0, 1]), np.array([5, 9, 5]))
    (array([0, 0, 2]), array([5, 6, 5]))
    """
    xp = backend.xp
    filled = xp.flatnonzero(counts)
    offsets = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts[filled])])
    total = int(offsets[-1])
    if total == len(filled):
        return filled, starts[filled]
    owners = owners_of(backend, offsets, total)
    shifts = starts[filled] - offsets[:-1]
    return filled[owners], xp.arange(total) + shifts[owners]


def keys_may_repeat(backend: Backend, rows: int) -> bool:
    """Whether it may pay to look for keys that come again among so many rows."""
    return rows >= _LEAST_ROWS and backend.name in _LEAST_REPEATS


def keys_repeat(backend: Backend, chunks: Sequence[Any]) -> bool:
    """Whether keys (words) seem to come so often that it pays to look for them."""
    rows = sum(map(len, chunks))
    if not keys_may_repeat(backend, rows):
        return False
    # Odd steps, since keys often repeat after a power of two.
    step = rows // _LEAST_ROWS | 1
    sample = Sample.of(backend, backend.xp.concatenate([chunk[::step] for chunk in chunks]))
    keys = population(sample.rows - sample.repeated, sample.rows)
    return keys * _LEAST_REPEATS[backend.name] <= rows
