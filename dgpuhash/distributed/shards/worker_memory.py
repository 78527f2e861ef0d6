"""Track a worker's free memory below Dask's limits, and return freed memory to the system."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
from dask.sizeof import sizeof
from distributed import Worker
from tornado.ioloop import PeriodicCallback

from dgpuhash import backend
from dgpuhash.distributed.cluster.dask_internals import memory_limit, memory_share
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames import frames_of

# Seconds in which memory may become free before a build or a result is refused, and between looks.
WAIT_SECONDS = 5.0
LOOK_SECONDS = 0.2
# This part of a worker's memory stays free below Dask's ``memory.pause`` beside what stays there.
BESIDE_KEYS = 20
# Tasks that need less than this part of a worker's memory begin without a look at it, which takes
# longer than they do.
UNWATCHED = 2**12
# What Dask's nannies have glibc do: give back freed memory beyond this.
TRIMMED = {"MALLOC_TRIM_THRESHOLD_": "65536"}
# Numbers of glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, the latter at its greatest.
KEPT_BY_MALLOC = {-1: 64 << 20, -3: 32 << 20}
# Each thread has a heap that keeps as much, so that those of small workers keep less: these parts
# of the memory limit.
KEPT_SHARES = {-1: 64, -3: 128}
# Seconds between two returns of freed memory where the last one gained nothing to speak of.
GAINED_NOTHING_SECONDS = 5.0


class WorkerMemory:
    """Memory that a worker may still use, by Dask's limits.

    Parameters
    ----------
    worker : distributed.Worker
    """

    def __init__(self, worker: Worker) -> None:
        self._worker: Any = worker

    @property
    def address(self) -> str:
        """Address of the worker."""
        return str(self._worker.address)

    @property
    def folder(self) -> str:
        """The worker's folder on its disk."""
        return str(self._worker.local_directory)

    @property
    def limit(self) -> int:
        """The worker's memory limit in bytes; 0 for no limit."""
        return memory_limit(self._worker)

    def for_rows(self) -> int:
        """Return the bytes available to build rows: until Dask would spill results."""
        return self._until("target", 0.6)

    def for_keys(self) -> int:
        """Return the bytes available to keys without stopping new tasks."""
        return self._machine() or self._until("pause", 0.8) - self.limit // BESIDE_KEYS

    def for_tasks(self) -> int:
        """Return the bytes available to results: until Dask would pause the worker."""
        return self._machine() or self._until("pause", 0.8)

    def below_spill(self) -> int:
        """Return the bytes until Dask spills all it can; negative while it does."""
        return self._until("spill", 0.7)

    def until_end(self) -> int:
        """Return the bytes until a nanny kills the worker, for short use by a task."""
        return self._machine() or self._until("terminate", 0.95)

    def require_task(self, rows: Any, times: int) -> None:
        """Wait until a task has host memory for its rows, and for `times` their bytes besides.

        Raises
        ------
        OutOfMemoryError
            When the worker would be ended.
        """
        if not self.limit or frames_of(rows).device != "cpu":
            return
        nbytes = sizeof(rows)
        needed = times * nbytes
        if needed > self.limit // UNWATCHED and not self.wait(lambda: needed <= self.until_end()):
            raise OutOfMemoryError(
                f"a partition of {nbytes:,} bytes needs {needed:,} more on worker {self.address} "
                f"while it is sent to its hash ranges, and {max(0, self.until_end()):,} are there "
                f"of {self.limit:,}; use frames in smaller partitions, or workers with more memory"
            )

    def relieve(self) -> None:
        """Return allocators' free memory to the system if build rows have no room otherwise."""
        if self.for_rows() < 0:
            trim()

    def wait(self, enough: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until there is enough memory; return whether there is.

        What ended just now may still be there, and other tasks end. `seconds` are `WAIT_SECONDS`
        by default.
        """
        end = time.monotonic() + (WAIT_SECONDS if seconds is None else seconds)
        while not enough():
            if time.monotonic() > end:
                return False
            gc.collect()
            trim()
            if not enough():
                time.sleep(LOOK_SECONDS)
        return True

    def _machine(self) -> int | None:
        """Return the machine's free bytes, for a worker without a nanny.

        It may share a process with others, and a client, whose memory counts as its own.
        """
        if self._worker.nanny or not self.limit:
            return None
        return backend.get("cpu").memory()[0]

    def _until(self, fraction: str, default: float) -> int:
        """Return the bytes until a fraction of the limit; `default` if there is no limit."""
        if not self.limit:
            return sys.maxsize
        share = memory_share(self._worker, fraction) or default
        return int(share * self.limit - self._worker.monitor.get_process_memory())


class FreedMemory:
    """Periodic return of freed memory to the system, before Dask pauses the worker for it.

    Allocators keep memory that arrays had. Dask counts it as the process's and cannot spill it: a
    worker that is paused begins no task whose arrays would go there, and so stays paused.

    Parameters
    ----------
    memory : WorkerMemory
    """

    def __init__(self, memory: WorkerMemory) -> None:
        self._memory = memory
        self._next = 0.0
        self._callback = PeriodicCallback(self.look, LOOK_SECONDS * 1000)

    def start(self) -> None:
        """Start the periodic check on the worker's event loop."""
        if self._memory.limit:
            self._callback.start()

    def stop(self) -> None:
        """Stop the periodic check."""
        self._callback.stop()

    async def look(self) -> None:
        """Return freed memory if Dask is about to spill or to pause the worker."""
        left = self._memory.below_spill()
        if left >= 0 or time.monotonic() < self._next:
            return
        await asyncio.to_thread(trim)
        gained = self._memory.below_spill() - left
        if gained < self._memory.limit // KEPT_SHARES[-3]:
            self._next = time.monotonic() + GAINED_NOTHING_SECONDS


def release_arrow() -> None:
    """Return the free memory of this thread's Arrow allocator to the system."""
    pa.default_memory_pool().release_unused()


def trim() -> None:
    """Return the free memory of all allocators to the system."""
    release_arrow()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_freed_memory(worker: Any) -> bool:
    """Make the C library reuse freed memory for later arrays; return whether it does.

    Where it gives each array back at once, as nannies have it, every new one costs its page faults
    anew, which takes longer than most of what is done with it. Only a process of one worker with
    Dask's own setting is changed: what a user has set stays. `trim` gives back what is kept.
    """
    set_by_dask = all(os.environ.get(name) == value for name, value in TRIMMED.items())
    if not worker.nanny or not set_by_dask or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        # Another C library.
        return False
    kept, limit = KEPT_BY_MALLOC, memory_limit(worker)
    if limit:
        kept = {each: min(kept[each], limit // share) for each, share in KEPT_SHARES.items()}
    return all(mallopt(number, nbytes) == 1 for number, nbytes in kept.items())
