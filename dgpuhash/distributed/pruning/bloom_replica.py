"""A Bloom filter of the keys of all parts, of which each rank of a group has a copy."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.distributed.collective.base import Collective, Places
from dgpuhash.distributed.pruning.policy import Sparing
from dgpuhash.tables.bloom import BloomFilter

__all__ = ["MEMORY_SHARE", "Replica", "Standing"]

# A filter made without being asked for takes no more than this part of the memory that is free.
MEMORY_SHARE = 1 / 8


@dataclass(frozen=True, slots=True)
class Standing:
    """What a rank tells the others of its part, before they decide together.

    Attributes
    ----------
    name : str or None
        Of the replica that it has.
    new_name : str
        For one that is made now.
    keys : int
        About as many as it owns.
    free_nbytes : int
        0 with a replica: a GPU's driver takes its time to tell.
    """

    name: str | None
    new_name: str
    keys: int
    free_nbytes: int

    @classmethod
    def of(cls, replica: Replica | None, keys: int, backend: Backend) -> Self:
        """With a replica, or without."""
        new_name = uuid.uuid4().hex
        if replica is not None:
            return cls(replica.name, new_name, keys, 0)
        return cls(None, new_name, keys, backend.memory()[0])


@dataclass(frozen=True, slots=True)
class Replica:
    """A rank's copy of the filter.

    Attributes
    ----------
    name : str
        All ranks' copies of a filter have one name.
    filter : BloomFilter
    """

    name: str
    filter: BloomFilter

    @classmethod
    def agreed(
        cls,
        mine: Replica | None,
        told: Sequence[Standing],
        sparing: Sparing,
        collective: Collective,
        backend: Backend,
        words: Callable[[], Any],
        owner_seed: int,
    ) -> Replica | None:
        """The replica that all ranks have, or make together; None where they shall have none.

        Parameters
        ----------
        mine : Replica or None
            What this rank has.
        told : sequence of Standing
            Of all ranks.
        sparing : Sparing
            With its switch on ``"auto"`` a filter is made as soon as it could have left out as many
            rows as there are keys, where memory is free.
        collective : Collective
        backend : Backend
        words : callable
            Gives the words of the keys that this rank owns.
        owner_seed : int
            Of the hash that chooses keys' owners, the same on all ranks.
        """
        if mine is not None and {each.name for each in told} == {mine.name}:
            return mine
        ranks, rank = collective.size, collective.rank
        held = BloomFilter.blocks_for(max(each.keys for each in told))
        nbytes = ranks * held * BloomFilter.BLOCK_NBYTES
        pays = sparing.absent_rows >= sum(each.keys for each in told)
        if sparing.bloom_filter is not True and not (
            pays and nbytes < MEMORY_SHARE * min(each.free_nbytes for each in told)
        ):
            return None
        made = BloomFilter(backend, held * ranks, seed=owner_seed)
        # A key's block is in the range of its owner, since both follow from the same hash.
        made.range(rank, ranks).add(words())
        size = len(made.words) // ranks
        counts = np.full(ranks, size)
        counts[rank] = 0
        collective.start(
            [made.words], counts,
            starts=np.full(ranks, rank * size), to=Places([made.words], np.arange(ranks) * size),
        ).wait()  # fmt: skip
        return cls(told[0].new_name, made)
