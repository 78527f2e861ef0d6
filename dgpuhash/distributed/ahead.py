"""Tasks that begin while others of their worker wait for answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from distributed import secede

__all__ = ["Ahead"]

# Tasks of a worker that have left its thread to the next one. With one, a partition is split and
# asked about while the answers for the one before come; more keep more rows in memory.
TASKS = 1


class Ahead:
    """Lets a few tasks of one worker leave its thread, and stay out of it until they end."""

    def __init__(self) -> None:
        self._places = threading.Semaphore(TASKS)

    @contextmanager
    def task(self) -> Iterator[Callable[[], None]]:
        """The block of a whole task; what it gives is called before the task waits."""
        left = []

        def leave() -> None:
            if not self._places.acquire(blocking=False):
                return
            left.append(True)
            # What is no task, or has left its thread already, has none to leave.
            try:
                secede()
            except (AttributeError, KeyError, ValueError):
                return

        try:
            yield leave
        finally:
            if left:
                self._places.release()
