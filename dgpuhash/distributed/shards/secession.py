"""Let waiting tasks leave their worker's thread pool, within a memory budget."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from dask.sizeof import sizeof
from dask.utils import key_split
from distributed import Worker, secede

from dgpuhash.distributed.cluster.dask_internals import memory_limit, running_keys
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.cluster.serialization import chunk_nbytes
from dgpuhash.frames import frames_of
from dgpuhash.typing import Device

Result = TypeVar("Result")

# By device: parcels that the partitions of all seceded tasks may fill together. On GPUs more are
# faster.
AHEAD = {"cpu": 4, "cuda": 16}
# Those partitions may take 1/`SHARE` of a host's memory: results are larger, and they are several.
SHARE = 16
# Seconds that a task waits for other workers before it secedes.
MOMENT = 0.5


def most_seceded_nbytes(worker: Worker, device: Device) -> int:
    """Return the limit in bytes for partitions of seceded tasks."""
    most, limit = AHEAD[device] * chunk_nbytes(device), memory_limit(worker)
    return min(most, limit // SHARE) if limit and device == "cpu" else most


class SecessionBudget:
    """Memory budget for the seceded tasks of one worker.

    A task leaves its thread to others only while the partitions of all seceded tasks are small
    together.
    """

    def __init__(self) -> None:
        # Reentrant: code that the garbage collector runs may begin a task on the same thread.
        self._lock = threading.RLock()
        self._nbytes: list[int] = []
        self._stayed = 0

    @contextmanager
    def task(self, nbytes: int, most_nbytes: int, *, stays: bool = False) -> Iterator[None]:
        """Secede within a block, if the memory budget allows it.

        The task's rows have `nbytes`. One task may always secede; more may while all seceded tasks
        have at most `most_nbytes` together: the rows of each, and its results, are in memory at one
        time. One that `stays` does not, as its result is large for the worker.
        """
        with self._lock:
            fits = not self._nbytes or sum(self._nbytes) + nbytes <= most_nbytes
            leaves = fits and not stays
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
        """Count the task in a block as one that occupies its thread.

        Batches do not wait for requests of these tasks.
        """
        with self._lock:
            self._stayed += 1
        try:
            yield
        finally:
            with self._lock:
                self._stayed -= 1

    def result(
        self, work: Future[Result], rows: Any, worker: Worker, *, nbytes: int | None = None
    ) -> Result:
        """Return the result of `work`; secede if it takes long.

        `work` runs on the event loop, for the task whose partition is `rows`. Where it sends
        `nbytes` that are much of the worker's memory, or that memory is short, the task stays: the
        next one would bring rows that the worker has no place for.
        """
        if not wait([work], MOMENT).done:
            limit, memory = memory_limit(worker), plugin_of(worker).shards.memory
            stays = bool(nbytes and limit and nbytes > limit // SHARE)
            stays = stays or (memory is not None and memory.for_rows() < 0)
            most = most_seceded_nbytes(worker, frames_of(rows).device)
            with self.task(sizeof(rows), most, stays=stays):
                wait([work])
        return work.result()

    def others_begin(self, worker: Worker) -> bool:
        """Return whether a similar task is running that has not joined a batch."""
        own = key_split(worker.get_current_task())
        running = sum(key_split(key) == own for key in running_keys(worker))
        return running > self._stayed


def _leave() -> None:
    # Outside a task, or after an earlier secession, there is no thread to leave.
    try:
        secede()
    except (AttributeError, KeyError, ValueError):
        return
