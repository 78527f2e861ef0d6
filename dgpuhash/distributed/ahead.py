"""Tasks that begin while others of their worker wait for answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dask.utils import key_split
from distributed import Worker, secede

__all__ = ["Ahead"]


class Ahead:
    """Lets tasks of one worker leave its thread to others, as long as they are small together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
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
            else:
                self._stayed += 1
        try:
            if leaves:
                _leave()
            yield
        finally:
            with self._lock:
                if leaves:
                    self._nbytes.remove(nbytes)
                else:
                    self._stayed -= 1

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
