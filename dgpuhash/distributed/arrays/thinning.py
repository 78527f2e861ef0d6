"""A rank's questions without those that need not travel: absent keys, and keys that come again."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.distributed.arrays.part import Part, Replica
from dgpuhash.distributed.arrays.sparing import Sparing
from dgpuhash.distributed.exchange.collective import Collective, Places
from dgpuhash.frames.keys import OWNER_SEED
from dgpuhash.tables.bloom import BloomFilter
from dgpuhash.tables.compacting import Groups
from dgpuhash.tables.found import found_rows
from dgpuhash.tables.lists import owners_of
from dgpuhash.tables.sampling import Sample

__all__ = ["Thinned", "gathered", "thinned"]

# Fewer rows of a rank are not sampled.
_LEAST_ROWS = 2**16
# So often must a sampled key come in a batch for its rows to be asked for once.
_LEAST_REPEATS = {"cpu": 2, "cuda": 8}
# A filter made without being asked for takes no more than this part of the memory that is free.
_MEMORY_SHARE = 1 / 8


@dataclass(frozen=True, slots=True)
class _Told:
    """What ranks tell each other before they decide."""

    name: str | None
    """Of the filter that the rank has."""
    new_name: str
    keys: int
    free_nbytes: int
    repeats: bool
    """Whether it will ask for each key once."""


def thinned(
    part: Part, collective: Collective, sparing: Sparing, keys: Sequence[Any], most_rows: int
) -> Thinned | None:
    """The questions of a rank that need to travel; None where all ranks shall ask all of theirs.

    Parameters
    ----------
    part : Part
        The rank's own.
    collective : Collective
    sparing : Sparing
        The same on all ranks.
    keys : sequence of array
        The words of the rank's keys, chunk by chunk.
    most_rows : int
        The most rows that a rank has.
    """
    backend = part.backend
    may_repeat = sparing.deduplicate is True or (
        sparing.deduplicate == "auto"
        and most_rows >= _LEAST_ROWS
        and _LEAST_REPEATS[backend.name] is not None
    )
    if collective.size == 1 or not (may_repeat or sparing.bloom_filter):
        return None
    name = None if part.replica is None else part.replica.name
    repeats = may_repeat and (sparing.deduplicate is True or _repeats(backend, keys))
    mine = _Told(name, uuid.uuid4().hex, len(part.store), backend.memory()[0], repeats)
    told = collective.gather(mine)
    if sparing.bloom_filter and {each.name for each in told} != {name}:
        part.replica = None
    if sparing.bloom_filter and part.replica is None:
        part.replica = _replica(part, collective, told, sparing)
    replica = part.replica if sparing.bloom_filter else None
    if replica is None and not any(each.repeats for each in told):
        return None
    bloom = None if replica is None else replica.filter
    return Thinned(backend, keys, bloom, deduplicate=repeats)


def _replica(
    part: Part, collective: Collective, told: Sequence[_Told], sparing: Sparing
) -> Replica | None:
    """A filter of all ranks' keys, unless none is worth it."""
    ranks, rank = collective.size, collective.rank
    held = BloomFilter.blocks_for(max(each.keys for each in told))
    words = held * BloomFilter.WORDS
    if sparing.bloom_filter == "auto" and (
        sparing.absent_rows < sum(each.keys for each in told)
        or 8 * words * ranks > _MEMORY_SHARE * min(each.free_nbytes for each in told)
    ):
        return None
    made = BloomFilter(part.backend, held * ranks, seed=OWNER_SEED)
    # A key's block is in the range of its owner, since both follow from the same hash.
    made.range(rank, ranks).add(part.store.items()[0])
    counts = np.full(ranks, words)
    counts[rank] = 0
    collective.start(
        [made.words], counts,
        starts=np.full(ranks, rank * words), to=Places([made.words], np.arange(ranks) * words),
    ).wait()  # fmt: skip
    return Replica(told[0].new_name, made)


class Thinned:
    """Keys to ask for, and how their answers become those of all rows.

    Parameters
    ----------
    backend : Backend
    keys : sequence of array
        The words of a rank's keys, chunk by chunk.
    bloom : BloomFilter or None
        Which says what keys are absent.
    deduplicate : bool

    Attributes
    ----------
    keys : array
        Those to ask for.
    absent, repeated : int
        Rows that were left out, as the filter let them not pass, and as another one has their key.
    """

    def __init__(
        self,
        backend: Backend,
        keys: Sequence[Any],
        bloom: BloomFilter | None,
        *,
        deduplicate: bool,
    ) -> None:
        self._backend = backend
        self._rows: Any = None
        self._codes: Any = None
        rows = sum(map(len, keys))
        if bloom is not None:
            self._rows, passed = _passed(backend, keys, bloom)
        else:
            passed = _joined(backend, keys)
        self.keys = passed
        if deduplicate:
            groups = Groups(backend, passed)
            self._codes, self.keys = groups.codes, passed[groups.first_rows]
        self.absent, self.repeated = rows - len(passed), len(passed) - len(self.keys)

    @property
    def nbytes(self) -> int:
        """Of what stays until the answers are there."""
        return sum(each.nbytes for each in (self.keys, self._rows, self._codes) if each is not None)

    def spread(self, answers: Sequence[Any], blank: list[Any]) -> list[Any]:
        """The answers to all rows.

        Parameters
        ----------
        answers : sequence of array
            To `keys`.
        blank : list of array
            The answers to all rows, were all keys absent; overwritten.
        """
        if self._codes is not None:
            answers = [column[self._codes] for column in answers]
        if self._rows is None:
            return list(answers)
        for column, place in zip(answers, blank, strict=True):
            place[self._rows] = column
        return blank

    def spread_lists(self, counts: Any, values: Any, blank: Any) -> tuple[Any, Any]:
        """As `spread`, of the lengths of lists and their values."""
        if self._codes is not None:
            starts = self._backend.xp.cumsum(counts) - counts
            counts, starts = counts[self._codes], starts[self._codes]
            values = gathered(self._backend, counts, starts, values)
        if self._rows is None:
            return counts, values
        blank[self._rows] = counts
        return blank, values


def gathered(backend: Backend, counts: Any, starts: Any, values: Any) -> Any:
    """The values of lists that begin at `starts`, one list after the other."""
    xp = backend.xp
    filled = xp.flatnonzero(counts)
    offsets = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts[filled])])
    total = int(offsets[-1])
    owners = owners_of(backend, offsets, total)
    shifts = starts[filled] - offsets[:-1]
    return values[xp.arange(total) + shifts[owners]]


def _passed(backend: Backend, keys: Sequence[Any], bloom: BloomFilter) -> tuple[Any, Any]:
    """The numbers of the rows that pass, and their keys."""
    rows, passed, first = [], [], 0
    for chunk in keys:
        chosen, words = found_rows(backend, bloom.test(chunk), chunk)
        rows.append(chosen + first if first else chosen)
        passed.append(words)
        first += len(chunk)
    return _joined(backend, rows), _joined(backend, passed)


def _joined(backend: Backend, arrays: Sequence[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else backend.xp.concatenate(arrays)


def _repeats(backend: Backend, keys: Sequence[Any]) -> bool:
    """Whether keys seem to come so often that it pays to look for them."""
    rows = sum(map(len, keys))
    if rows < _LEAST_ROWS:
        return False
    # Odd steps, since keys often repeat after a power of two.
    step = rows // _LEAST_ROWS | 1
    sample = Sample.of(backend, _joined(backend, [chunk[::step] for chunk in keys]))
    return sample.keys * _LEAST_REPEATS[backend.name] <= rows
