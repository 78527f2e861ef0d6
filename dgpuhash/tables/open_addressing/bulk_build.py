"""Bulk build of a table, region by region in shared memory.

The batch is first sorted into the table's bucket order (DACHash's reorder, §IV); then each block
builds one region in its shared memory (the thesis' two-level tables, Alcantara 2011, ch. 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, is_out_of_memory, kernel_named
from dgpuhash.backend.batch.bucket_order import OrderedBatch, order_by_bucket
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.tables.open_addressing.extent import Extent
from dgpuhash.tables.open_addressing.slots import GrowableSlots, Slots

_UNDO_ROWS = 1 << 20


@dataclass(slots=True)
class RegionBatch:
    """Batch sorted by region, with one bit for each slot of the table."""

    backend: Backend
    keys: Any
    values: Any
    ordered: OrderedBatch
    created: Any
    fresh: Any
    """True in one row of each created key, for the keys claimed so far."""
    claimed: bool = False
    gone_on: bool = False
    """Whether the slots have grown, so that `created` belongs to the larger slots."""
    left: tuple[Any, Any] | None = None
    """Keys that did not fit in their regions, and a mask of the rows that created keys."""

    @classmethod
    def of(
        cls, backend: Backend, extent: Extent, seed: int, keys: Any, values: Any
    ) -> RegionBatch | None:
        """Return the batch sorted for a table, or None if memory is short.

        Raises
        ------
        SkewedBatchError
            When many rows belong to one region.
        """
        try:
            ordered = order_by_bucket(
                backend, keys, values,
                buckets=extent.buckets, seed=seed, shift=backend.region_shift,
            )  # fmt: skip
            if ordered is None:
                return None
            created = slot_bitmap(backend, extent)
            fresh = backend.empty(len(keys), np.dtype(bool))
        except Exception as error:
            if isinstance(error, OutOfMemoryError) or is_out_of_memory(error):
                return None
            raise
        return cls(backend, keys, values, ordered, created, fresh)

    def place(self, to: GrowableSlots, stored: int, *, told: bool) -> Any:
        """Insert the pairs and return a mask of the rows that created keys.

        The slots hold `stored` keys before. When the estimated number of keys was too low and the
        rows left over do not fit, `fresh` is claimed for the rows stored so far before the slots
        grow.
        """
        all_new: int | None = stored + len(self.fresh)
        left = self.insert(to.slots)
        state = to.slots.state()
        if state.taken + left > to.capacity:
            self.claim(to.slots)
            to.enlarge(state.occupied + left)
            self.forget(to.slots)
            all_new = None
        if left:
            self.insert_leftovers(to.slots, left, told=told)
            state = to.slots.state()
        if told and state.occupied == all_new:
            self.claim_all()
        elif told:
            self.claim(to.slots)
        return self.fresh

    def undo(self, slots: Slots) -> None:
        """Erase the keys that `place` stored in slots with earlier keys.

        Erases `_UNDO_ROWS` rows at a time, which takes little memory.
        """
        if not self.gone_on:
            self.claim(slots)
        _erase(slots, self.keys, self.fresh)
        if self.left is not None:
            _erase(slots, *self.left)

    def insert(self, slots: Slots) -> int:
        """Store the pairs that fit in their regions; return the number left over."""
        ordered = self.ordered
        return slots.insert_regions(
            keys=ordered.keys, values=ordered.values, starts=ordered.starts,
            left_keys=ordered.spare_keys, left_values=ordered.spare_values, created=self.created,
        )  # fmt: skip

    def insert_leftovers(self, slots: Slots, left: int, *, told: bool) -> None:
        """Store the pairs that `insert` left over, for which `slots` has room.

        With `told`, the bits of the created slots are set, so that `claim` finds these keys too.
        """
        keys, values = (
            None if column is None else column[:left]
            for column in (self.ordered.spare_keys, self.ordered.spare_values)
        )
        fresh = self.backend.zeros(left, np.dtype(bool))
        self.left = keys, fresh
        slots.insert(keys, values, fresh)
        if told:
            claim(self.backend, slots, self.created, keys, values, fresh, marking=True)

    def claim(self, slots: Slots) -> None:
        """Set `fresh` in one row of each key created since the last claim.

        `created` is None when `forget` ran out of memory; no key was created since then.
        """
        if not self.claimed:
            self.fresh.fill(np.False_)
            self.claimed = True
        if self.created is None:
            return
        claim(self.backend, slots, self.created, self.keys, self.values, self.fresh, marking=False)

    def claim_all(self) -> None:
        """Set `fresh` in all rows."""
        fill_ones(self.fresh)
        self.claimed = True

    def forget(self, slots: Slots) -> None:
        """Switch to other slots, in which this batch has not created any key."""
        self.gone_on, self.created = True, None
        self.created = slot_bitmap(self.backend, slots.extent)


def _erase(slots: Slots, keys: Any, fresh: Any) -> None:
    for start in range(0, len(keys), _UNDO_ROWS):
        part = slice(start, start + _UNDO_ROWS)
        slots.erase(keys[part][fresh[part]])


def fill_ones(flags: Any) -> None:
    """Set all flags, eight at a time.

    CuPy fills 2²⁷ bytes one by one in 0.65 ms.
    """
    words = len(flags) // 8 * 8
    flags[:words].view(np.uint64).fill(np.uint64(0x0101010101010101))
    flags[words:].fill(1)


def claim(
    backend: Backend,
    slots: Slots,
    created: Any,
    keys: Any,
    values: Any,
    fresh: Any,
    *,
    marking: bool,
) -> None:
    """Set `fresh` in one row of each key whose `created` bit is set.

    Clears these bits. With `marking`, sets the bits of the keys in fresh rows instead.
    """
    value = None if values is None else values.dtype
    backend.run(
        kernel_named("region_claim", keys.dtype, value), len(keys),
        table=slots.storage, created=created, keys=keys, values=values, fresh=fresh,
        marking=int(marking),
    )  # fmt: skip


def slot_bitmap(backend: Backend, extent: Extent) -> Any:
    """Return a zeroed bit array: one bit for each slot and reserved-key slot.

    Bits are 0 also where no kernel writes them.
    """
    return backend.zeros((extent.slots + 2) // 32 + 1, np.uint32)
