"""Growth of slots while a batch is stored, and the load factor."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

from dgpuhash.tables.open_addressing.slots import Slots

# Of tables of few keys, whose memory counts less than their time.
_ROOMY_LOAD = 0.6

_log = logging.getLogger("dgpuhash.tables")


@dataclass(frozen=True, slots=True)
class LoadFactor:
    """Load factor above which slots grow."""

    most: float

    def capacity(self, slots: int) -> int:
        """Return the number of keys that `slots` slots hold."""
        return max(1, int(slots * self.most))

    def slots(self, keys: int) -> int:
        """Return the number of slots that `keys` keys need."""
        return math.ceil(max(keys, 1) / self.most) + 1

    def roomy_slots(self, keys: int) -> int:
        """Return a number of slots with which `keys` keys, few ones, are stored and found fastest.

        On a CPU 100,000 pairs of 8 + 8 bytes took 2.5 ms to insert and 0.8 to find at load 0.6, and
        3.7 and 1.8 at load 0.9.
        """
        return math.ceil(max(keys, 1) / min(self.most, _ROOMY_LOAD)) + 1

    def slots_after(self, slots: int, keys: int) -> int:
        """Return the new number of slots for `keys` keys.

        The number stays the same when dropping tombstones makes enough room; otherwise it at least
        doubles.
        """
        capacity = self.capacity(slots)
        return slots if keys <= capacity * 3 // 4 else self.slots(max(2 * capacity, keys))


def rehashed(slots: Slots, number: int, *, filled: bool = True, seed: int | None = None) -> Slots:
    """Return at least `number` new slots with the same keys.

    A given `seed` replaces the old one. Without it, the seed changes when many keys have left the
    segments in which they begin. With `filled` False, slots without keys stay unwritten.
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


class GrowableSlots:
    """Private slots that grow when keys need more room.

    No other code sees these slots until they replace a table's slots.

    Parameters
    ----------
    slots : Slots
    load : Load
    """

    def __init__(self, slots: Slots, load: LoadFactor) -> None:
        self.slots: Slots = slots
        self._load = load

    @property
    def capacity(self) -> int:
        """Keys that fit before the slots grow."""
        return self._load.capacity(self.slots.slots)

    def enlarge(self, wanted: int) -> None:
        """Make room for `wanted` keys."""
        self.slots = rehashed(self.slots, self._load.slots_after(self.slots.slots, wanted))

    def trim(self, before: int) -> None:
        """Give back slots of which the keys need no half, in place of `before` slots."""
        keys = self.slots.state().occupied
        wanted = max(before, self._load.slots_after(before, keys), self._load.roomy_slots(keys))
        if 2 * wanted <= self.slots.slots:
            self.slots = rehashed(self.slots, wanted)

    def insert(self, keys: Any, values: Any) -> Any:
        """Store pairs; return a mask of the rows that created a key."""
        if self.slots.state().taken + len(keys) <= self.capacity:
            return self.slots.insert(keys, values)
        return self._insert_limited(keys, values)

    def _insert_limited(self, keys: Any, values: Any) -> Any:
        """Insert until the slots are full, grow, then insert the pending rows."""
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
        """Make room for the new keys expected among `pending` rows.

        Of the `settled` rows, `placed` brought new keys; the pending rows are assumed to be alike.
        """
        state = self.slots.state()
        live = state.occupied
        # Rows that race to create the same key can be refused although the table is not full.
        if live + state.erased < self.capacity // 2:
            return
        share = placed / settled if settled else 1.0
        self.enlarge(live + min(pending, max(1, math.ceil(share * pending))))
