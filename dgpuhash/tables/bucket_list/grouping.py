"""Group a batch of pairs by key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.batch.partition import Digit, Partitioned, run_pass
from dgpuhash.backend.constants import PASS_PARTS, WITHIN_BITS
from dgpuhash.tables.open_addressing.cardinality import KeySample

# Bits of the hash for partitioning a batch and for ordering its parts, in total.
_HASH_BITS = 32
# If keys repeat more often, comparing the rows of a bin costs more than further passes.
_MOST_EACH = 24
# Standard deviations by which the largest part may exceed the mean.
_DEVIATIONS = 5


def group_parts_by_key(
    backend: Backend, bits: Any, values: Any, seed: int, sample: KeySample, shared: int = 0
) -> tuple[Any, Any, Any] | None:
    """Group a batch by key, part by part in a block's shared memory.

    Returns the distinct keys by ascending hash, where their runs begin in the values, and the
    values. All hashes have the same highest `shared` bits.

    The last of the starts is the end. None if a part would not fit into a block's shared memory.
    """
    rows, most = len(bits), backend.max_part_rows
    # Parts are one third to two thirds full.
    parts_bits = max(1, (3 * rows // (2 * most) - 1).bit_length())
    order_bits = shared + parts_bits + WITHIN_BITS
    small = order_bits <= _HASH_BITS - (shared > 0)
    each, mean = rows / sample.keys, rows >> parts_bits
    if sample.heavy or not small or each > _MOST_EACH or _most_rows(mean, each) > most:
        return None
    # Of shared bits the others are exactly those behind.
    spread = 2**order_bits - (shared == 0)
    moved, spare, bounds = _partition(backend, bits, values, (seed, spread), parts_bits)
    parts = 2**parts_bits
    places = backend.zeros(parts + 1, np.uint64)
    backend.run(
        kernel_named("part_runs", bits.dtype, values.dtype), parts,
        order=(seed, spread), keys=moved.keys, values=moved.values, bounds=bounds,
        run_keys=spare.keys, values_to=spare.values, counts=places[1:],
        within=2**WITHIN_BITS - 1, segment_rows=most // 2,
    )  # fmt: skip
    backend.xp.cumsum(places, out=places)
    runs = int(places[-1])
    # A part that does not fit reports more runs than there are rows.
    if runs > rows:
        return None
    keys, starts = backend.empty(runs, bits.dtype), backend.empty(runs + 1, np.int64)
    backend.run(
        kernel_named("run_pack", bits.dtype), parts,
        firsts=moved.keys, run_keys=spare.keys, bounds=bounds, places=places, starts=starts,
        run_keys_to=keys, segment_rows=most // 2,
    )  # fmt: skip
    return keys, starts, spare.values


def _most_rows(mean: int, each: float) -> float:
    """Return a probable upper bound of the rows of a part.

    Each key comes `each` times, and a part has `mean` rows on average.
    """
    return mean + _DEVIATIONS * math.sqrt(mean * max(1.0, each))


def _partition(
    backend: Backend, bits: Any, values: Any, order: tuple[int, int], parts_bits: int
) -> tuple[Partitioned, Partitioned, Any]:
    """Partition the batch by the highest bits of the keys' hashes.

    Returns the batch, a scratch batch of the same size, and where parts begin.

    Rows of one part stay in input order.
    """
    most, within = PASS_PARTS[backend.name].bit_length() - 1, WITHIN_BITS
    low = parts_bits // 2 if parts_bits > most else 0
    high = 2 ** (parts_bits - low)
    moved, bounds = run_pass(backend, bits, values, Digit(*order, within + low, high - 1, high))
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


_SEGMENT = {"cpu": 2**14, "cuda": 2**12}
# Up to this size, sorting by key is cheaper than the passes of a sort by hash.
_FEW_ROWS = {"cpu": 2**12, "cuda": 2**16}
_TOGETHER = 3 / 16
# Most rows with equal hash bits that one tile separates.
_MOST_MENDED = 2**12
# One row in this number may be mixed.
_MIXED_PART = 32


@dataclass(frozen=True, slots=True)
class GroupedBatch:
    """Distinct keys with their runs of values, in input order within a run."""

    keys: Any
    """The distinct keys' words."""
    starts: Any
    """Where each run begins in `values`, and the last one ends (int64); None: one value each."""
    values: Any
    by_hash: bool = False
    """Whether the keys are in the order of ascending hash."""


def group_by_key(
    backend: Backend,
    bits: Any,
    values: Any,
    seed: int,
    sample: KeySample | None = None,
    shared: int = 0,
) -> GroupedBatch:
    """Return the pairs of key words and value words grouped by key.

    Changes neither array.

    The keys of large batches are in the order of ascending hash, the order of a table with that
    seed. A `sample` of the keys tells by how many bits to sort. All hashes have the same highest
    `shared` bits.
    """
    rows = len(bits)
    if rows == 1:
        return GroupedBatch(bits, None, values)
    if rows <= _FEW_ROWS[backend.name]:
        order = backend.stable_order(bits)
        bits, values = bits[order], values[order]
        return _write(backend, bits, values, _sums(backend, _count(backend, bits)), by_hash=False)
    sample = sample or KeySample.of(backend, bits)
    grouped = group_parts_by_key(backend, bits, values, seed, sample, shared)
    if grouped is not None:
        return GroupedBatch(*grouped, by_hash=True)
    width = min(_width(backend, rows, sample) + shared, _HASH_BITS)
    bits, values = backend.sort_by_hash(bits, values, bits=width, seed=seed)
    order = seed, 2**width - 1
    return _write(
        backend, bits, values, _separate_collisions(backend, bits, values, order), by_hash=True
    )


