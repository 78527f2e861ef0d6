"""Whether workers that are waited for are there, and all that they have begun is in some thread."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

__all__ = ["Attendance", "unattended"]

# Seconds after which a task that is in no thread is lost.
LOST = 10.0


def unattended(dask_worker: Any) -> list[Hashable]:
    """Runs on a worker's event loop: tasks at work in no thread, though one is there for them.

    A thread of Dask's ends without a word when memory runs out while it waits for work, and no
    other takes its place; nor does Dask hear of a task whose end its thread could not tell.
    """
    executor = dask_worker.executors["default"]
    with dask_worker.active_threads_lock:
        at_work = dict(dask_worker.active_threads)
    threads = list(executor._threads)
    busy = sum(thread.is_alive() and thread.ident in at_work for thread in threads)
    # Those that have left the pool and come back may take the place of others.
    if busy >= executor._max_workers:
        return []
    begun = dask_worker.active_keys - set(at_work.values())
    tasks = dask_worker.state.tasks
    return [key for key in begun if key in tasks and _for_threads(tasks[key])]


def _for_threads(task: Any) -> bool:
    """Whether a task is one for the worker's own threads."""
    executor = (task.annotations or {}).get("executor", "default")
    return executor == "default" and not task.run_spec.is_coro


class Attendance:
    """What workers have said so far.

    Examples
    --------
    >>> seen = Attendance()
    >>> seen.missed({"worker": ["task"]}, 1.0), seen.missed({"worker": ["task"]}, 12.0)
    ([], [('worker', 'task')])
    """

    def __init__(self) -> None:
        self._since: dict[tuple[str, Hashable], float] = {}

    def missed(
        self, answers: Mapping[str, Sequence[Hashable]], now: float
    ) -> list[tuple[str, Hashable]]:
        """The workers and tasks that `answers`, and all in the `LOST` seconds before, speak of."""
        self._since = {
            each: self._since.get(each, now)
            for each in ((worker, key) for worker, keys in answers.items() for key in keys)
        }
        return [each for each, first in self._since.items() if now - first >= LOST]
