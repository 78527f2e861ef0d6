"""Batches placed region by region of a table, each in a block's shared memory.

The batch is brought into the table's order first (DACHash's reorder, §IV), then each block builds a
region (the thesis' two-level tables, Alcantara 2011, ch. 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend import Backend, ran_out, region_args
from dgpuhash.backend.region_order import Ordered, order_by_bucket
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.tables.extent import Extent
from dgpuhash.tables.interrupts import uninterrupted
from dgpuhash.tables.slots import Slots

if TYPE_CHECKING:
    from dgpuhash.tables.storage import Storage

__all__ = ["RegionBatch", "claim", "fill_ones", "pays", "slot_bits"]

# Placing rows by region costs 0.75 ms for each GB of the table, read and written, and some 0.4 ms,
# and spares about 40 ps a row: as much as 48 bytes of the table. On an H200 2**24, 2**25 and 2**27
# pairs of 4 + 4 bytes took 1.16, 1.67 and 4.9 instead of 1.07, 2.38 and 10.5 ms into a table for
# them; 1.44, 2.32 and 7.5 instead of 1.14, 2.34 and 9.6 into one of four times the size; 2.9, 5.1
# and 19.5 instead of 1.2, 2.4 and 9.5 at sixteen times. With 8 + 8 bytes it was 1.5, 2.3 and 7.8
# instead of 1.3, 2.7 and 11.7, and at four times 2.2, 3.7 and 14.4 instead of 1.2, 2.5 and 10.0.
_ROW_NBYTES = 48
# On a CPU, where a block is one thread, ordering a batch takes as long as is gained.
_LEAST_NBYTES = {"cuda": 2**29, "cpu": 2**63}


@dataclass(slots=True)
class RegionBatch:
    """A batch in the order of a table's regions, and a bit for each slot of the table."""

    backend: Backend
    keys: Any
    values: Any
    ordered: Ordered
    created: Any
    fresh: Any
    """True in one row of each key that was created, as far as the batch has claimed them."""
    claimed: bool = False

    @classmethod
    def of(
        cls, backend: Backend, extent: Extent, seed: int, keys: Any, values: Any
    ) -> RegionBatch | None:
        """The batch for a table; None where memory is short.

        Raises
        ------
        CrowdedError
            When many rows are for one region.
        """
        try:
            ordered = order_by_bucket(
                backend, keys, values,
                buckets=extent.buckets, seed=seed, shift=backend.region_shift,
            )  # fmt: skip
            if ordered is None:
                return None
            created = slot_bits(backend, extent)
            fresh = backend.empty(len(keys), np.dtype(bool))
        except Exception as error:
            if isinstance(error, OutOfMemoryError) or ran_out(error):
                return None
            raise
        return cls(backend, keys, values, ordered, created, fresh)

    @uninterrupted
    def place(self, store: Storage, stored: int, *, told: bool) -> Any:
        """Insert the pairs into a table that has `stored` keys; true in the rows that created them.

        What does not fit after all, as the expected number of keys was too low, is there before the
        table grows, and so are the rows that created it.
        """
        all_new: int | None = stored + len(self.fresh)
        try:
            left = self.insert(store.slots)
            state = store.slots.state()
            if state.occupied + state.erased + left > store.capacity:
                self.claim(store.slots)
                store.enlarge(state.occupied + left)
                self.forget(store.slots)
                all_new = None
            if left:
                self.insert_left(store.slots, left, told=told)
                state = store.slots.state()
            if told and state.occupied == all_new:
                self.claim_all()
            elif told:
                self.claim(store.slots)
        except BaseException:
            if store.slots.filled:
                self.claim(store.slots)
                store.undo(self.keys, self.fresh)
            else:
                # There was no key, and what lies in the slots may be anything.
                store.slots.forget()
            raise
        return self.fresh

    def insert(self, slots: Slots) -> int:
        """Store the pairs whose places are in their regions; gives the number of those left."""
        ordered = self.ordered
        return slots.insert_regions(
            keys=ordered.keys, values=ordered.values, starts=ordered.starts,
            left_keys=ordered.spare_keys, left_values=ordered.spare_values, created=self.created,
        )  # fmt: skip

    def insert_left(self, slots: Slots, left: int, *, told: bool) -> None:
        """Store the pairs that were left, for which `slots` has room.

        Their keys can be claimed afterwards if that is to be `told`.
        """
        keys, values = (
            None if column is None else column[:left]
            for column in (self.ordered.spare_keys, self.ordered.spare_values)
        )
        fresh = slots.insert(keys, values)
        if told:
            claim(self.backend, slots, self.created, keys, values, fresh, marking=True)

    def claim(self, slots: Slots) -> None:
        """Make `fresh` true in one row of each key that was created since the last claim.

        Where `forget` has found no memory, nothing was created since.
        """
        if not self.claimed:
            self.fresh.fill(np.False_)
            self.claimed = True
        if self.created is None:
            return
        claim(self.backend, slots, self.created, self.keys, self.values, self.fresh, marking=False)

    def claim_all(self) -> None:
        """Make `fresh` true in all rows."""
        fill_ones(self.fresh)
        self.claimed = True

    def forget(self, slots: Slots) -> None:
        """Go on with other slots, of whose keys this batch has created none."""
        self.created = None
        self.created = slot_bits(self.backend, slots.extent)


def fill_ones(flags: Any) -> None:
    """Make all flags true, by words: CuPy fills 2²⁷ bytes one by one in 0.65 ms."""
    words = len(flags) // 8 * 8
    flags[:words].view(np.uint64).fill(np.uint64(0x0101010101010101))
    flags[words:].fill(1)


def pays(backend: Backend, slots: Slots | None, rows: int) -> bool:
    """Whether so many rows, most of which bring new keys, are placed faster by region.

    Without `slots`, in a table that is still to be made.
    """
    spared, least = _ROW_NBYTES * rows, _LEAST_NBYTES[backend.name]
    # Slots that are to be filled first cost as much either way.
    return spared >= least and spared - (slots.nbytes if slots and slots.filled else 0) >= least


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
    """Make `fresh` 1 in one row of each key whose bit of `created` is set, which it is no longer.

    Or, if `marking`, set the bits of the keys in rows that are fresh.
    """
    value = None if values is None else values.dtype
    backend.run(
        region_args.region_claim(keys.dtype, value), region_args.REGION_CLAIM, len(keys),
        table=slots.storage, created=created, keys=keys, values=values, fresh=fresh,
        marking=int(marking),
    )  # fmt: skip


def slot_bits(backend: Backend, extent: Extent) -> Any:
    """A bit for each slot and for the two beside, all 0, also where nothing is written to them."""
    return backend.zeros((extent.slots + 2) // 32 + 1, np.uint32)
