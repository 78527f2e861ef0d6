"""A batch in the order of a table's regions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend.batch.partition import Digit, Partitioned, Route, Segments, move, run_pass
from dgpuhash.backend.structs import partition as structs

if TYPE_CHECKING:
    from dgpuhash.backend.base import Backend

__all__ = ["CrowdedError", "Ordered", "Ranges", "order_by_bucket"]

# A part is crowded with so many times the mean of rows, and some that come by chance in small ones.
_CROWDED, _CROWD_ROWS = 2, 2**10
# Blocks of so many regions read the same rows, which stay in the L2 cache.
_MOST_PART_SHIFT = 2


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


class CrowdedError(Exception):
    """Many rows are for one part."""


def order_by_bucket(
    backend: Backend, keys: Any, values: Any, *, buckets: int, seed: int, shift: int
) -> Ordered | None:
    """The batch by ``first bucket >> shift``; None where it is too large.

    One block, or one thread, works off a part. The rows of a region come in any order, so the first
    pass takes the highest digit, and each of its parts is put in order by itself.

    Raises
    ------
    CrowdedError
        When many rows are for one part.
    """
    if buckets >= 2**32 or len(keys) > structs.PASS_ROWS:
        return None
    return _order(backend, keys, values, Digit(seed, buckets, shift, 0, -(-buckets >> shift)))


def _order(backend: Backend, keys: Any, values: Any, region: Digit) -> Ordered:
    rows, regions, seed, buckets = len(keys), region.parts, region.seed, region.spread
    passes, width = _passes(regions, structs.ANY_ORDER_PARTS[backend.name])
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
    return Ordered(keys, values, starts, spare.keys, spare.values)


def _refuse_crowds(starts: Callable[[], np.ndarray], rows: int, _: object = None) -> None:
    counts = np.diff(starts().astype(np.int64))
    if int(counts.max()) * len(counts) > _CROWDED * (rows + len(counts) * _CROWD_ROWS):
        raise CrowdedError


def _passes(regions: int, most: int) -> tuple[int, int]:
    """How many passes split a batch by region, and the bits of all digits but the highest.

    A pass has `most` parts at most, so that digits that are no power of two spare one now and then.
    """
    passes, widest = 1, most.bit_length() - 1
    while -(-regions >> widest * (passes - 1)) > most:
        passes += 1
    return passes, min(widest, math.ceil(max(1, (regions - 1).bit_length()) / passes))


@dataclass(frozen=True, slots=True)
class Ranges:
    """How the regions of tables, as many in each, are cut into ranges that travel as one.

    Attributes
    ----------
    buckets, seed : int
        Of all tables.
    shift : int
        A region has 2**this buckets.
    part_shift : int
        2**this regions are one part of a batch.
    each : int
        Parts of a range, of which the last one may have fewer.
    number : int
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
    ) -> Ranges | None:
        """Ranges that one pass tells apart, with their owners, and whose parts another one does.

        None where there are too many regions, or owners.
        """
        most = structs.ANY_ORDER_PARTS[backend.name]
        if owners > most or buckets >= 2**32:
            return None
        for part_shift in range(_MOST_PART_SHIFT + 1):
            parts = -(-buckets >> shift + part_shift)
            # About as many parts in either pass: the more, the slower.
            each = max(2, math.isqrt(parts * owners), math.ceil(parts / (most // owners)))
            if each <= most and parts * each < 2**32:
                return cls(buckets, seed, shift, part_shift, each, math.ceil(parts / each))
        return None

    def regions(self, first: int, number: int) -> tuple[int, int]:
        """The first one of some ranges, and how many they have."""
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
        counted: Callable[[Segments], None],
    ) -> Partitioned:
        """The batch by owner and range; `counted` is told where these begin before rows move."""
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
        """Rows of some ranges by part, and where each part's begin and the last one's end.

        Parameters
        ----------
        keys, values : array
            In shares, one after the other; each has the ranges from `first` on, in order.
        bounds : array of uint64
            Where the rows of each range of each share begin, and the last one's end.
        more : Partitioned
            The last shares, for which the columns have only room.
        to : Partitioned
            Which has room for them.
        """
        digit = Digit(self.seed, self.buckets, self._shift, 2**32 - 1, self.each)
        moved, starts = run_pass(
            backend, keys, values, digit, in_order=False, bounds=bounds, shares=shares,
            digits=(first * self.each, self.each), more=more, to=to,
        )  # fmt: skip
        return moved, backend.xp.ascontiguousarray(starts)
