"""Bulk build from batches of several senders, range by range."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.batch.bucket_order import RegionRanges
from dgpuhash.backend.batch.partition import Partitioned
from dgpuhash.tables.open_addressing.bulk_build import claim, slot_bitmap
from dgpuhash.tables.open_addressing.slots import Slots


class StreamedBuild:
    """Bulk build of an empty table from batches, range by range.

    Each range is stored once. The host does not wait for the device before `finish`.

    Parameters
    ----------
    backend : Backend
    slots : Slots
        Empty slots with room for all rows that arrive.
    ranges : RegionRanges
        Ranges of these slots.

    Attributes
    ----------
    rows : int
        Rows that have arrived so far.
    """

    def __init__(self, backend: Backend, slots: Slots, ranges: RegionRanges) -> None:
        self._backend, self._slots, self._ranges = backend, slots, ranges
        self._created = slot_bitmap(backend, slots.extent)
        self._left: list[tuple[Any, Any]] = []
        self._moved = Partitioned(None, None, None)
        self._pending = backend.zeros(ranges.number, np.uint64)
        # Load kernels before other ranks wait for this one: the first batch with rows left over
        # took 9 ms longer, and 440 ms when kernels had to be compiled.
        backend.load(
            kernel_named("open_insert", slots.key, slots.value),
            kernel_named("region_claim", slots.key, slots.value),
        )
        self.rows: int = 0

    def place(
        self,
        keys: Any,
        values: Any,
        bounds: Any,
        *,
        first: int,
        number: int,
        shares: int,
        more: Partitioned,
    ) -> None:
        """Store the rows of `number` ranges, starting at range `first`.

        See `RegionRanges.order` for the arguments. The columns, which have room for all rows, are
        kept and overwritten until `finish`; the columns of `more` are only read.
        """
        moved, starts = self._ranges.order(
            self._backend, keys, values, bounds,
            first=first, shares=shares, more=more, to=self._room(keys, values),
        )  # fmt: skip
        turn = len(self._left)
        self._pending[turn : turn + 1] = self._slots.insert_in_regions(
            *self._ranges.regions(first, number),
            part_shift=self._ranges.part_shift, blank=True,
            keys=moved.keys, values=moved.values, starts=starts, left_keys=keys,
            left_values=values, created=self._created,
        )  # fmt: skip
        self._left.append((keys, values))
        self.rows += len(keys)

    def _room(self, keys: Any, values: Any) -> Partitioned:
        """Return buffers for the rows in bucket order, reused between rounds.

        Allocates new buffers when the rows do not fit in the previous ones.
        """
        if self._moved.keys is None or len(self._moved.keys) < len(keys):
            rows = len(keys) + len(keys) // 16
            empty = self._backend.empty
            beside = None if values is None else empty(rows, values.dtype)
            self._moved = Partitioned(empty(rows, keys.dtype), beside, None)
        return self._moved

    def finish(self) -> bool:
        """Store the rows left over; return whether every row had a new key.

        Waits for the device.
        """
        self._slots.hold()
        # Both copies overlap with the device's work.
        pending, counted = self._backend.fetch(self._pending), self._slots.counting()
        numbers = pending().tolist()
        counted()
        for (keys, values), left in zip(self._left, numbers, strict=False):
            if left:
                some = keys[:left], None if values is None else values[:left]
                fresh = self._slots.insert(*some)
                claim(self._backend, self._slots, self._created, *some, fresh, marking=True)
        self._left.clear()
        self._moved = Partitioned(None, None, None)
        return self._slots.state().occupied == self.rows

    def claim(self, keys: Any, values: Any) -> Any:
        """Return uint8 flags with a 1 in one row of each stored key.

        A key is flagged once among the rows of all calls.
        """
        fresh = self._backend.zeros(len(keys), np.uint8)
        claim(self._backend, self._slots, self._created, keys, values, fresh, marking=False)
        return fresh
