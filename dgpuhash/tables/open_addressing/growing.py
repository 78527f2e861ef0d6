"""Slots that grow while a batch is stored, and how large they become."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

from dgpuhash.tables.open_addressing.slots import Slots

__all__ = ["Growing", "Load", "moved"]

_log = logging.getLogger("dgpuhash.tables")


@dataclass(frozen=True, slots=True)
class Load:
    """How full slots may be."""

    most: float

    def capacity(self, slots: int) -> int:
        """Keys that so many slots take."""
        return max(1, int(slots * self.most))

    def slots(self, keys: int) -> int:
        """Slots that so many keys need."""
        return math.ceil(max(keys, 1) / self.most) + 1

    def slots_after(self, slots: int, keys: int) -> int:
        """What `slots` become for `keys`: as many where tombstones have to go, or twice as many."""
        capacity = self.capacity(slots)
        return slots if keys <= capacity * 3 // 4 else self.slots(max(2 * capacity, keys))


def moved(slots: Slots, number: int, *, filled: bool = True, seed: int | None = None) -> Slots:
    """At least `number` new slots with the same keys, by another `seed` if one is given.

    Those without keys may be left not `filled`. Where many keys have left the segments in which
    they begin, the new slots have another seed.
    """
    made = slots.like(number)
    if seed is not None:
        made.origin = seed
        made.reseed(0)
    elif slots.extent.crowded(slots.state()):
        made.reseed(slots.generation + 1)
        _log.info("%d slots have seed %d: keys stood close by that before", made.slots, made.seed)
    if filled or not slots.blank:
        made.clear()
        slots.move_to(made)
        made.taken_bound = slots.state().occupied
    else:
        made.forget()
    return made


class Growing:
    """Slots that nobody else sees, and larger ones in their place when keys need them.

    Parameters
    ----------
    slots : Slots
    load : Load
    """

    def __init__(self, slots: Slots, load: Load) -> None:
        self.slots, self._load = slots, load

    @property
    def capacity(self) -> int:
        """Keys that fit before they grow."""
        return self._load.capacity(self.slots.slots)

    def enlarge(self, wanted: int) -> None:
        """Make room for `wanted` keys."""
        self.slots = moved(self.slots, self._load.slots_after(self.slots.slots, wanted))

    def insert(self, keys: Any, values: Any) -> Any:
        """Store pairs; true in the row that created each key."""
        if self.slots.state().taken + len(keys) <= self.capacity:
            return self.slots.insert(keys, values)
        return self._insert_limited(keys, values)

    def _insert_limited(self, keys: Any, values: Any) -> Any:
        """Insert until the slots are full, grow, go on with the rows that found no place."""
        new, rows = self.slots.insert_limited(keys, values, self.capacity)
        fresh, tried = new, len(keys)
        while len(rows):
            self._grow(int(new.sum()), tried - len(rows), len(rows))
            tried = len(rows)
            new, pending = self.slots.insert_limited(
                keys[rows], None if values is None else values[rows], self.capacity
            )
            fresh[rows] = new
            rows = rows[pending]
        return fresh

    def _grow(self, placed: int, settled: int, pending: int) -> None:
        """Make room for the new keys to be expected among `pending` rows.

        Of the `settled` rows, `placed` were new; the pending ones are taken to be alike.
        """
        state = self.slots.state()
        live = state.occupied
        # Rows that race for the same new key can be turned away from a table that is not full.
        if live + state.erased < self.capacity // 2:
            return
        share = placed / settled if settled else 1.0
        self.enlarge(live + min(pending, max(1, math.ceil(share * pending))))
