"""A batch in the order of a table's regions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend import partition_args as structs
from dgpuhash.backend.partition_pass import Digit, Partitioned, run_pass

if TYPE_CHECKING:
    from dgpuhash.backend.base import Backend

__all__ = ["Ordered", "order_by_bucket"]

# A part is crowded with so many times the mean of rows, and some that come by chance in small ones.
_CROWDED, _CROWD_ROWS = 2, 2**10


@dataclass(frozen=True, slots=True)
class Ordered:
    """A batch in the order of the regions where its keys begin."""

    keys: Any
    values: Any
    starts: Any
    """The first row of each region, and the last one's end."""
    spare_keys: Any
    """Of the same sizes, for other uses."""
    spare_values: Any


def order_by_bucket(
    backend: Backend, keys: Any, values: Any, *, buckets: int, seed: int, shift: int
) -> Ordered | None:
    """The batch by ``first bucket >> shift``; None where a part is crowded, or it is too large.

    One block, or one thread, works off a part. The rows of a region come in any order, so the first
    pass takes the highest digit, and each of its parts is put in order by itself.
    """
    if buckets >= 2**32 or len(keys) > structs.PASS_ROWS:
        return None
    rows, regions = len(keys), -(-buckets >> shift)
    passes, width = _passes(regions, structs.ANY_ORDER_PARTS[backend.name])
    ordered = spare = starts = None
    for low in reversed(range(0, passes * width, width)):
        first = starts is None
        parts = -(-regions >> low) if first else 2**width
        digit = Digit(seed, buckets, shift + low, 2**32 - 1 if first else 2**width - 1, parts)
        moved, starts = run_pass(
            backend, keys, values, digit, in_order=False, bounds=starts, to=spare
        )
        starts = backend.xp.ascontiguousarray(starts)
        if first:
            largest = int(np.diff(backend.to_host(starts).astype(np.int64)).max())
            if largest * parts > _CROWDED * (rows + parts * _CROWD_ROWS):
                return None
        ordered, spare = moved, ordered
        keys, values = ordered.keys, ordered.values
    if spare is None:
        spare_values = None if values is None else backend.empty(rows, values.dtype)
        spare = Partitioned(backend.empty(rows, keys.dtype), spare_values, None)
    return Ordered(keys, values, starts, spare.keys, spare.values)


def _passes(regions: int, most: int) -> tuple[int, int]:
    """How many passes split a batch by region, and the bits of all digits but the highest.

    A pass has `most` parts at most, so that digits that are no power of two spare one now and then.
    """
    passes, widest = 1, most.bit_length() - 1
    while -(-regions >> widest * (passes - 1)) > most:
        passes += 1
    return passes, min(widest, math.ceil(max(1, (regions - 1).bit_length()) / passes))
