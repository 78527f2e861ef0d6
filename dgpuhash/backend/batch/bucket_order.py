"""Order a batch of keys by the table regions of their first buckets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend.batch.partition import Digit, Partitioned, PassLayout, Route, move, run_pass
from dgpuhash.backend.constants import ANY_ORDER_PARTS, PASS_ROWS

if TYPE_CHECKING:
    from dgpuhash.backend.base import Backend

# A part is crowded if it has more than `_CROWDED` times (mean rows + `_CROWD_ROWS`).
_CROWDED, _CROWD_ROWS = 2, 2**10
# At most 2**this regions share a part: their blocks read the same rows, from the L2 cache.
_MOST_PART_SHIFT = 2


@dataclass(frozen=True, slots=True)
class OrderedBatch:
    """A batch in the order of the regions of its keys' first buckets."""

    keys: Any
    values: Any
    starts: Any
    """The first row of each region, and the end of the last region."""
    spare_keys: Any
    """Scratch array of the same size, free for other uses."""
    spare_values: Any


class SkewedBatchError(Exception):
    """One part of a pass has far more rows than the mean."""


def order_by_bucket(
    backend: Backend, keys: Any, values: Any, *, buckets: int, seed: int, shift: int
) -> OrderedBatch | None:
    """Return the batch ordered by ``first bucket >> shift``.

    None where the batch or the table is too large.

    One block, or one thread, processes a part. The rows of a region may come in any order, so the
    first pass takes the highest digit, and each of its parts is ordered by itself.

    Raises
    ------
    SkewedBatchError
        When one part has too many rows.
    """
    if buckets >= 2**32 or len(keys) > PASS_ROWS:
        return None
    return _order(backend, keys, values, Digit(seed, buckets, shift, 0, -(-buckets >> shift)))


def _order(backend: Backend, keys: Any, values: Any, region: Digit) -> OrderedBatch:
    rows, regions, seed, buckets = len(keys), region.parts, region.seed, region.spread
    passes, width = _passes(regions, ANY_ORDER_PARTS[backend.name])
    ordered = spare = starts = look = None
    for low in reversed(range(0, passes * width, width)):
        first = starts is None
        parts = -(-regions >> low) if first else 2**width
        mask = 2**32 - 1 if first else 2**width - 1
        moved, starts = run_pass(
            backend, keys, values, Digit(seed, buckets, region.shift + low, mask, parts),
            in_order=False, bounds=starts, to=spare, counted=look,
        )  # fmt: skip
        starts = backend.xp.ascontiguousarray(starts)
        look = partial(_refuse_crowds, backend.fetch(starts), rows) if first else None
        ordered, spare = moved, ordered
        keys, values = ordered.keys, ordered.values
    if look is not None:
        look()
    if spare is None:
        spare_values = None if values is None else backend.empty(rows, values.dtype)
        spare = Partitioned(backend.empty(rows, keys.dtype), spare_values, None)
    return OrderedBatch(keys, values, starts, spare.keys, spare.values)


def _refuse_crowds(starts: Callable[[], np.ndarray], rows: int, _: object = None) -> None:
    counts = np.diff(starts().astype(np.int64))
    if int(counts.max()) * len(counts) > _CROWDED * (rows + len(counts) * _CROWD_ROWS):
        raise SkewedBatchError


def _passes(regions: int, most: int) -> tuple[int, int]:
    """Return the number of passes, and the bits of every low digit.

    The passes split a batch by region; the highest digit may have other bits.

    A pass has at most `most` parts. Since the highest digit need not be a power of two, one pass
    fewer is needed now and then.
    """
    passes, widest = 1, most.bit_length() - 1
    while -(-regions >> widest * (passes - 1)) > most:
        passes += 1
    return passes, min(widest, math.ceil(max(1, (regions - 1).bit_length()) / passes))


@dataclass(frozen=True, slots=True)
class RegionRanges:
    """Ranges of regions that owners exchange, each as one unit.

    All owners' tables have the same number of regions.

    Attributes
    ----------
    buckets, seed : int
        Of every table.
    shift : int
        A region has 2**this buckets.
    part_shift : int
        2**this regions make one part of a batch.
    each : int
        Parts of a range; the last range may have fewer.
    number : int
        Number of ranges.
    """

    buckets: int
    seed: int
    shift: int
    part_shift: int
    each: int
    number: int

    @classmethod
    def of(
        cls, backend: Backend, *, buckets: int, seed: int, owners: int, shift: int
    ) -> RegionRanges | None:
        """Return ranges for which two passes suffice.

        The first pass separates owners and ranges, the second one the parts of a range. None where
        there are too many regions or owners.

        None where there are too many regions, or owners.
        """
        most = ANY_ORDER_PARTS[backend.name]
        if owners > most or buckets >= 2**32:
            return None
        for part_shift in range(_MOST_PART_SHIFT + 1):
            parts = -(-buckets >> shift + part_shift)
            # Balance the parts of both passes: more parts make a pass slower.
            each = max(2, math.isqrt(parts * owners), math.ceil(parts / (most // owners)))
            if each <= most and parts * each < 2**32:
                return cls(buckets, seed, shift, part_shift, each, math.ceil(parts / each))
        return None

    def regions(self, first: int, number: int) -> tuple[int, int]:
        """Return the first region of some ranges, and their number of regions."""
        whole, each = -(-self.buckets >> self.shift), self.each << self.part_shift
        return first * each, min(whole, (first + number) * each) - first * each

    @property
    def _shift(self) -> int:
        return self.shift + self.part_shift

    def route(
        self,
        backend: Backend,
        keys: Any,
        values: Any,
        *,
        owners: int,
        owner_seed: int,
        counted: Callable[[PassLayout], None],
    ) -> Partitioned:
        """Return the batch ordered by owner and range.

        Calls `counted` with the `PassLayout`, and so the bounds of the ranges, before rows move.
        """
        digit = Digit(
            self.seed, self.buckets, self._shift, 2**32 - 1, owners * self.number,
        )  # fmt: skip
        route = Route(owners, owner_seed, self.number, scale=-(-(2**32) // self.each))
        return move(backend, keys, values, digit, in_order=False, route=route, counted=counted)[0]

    def order(
        self,
        backend: Backend,
        keys: Any,
        values: Any,
        bounds: Any,
        *,
        first: int,
        shares: int,
        more: Partitioned,
        to: Partitioned,
    ) -> tuple[Partitioned, Any]:
        """Return the rows of some ranges ordered by part, and the parts' bounds.

        The bounds tell where each part's rows begin and where the last part's rows end.

        Parameters
        ----------
        keys, values : array
            One share after the other; each has the ranges from `first` on, in order.
        bounds : array of uint64
            Where the rows of each range of each share begin, and where the last ones end.
        more : Partitioned
            The rows of the last shares; `keys` and `values` only have room for them.
        to : Partitioned
            Arrays to write the ordered rows to.
        """
        digit = Digit(self.seed, self.buckets, self._shift, 2**32 - 1, self.each)
        moved, starts = run_pass(
            backend, keys, values, digit, in_order=False, bounds=bounds, shares=shares,
            digits=(first * self.each, self.each), more=more, to=to,
        )  # fmt: skip
        return moved, backend.xp.ascontiguousarray(starts)
