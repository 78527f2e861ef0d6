"""One pass of a partition: count by segment, sum, move."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend import partition_args as structs
from dgpuhash.errors import SpecError

if TYPE_CHECKING:
    from dgpuhash.backend.base import Backend

__all__ = ["Digit", "Partitioned", "run_pass"]

# Segments enough for a device's blocks or threads; more would cut more of a GPU's granules.
_SEGMENTS = {"cpu": 16, "cuda": 2048}
# The fewest rows of a segment, of which the others have a multiple: on a GPU whole steps.
_LEAST_ROWS = {"cpu": 2**12, "cuda": 2**13}


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A batch in the order of its parts."""

    keys: Any
    values: Any
    """None when there were none."""
    numbers: Any
    """The rows' numbers in the batch, int64; None when not asked for."""


@dataclass(frozen=True, slots=True)
class Digit:
    """Which part of a pass a key belongs to; see `Digit` in kernels/batch/partition.cuh."""

    seed: int
    spread: int
    shift: int
    mask: int
    parts: int


def run_pass(
    backend: Backend,
    keys: Any,
    values: Any,
    digit: Digit,
    *,
    keyed: bool = True,
    numbered: bool = False,
    in_order: bool = True,
    bounds: Any = None,
    to: Partitioned | None = None,
) -> tuple[Partitioned, Any]:
    """The batch in the order of one digit, and where each of its parts begins and the last ends.

    Parameters
    ----------
    keyed, numbered : bool
        Whether to give the keys, and the rows' numbers.
    in_order : bool
        Whether rows of one part stay in input order; if not, none are numbered.
    bounds : array of uint64, optional
        Where groups of rows begin and the last one ends: each is put in order by itself, and has
        all parts.
    to : Partitioned, optional
        Another batch, whose arrays are written.
    """
    rows, device = len(keys), backend.name
    groups = 1 if bounds is None else len(bounds) - 1
    moved = to or Partitioned(
        backend.empty(rows, keys.dtype) if keyed else None,
        None if values is None else backend.empty(rows, values.dtype),
        backend.empty(rows, np.int64) if numbered else None,
    )
    if rows == 0:
        return moved, backend.zeros(groups * digit.parts + 1, np.uint64)
    if rows > structs.PASS_ROWS:
        raise SpecError(
            f"{rows:,} rows; {structs.PASS_ROWS:,} at most are partitioned at once: split the batch"
        )
    least = _LEAST_ROWS[device]
    segment_rows = least * math.ceil(rows / _SEGMENTS[device] / least)
    pieces = math.ceil(rows / groups / segment_rows)
    counters = backend.empty(groups * digit.parts * pieces, np.uint64)
    places = backend.zeros(len(counters) + 1, np.uint64)
    told = {
        "digit": (digit.seed, digit.spread, digit.shift, digit.mask),
        "keys": keys, "bounds": bounds, "rows": rows, "parts": digit.parts, "pieces": pieces,
        "step_rows": least, "segment_rows": segment_rows,
    }  # fmt: skip
    segments = groups * pieces
    backend.run(
        structs.partition_count(keys.dtype), structs.PARTITION, segments, counters=counters, **told
    )
    backend.xp.cumsum(counters, out=places[1:])
    move = structs.partition_scatter if in_order else structs.partition_strew
    backend.run(
        move(keys.dtype, None if values is None else values.dtype), structs.PARTITION, segments,
        counters=places, values=values, keys_to=moved.keys, values_to=moved.values,
        numbers_to=moved.numbers, **told,
    )  # fmt: skip
    return moved, places[::pieces]
