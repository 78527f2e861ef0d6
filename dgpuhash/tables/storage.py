"""A table of words that grows: when to grow, by how much, and how to undo what failed."""

from __future__ import annotations

import copy
import logging
import math
from contextlib import suppress
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.region_order import CrowdedError, Ranges
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.seeds import seed_of_generation
from dgpuhash.tables import expectation, regions
from dgpuhash.tables.bits import words_of
from dgpuhash.tables.extent import Extent
from dgpuhash.tables.interrupts import uninterrupted
from dgpuhash.tables.region_intake import RegionIntake
from dgpuhash.tables.regions import RegionBatch
from dgpuhash.tables.slots import Slots

__all__ = ["Storage"]

_log = logging.getLogger("dgpuhash.tables")

_UNDO_ROWS = 1 << 20
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
        self._max_load, self._seed, self._generation = max_load, seed, 0
        self._slots = self._allocate(self._slots_for(capacity))
        # At least as many slots as are taken, known without waiting for the device.
        self._taken_bound = 0
        # At least as many as were erased since tombstones were counted, and these.
        self._erased_bound = 0
        self.witnesses = expectation.Witnesses()
        """Of large batches whose newness is asked."""

    def _slots_for(self, capacity: int) -> int:
        return math.ceil(max(capacity, 1) / self._max_load) + 1

    def _allocate(self, slots: int, *, filled: bool = True) -> Slots:
        seed = seed_of_generation(self._seed, self._generation)
        made = Slots(self.backend, self._key, self._value, slots=slots, seed=seed)
        if filled:
            made.clear()
        else:
            made.forget()
        return made

    def __len__(self) -> int:
        return self._slots.state().occupied

    @property
    def capacity(self) -> int:
        """Keys that fit before the table grows."""
        return max(1, int(self._slots.slots * self._max_load))

    @property
    def reseeds(self) -> int:
        """How often the seed was changed since there was no key."""
        return self._generation

    @property
    def value(self) -> np.dtype[Any] | None:
        """The words beside keys."""
        return self._value

    @property
    def slots(self) -> Slots:
        """The slots themselves; replaced when the table grows."""
        return self._slots

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
            self.replace(keys, values)
        else:
            self._upsert_growing(keys, values)

    def replace(self, keys: Any, values: Any) -> None:
        """Store the values of distinct keys that are in the table, or have room for sure."""
        self._slots.replace(keys, values)

    def undo(self, keys: Any, fresh: Any) -> None:
        """Take back the insert that created the keys in the rows `fresh`, in little memory."""
        for start in range(0, len(keys), _UNDO_ROWS):
            part = slice(start, start + _UNDO_ROWS)
            self._slots.erase(keys[part][fresh[part]])

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
        self._taken_bound += rows
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

    def erase(self, keys: Any) -> Any:
        """Remove keys; true in one row of each that was there."""
        self._erased_bound += len(keys)
        return self._slots.erase(keys)

    def items(self) -> tuple[Any, Any]:
        """All key words, and their value words (None for sets)."""
        return self._slots.items()

    def reserve(self, keys: int) -> None:
        """Make `capacity` at least `keys`."""
        if keys > self.capacity:
            self._rebuild(self._slots_for(keys))

    def rehash(self, seed: int) -> None:
        """Move all keys to where another seed wants them."""
        before = self._seed, self._generation
        try:
            self._seed, self._generation = seed, 0
            self._rebuild(self._slots.slots)
        except BaseException:
            self._seed, self._generation = before
            raise

    def settle(self, keys: Any, values: Any) -> None:
        """Store pairs of different keys, by ascending hash, in a table without keys.

        There is room for them.
        """
        self._slots.fill()
        self._slots.settle(keys, values)
        self._taken_bound = len(keys)

    def make_room(self, new: int) -> None:
        """Grow, if need be, until `new` further keys can be placed, and book their places."""
        if not self._has_room(new):
            self.enlarge(len(self) + new)
            self._taken_bound += new

    def emptied(self, value: np.dtype[Any], keys: int) -> Storage:
        """A table without keys that has room for `keys`, and words of `value` beside them.

        That is this one, which has no keys either, if it is so. What comes next stores keys.
        """
        if value == self._value and keys <= self.capacity:
            if self._slots.state().erased:
                self.clear()
            return self
        made = copy.copy(self)
        made._value = value
        made._slots = made._allocate(made._slots_for(keys), filled=False)
        made.witnesses = expectation.Witnesses()
        made._taken_bound = made._erased_bound = 0
        return made

    @uninterrupted
    def clear(self) -> None:
        """Forget every key; the capacity stays, and the first seed is used again."""
        self._slots.clear()
        self._reseed(0)
        self._taken_bound = self._erased_bound = 0

    def copy(self) -> Storage:
        """An independent table with the same content."""
        made = copy.copy(self)
        made._slots, made.witnesses = self._slots.copy(), expectation.Witnesses()
        return made

    def _has_room(self, rows: int) -> bool:
        """Whether `rows` new keys fit for sure; if so, they are booked."""
        if self._erased_bound > self._slots.slots // _ERASED_PART:
            self._sweep()
        if self._taken_bound + rows > self.capacity:
            state = self._slots.state()
            self._taken_bound = state.occupied + state.erased
            if self._taken_bound + rows > self.capacity:
                return False
        self._taken_bound += rows
        return True

    def _sweep(self) -> None:
        """Leave tombstones behind, if they are many and there is memory to do so."""
        slots, erased = self._slots.slots, self._slots.state().erased
        self._erased_bound = erased
        if erased > slots // _ERASED_PART:
            self._erased_bound = 0
            with suppress(OutOfMemoryError):
                self._rebuild(slots)

    def _insert(self, keys: Any, values: Any, *, told: bool) -> Any:
        """True in the row that created each key, if that is to be `told`."""
        if not self._has_room(len(keys)):
            return self._insert_growing(words_of(keys), _words(values), told=told)
        if regions.pays(self.backend, self._slots, len(keys)):
            keys, values = words_of(keys), _words(values)
            stored = self._slots.state().occupied
            if expectation.all_new(self.backend, self._slots, keys):
                batch = self._ordered(self._slots.extent, keys, values, distinct=True)
                if batch is not None:
                    return batch.place(self, stored, told=told)
        self._slots.fill()
        return self._slots.insert(keys, values)

    @uninterrupted
    def _upsert_growing(self, keys: Any, values: Any) -> None:
        self._insert_growing(words_of(keys), _words(values), told=False)
        self.replace(keys, values)

    @uninterrupted
    def _insert_growing(self, keys: Any, values: Any, *, told: bool) -> Any:
        """Insert, growing on the way; takes everything back when that fails.

        Rows whose keys are stored already take no place, so a batch of duplicates never grows
        the table beyond need.
        """
        try:
            return self._place(keys, values, told=told)
        finally:
            self._slots.fill()
            state = self._slots.state()
            self._taken_bound = state.occupied + state.erased

    def _place(self, keys: Any, values: Any, *, told: bool) -> Any:
        """Insert a batch that may not fit, after the table has grown for the keys to be expected.

        A table that certainly has room is filled several times as fast as one whose places are
        booked one by one, and so is one whose regions are filled on their own. That pays where all
        keys are new, and where most are and nobody asks which: stored keys are passed over faster
        than they are ordered, and to tell which rows were new takes one lookup more.
        """
        rows = len(keys)
        if rows < expectation.LEAST_ROWS:
            return self._place_limited(keys, values)
        new = expectation.new_keys(self.backend, self._slots, keys)
        state = self._slots.state()
        larger = 0
        if state.occupied + state.erased + new.most > self.capacity:
            larger = self._slots_after(state.occupied + new.most)
            if not self._slots.blank:
                self._rebuild(larger, filled=False)
                larger = 0
        batch = None
        if new.all or (not told and 2 * new.most > rows):
            extent = Extent.of(self._key, self._value, larger) if larger else self._slots.extent
            if regions.pays(self.backend, None if larger else self._slots, rows):
                batch = self._ordered(extent, keys, values, distinct=new.all)
        if larger:
            # Only now, so that a GPU does not wait for the first pass.
            self._rebuild(larger, filled=False)
        if batch is not None:
            return batch.place(self, state.occupied, told=told)
        self._slots.fill()
        if self._has_room(rows):
            return self._slots.insert(keys, values)
        return self._place_limited(keys, values)

    def _ordered(
        self, extent: Extent, keys: Any, values: Any, *, distinct: bool
    ) -> RegionBatch | None:
        """The batch for slots of this extent; None where it had better be inserted as it comes.

        Where `distinct` keys crowd a region, slots without keys get another seed.
        """
        for _ in range(2):
            try:
                return RegionBatch.of(self.backend, extent, self._slots.seed, keys, values)
            except CrowdedError:
                if not (distinct and self._slots.blank):
                    break
                self._reseed(self._generation + 1)
        return None

    def _reseed(self, generation: int) -> None:
        """Go on with the seed of a `generation`; there are no keys."""
        if generation != self._generation:
            self._generation = generation
            self._slots.reseed(seed_of_generation(self._seed, generation))
            _log_seed(self._slots)

    def _place_limited(self, keys: Any, values: Any) -> Any:
        """Insert until the table is full, grow, go on with the rows that found no place."""
        new, rows = self._slots.insert_limited(keys, values, self.capacity)
        fresh, tried = new, len(keys)
        try:
            while len(rows):
                self._grow(int(new.sum()), tried - len(rows), len(rows))
                tried = len(rows)
                new, pending = self._slots.insert_limited(
                    keys[rows], None if values is None else values[rows], self.capacity
                )
                fresh[rows] = new
                rows = rows[pending]
        except BaseException:
            self.undo(keys, fresh)
            raise
        return fresh

    def _grow(self, placed: int, settled: int, pending: int) -> None:
        """Make room for the new keys to be expected among `pending` rows.

        Of the `settled` rows, `placed` were new; the pending ones are taken to be alike.
        """
        state = self._slots.state()
        live = state.occupied
        # Rows that race for the same new key can be turned away from a table that is not full.
        if live + state.erased < self.capacity // 2:
            return
        share = placed / settled if settled else 1.0
        self.enlarge(live + min(pending, max(1, math.ceil(share * pending))))

    def enlarge(self, wanted: int) -> None:
        """Make room for `wanted` keys."""
        self._rebuild(self._slots_after(wanted))

    def _slots_after(self, wanted: int) -> int:
        """Slots that `wanted` keys get: as many where tombstones have to go, else twice as many."""
        if wanted <= self.capacity * 3 // 4:
            return self._slots.slots
        return self._slots_for(max(2 * self.capacity, wanted))

    @uninterrupted
    def _rebuild(self, slots: int, *, filled: bool = True) -> None:
        """Move the keys to new slots; the old ones stay in use when that fails.

        Slots that are not `filled` may be left without, where there are no keys. Where many keys
        have left the segments in which they begin, the new slots have another seed.
        """
        filled = filled or not self._slots.blank
        generation = self._generation
        try:
            self._generation += self._slots.crowded()
            moved = self._allocate(slots, filled=filled)
            self._slots.move_to(moved)
        except BaseException:
            self._generation = generation
            raise
        self._slots = moved
        if self._generation > generation:
            _log_seed(moved)
        self._taken_bound, self._erased_bound = len(self), 0


def _log_seed(slots: Slots) -> None:
    _log.info("%d slots have seed %d: keys stood close by that before", slots.slots, slots.seed)


def _words(values: Any) -> Any:
    return None if values is None else words_of(values)
