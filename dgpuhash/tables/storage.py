"""A table of words that grows: where a batch is stored, so that others see all of it or nothing."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.launches import Step
from dgpuhash.backend.region_order import CrowdedError, Ranges
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.seeds import seed_of_generation
from dgpuhash.tables import expectation, regions
from dgpuhash.tables.bits import words_of
from dgpuhash.tables.commit import Broken, assigning
from dgpuhash.tables.extent import Extent
from dgpuhash.tables.growing import Growing, Load, moved
from dgpuhash.tables.region_intake import RegionIntake
from dgpuhash.tables.regions import RegionBatch
from dgpuhash.tables.slots import Slots

__all__ = ["Storage"]

# Tombstones are left behind when they are this part of the slots. No insert takes one: walks pass
# full buckets and fill others: with 400,000 of ever other keys in 1.8 million slots it took 1.2
# lines to find one, 3 when 0.24 of the slots were tombstones, 280 when 0.55 were.
_ERASED_PART = 8


class Storage:
    """Key words, and value words for maps, on one device.

    Parameters
    ----------
    backend : Backend
        Where the slots live.
    key, value : dtype
        uint32 or uint64; `value` is None for sets.
    max_load : float
        Share of the slots above which the table grows.
    seed : int
        Seed of the hash function; others follow from it where keys turn out to be close together
        by it.
    capacity : int
        Keys that fit at first.
    """

    def __init__(
        self,
        backend: Backend,
        key: np.dtype[Any],
        value: np.dtype[Any] | None,
        *,
        max_load: float = 0.9,
        seed: int,
        capacity: int = 0,
    ) -> None:
        self.backend = backend
        self._key, self._value = key, value
        self._load = Load(max_load)
        # New ones come in their place when all keys are there; or what says that the table is
        # broken.
        self._slots: Any = Slots(backend, key, value, slots=self._load.slots(capacity), seed=seed)
        self._slots.clear()
        self.witnesses = expectation.Witnesses()
        """Of large batches whose newness is asked."""

    def __len__(self) -> int:
        return self._slots.state().occupied

    @property
    def capacity(self) -> int:
        """Keys that fit before the table grows."""
        return self._load.capacity(self._slots.slots)

    @property
    def reseeds(self) -> int:
        """How often the seed was changed since there was no key."""
        return self.slots.generation

    @property
    def value(self) -> np.dtype[Any] | None:
        """The words beside keys."""
        return self._value

    @property
    def slots(self) -> Slots:
        """The slots themselves; replaced when the table grows."""
        slots: Slots = self._slots
        return slots

    def insert(self, keys: Any, values: Any) -> Any:
        """Store the keys that are not there yet; true in the row that created each.

        Here and in all verbs keys and values may be of any dtype as wide as the words.
        """
        return self._insert(keys, values, told=True)

    def add(self, keys: Any, values: Any) -> None:
        """As `insert`, for those who need not know which rows created keys: it may cost less."""
        self._insert(keys, values, told=False)

    def upsert(self, keys: Any, values: Any) -> None:
        """Store pairs whose keys are distinct, over those that are there."""
        if self._has_room(len(keys)):
            self._slots.replace(keys, values)
        else:
            self._insert_unsure(words_of(keys), words_of(values), told=False, over=True)

    def replacing(self, keys: Any, values: Any) -> Step:
        """The step of a `commit` that stores pairs over those that are there.

        Of distinct keys that are in the table, or have room for sure.
        """
        return self.slots.replacing(keys, values)

    def commit(self, *steps: Step) -> None:
        """Do what belongs together in one call, launches on these slots and assignments.

        None needs memory, and where the first fails nothing was done. If another one fails all
        verbs raise TableBroken from then on.
        """
        first, *others = steps
        slots = self._slots
        self.backend.in_one_call(
            [first, assigning(self, _slots=Broken(slots)), *others, assigning(self, _slots=slots)]
        )

    def ranges(self, rows: int, owners: int) -> Ranges | None:
        """How batches of so many rows come to this and the other `owners`' tables range by range.

        None where this table has keys, or placing such a batch by region does not pay.
        """
        slots = self._slots
        if not slots.blank or not regions.pays(self.backend, slots, rows):
            return None
        return Ranges.of(
            self.backend, buckets=slots.buckets, seed=slots.seed, owners=owners,
            shift=self.backend.region_shift,
        )  # fmt: skip

    def intake(self, ranges: Ranges, rows: int) -> RegionIntake:
        """Begin to store at most `rows`, for which there is room, range by range."""
        self._slots.taken_bound += rows
        return RegionIntake(self.backend, self._slots, ranges)

    def find(
        self, keys: Any, default: int = 0, dtype: np.dtype[Any] | None = None
    ) -> tuple[Any, Any]:
        """The value words (None for sets) of keys, `default` where absent, and which were found.

        The words come as `dtype`, which is as wide, where it is given.
        """
        return self._slots.find(keys, default, dtype)

    def find_to(self, keys: Any, values: Any, found: Any, default: int) -> None:
        """As `find`, written to arrays of words as wide, and of bytes."""
        self._slots.find_to(keys, values, found, default)

    def contains(self, keys: Any) -> Any:
        """Which keys are stored."""
        return self._slots.contains(keys)

    def absent(self, keys: Any) -> Any:
        """The rows (int64) whose keys are not stored."""
        return expectation.absent_rows(self.backend, self._slots, keys)

    def erase(self, keys: Any) -> Any:
        """Remove keys; true in one row of each that was there."""
        return self._slots.erase(keys)

    def items(self) -> tuple[Any, Any]:
        """All key words, and their value words (None for sets)."""
        return self._slots.items()

    def reserve(self, keys: int) -> None:
        """Make `capacity` at least `keys`."""
        if keys > self.capacity:
            self._slots = moved(self._slots, self._load.slots(keys))

    def rehash(self, seed: int) -> None:
        """Move all keys to where another seed wants them."""
        self._slots = moved(self._slots, self._slots.slots, seed=seed)

    def settle(self, keys: Any, values: Any) -> None:
        """Store pairs of different keys, by ascending hash, in a table without keys.

        There is room for them.
        """
        self._slots.taken_bound = len(keys)
        self._slots.settle(keys, values)

    def make_room(self, new: int) -> None:
        """Grow, if need be, until `new` further keys can be placed, and book their places."""
        if not self._has_room(new):
            grown = Growing(self._slots, self._load)
            grown.enlarge(len(self) + new)
            grown.slots.taken_bound += new
            self._slots = grown.slots

    def emptied(self, value: np.dtype[Any], keys: int) -> Storage:
        """A table without keys that has room for `keys`, and words of `value` beside them.

        That is this one, which has no keys either, if it is so. What comes next stores keys.
        """
        if value == self._value and keys <= self.capacity:
            return self
        made = copy.copy(self)
        made._value = value
        made._slots = self.slots.like(self._load.slots(keys), value)
        made._slots.forget()
        made.witnesses = expectation.Witnesses()
        return made

    def lent(self) -> Storage:
        """A table without keys in the memory of this one, which has none and stays in use.

        What is done to the other can be thrown away at any time.
        """
        if not self._slots.blank:
            self._slots = self._slots.emptied()
        made = copy.copy(self)
        made._slots = self._slots.lent()
        return made

    def cleared(self) -> Storage:
        """A table without keys in the memory of this one; whoever keeps it drops this.

        The first seed is used again.
        """
        made = copy.copy(self)
        made._slots = self._slots.emptied()
        return made

    def copy(self) -> Storage:
        """An independent table with the same content."""
        made = copy.copy(self)
        made._slots, made.witnesses = self._slots.copy(), expectation.Witnesses()
        return made

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

    def _insert(self, keys: Any, values: Any, *, told: bool) -> Any:
        """True in the row that created each key, if that is to be `told`."""
        if not self._has_room(len(keys)):
            return self._insert_unsure(words_of(keys), _words(values), told=told)
        slots = self._slots
        if regions.pays(self.backend, slots, len(keys)):
            keys, values = words_of(keys), _words(values)
            if expectation.all_new(self.backend, slots, keys):
                batch, generation = self._ordered(slots, slots.extent, keys, values, distinct=True)
                if batch is not None:
                    return self._place_here(batch, generation, told=told)
        return slots.insert(keys, values)

    def _insert_unsure(self, keys: Any, values: Any, *, told: bool, over: bool = False) -> Any:
        """Insert a batch that may not fit, perhaps `over` the values of distinct keys.

        Either it turns out to fit, before anything is stored, or it is stored in new slots. Rows
        whose keys are stored already take no place, so a batch of duplicates never grows the table
        beyond need.
        """
        slots, rows = self._slots, len(keys)
        room = self.capacity - slots.state().taken
        if rows >= expectation.LEAST_ROWS:
            new = expectation.new_keys(self.backend, slots, keys)
            if slots.blank or new.most > room:
                return self._insert_aside(keys, values, new, told=told, over=over)
            likely = new.all or (not told and 2 * new.most > rows)
            if likely and not over and regions.pays(self.backend, slots, rows):
                batch, generation = self._ordered(
                    slots, slots.extent, keys, values, distinct=new.all
                )
                if batch is not None:
                    return self._place_here(batch, generation, told=told)
        absent = expectation.absent_rows(self.backend, slots, keys)
        if len(absent) > room and not over:
            few = rows < expectation.LEAST_ROWS
            most = len(absent) if few else 2 * room + expectation.LEAST_ROWS
            distinct = expectation.distinct_rows(self.backend, slots, keys[absent], most)
            if distinct is None:
                new = expectation.NewKeys(most, all=False)
                return self._insert_aside(keys, values, new, told=told, over=over)
            absent = absent[distinct]
        if not over:
            fresh = self.backend.zeros(rows, np.dtype(bool))
            keys, values = keys[absent], None if values is None else values[absent]
        store = slots.replace if over else slots.insert
        if len(absent) <= room:
            slots.taken_bound += len(absent)
            stored = store(keys, values)
        else:
            grown = Growing(slots, self._load)
            grown.enlarge(slots.state().occupied + len(absent))
            stored = (grown.slots.replace if over else grown.slots.insert)(keys, values)
            self._publish(grown.slots)
        if over:
            return None
        fresh[absent] = stored
        return fresh

    def _insert_aside(
        self, keys: Any, values: Any, new: expectation.NewKeys, *, told: bool, over: bool
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
            extent = Extent.of(self._key, self._value, size) if there is None else there.extent
            if regions.pays(self.backend, there, rows):
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
        self._publish(grown.slots)
        return fresh

    def _publish(self, slots: Slots) -> None:
        """Let these slots, which nobody has seen, be the table."""
        slots.fill()
        slots.taken_bound = slots.state().taken
        self._slots = slots

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

    def _place_here(self, batch: RegionBatch, generation: int, *, told: bool) -> Any:
        """Insert a batch in the order of these slots, or of larger ones where it does not fit.

        By several kernels: slots with keys stay out of sight meanwhile, and give back what was
        stored when there was an error.
        """
        slots = self._slots
        grown = Growing(slots.lent() if slots.blank else slots, self._load)
        if slots.blank:
            grown.slots.reseed(generation)
            fresh = batch.place(grown, 0, told=told)
            self._publish(grown.slots)
            return fresh
        try:
            self._slots = Broken(slots)
            fresh = batch.place(grown, slots.state().occupied, told=told)
            self._publish(grown.slots)
        except BaseException:
            batch.undo(slots)
            self._slots = slots
            raise
        return fresh


def _words(values: Any) -> Any:
    return None if values is None else words_of(values)
