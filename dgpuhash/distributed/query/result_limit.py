"""Check the size of a task's result against memory before computing it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Hashable, Sequence
from typing import Any

from dgpuhash.distributed.cluster.dask_internals import memory_limit
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.shards.worker_memory import WorkerMemory, trim
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames import frames_of

# Rows that a partition may have.
MOST_ROWS = 2**31 - 1
# A result is there twice: the parts that shards answer, and what is put together from them.
COPIES = 2
# Part of a worker's memory that a result may always have: tasks begin only where as much is free.
LEAST = 8
# Seconds in which results of other tasks may go before one begins.
SPILL_SECONDS = 1.0
# Part that the answers for tasks which wait may have together.
WAITING = 16


def keys_within_memory(
    worker: Any, descriptor: Descriptor, columns: Sequence[Hashable], count: int, nbytes: int
) -> int:
    """Return the bytes of keys to look up at once, so that their results fit the memory.

    Parameters
    ----------
    worker : distributed.Worker
        The worker that asks. Its own shard tells how large answers are.
    descriptor : Descriptor
    columns : sequence of labels
        Stored columns that are wanted.
    count, nbytes : int
        How many keys have how many bytes.
    """
    limit = memory_limit(worker)
    shard = plugin_of(worker).shards.standing(descriptor.uid)
    if not limit or shard is None or frames_of(descriptor.meta).device != "cpu":
        return sys.maxsize
    row_nbytes = shard.index.store.row_nbytes(list(columns))
    return int(limit / WAITING * nbytes / max(1.0, count * row_nbytes))


class ResultLimit:
    """Expected rows of a result, checked against the memory of the task's worker.

    Parameters
    ----------
    worker : distributed.Worker
    beside : float
        Bytes of what comes beside a stored row.
    remedy : str
        What to do when there are too many.
    """

    def __init__(self, worker: Any, beside: float, remedy: str) -> None:
        memory: WorkerMemory | None = plugin_of(worker).shards.memory
        self._memory, self._beside, self._remedy = memory, beside, remedy
        self._least = memory_limit(worker) // LEAST
        self._room = None
        if memory is not None:
            memory.relieve()
            # Dask may be about to write results to the disk.
            memory.wait(lambda: memory.for_tasks() >= self._least, SPILL_SECONDS)
            self._room = memory.for_tasks()
        self._rows, self._nbytes = 0, 0.0
        self._lock = threading.Lock()

    def allows(self, rows: int, row_nbytes: float) -> bool:
        """Return whether more rows of an average size fit the memory."""
        return self._fits(self._rows + rows, self._nbytes + rows * (row_nbytes + self._beside))

    def expect(self, rows: int, row_nbytes: float) -> None:
        """Count rows of the future result.

        Raises
        ------
        OutOfMemoryError
            When these are too many rows, or too many bytes, together with those before.
        """
        with self._lock:
            self._rows += rows
            self._nbytes += rows * (row_nbytes + self._beside)
            if self._fits(self._rows, self._nbytes):
                return
            if self._memory is not None and self._rows <= MOST_ROWS:
                trim()
                self._room = self._memory.for_tasks()
                if self._fits(self._rows, self._nbytes):
                    return
        there, where = f"{MOST_ROWS:,} rows", "a partition"
        if self._rows <= MOST_ROWS and self._memory is not None:
            there, where = f"{max(0, self._room or 0):,} bytes", f"worker {self._memory.address}"
        raise OutOfMemoryError(
            f"a partition of the result has {self._rows:,} rows, which need "
            f"{COPIES * int(self._nbytes):,} bytes while they are put together, and {where} has "
            f"place for {there}; {self._remedy}"
        )

    def _fits(self, rows: int, nbytes: float) -> bool:
        room = max(self._room or 0, self._least)
        return rows <= MOST_ROWS and (self._room is None or COPIES * nbytes <= room)
