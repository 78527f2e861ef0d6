"""Batches placed region by region of a table, each in a block's shared memory.

The batch is brought into the table's order first (DACHash's reorder, §IV), then each block builds a
region (the thesis' two-level tables, Alcantara 2011, ch. 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, ran_out, region_args
from dgpuhash.backend.region_order import Ordered, order_by_bucket
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.tables.slots import Slots

__all__ = ["RegionBatch", "pays"]

# Fewer rows, or fewer for each slot of the table, are placed as fast without. On an H200 2**23,
# 2**24 and 2**26 pairs of 4 + 4 bytes took 0.63, 1.06, 3.3 instead of 0.68, 1.37, 5.7 ms into a
# table for them, and 0.79, 1.30, 4.7 instead of 0.66, 1.32, 5.3 into one of four times the size.
# On a CPU, where a block is one thread, ordering a batch takes as long as is gained.
_LEAST_ROWS = {"cuda": 2**24, "cpu": 2**63}
_LEAST_SHARE = 1 / 4


@dataclass(slots=True)
class RegionBatch:
    """A batch in the order of a table's regions, and a bit for each slot of the table."""

    backend: Backend
    keys: Any
    values: Any
    ordered: Ordered
    created: Any
    fresh: Any
    """1 in one row of each key that was created, as far as the batch has claimed them."""
    claimed: bool = False

    @classmethod
    def of(cls, backend: Backend, slots: Slots, keys: Any, values: Any) -> RegionBatch | None:
        """The batch; None where memory is short, or many rows are for one region."""
        try:
            ordered = order_by_bucket(
                backend, keys, values,
                buckets=slots.buckets, seed=slots.seed, shift=backend.region_shift,
            )  # fmt: skip
            if ordered is None:
                return None
            created = _bits(backend, slots)
            fresh = backend.empty(len(keys), np.uint8)
        except Exception as error:
            if isinstance(error, OutOfMemoryError) or ran_out(error):
                return None
            raise
        return cls(backend, keys, values, ordered, created, fresh)

    def insert(self, slots: Slots) -> int:
        """Store the pairs whose places are in their regions; gives the number of those left."""
        ordered = self.ordered
        return slots.insert_regions(
            keys=ordered.keys, values=ordered.values, starts=ordered.starts,
            left_keys=ordered.spare_keys, left_values=ordered.spare_values, created=self.created,
        )  # fmt: skip

    def insert_left(self, slots: Slots, left: int) -> None:
        """Store the pairs that were left, for which `slots` has room."""
        keys, values = (
            None if column is None else column[:left]
            for column in (self.ordered.spare_keys, self.ordered.spare_values)
        )
        self._claim(slots, keys, values, slots.insert(keys, values), marking=True)

    def claim(self, slots: Slots) -> None:
        """Make `fresh` 1 in one row of each key that was created since the last claim."""
        if not self.claimed:
            self.fresh.fill(np.uint8(0))
            self.claimed = True
        self._claim(slots, self.keys, self.values, self.fresh, marking=False)

    def claim_all(self) -> None:
        """Make `fresh` 1 in all rows, by words: CuPy fills 2²⁷ bytes one by one in 0.65 ms."""
        words = len(self.fresh) // 8 * 8
        self.fresh[:words].view(np.uint64).fill(np.uint64(0x0101010101010101))
        self.fresh[words:].fill(np.uint8(1))
        self.claimed = True

    def forget(self, slots: Slots) -> None:
        """Go on with other slots, of whose keys this batch has created none."""
        self.created = None
        self.created = _bits(self.backend, slots)
        self.created.fill(np.uint32(0))

    def _claim(self, slots: Slots, keys: Any, values: Any, fresh: Any, *, marking: bool) -> None:
        value = None if values is None else values.dtype
        self.backend.run(
            region_args.region_claim(keys.dtype, value), region_args.REGION_CLAIM, len(keys),
            table=slots.storage, created=self.created, keys=keys, values=values, fresh=fresh,
            marking=int(marking),
        )  # fmt: skip


def pays(backend: Backend, slots: Slots, rows: int) -> bool:
    """Whether so many rows, most of which bring new keys, are placed faster by region."""
    return rows >= max(_LEAST_ROWS[backend.name], _LEAST_SHARE * slots.slots)


def _bits(backend: Backend, slots: Slots) -> Any:
    """A bit for each slot and for the two beside; the latter are 0."""
    made = backend.empty((slots.slots + 2) // 32 + 1, np.uint32)
    made[slots.slots // 32 :] = 0
    return made
