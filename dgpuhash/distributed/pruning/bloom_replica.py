"""Bloom filter of the keys of all shards, replicated on each rank."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dgpuhash import config
from dgpuhash.backend import Backend
from dgpuhash.distributed.collective.base import Collective, Destination
from dgpuhash.distributed.pruning.policy import PruningOptions
from dgpuhash.tables.bloom.blocks import BLOCK_NBYTES, BloomBlocks, blocks_for

# The share of the free memory that a filter may take when the user did not ask for one, and that of
# absent keys which pass: by default 0.01, by 10.5 bits per key.
MEMORY, RATE = "pruning.memory", "pruning.false-positives"


@dataclass(frozen=True, slots=True)
class FilterVote:
    """Vote of one rank on the filter, before all ranks decide together.

    Attributes
    ----------
    name : str or None
        Name of the rank's replica.
    new_name : str
        Name for a replica that is built now.
    keys : int
        About the number of keys that the rank owns.
    free_nbytes : int
        Free memory; 0 with a replica, as the GPU's driver is slow to tell.
    """

    name: str | None
    new_name: str
    keys: int
    free_nbytes: int

    @classmethod
    def of(cls, replica: BloomReplica | None, keys: int, backend: Backend) -> Self:
        """Return the vote of a rank with this replica, or with none."""
        new_name = uuid.uuid4().hex
        if replica is not None:
            return cls(replica.name, new_name, keys, 0)
        return cls(None, new_name, keys, backend.memory()[0])


@dataclass(frozen=True, slots=True)
class BloomReplica:
    """Copy of the Bloom filter on one rank.

    Attributes
    ----------
    name : str
        Name of the filter, the same on all ranks.
    filter : BloomBlocks
    """

    name: str
    filter: BloomBlocks

    @classmethod
    def agreed(
        cls,
        mine: BloomReplica | None,
        told: Sequence[FilterVote],
        sparing: PruningOptions,
        collective: Collective,
        backend: Backend,
        words: Callable[[], Any],
        owner_seed: int,
    ) -> BloomReplica | None:
        """Return the replica that all ranks have or build, or None.

        All ranks call it with the same votes, and decide alike.

        Parameters
        ----------
        mine : BloomReplica or None
            This rank's replica.
        told : sequence of FilterVote
            Votes of all ranks.
        sparing : PruningOptions
            With ``bloom_filter="auto"``, a filter is built once earlier queries had as many rows
            with absent keys as there are keys, and where memory is free.
        collective : Collective
        backend : Backend
        words : callable
            Returns the words of the keys that this rank owns.
        owner_seed : int
            Seed of the hash that chooses the owner of a key, the same on all ranks.
        """
        if mine is not None and {each.name for each in told} == {mine.name}:
            return mine
        ranks, rank = collective.size, collective.rank
        held = blocks_for(max(each.keys for each in told), config.share(RATE))
        nbytes = ranks * held * BLOCK_NBYTES
        pays = sparing.absent_rows >= sum(each.keys for each in told)
        if sparing.bloom_filter is not True and not (
            pays and nbytes < config.share(MEMORY) * min(each.free_nbytes for each in told)
        ):
            return None
        made = BloomBlocks(backend, held * ranks, seed=owner_seed)
        # The block of a key lies in the range of its owner: both come from the same hash.
        made.range(rank, ranks).insert(words())
        size = len(made.words) // ranks
        counts = np.full(ranks, size)
        counts[rank] = 0
        collective.start(
            [made.words], counts,
            starts=np.full(ranks, rank * size), to=Destination([made.words], np.arange(ranks) *
            size),
        ).wait()  # fmt: skip
        return cls(told[0].new_name, made)
