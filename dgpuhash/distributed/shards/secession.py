"""Tasks that begin while others of their worker wait for answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from dask.sizeof import sizeof
from dask.utils import key_split
from distributed import Worker, secede

from dgpuhash.distributed.partition.hash_partition import parcel_nbytes
from dgpuhash.frames import frames_of

__all__ = ["Ahead", "most_ahead"]

Result = TypeVar("Result")

# Where rows are: parcels that the partitions of all tasks that are out of their worker's thread may
# fill. On GPUs many are faster.
AHEAD = {"cpu": 4, "cuda": 16}
# They may have one part in so many of a host's memory: results are larger, and several are made.
SHARE = 16
# Seconds that a task waits for other workers before it leaves its thread.
MOMENT = 0.5


def most_ahead(worker: Worker, device: str) -> int:
    """The bytes that partitions of tasks which are out of their thread may have together."""
    most, limit = AHEAD[device] * parcel_nbytes(device), worker.memory_manager.memory_limit
    return min(most, limit // SHARE) if limit and device == "cpu" else most


class Ahead:
    """Lets tasks of one worker leave its thread to others, as long as they are small together."""

    def __init__(self) -> None:
        # What the collector runs may begin a task on the same thread.
        self._lock = threading.RLock()
        self._nbytes: list[int] = []
        self._stayed = 0

    @contextmanager
    def task(self, nbytes: int, most_nbytes: int) -> Iterator[None]:
        """The block of a task whose rows have `nbytes`; it has left its thread, where it may.

        One task may always do so. More of them may while all have at most `most_nbytes`: the rows
        of each, and what is made of them, are in memory at one time.
        """
        with self._lock:
            leaves = not self._nbytes or sum(self._nbytes) + nbytes <= most_nbytes
            if leaves:
                self._nbytes.append(nbytes)
        if not leaves:
            with self.staying():
                yield
            return
        try:
            _leave()
            yield
        finally:
            with self._lock:
                self._nbytes.remove(nbytes)

    @contextmanager
    def staying(self) -> Iterator[None]:
        """The block of a task that keeps its thread, and for which nobody need wait."""
        with self._lock:
            self._stayed += 1
        try:
            yield
        finally:
            with self._lock:
                self._stayed -= 1

    def result(self, work: Future[Result], rows: Any, worker: Worker) -> Result:
        """What comes of `work` on the event loop; its task, for `rows`, may leave its thread."""
        if not wait([work], MOMENT).done:
            with self.task(sizeof(rows), most_ahead(worker, frames_of(rows).device)):
                wait([work])
        return work.result()

    def others_begin(self, worker: Worker) -> bool:
        """Whether a task like the current one is in the worker's threads, and not yet here."""
        own = key_split(worker.get_current_task())
        running = sum(key_split(task.key) == own for task in list(worker.state.executing))
        return running > self._stayed


def _leave() -> None:
    # What is no task, or has left its thread already, has none to leave.
    try:
        secede()
    except (AttributeError, KeyError, ValueError):
        return
