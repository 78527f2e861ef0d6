"""Stable partition by destination in two launches: count by segment, sum, scatter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend import args as structs
from dgpuhash.errors import SpecError

if TYPE_CHECKING:
    from dgpuhash.backend.base import Backend

__all__ = ["multisplit"]

MAX_PARTS = 2**16
# Counters of all segments together, and tiles that are enough to fill a device.
_COUNTERS = {"cpu": 2**20, "cuda": 2**23}
_SEGMENTS = {"cpu": 16, "cuda": 2**14}


def multisplit(backend: Backend, destinations: Any, parts: int) -> tuple[Any, np.ndarray]:
    """See `Backend.multisplit`."""
    if not 1 <= parts <= MAX_PARTS:
        raise SpecError(f"{parts:,} parts; a batch is split into 1 to {MAX_PARTS:,} parts")
    destinations = backend.asarray(destinations, np.uint32)
    rows = len(destinations)
    order = backend.empty(rows, np.int64)
    if rows == 0:
        return order, np.zeros(parts, np.int64)
    count, scatter = structs.multisplit_count(), structs.multisplit_scatter()
    # Segments of one tile's step at least, and of no more counters than rows where parts are many.
    most = max(1, min(_SEGMENTS[backend.name], _COUNTERS[backend.name] // parts))
    segment_rows = max(math.ceil(rows / most), count.tile, min(parts, rows))
    segments = math.ceil(rows / segment_rows)
    counters = backend.zeros((segments, parts), np.uint64)
    fields = {
        "destinations": destinations,
        "order": order,
        "rows": rows,
        "parts": parts,
        "segment_rows": segment_rows,
    }
    backend.run(count, structs.MULTISPLIT, segments, counters=counters, **fields)
    by_part = backend.xp.ascontiguousarray(counters.T).reshape(-1)
    ends = backend.xp.cumsum(by_part, dtype=np.uint64)
    places = backend.xp.ascontiguousarray((ends - by_part).reshape(parts, segments).T)
    backend.run(scatter, structs.MULTISPLIT, segments, counters=places, **fields)
    last = backend.to_host(ends[segments - 1 :: segments]).astype(np.int64)
    return order, np.diff(last, prepend=0)
