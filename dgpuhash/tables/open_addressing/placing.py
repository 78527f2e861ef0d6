"""Where the rows of a batch are stored, so that others see all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.batch.bucket_order import CrowdedError
from dgpuhash.backend.launches import Step
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.seeds import seed_of_generation
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.commit import Broken, assigning
from dgpuhash.tables.open_addressing import bulk_build, cardinality
from dgpuhash.tables.open_addressing.bulk_build import RegionBatch
from dgpuhash.tables.open_addressing.extent import Extent
from dgpuhash.tables.open_addressing.growing import Growing, Load, moved
from dgpuhash.tables.open_addressing.slots import Slots

__all__ = ["Placing", "Then", "words"]

# Of the answer to a change, makes the steps that are done together with it.
Then = Callable[[Any], Sequence[Step]]
# Tombstones are left behind when they are this part of the slots. No insert takes one: walks pass
# full buckets and fill others: with 400,000 of ever other keys in 1.8 million slots it took 1.2
# lines to find one, 3 when 0.24 of the slots were tombstones, 280 when 0.55 were.
_ERASED_PART = 8


class Placing:
    """The part of a storage that finds places for batches: in its slots, or in larger ones.

    Parameters
    ----------
    backend : Backend
        Where the slots live.
    slots : Slots
        The first ones, which are empty.
    max_load : float
        Share of the slots above which the table grows.
    """

    def __init__(self, backend: Backend, slots: Slots, max_load: float) -> None:
        self.backend = backend
        self._load = Load(max_load)
        # New ones come in their place when all keys are there; or what says that the table is
        # broken.
        self._slots: Any = slots

    @property
    def capacity(self) -> int:
        """Keys that fit before the table grows."""
        return self._load.capacity(self._slots.slots)

    @property
    def slots(self) -> Slots:
        """The slots themselves; replaced when the table grows."""
        slots: Slots = self._slots
        return slots

    def _has_room(self, rows: int) -> bool:
        """Whether `rows` new keys fit for sure; if so, they are booked."""
        slots = self._slots
        if slots.erased_bound > slots.slots // _ERASED_PART:
            slots = self._swept(slots)
        if slots.taken_bound + rows > self.capacity:
            slots.taken_bound = slots.state().taken
            if slots.taken_bound + rows > self.capacity:
                return False
        slots.taken_bound += rows
        return True

    def _swept(self, slots: Slots) -> Slots:
        """Leave tombstones behind, if they are many and there is memory to do so."""
        slots.erased_bound = slots.state().erased
        if slots.erased_bound > slots.slots // _ERASED_PART:
            try:
                self._slots = moved(slots, slots.slots)
            except OutOfMemoryError:
                slots.erased_bound = 0
        return self.slots

    def _insert(self, keys: Any, values: Any, *, told: bool, then: Then | None = None) -> Any:
        """True in the row that created each key, if that is to be `told`."""
        if not self._has_room(len(keys)):
            return self._insert_unsure(words_of(keys), words(values), told=told, then=then)
        slots = self._slots
        if bulk_build.pays(self.backend, slots, len(keys)):
            keys, values = words_of(keys), words(values)
            if cardinality.all_new(self.backend, slots, keys):
                batch, generation = self._ordered(slots, slots.extent, keys, values, distinct=True)
                if batch is not None:
                    return self._place_here(batch, generation, told=told, then=then)
        if then is None:
            return slots.insert(keys, values)
        fresh = self.backend.empty(len(keys), np.dtype(bool))
        self.backend.in_one_call([slots.inserting(keys, values, fresh), *then(fresh)])
        return fresh

    def _insert_unsure(
        self,
        keys: Any,
        values: Any,
        *,
        told: bool,
        over: bool = False,
        then: Then | None = None,
    ) -> Any:
        """Insert a batch that may not fit, perhaps `over` the values of distinct keys.

        Either it turns out to fit, before anything is stored, or it is stored in new slots. Rows
        whose keys are stored already take no place, so a batch of duplicates never grows the table
        beyond need.
        """
        slots, rows = self._slots, len(keys)
        room = self.capacity - slots.state().taken
        if rows >= cardinality.LEAST_ROWS:
            new = cardinality.new_keys(self.backend, slots, keys)
            if slots.blank or new.most > room:
                return self._insert_aside(keys, values, new, told=told, over=over, then=then)
            likely = new.all or (not told and 2 * new.most > rows)
            if likely and not over and bulk_build.pays(self.backend, slots, rows):
                batch, generation = self._ordered(
                    slots, slots.extent, keys, values, distinct=new.all
                )
                if batch is not None:
                    return self._place_here(batch, generation, told=told, then=then)
        absent = cardinality.absent_rows(self.backend, slots, keys)
        if over:
            self._store_all(keys, values, len(absent), over=True)
            return None
        if len(absent) > room or then is not None:
            few = rows < cardinality.LEAST_ROWS
            most = len(absent) if few else 2 * room + cardinality.LEAST_ROWS
            distinct = cardinality.distinct_rows(self.backend, slots, keys[absent], most)
            if distinct is None:
                new = cardinality.NewKeys(most, all=False)
                return self._insert_aside(keys, values, new, told=told, over=over, then=then)
            absent = absent[distinct]
        fresh = self.backend.zeros(rows, np.dtype(bool))
        keys, values = keys[absent], None if values is None else values[absent]
        if then is None:
            fresh[absent] = self._store_all(keys, values, len(absent))
        else:
            fresh[absent] = True
            self._store_all(keys, values, len(absent), then=then(fresh))
        return fresh

    def _store_all(
        self, keys: Any, values: Any, new: int, *, over: bool = False, then: Sequence[Step] = ()
    ) -> Any:
        """Store a batch of `new` keys and perhaps others in these slots, or in larger ones."""
        slots = self._slots
        fresh = self.backend.zeros(len(keys), np.dtype(bool))
        if slots.state().taken + new <= self.capacity:
            slots.taken_bound += new
            step = slots.inserting(keys, values, fresh, over=over)
        else:
            grown = Growing(slots, self._load)
            grown.enlarge(slots.state().occupied + new)
            grown.slots.taken_bound += new
            grown.slots.inserting(keys, values, fresh, over=over)()
            step = assigning(self, _slots=grown.slots)
        self.backend.in_one_call([step, *then])
        return fresh

    def _insert_aside(
        self,
        keys: Any,
        values: Any,
        new: cardinality.NewKeys,
        *,
        told: bool,
        over: bool,
        then: Then | None,
    ) -> Any:
        """Insert a batch into slots that take the place of these when all is stored.

        A table that certainly has room is filled several times as fast as one whose places are
        booked one by one, and so is one whose regions are filled on their own. That pays where all
        keys are new, and where most are and nobody asks which: stored keys are passed over faster
        than they are ordered, and to tell which rows were new takes one lookup more.
        """
        slots, rows = self._slots, len(keys)
        state, size, grows = slots.state(), slots.slots, False
        if state.taken + new.most > self.capacity:
            size, grows = self._load.slots_after(size, state.occupied + new.most), True
        side = None if slots.blank else moved(slots, size)
        batch, generation = None, slots.generation
        if new.all or (not told and 2 * new.most > rows):
            there = side if side is not None else None if grows else slots
            extent = (
                Extent.of(self.slots.key, self.slots.value, size) if there is None else there.extent
            )
            if bulk_build.pays(self.backend, there, rows):
                batch, generation = self._ordered(
                    side or slots, extent, keys, values, distinct=new.all
                )
        if side is None:
            # Only now, so that a GPU does not wait for the first pass.
            side = moved(slots, size, filled=False) if grows else slots.lent()
            side.reseed(generation)
        grown = Growing(side, self._load)
        if batch is not None:
            fresh = batch.place(grown, state.occupied, told=told)
        else:
            fresh = grown.insert(keys, values)
        if over:
            grown.slots.replace(keys, values)
        return self._publish(grown.slots, fresh, then)

    def _publish(self, slots: Slots, fresh: Any, then: Then | None) -> Any:
        """Let these slots, which nobody has seen, be the table; gives `fresh`."""
        slots.fill()
        slots.taken_bound = slots.state().taken
        after = () if then is None else then(fresh)
        self.backend.in_one_call([assigning(self, _slots=slots), *after])
        return fresh

    def _ordered(
        self, slots: Slots, extent: Extent, keys: Any, values: Any, *, distinct: bool
    ) -> tuple[RegionBatch | None, int]:
        """The batch in the order of slots of this extent, and the generation of their seed.

        None where it had better be inserted as it comes. Where `distinct` keys crowd a region,
        `slots` without keys are to get another seed.
        """
        generation = slots.generation
        for again in (distinct and slots.blank, False):
            seed = seed_of_generation(slots.origin, generation)
            try:
                return RegionBatch.of(self.backend, extent, seed, keys, values), generation
            except CrowdedError:
                if not again:
                    break
                generation += 1
        return None, generation

    def _place_here(
        self, batch: RegionBatch, generation: int, *, told: bool, then: Then | None
    ) -> Any:
        """Insert a batch in the order of these slots, or of larger ones where it does not fit.

        By several kernels: slots with keys stay out of sight meanwhile, and give back what was
        stored when there was an error.
        """
        slots = self._slots
        if slots.blank:
            grown = Growing(slots.lent(), self._load)
            grown.slots.reseed(generation)
            fresh = batch.place(grown, 0, told=told)
            return self._publish(grown.slots, fresh, then)
        grown = Growing(slots, self._load)
        try:
            self._slots = Broken(slots)
            fresh = batch.place(grown, slots.state().occupied, told=told)
            self._publish(grown.slots, fresh, then)
        except BaseException:
            if isinstance(self._slots, Broken):
                batch.undo(slots)
                self._slots = slots
            raise
        return fresh


def words(values: Any) -> Any:
    """Values as words, if there are any."""
    return None if values is None else words_of(values)
