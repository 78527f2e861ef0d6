"""Cache the Bloom filter of an index on a worker, for its tasks' queries."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

from dgpuhash import backend, config
from dgpuhash.distributed.cluster.dask_internals import sync
from dgpuhash.distributed.cluster.rpc import call_handler
from dgpuhash.distributed.cluster.serialization import chunk_nbytes
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.pruning.bloom_replica import MEMORY, RATE, BloomReplica
from dgpuhash.distributed.pruning.policy import PruningOptions, RecentAbsentKeyStats
from dgpuhash.distributed.pruning.probe_keys import PrunedKeys
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames import FrameIndex, frames_of
from dgpuhash.tables.bloom.blocks import BLOCK_NBYTES, BloomBlocks, blocks_for
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.typing import Device


class BloomCache:
    """Bloom filter and pruning statistics of a worker's shard at one epoch.

    The threads of the worker's tasks share it. No task waits until other workers run a collective:
    a task that wants the filter requests the bits of each owner's keys, like rows.

    Attributes
    ----------
    replica : BloomReplica or None
        The filter, once it was fetched.
    absent_rows, repeated_rows : int
        Rows that were pruned, by the filter and as duplicates of other rows.
    """

    def __init__(self) -> None:
        self.replica: BloomReplica | None = None
        self.absent_rows: int = 0
        self.repeated_rows: int = 0
        self._recent = RecentAbsentKeyStats()
        # Reentrant, as finalizers that the garbage collector runs may use it on the same thread.
        self._lock, self._fetching = threading.RLock(), threading.RLock()
        self._refused = False
        self._own: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of the filter."""
        return 0 if self.replica is None else self.replica.filter.nbytes

    def note(self, device: Device, rows: int, absent_rows: int, asked: PrunedKeys | None) -> None:
        """Record the outcome of a task's query."""
        with self._lock:
            self._recent.note(device, rows, absent_rows)
            if asked is not None:
                self.absent_rows += asked.absent
                self.repeated_rows += asked.repeated

    def add_spared_rows(self, absent_rows: int) -> None:
        """Add `absent_rows` rows that a collective phase has pruned."""
        with self._lock:
            self.absent_rows += absent_rows

    def filter(
        self, worker: Any, descriptor: Descriptor, sparing: PruningOptions, keys: int
    ) -> BloomBlocks | None:
        """Return the filter for a task's query, or None to send all keys.

        It is fetched from the owners when the query calls for one.

        Parameters
        ----------
        worker : distributed.Worker
        descriptor : Descriptor
        sparing : PruningOptions
        keys : int
            Number of keys of the worker's shard. With ``bloom_filter="auto"`` the filter is fetched
            once it could have pruned this many rows on this worker.
        """
        if not descriptor.owners_decide:
            return None
        must = sparing.bloom_filter is True
        device = frames_of(descriptor.meta).device
        if not must and not (sparing.bloom_filter and self._recent.pays(device)):
            return None
        wanted = must or (self._recent.absent_rows >= keys and not self._refused)
        # Only a task that must have the filter waits while another task fetches it.
        if self.replica is None and wanted and self._fetching.acquire(blocking=must):
            try:
                self._fetch(worker, descriptor, must)
            finally:
                self._fetching.release()
        return None if self.replica is None else self.replica.filter

    def _fetch(self, worker: Any, descriptor: Descriptor, must: bool) -> None:
        if self.replica is not None or (self._refused and not must):
            # Another task fetched it, or was refused, meanwhile.
            return
        free, _ = backend.get(frames_of(descriptor.meta).device).memory()
        self.replica = _fetch_replica(
            worker, descriptor, math.inf if must else config.share(MEMORY) * free
        )
        self._refused = self.replica is None
        self._own = None

    def bits(self, index: FrameIndex, part: int, parts: int, blocks: int, first: int) -> Any:
        """Return the next words of a shard's filter range, up to the size of a message.

        Runs on the shard thread. The range has `blocks` blocks, and `first` is the first word that
        is returned. With 0 blocks, returns the number of keys of the shard.
        """
        if not blocks:
            return len(index)
        device, replica, words = frames_of(index.meta).device, self.replica, self._own
        if replica is not None:
            words = replica.filter.range(part, parts).words
        elif words is None:
            seed = index.encoder.seeds.owners
            whole = BloomBlocks(backend.get(device), blocks * parts, seed=seed)
            own = whole.range(part, parts)
            own.insert(index.codes())
            # A copy, to free the memory of the whole filter.
            words = self._own = own.words.copy()
        return words[first : first + chunk_nbytes(device) // words.dtype.itemsize]


def _fetch_replica(worker: Any, descriptor: Descriptor, most_nbytes: float) -> BloomReplica | None:
    """Return a replica with the bits that the owners send, or None.

    None where it takes more than `most_nbytes`, or, if that is finite, more memory than there is.
    """
    try:
        return _assemble_replica(worker, descriptor, most_nbytes)
    except OutOfMemoryError:
        if most_nbytes == math.inf:
            raise
        return None


@function_translates_memory_errors
def _assemble_replica(
    worker: Any, descriptor: Descriptor, most_nbytes: float
) -> BloomReplica | None:
    parts = len(descriptor.shards)
    blocks = blocks_for(max(sync(worker.loop, _bits, worker, descriptor, 0)), config.share(RATE))
    if parts * blocks * BLOCK_NBYTES > most_nbytes:
        return None
    frames = frames_of(descriptor.meta)
    seed = descriptor.encoder.seeds.owners
    made = BloomBlocks(backend.get(frames.device), parts * blocks, seed=seed)
    for part, words in enumerate(sync(worker.loop, _bits, worker, descriptor, blocks)):
        made.range(part, parts).words[:] = frames.xp.concatenate(words)
    # Named by the epoch, since its rows decide what the filter lets pass, whoever built it.
    return BloomReplica(f"{descriptor.uid} {descriptor.epoch}", made)


async def _bits(worker: Any, descriptor: Descriptor, blocks: int) -> list[Any]:
    """Request `BloomCache.bits` from each owner, and return all answers.

    For each shard, the number of its keys, or all words of its range.
    """
    parts = len(descriptor.shards)

    async def ask(part: int) -> Any:
        shard, found, words = descriptor.shards[part], [], 0
        while True:
            (answer,) = await call_handler(
                worker, shard.worker, "dgpuhash_bits", {},
                uid=descriptor.uid, epoch=descriptor.epoch, incarnation=shard.incarnation,
                part=part, parts=parts, blocks=blocks, first=words,
            )  # fmt: skip
            if not blocks:
                return answer
            found.append(answer)
            words += len(answer)
            if 8 * words == blocks * BLOCK_NBYTES:
                return found

    return await asyncio.gather(*map(ask, range(parts)))
