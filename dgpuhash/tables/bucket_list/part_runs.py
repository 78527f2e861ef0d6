"""A batch grouped by key in parts, each in a block's shared memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.batch.partition_pass import Digit, Partitioned, run_pass
from dgpuhash.backend.structs import partition, segments
from dgpuhash.tables.open_addressing.sampling import Sample

__all__ = ["part_runs"]

# Bits of the hash that a batch is partitioned by and its parts are put in order by.
_HASH_BITS = 32
# Where keys come more often each, comparing the rows of a bin costs more than further passes.
_MOST_EACH = 24
# The most rows of any part exceed the mean by no more standard deviations.
_DEVIATIONS = 5


def part_runs(
    backend: Backend, bits: Any, values: Any, seed: int, sample: Sample
) -> tuple[Any, Any, Any] | None:
    """The distinct keys by ascending hash, where their runs begin in the values, and the values.

    The last of the starts is the end. None where a part has more rows than a block's memory.
    """
    rows, most = len(bits), backend.part_rows
    # Parts are filled by a third to two thirds.
    parts_bits = max(1, (3 * rows // (2 * most) - 1).bit_length())
    small = parts_bits + segments.WITHIN_BITS <= _HASH_BITS
    each, mean = rows / sample.keys, rows >> parts_bits
    if sample.heavy or not small or each > _MOST_EACH or _most_rows(mean, each) > most:
        return None
    spread = 2 ** (parts_bits + segments.WITHIN_BITS) - 1
    moved, spare, bounds = _partition(backend, bits, values, (seed, spread), parts_bits)
    parts = 2**parts_bits
    places = backend.zeros(parts + 1, np.uint64)
    backend.run(
        segments.part_runs(bits.dtype, values.dtype), segments.PART_RUNS, parts,
        order=(seed, spread), keys=moved.keys, values=moved.values, bounds=bounds,
        run_keys=spare.keys, values_to=spare.values, counts=places[1:],
        within=2**segments.WITHIN_BITS - 1, segment_rows=most // 2,
    )  # fmt: skip
    backend.xp.cumsum(places, out=places)
    runs = int(places[-1])
    # A part without room counts more runs than there are rows.
    if runs > rows:
        return None
    keys, starts = backend.empty(runs, bits.dtype), backend.empty(runs + 1, np.int64)
    backend.run(
        segments.run_pack(bits.dtype), segments.RUN_PACK, parts,
        firsts=moved.keys, run_keys=spare.keys, bounds=bounds, places=places, starts=starts,
        run_keys_to=keys, segment_rows=most // 2,
    )  # fmt: skip
    return keys, starts, spare.values


def _most_rows(mean: int, each: float) -> float:
    """How many rows a part has at most, as is to be expected where each key comes so often."""
    return mean + _DEVIATIONS * math.sqrt(mean * max(1.0, each))


def _partition(
    backend: Backend, bits: Any, values: Any, order: tuple[int, int], parts_bits: int
) -> tuple[Partitioned, Partitioned, Any]:
    """The batch by the highest bits of its hashes, another of its size, and where parts begin.

    Rows of one part stay in input order.
    """
    most, within = partition.PASS_PARTS[backend.name].bit_length() - 1, segments.WITHIN_BITS
    low = parts_bits // 2 if parts_bits > most else 0
    high = 2 ** (parts_bits - low)
    moved, bounds = run_pass(backend, bits, values, Digit(*order, within + low, 2**32 - 1, high))
    bounds = backend.xp.ascontiguousarray(bounds)
    if not low:
        spare = Partitioned(
            backend.empty(len(bits), bits.dtype), backend.empty(len(bits), values.dtype), None
        )
        return moved, spare, bounds
    spare = moved
    moved, bounds = run_pass(
        backend, spare.keys, spare.values, Digit(*order, within, 2**low - 1, 2**low), bounds=bounds
    )
    return moved, spare, backend.xp.ascontiguousarray(bounds)