def _width(backend: Backend, rows: int, sample: KeySample) -> int:
    """Return the number of bits of the hash to sort by.

    These are all bits if the rows of colliding keys could be too many for a tile.
    """
    each = PASS_PARTS[backend.name].bit_length() - 1
    if sample.heavy or 4 * rows > _MOST_MENDED * sample.keys:
        return _HASH_BITS
    fewer = range(each, _HASH_BITS, each)
    return next((bits for bits in fewer if sample.keys <= _TOGETHER * 2**bits), _HASH_BITS)


def _separate_collisions(backend: Backend, bits: Any, values: Any, order: tuple[int, int]) -> Any:
    """Separate keys that share the sorted bits of the hash.

    Returns the number of runs before each segment, and the total last.
    """
    mixed = _HashCollisions(backend, len(bits), order)
    counts = _count(backend, bits, mixed)
    mixed.mend(bits, values, counts)
    places = _sums(backend, counts)
    if mixed.left(bits, values):
        places = _sums(backend, _count(backend, bits))
    return places


class _HashCollisions:
    """Rows whose key differs from the previous row's, at equal hash bits.

    The hash bits are those that the batch is sorted by.

    Small groups of such rows are sorted on the device, without a transfer to the host.
    """

    def __init__(self, backend: Backend, rows: int, order: tuple[int, int]) -> None:
        room = rows // _MIXED_PART + 1
        self._backend, self.order = backend, order
        self.rows, self._firsts, self._lengths = (backend.empty(room, np.int64) for _ in range(3))
        self._told = backend.zeros(2, np.uint64)
        self.number, self._many = self._told[:1], self._told[1:]

    def mend(self, bits: Any, values: Any, counts: Any) -> None:
        """Sort rows with equal hash bits by the whole hash; correct `counts`.

        Corrects `counts`.
        """
        backend, rows, room = self._backend, len(bits), len(self.rows)
        _, segment = _segments(backend, rows)
        backend.run(
            kernel_named("run_mixed", bits.dtype), room,
            order=self.order, keys=bits, mixed=self.number, mixed_rows=self.rows,
            firsts=self._firsts, lengths=self._lengths, many=self._many, most=_MOST_MENDED,
            rows=rows,
        )  # fmt: skip
        backend.run(
            kernel_named("run_mend", bits.dtype, values.dtype), room,
            order=self.order, keys=bits, values=values, counts=counts, mixed=self.number,
            firsts=self._firsts, lengths=self._lengths,
            scratch_keys=backend.empty(rows, bits.dtype),
            scratch_values=backend.empty(rows, values.dtype),
            most=_MOST_MENDED, segment_rows=segment,
        )  # fmt: skip

    def left(self, bits: Any, values: Any) -> bool:
        """Sort the rows that `mend` left over; return whether there were any."""
        backend = self._backend
        mixed, many = (int(told) for told in backend.to_host(self._told))
        if mixed > len(self.rows):
            _sort(backend, bits, values, self.order[0])
            return True
        if many:
            found = backend.xp.flatnonzero(self._lengths[:mixed] > _MOST_MENDED)
            firsts, lengths = (
                backend.to_host(each[found]) for each in (self._firsts, self._lengths)
            )
            for first, length in zip(firsts.tolist(), lengths.tolist(), strict=True):
                part = slice(first, first + length)
                _sort(backend, bits[part], values[part], self.order[0])
        return many > 0


def _sort(backend: Backend, bits: Any, values: Any, seed: int) -> None:
    """Sort rows in place by all bits of their hashes."""
    order = backend.stable_order(backend.hash_keys(bits, seed))
    bits[...], values[...] = bits[order], values[order]


def _segments(backend: Backend, rows: int) -> tuple[int, int]:
    segment = _SEGMENT[backend.name]
    return math.ceil(rows / segment), segment


def _count(backend: Backend, bits: Any, mixed: _HashCollisions | None = None) -> Any:
    """Return the number of runs that begin in each segment.

    Records mixed rows in `mixed`.
    """
    rows = len(bits)
    segments, segment = _segments(backend, rows)
    counts = backend.empty(segments, np.uint64)
    of_mixed: dict[str, Any] = {"order": (0, 0)}
    if mixed is not None:
        of_mixed = {
            "order": mixed.order, "mixed": mixed.number,
            "mixed_rows": mixed.rows, "mixed_most": len(mixed.rows),
        }  # fmt: skip
    backend.run(
        kernel_named("run_count", bits.dtype), segments,
        keys=bits, counts=counts, rows=rows, segment_rows=segment, **of_mixed,
    )  # fmt: skip
    return counts


def _sums(backend: Backend, counts: Any) -> Any:
    """Return the exclusive prefix sum of the counts, and the total last."""
    sums = backend.zeros(len(counts) + 1, np.uint64)
    backend.xp.cumsum(counts, out=sums[1:])
    return sums


def _write(backend: Backend, bits: Any, values: Any, places: Any, *, by_hash: bool) -> GroupedBatch:
    rows, runs = len(bits), int(places[-1])
    if runs == rows:
        return GroupedBatch(bits, None, values, by_hash)
    keys, starts = backend.empty(runs, bits.dtype), backend.empty(runs + 1, np.int64)
    starts[runs:] = rows
    segments, segment = _segments(backend, rows)
    backend.run(
        kernel_named("run_write", bits.dtype), segments,
        keys=bits, places=places, starts=starts, run_keys=keys, rows=rows, segment_rows=segment,
    )  # fmt: skip
    return GroupedBatch(keys, starts, values, by_hash)
