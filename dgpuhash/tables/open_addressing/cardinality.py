"""Estimate the number of new keys in a batch before storing it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.seeds import seed_of_generation
from dgpuhash.tables.open_addressing.slots import Slots

_ROWS = 2**16
# A key with this many rows in the sample is heavy.
_HEAVY_ROWS = 16


@dataclass(frozen=True, slots=True)
class KeySample:
    """Sample of a batch's rows at equal steps.

    The sample is so small that keys which come eight times each in a large batch rarely repeat in
    it.
    """

    rows: int
    repeated: int
    """Rows whose key an earlier row has."""
    heavy: bool
    """Whether the sample has a heavy key."""

    @classmethod
    def of(cls, backend: Backend, bits: Any) -> Self:
        """Return a sample of key words.

        Examples
        --------
        >>> from dgpuhash import backend
        >>> import numpy as np
        >>> KeySample.of(backend.get("cpu"), np.arange(3, dtype=np.uint32))
        KeySample(rows=3, repeated=0, heavy=False)
        """
        # Odd steps: keys often repeat with a period that is a power of two.
        step = (len(bits) // _ROWS - 1) | 1 if len(bits) > _ROWS else 1
        chosen = backend.fetch(backend.xp.sort(bits[::step][:_ROWS]))()
        repeated = int(np.count_nonzero(chosen[1:] == chosen[:-1]))
        heavy = bool((chosen[_HEAVY_ROWS:] == chosen[:-_HEAVY_ROWS]).any())
        return cls(len(chosen), repeated, heavy)

    @property
    def unique(self) -> bool:
        """Whether no key repeats in the sample."""
        return self.repeated == 0

    @property
    def keys(self) -> float:
        """Estimated number of distinct keys, if all are equally frequent."""
        return self.rows**2 / (2 * self.repeated) if self.repeated else float("inf")


# Batches with fewer rows are not worth sampling.
LEAST_ROWS = 2**17
# Distinct keys in a sample of a batch without duplicates; at most twice as many.
_SAMPLED = 2**15
# Seed generations of the sampling hash and of the set of sampled keys. Tables use other hashes, so
# that a batch whose keys were chosen by a table's hash is sampled like any other.
_GENERATIONS = 2**32, 2**32 + 1
# The estimate exceeds this many standard deviations once in 30,000 batches.
_DEVIATIONS = 4
# Fewer sampled keys give no estimate.
_LEAST_FOUND = 32
# Segments of a batch of which three rows are sampled to find whether any key repeats. Where every
# key of 2**28 rows comes twice, 70 keys are expected twice in the sample.
_STRETCHES = 2**16
# Batches with at least this many rows are sampled; of smaller ones all rows are checked.
LEAST_SAMPLED_ROWS = 8 * _STRETCHES


@dataclass(frozen=True, slots=True)
class NewKeys:
    """Number of keys in a batch that are new to a table."""

    most: int
    """Upper bound, exceeded by one batch in 30,000; 0 where too few keys were sampled."""
    all: bool
    """Whether each row seems to have a new key that no other row has."""


def new_keys(backend: Backend, slots: Slots, keys: Any) -> NewKeys:
    """Return an estimate of the keys in `keys` that are new to `slots`.

    Unless a few sampled rows all seem to bring new keys, all rows are read and the distinct keys in
    one small range of hashes are counted. The share of the distinct keys that falls in this range
    does not depend on how often each key comes.
    """
    rows = len(keys)
    if all_new(backend, slots, keys):
        return NewKeys(rows, all=True)
    zeros = _zeros(rows)
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


def most_unseen(rows: int) -> int:
    """Return the most new keys of a batch for which `new_keys` finds too few to estimate."""
    return math.ceil((_LEAST_FOUND + _DEVIATIONS * math.sqrt(_LEAST_FOUND)) * 2 ** _zeros(rows))


def _zeros(rows: int) -> int:
    return max(rows.bit_length() - _SAMPLED.bit_length(), 1)


def all_new(backend: Backend, slots: Slots, keys: Any) -> bool:
    """Return whether all rows seem to have distinct new keys.

    A new key is one that is not stored in `slots`.
    """
    return bool(new_key_flags(backend, slots, keys).all())


def new_key_flags(backend: Backend, slots: Slots, keys: Any) -> Any:
    """Return flags of one row of each key that is new to `slots`.

    Checks a sample of a large batch and all rows of a small one. The flags are a device array, and
    the host does not wait for them.
    """
    if len(keys) >= LEAST_SAMPLED_ROWS:
        return DuplicateProbe().new_key_flags(backend, slots, keys)
    seen = Slots(backend, keys.dtype, None, slots=2 * len(keys), seed=_seeds(slots)[1])
    seen.clear()
    return _new(seen, slots, keys)


class DuplicateProbe:
    """Sampled rows of large batches, with a set that finds repeated keys.

    Both buffers are kept for the next batch, as allocating them takes the host as long as it takes
    a GPU to count a batch.
    """

    def __init__(self) -> None:
        self._rows: Any = None
        self._seen: Slots | None = None
        self._used = False

    def new_key_flags(self, backend: Backend, slots: Slots, keys: Any) -> Any:
        """Return the flags that `new_key_flags` returns, for a batch of any size."""
        if len(keys) < LEAST_SAMPLED_ROWS:
            return new_key_flags(backend, slots, keys)
        seen = self.ready(backend, slots)
        self._used = True
        backend.run(
            kernel_named("witnesses", keys.dtype), _STRETCHES,
            keys=keys, witnesses=self._rows, seed=_seeds(slots)[0], rows=len(keys),
        )  # fmt: skip
        return _new(seen, slots, self._rows)

    def ready(self, backend: Backend, slots: Slots) -> Slots:
        """Return the empty set for the next large batch.

        Calling this method ahead makes the next `new_key_flags` faster.
        """
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
    """Return the rows (int64) with absent keys."""
    xp = backend.xp
    return xp.arange(len(keys)) if slots.blank else xp.flatnonzero(~slots.contains(keys))


def distinct_rows(backend: Backend, slots: Slots, keys: Any, most: int) -> Any | None:
    """Return one row (int64) of each distinct key, or None for too many keys.

    Too many are `most` distinct keys or more, if the batch has more rows. The temporary set has
    another seed than `slots`.
    """
    most = min(most, len(keys))
    seen = Slots(backend, keys.dtype, None, slots=2 * most, seed=_seeds(slots)[1])
    seen.clear()
    if most == len(keys):
        return backend.xp.flatnonzero(seen.insert(keys, None))
    created, pending = seen.insert_limited(keys, None, most)
    return None if len(pending) else backend.xp.flatnonzero(created)


def _seeds(slots: Slots) -> tuple[int, int]:
    """Return the seeds of the sampling hash and of the set of sampled keys."""
    chosen, stored = (seed_of_generation(slots.seed, number) for number in _GENERATIONS)
    return chosen, stored


def _new(seen: Slots, slots: Slots, keys: Any) -> Any:
    """Return flags of one row of each key new to both `seen` and `slots`."""
    fresh = seen.insert(keys, None)
    return fresh if slots.blank else fresh > slots.contains(keys)
