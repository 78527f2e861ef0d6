"""A table of words that grows, and whose changes are seen whole or not at all."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.batch.bucket_order import Ranges
from dgpuhash.backend.launches import Step
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.commit import Broken, assigning
from dgpuhash.tables.open_addressing import bulk_build, cardinality
from dgpuhash.tables.open_addressing.bulk_stream import RegionIntake
from dgpuhash.tables.open_addressing.growing import Growing, Load, moved
from dgpuhash.tables.open_addressing.placing import Placing, Then
from dgpuhash.tables.open_addressing.slots import Slots

__all__ = ["Storage"]


class Storage(Placing):
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
        slots = Slots(backend, key, value, slots=Load(max_load).slots(capacity), seed=seed)
        slots.clear()
        super().__init__(backend, slots, max_load)
        self.witnesses = cardinality.Witnesses()
        """Of large batches whose newness is asked."""

    def __len__(self) -> int:
        return self._slots.state().occupied

    @property
    def broken(self) -> bool:
        """Whether a change has failed half-way."""
        return isinstance(self._slots, Broken)

    @property
    def reseeds(self) -> int:
        """How often the seed was changed since there was no key."""
        return self.slots.generation

    @property
    def value(self) -> np.dtype[Any] | None:
        """The words beside keys."""
        return self.slots.value

    def insert(self, keys: Any, values: Any, then: Then | None = None) -> Any:
        """Store the keys that are not there yet; true in the row that created each.

        Here and in all verbs keys and values may be of any dtype as wide as the words. Of what
        comes back `then` makes steps that are done together with the change.
        """
        return self._insert(keys, values, told=True, then=then)

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
        return self.slots.inserting(keys, values, over=True)

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
        if not slots.blank or not bulk_build.pays(self.backend, slots, rows):
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
        return cardinality.absent_rows(self.backend, self._slots, keys)

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
        if value == self.value and keys <= self.capacity:
            return self
        made = copy.copy(self)
        made._slots = self.slots.like(self._load.slots(keys), value)
        made._slots.forget()
        made.witnesses = cardinality.Witnesses()
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
        made._slots, made.witnesses = self._slots.copy(), cardinality.Witnesses()
        return made
