"""How many keys of a batch are new to a table, before any is stored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.structs import region
from dgpuhash.seeds import seed_of_generation
from dgpuhash.tables.open_addressing.slots import Slots

__all__ = [
    "LEAST_ROWS",
    "WITNESSED_ROWS",
    "NewKeys",
    "Sample",
    "Witnesses",
    "absent_rows",
    "all_new",
    "distinct_rows",
    "new_keys",
    "newness",
]

_ROWS = 2**16
# Keys that come so often among the rows are heavy.
_OFTEN = 16


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of a batch in equal steps.

    So few are taken that keys which come eight times each in a large batch hardly ever meet.
    """

    rows: int
    repeated: int
    """Rows whose key another row before had."""
    heavy: bool
    """Whether a key came often."""

    @classmethod
    def of(cls, backend: Backend, bits: Any) -> Self:
        """A sample of key words.

        Examples
        --------
        >>> from dgpuhash import backend
        >>> import numpy as np
        >>> Sample.of(backend.get("cpu"), np.arange(3, dtype=np.uint32))
        Sample(rows=3, repeated=0, heavy=False)
        """
        # Odd steps, since keys often repeat after a power of two.
        step = (len(bits) // _ROWS - 1) | 1 if len(bits) > _ROWS else 1
        chosen = backend.fetch(backend.xp.sort(bits[::step][:_ROWS]))()
        repeated = int(np.count_nonzero(chosen[1:] == chosen[:-1]))
        heavy = bool((chosen[_OFTEN:] == chosen[:-_OFTEN]).any())
        return cls(len(chosen), repeated, heavy)

    @property
    def unique(self) -> bool:
        """Whether no key came twice."""
        return self.repeated == 0

    @property
    def keys(self) -> float:
        """An estimate of the batch's keys, were they all as frequent."""
        return self.rows**2 / (2 * self.repeated) if self.repeated else float("inf")


# Of fewer rows there is no sample to be had that is worth it.
LEAST_ROWS = 2**17
# Distinct keys that a sample of a batch without duplicates has, or up to twice as many.
_SAMPLED = 2**15
# Of samples and of the slots that hold them: other hashes than those of the tables, so that batches
# that were chosen by one of these are sampled alike.
_GENERATIONS = 2**32, 2**32 + 1
# The sample errs by its standard deviation times this once in 30,000 batches.
_DEVIATIONS = 4
# Fewer sampled keys tell nothing.
_LEAST_FOUND = 32
# Stretches of a batch of which three rows are taken when the question is whether any key repeats.
# Where every key of 2**28 rows comes twice, 70 of theirs are to be expected twice.
_STRETCHES = 2**16
# Of batches of as many rows or more some are looked at, of others all.
WITNESSED_ROWS = 8 * _STRETCHES


@dataclass(frozen=True, slots=True)
class NewKeys:
    """How many keys a batch brings that a table does not hold."""

    most: int
    """No batch brings more, but for one in 30,000; 0 where too few were sampled to tell."""
    all: bool
    """Every row seems to bring one, that no other row has."""


def new_keys(backend: Backend, slots: Slots, keys: Any) -> NewKeys:
    """What `keys` will bring to `slots`.

    Where a few rows do not seem to be all new, all rows are read, and the distinct keys of one
    small range of hashes counted: which part of all distinct keys falls there does not depend on
    how often each comes.
    """
    rows = len(keys)
    if all_new(backend, slots, keys):
        return NewKeys(rows, all=True)
    zeros = max(rows.bit_length() - _SAMPLED.bit_length(), 1)
    chosen, stored = _seeds(slots)
    sample = Slots(backend, keys.dtype, None, slots=4 * _SAMPLED, seed=stored)
    sample.clear()
    found, asked = sample.sample(keys, seed=chosen, zeros=zeros, limit=3 * _SAMPLED)
    if not slots.blank:
        found -= int(slots.contains(sample.items()[0]).sum())
    if found < _LEAST_FOUND:
        return NewKeys(0, all=False)
    most = math.ceil((found + _DEVIATIONS * math.sqrt(found)) * 2**zeros)
    return NewKeys(min(rows, most), all=found == asked)


def all_new(backend: Backend, slots: Slots, keys: Any) -> bool:
    """Whether every row seems to bring a key that neither `slots` nor another row has."""
    return bool(newness(backend, slots, keys).all())


def newness(backend: Backend, slots: Slots, keys: Any) -> Any:
    """Of some rows, or of all, which bring a key that neither `slots` nor one of them has.

    An array of the device, for which nobody waits.
    """
    if len(keys) >= WITNESSED_ROWS:
        return Witnesses().newness(backend, slots, keys)
    seen = Slots(backend, keys.dtype, None, slots=2 * len(keys), seed=_seeds(slots)[1])
    seen.clear()
    return _new(seen, slots, keys)


class Witnesses:
    """Some rows of large batches, and slots to see whether a key of theirs repeats.

    Both are kept for the next batch, as making them takes the host as long as it takes a GPU to
    count a batch.
    """

    def __init__(self) -> None:
        self._rows: Any = None
        self._seen: Slots | None = None
        self._used = False

    def newness(self, backend: Backend, slots: Slots, keys: Any) -> Any:
        """As `newness`, of a batch of any size."""
        if len(keys) < WITNESSED_ROWS:
            return newness(backend, slots, keys)
        seen = self.ready(backend, slots)
        self._used = True
        backend.run(
            region.witnesses(keys.dtype), region.WITNESSES, _STRETCHES,
            keys=keys, witnesses=self._rows, seed=_seeds(slots)[0], rows=len(keys),
        )  # fmt: skip
        return _new(seen, slots, self._rows)

    def ready(self, backend: Backend, slots: Slots) -> Slots:
        """Make ready for the next large batch, which takes less time then."""
        if self._seen is None:
            self._rows = backend.empty(3 * _STRETCHES, slots.key)
            rows, stored = len(self._rows), _seeds(slots)[1]
            self._seen = Slots(backend, slots.key, None, slots=2 * rows, seed=stored)
            self._used = True
        if self._used:
            self._seen.clear()
        self._used = False
        return self._seen


def absent_rows(backend: Backend, slots: Slots, keys: Any) -> Any:
    """The rows (int64) whose keys are not stored."""
    xp = backend.xp
    return xp.arange(len(keys)) if slots.blank else xp.flatnonzero(~slots.contains(keys))


def distinct_rows(backend: Backend, slots: Slots, keys: Any, most: int) -> Any | None:
    """One row (int64) of each of some keys, None where there are `most` of them or more.

    The other slots that this takes have another seed than `slots`.
    """
    most = min(most, len(keys))
    seen = Slots(backend, keys.dtype, None, slots=2 * most, seed=_seeds(slots)[1])
    seen.clear()
    if most == len(keys):
        return backend.xp.flatnonzero(seen.insert(keys, None))
    created, pending = seen.insert_limited(keys, None, most)
    return None if len(pending) else backend.xp.flatnonzero(created)


def _seeds(slots: Slots) -> tuple[int, int]:
    """Of the hash that chooses a sample, and of the slots that hold it."""
    chosen, stored = (seed_of_generation(slots.seed, number) for number in _GENERATIONS)
    return chosen, stored


def _new(seen: Slots, slots: Slots, keys: Any) -> Any:
    fresh = seen.insert(keys, None)
    return fresh if slots.blank else fresh > slots.contains(keys)
