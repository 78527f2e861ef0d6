"""Insert batches atomically: other readers see all rows or none."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.batch.bucket_order import SkewedBatchError
from dgpuhash.backend.launches import Step
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.seeds import seed_of_generation
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.commit import BrokenSlots, assigner
from dgpuhash.tables.open_addressing import cardinality
from dgpuhash.tables.open_addressing.bulk_build import RegionBatch
from dgpuhash.tables.open_addressing.extent import Extent
from dgpuhash.tables.open_addressing.slots import GrowableSlots, LoadFactor, Slots, rehash

# Makes, from the mask of an insert and the slots that hold its keys, the steps that run in one call
# with the change, before anyone sees new slots.
StepsOfInsert = Callable[[Any, Slots], Sequence[Step]]
# Tombstones are dropped by a rehash above this part (one in 8) of the slots, as no insert reuses
# one. With 400,000 ever-changing keys in 1.8 million slots a find took 1.2 cache lines, 3 when 0.24
# of the slots were tombstones, and 280 when 0.55 were.
_ERASED_PART = 8


# A bulk build by region costs 0.75 ms for each GB of the table, read and written, and some 0.4 ms,
# and saves about 40 ps a row: as much as 48 bytes of the table. On an H200 2**24, 2**25 and 2**27
# pairs of 4 + 4 bytes took 1.16, 1.67 and 4.9 instead of 1.07, 2.38 and 10.5 ms into a table of
# their size; 1.44, 2.32 and 7.5 instead of 1.14, 2.34 and 9.6 into one four times as large; 2.9,
# 5.1 and 19.5 instead of 1.2, 2.4 and 9.5 at sixteen times. With 8 + 8 bytes it was 1.5, 2.3 and
# 7.8 instead of 1.3, 2.7 and 11.7, at four times 2.2, 3.7 and 14.4 instead of 1.2, 2.5 and 10.0.
_ROW_NBYTES = 48
# On a CPU, where a block is one thread, sorting a batch takes as long as the build saves.
_LEAST_NBYTES = {"cuda": 2**29, "cpu": 2**63}


class BatchInserter:
    """Base of stores that insert batches in their slots or in larger ones.

    Parameters
    ----------
    backend : Backend
        Where the slots live.
    slots : Slots
        The initial slots, which are empty.
    max_load : float
        Load factor above which the table grows.
    """

    def __init__(self, backend: Backend, slots: Slots, max_load: float) -> None:
        self.backend = backend
        self._load = LoadFactor(max_load)
        # Replaced by new slots once these hold all keys, or by `BrokenSlots` while a change runs.
        self._slots: Any = slots

    @property
    def capacity(self) -> int:
        """Number of keys at which the table grows."""
        return self._load.capacity(self._slots.slots)

    @property
    def slots(self) -> Slots:
        """Current slots; a table that grows replaces them."""
        slots: Slots = self._slots
        return slots

    def _has_room(self, rows: int) -> bool:
        """Reserve slots for `rows` new keys; return whether they certainly fit."""
        slots = self._slots
        if slots.erased_bound > slots.slots // _ERASED_PART:
            slots = self._drop_tombstones(slots)
        if slots.taken_bound + rows > self.capacity:
            slots.taken_bound = slots.state().taken
            if slots.taken_bound + rows > self.capacity:
                return False
        slots.taken_bound += rows
        return True

    def _drop_tombstones(self, slots: Slots) -> Slots:
        """Drop tombstones if they are many and memory allows; return the slots."""
        slots.erased_bound = slots.state().erased
        if slots.erased_bound > slots.slots // _ERASED_PART:
            try:
                self._slots = rehash(slots, slots.slots)
            except OutOfMemoryError:
                slots.erased_bound = 0
        return self.slots

    def _insert(
        self, keys: Any, values: Any, *, told: bool, then: StepsOfInsert | None = None
    ) -> Any:
        """Insert absent keys; with `told`, return the rows that created keys."""
        if not self._has_room(len(keys)):
            return self._insert_unsure(words_of(keys), value_words(values), told=told, then=then)
        fresh = self._built_in_bulk(keys, values, told=told, then=then)
        if fresh is not None:
            return fresh
        slots = self._slots
        if then is None:
            return slots.insert(keys, values)
        fresh = self.backend.empty(len(keys), np.dtype(bool))
        self.backend.in_one_call([slots.inserting(keys, values, fresh), *then(fresh, slots)])
        return fresh

    def _bulk_pays(self, slots: Slots | None, rows: int) -> bool:
        """Return `bulk_pays`, and False for keys of 16 bytes."""
        word = self._slots.key.itemsize <= 8
        return word and bulk_pays(self.backend, slots, rows)

    def _built_in_bulk(
        self, keys: Any, values: Any, *, told: bool, then: StepsOfInsert | None = None
    ) -> Any:
        """Insert keys that fit by region; None if that does not pay."""
        slots = self._slots
        if self._bulk_pays(slots, len(keys)):
            keys, values = words_of(keys), value_words(values)
            if cardinality.all_new(self.backend, slots, keys):
                batch, generation = self._ordered(slots, slots.extent, keys, values, distinct=True)
                if batch is not None:
                    return self._bulk_build_in_place(batch, generation, told=told, then=then)
        return None

    def _insert_unsure(
        self,
        keys: Any,
        values: Any,
        *,
        told: bool,
        over: bool = False,
        then: StepsOfInsert | None = None,
    ) -> Any:
        """Insert a batch that may not fit in the current slots.

        Either the batch turns out to fit before any row is stored, or it is stored in new slots.
        Rows whose keys are stored already take no slot, so a batch of duplicates never grows the
        table beyond need. With `over`, the keys are distinct, and the values of stored keys are
        overwritten.
        """
        slots, rows = self._slots, len(keys)
        room = self.capacity - slots.state().taken
        if rows >= cardinality.LEAST_ROWS:
            new = cardinality.new_keys(self.backend, slots, keys)
            if slots.blank or new.most > room:
                return self._insert_into_new_slots(
                    keys, values, new, told=told, over=over, then=then
                )
            likely = new.all or (not told and 2 * new.most > rows)
            if likely and not over and self._bulk_pays(slots, rows):
                batch, generation = self._ordered(
                    slots, slots.extent, keys, values, distinct=new.all
                )
                if batch is not None:
                    return self._bulk_build_in_place(batch, generation, told=told, then=then)
        elif slots.blank and not over:
            # Room for as many keys as rows, of which too much is given back.
            new = cardinality.NewKeys(rows, all=False)
            return self._insert_into_new_slots(keys, values, new, told=told, over=over, then=then)
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
                return self._insert_into_new_slots(
                    keys, values, new, told=told, over=over, then=then
                )
            absent = absent[distinct]
        fresh = self.backend.zeros(rows, np.dtype(bool))
        keys, values = keys[absent], None if values is None else values[absent]
        if then is None:
            fresh[absent] = self._store_all(keys, values, len(absent))
        else:
            fresh[absent] = True
            self._store_all(keys, values, len(absent), then=functools.partial(then, fresh))
        return fresh

    def _store_all(
        self,
        keys: Any,
        values: Any,
        new: int,
        *,
        over: bool = False,
        then: Callable[[Slots], Sequence[Step]] | None = None,
    ) -> Any:
        """Store a batch of `new` absent keys in these slots or in larger ones.

        The other keys of the batch are stored already. `then` makes, from the slots, the steps that
        run in one call with the change.
        """
        slots = self._slots
        fresh = self.backend.zeros(len(keys), np.dtype(bool))
        if slots.state().taken + new <= self.capacity:
            slots.taken_bound += new
            steps = [slots.inserting(keys, values, fresh, over=over)]
            steps += () if then is None else then(slots)
        else:
            grown = GrowableSlots(slots, self._load)
            grown.enlarge(slots.state().occupied + new)
            grown.slots.taken_bound += new
            grown.slots.inserting(keys, values, fresh, over=over)()
            steps = [] if then is None else [*then(grown.slots)]
            steps.append(assigner(self, _slots=grown.slots))
        self.backend.in_one_call(steps)
        return fresh

    def _insert_into_new_slots(
        self,
        keys: Any,
        values: Any,
        new: cardinality.NewKeys,
        *,
        told: bool,
        over: bool,
        then: StepsOfInsert | None,
    ) -> Any:
        """Insert a batch into new slots, which replace the current ones afterwards.

        Filling a table that certainly has room is several times as fast as reserving slots one by
        one, and so is a bulk build by region. The bulk build pays where all keys are new, and where
        most are new and the caller does not ask which rows created keys: stored keys are skipped
        faster than they are sorted, and finding the rows that created keys takes one more lookup.
        """
        slots, rows = self._slots, len(keys)
        state, size, grows = slots.state(), slots.slots, False
        if state.taken + new.most > self.capacity:
            size, grows = self._load.slots_after(size, state.occupied + new.most), True
            if rows < cardinality.LEAST_ROWS:
                size = max(size, self._load.roomy_slots(new.most))
        side = None if slots.blank else rehash(slots, size)
        batch, generation = None, slots.generation
        if new.all or (not told and 2 * new.most > rows):
            there = side if side is not None else None if grows else slots
            extent = (
                Extent.of(self.slots.key, self.slots.value, size) if there is None else there.extent
            )
            if self._bulk_pays(there, rows):
                batch, generation = self._ordered(
                    side or slots, extent, keys, values, distinct=new.all
                )
        if side is None:
            # Allocated this late so that a GPU starts the first pass earlier.
            side = rehash(slots, size, filled=False) if grows else slots.lent()
            side.reseed(generation)
        grown = GrowableSlots(side, self._load)
        if batch is not None:
            fresh = batch.place(grown, state.occupied, told=told)
        else:
            fresh = grown.insert(keys, values)
            grown.trim(slots.slots)
        if over:
            grown.slots.replace(keys, values)
        return self._publish(grown.slots, fresh, then)

    def _publish(self, slots: Slots, fresh: Any, then: StepsOfInsert | None) -> Any:
        """Make private slots the table's slots; return `fresh`."""
        slots.fill()
        slots.taken_bound = slots.state().taken
        before = () if then is None else then(fresh, slots)
        self.backend.in_one_call([*before, assigner(self, _slots=slots)])
        return fresh

    def _ordered(
        self, slots: Slots, extent: Extent, keys: Any, values: Any, *, distinct: bool
    ) -> tuple[RegionBatch | None, int]:
        """Return the batch in bucket order, and the generation of its seed.

        The batch is None where it is better inserted unsorted. When `distinct` keys crowd a region
        of empty `slots`, the generation is the next one: the slots need another seed.
        """
        generation = slots.generation
        for again in (distinct and slots.blank, False):
            seed = seed_of_generation(slots.origin, generation)
            try:
                return RegionBatch.of(self.backend, extent, seed, keys, values), generation
            except SkewedBatchError:
                if not again:
                    break
                generation += 1
        return None, generation

    def _bulk_build_in_place(
        self, batch: RegionBatch, generation: int, *, told: bool, then: StepsOfInsert | None
    ) -> Any:
        """Insert a bucket-ordered batch in these slots, or in larger ones.

        This takes several kernels: slots with keys are hidden meanwhile, and an error undoes the
        insert.
        """
        slots = self._slots
        if slots.blank:
            grown = GrowableSlots(slots.lent(), self._load)
            grown.slots.reseed(generation)
            fresh = batch.place(grown, 0, told=told)
            return self._publish(grown.slots, fresh, then)
        grown = GrowableSlots(slots, self._load)
        try:
            self._slots = BrokenSlots(slots)
            fresh = batch.place(grown, slots.state().occupied, told=told)
            self._publish(grown.slots, fresh, then)
        except BaseException:
            if isinstance(self._slots, BrokenSlots):
                batch.undo(slots)
                self._slots = slots
            raise
        return fresh


def value_words(values: Any) -> Any:
    """Return values as unsigned words, or None for sets."""
    return None if values is None else words_of(values)


def bulk_pays(backend: Backend, slots: Slots | None, rows: int) -> bool:
    """Return whether a bulk build by region is faster for `rows` rows.

    Assumes that most rows bring new keys. `slots` is None for a table that is not allocated yet.
    """
    spared, least = _ROW_NBYTES * rows, _LEAST_NBYTES[backend.name]
    # Slots that must be filled first cost the same either way.
    return spared >= least and spared - (slots.nbytes if slots and slots.filled else 0) >= least
