"""Sieve: what a worker knows of the keys of all shards, so that its tasks ask about fewer rows."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

from distributed.utils import sync

from dgpuhash import backend
from dgpuhash.distributed.cluster.rpc import request
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.partition.hash_partition import parcel_nbytes
from dgpuhash.distributed.pruning.bloom_replica import MEMORY_SHARE, Replica
from dgpuhash.distributed.pruning.policy import Recent, Sparing
from dgpuhash.distributed.pruning.probe_keys import Asked
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames import FrameIndex, frames_of
from dgpuhash.tables.bloom import BloomFilter
from dgpuhash.tables.memory_errors import call_says_memory

__all__ = ["Sieve"]


class Sieve:
    """Of the shard that the worker has, at one epoch; the threads of its tasks share it.

    No task waits for others to take part: one that wants the filter asks each owner for the bits
    of its keys, as it asks about rows.

    Attributes
    ----------
    replica : Replica or None
        The filter, once it is there.
    absent_rows, repeated_rows : int
        Rows that nobody was asked about, as the filter has no such key, and as other rows have it.
    """

    def __init__(self) -> None:
        self.replica: Replica | None = None
        self.absent_rows = self.repeated_rows = 0
        self._recent = Recent()
        # What the collector runs may ask on the same thread.
        self._lock, self._fetching = threading.RLock(), threading.RLock()
        self._refused = False
        self._own: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of the filter."""
        return 0 if self.replica is None else self.replica.filter.nbytes

    def note(self, device: str, rows: int, absent_rows: int, asked: Asked | None) -> None:
        """What the answers to a task's question say."""
        with self._lock:
            self._recent.note(device, rows, absent_rows)
            if asked is not None:
                self.absent_rows += asked.absent
                self.repeated_rows += asked.repeated

    def spared(self, absent_rows: int) -> None:
        """A phase has left so many rows out."""
        with self._lock:
            self.absent_rows += absent_rows

    def filter(
        self, worker: Any, descriptor: Descriptor, sparing: Sparing, keys: int
    ) -> BloomFilter | None:
        """What to ask before others are asked, in a task; None: nothing.

        Parameters
        ----------
        worker : distributed.Worker
        descriptor : Descriptor
        sparing : Sparing
        keys : int
            Those of the worker's shard. A filter comes without being asked for once it could have
            left out as many rows of this worker.
        """
        if not descriptor.told_by_owners:
            return None
        must = sparing.bloom_filter is True
        device = frames_of(descriptor.meta).device
        if not must and not (sparing.bloom_filter and self._recent.pays(device)):
            return None
        wanted = must or (self._recent.absent_rows >= keys and not self._refused)
        # Who need not have it does not wait for it.
        if self.replica is None and wanted and self._fetching.acquire(blocking=must):
            try:
                self._fetch(worker, descriptor, must)
            finally:
                self._fetching.release()
        return None if self.replica is None else self.replica.filter

    def _fetch(self, worker: Any, descriptor: Descriptor, must: bool) -> None:
        if self.replica is not None or (self._refused and not must):
            # Another task was quicker.
            return
        free, _ = backend.get(frames_of(descriptor.meta).device).memory()
        self.replica = _fetched(worker, descriptor, math.inf if must else MEMORY_SHARE * free)
        self._refused = self.replica is None
        self._own = None

    def bits(self, index: FrameIndex, part: int, parts: int, blocks: int, first: int) -> Any:
        """Of the filter's range of so many blocks for a part, as many words as a message carries.

        Runs on the shard thread. `first` is the first of these words. With no blocks: how many keys
        the part has.
        """
        if not blocks:
            return len(index)
        device, replica, words = frames_of(index.meta).device, self.replica, self._own
        if replica is not None:
            words = replica.filter.range(part, parts).words
        elif words is None:
            seed = index.encoder.seeds.owners
            whole = BloomFilter(backend.get(device), blocks * parts, seed=seed)
            own = whole.range(part, parts)
            own.add(index.codes())
            # Not all of the filter's room.
            words = self._own = own.words.copy()
        return words[first : first + parcel_nbytes(device) // words.dtype.itemsize]


def _fetched(worker: Any, descriptor: Descriptor, most_nbytes: float) -> Replica | None:
    """The filter, of the bits that the owners give.

    None where it takes more than `most_nbytes`, or, if these are finite, more than there is.
    """
    try:
        return _put_together(worker, descriptor, most_nbytes)
    except OutOfMemoryError:
        if most_nbytes == math.inf:
            raise
        return None


@call_says_memory
def _put_together(worker: Any, descriptor: Descriptor, most_nbytes: float) -> Replica | None:
    parts = len(descriptor.shards)
    blocks = BloomFilter.blocks_for(max(sync(worker.loop, _bits, worker, descriptor, 0)))
    if parts * blocks * BloomFilter.BLOCK_NBYTES > most_nbytes:
        return None
    frames = frames_of(descriptor.meta)
    seed = descriptor.encoder.seeds.owners
    made = BloomFilter(backend.get(frames.device), parts * blocks, seed=seed)
    for part, words in enumerate(sync(worker.loop, _bits, worker, descriptor, blocks)):
        made.range(part, parts).words[:] = frames.xp.concatenate(words)
    # What it lets pass follows from the rows of the epoch, whoever has made it.
    return Replica(f"{descriptor.uid} {descriptor.epoch}", made)


async def _bits(worker: Any, descriptor: Descriptor, blocks: int) -> list[Any]:
    """What `Sieve.bits` gives for each part: the number of its keys, or all its words."""
    parts = len(descriptor.shards)

    async def ask(part: int) -> Any:
        shard, found, words = descriptor.shards[part], [], 0
        while True:
            (answer,) = await request(
                worker, shard.worker, "dgpuhash_bits", {},
                uid=descriptor.uid, epoch=descriptor.epoch, incarnation=shard.incarnation,
                part=part, parts=parts, blocks=blocks, first=words,
            )  # fmt: skip
            if not blocks:
                return answer
            found.append(answer)
            words += len(answer)
            if 8 * words == blocks * BloomFilter.BLOCK_NBYTES:
                return found

    return await asyncio.gather(*map(ask, range(parts)))
