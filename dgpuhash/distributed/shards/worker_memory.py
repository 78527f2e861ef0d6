"""Track a worker's free memory below Dask's limits, and return freed memory to the system."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any
from weakref import WeakSet

import pyarrow as pa
from dask.sizeof import sizeof
from distributed import Worker
from tornado.ioloop import PeriodicCallback

from dgpuhash import backend
from dgpuhash.distributed.cluster.dask_internals import memory_limit, memory_share
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames import frames_of
from dgpuhash.frames.spill.file import SpillFile

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
# Rows and states of runs may take this part of what a worker's memory has left for them: a build
# whose rows are all in memory is there twice while it is sealed, and probes take some.
SHARE = 3
# Bytes of rows that are written to a file at once. Less does not matter to a worker.
WRITTEN_AT_ONCE = 4 << 20
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
        self.spills: SpillManager = SpillManager(self)

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


class Spillable(ABC):
    """Rows or states of a run in a worker's memory, which a file can have in its place.

    The constructor has other threads count them: to be called once `nbytes` can be told.

    Parameters
    ----------
    memory : WorkerMemory, optional
        None where they stay in memory.
    """

    def __init__(self, memory: WorkerMemory | None) -> None:
        self._memory: Any = memory
        self._file: SpillFile | None = None
        self._freed, self._writing = False, threading.Lock()
        if memory is not None:
            memory.spills.add(self)

    @property
    def on_gpu(self) -> bool:
        """Whether they are in the memory of a GPU."""
        return False

    @property
    def kept_nbytes(self) -> int:
        """Bytes in memory that stay there."""
        return 0

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes in memory that can be written."""

    @abstractmethod
    def spill(self) -> None:
        """Write what is in memory to the file.

        Raises
        ------
        OutOfMemoryError
            When the disk is full.
        """

    @contextmanager
    def with_file(self) -> Iterator[None]:
        """Work with the file in a block; give it back after that, if it was freed meanwhile."""
        try:
            with self._writing:
                yield
        finally:
            self._close_if_freed()

    def free(self) -> None:
        """Give the file back; whoever works with it does, once that is over."""
        if self._memory is not None:
            self._memory.spills.remove(self)
        self._freed = True
        self._close_if_freed()

    def _close_if_freed(self) -> None:
        if self._freed and self._writing.acquire(blocking=False):
            try:
                if self._file is not None:
                    self._file.close()
            finally:
                self._writing.release()


class SpillManager:
    """The rows and states of all runs on one worker: beyond its share they go to files.

    The share is that of the worker's memory when the first of them comes; the largest goes first.

    Parameters
    ----------
    memory : WorkerMemory
    """

    def __init__(self, memory: WorkerMemory) -> None:
        self._memory, self._lock = memory, threading.Lock()
        self._there: WeakSet[Spillable] = WeakSet()
        self._share = 0
        #: The most bytes that all of them may have by now.
        self._most = 0

    def add(self, rows: Spillable) -> None:
        """Count rows or states of a run until `remove`, or until they are gone."""
        with self._lock:
            if not self._there:
                self._share = max(WRITTEN_AT_ONCE, self._memory.for_rows() // SHARE)
            self._there.add(rows)

    def remove(self, rows: Spillable) -> None:
        """Count rows or states no more."""
        with self._lock:
            self._there.discard(rows)

    @property
    def is_beyond(self) -> bool:
        """Whether all have more bytes in the host's memory than they may."""
        there = self._those(on_gpu=False)
        return bool(there) and _nbytes(there) > self._limit(on_gpu=False)

    def make_room(self, more: int) -> None:
        """Write the largest, if need be, of which `more` bytes have come.

        To be called on the thread that folds states: others may not write them.
        """
        # All are only looked at where they may have too much: there may be very many.
        self._most += max(0, more)
        if self._most > WRITTEN_AT_ONCE:
            self._most = sum(self._write_largest(on_gpu=on_gpu) for on_gpu in (False, True))

    def _write_largest(self, *, on_gpu: bool) -> int:
        there = self._those(on_gpu=on_gpu)
        nbytes = _nbytes(there)
        while there and nbytes > self._limit(on_gpu=on_gpu):
            largest = max(there, key=lambda each: each.nbytes)
            there.remove(largest)
            nbytes -= largest.nbytes
            largest.spill()
            self._memory.relieve()
        return nbytes

    def _those(self, *, on_gpu: bool) -> list[Spillable]:
        with self._lock:
            there = list(self._there)
        return [each for each in there if each.on_gpu is on_gpu and each.nbytes]

    def _limit(self, *, on_gpu: bool) -> int:
        if on_gpu:
            return most_on_gpu()
        return self._share if self._memory.for_rows() >= 0 else WRITTEN_AT_ONCE


def _nbytes(there: list[Spillable]) -> int:
    return sum(each.nbytes + each.kept_nbytes for each in there)


@cache
def most_on_gpu() -> int:
    """Return the bytes that all states may have in the memory of this process's GPU."""
    return backend.get("cuda").memory()[1] // SHARE


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
