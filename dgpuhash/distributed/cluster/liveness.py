"""Detect dead work: operations of a worker without a running thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dgpuhash import config

# Heartbeats after which stuck work counts as lost: a machine may pause for a while.
STUCK_HEARTBEATS = 4
# Characters of an error's text that a report repeats.
ERROR_CHARACTERS = 200


def stuck_work(dask_worker: Any) -> list[str]:
    """Return descriptions of this worker's work that seems to be stuck.

    Runs on the worker's event loop. A thread of Dask's pool ends silently when memory runs out
    while it waits for work, and no other thread replaces it; nor does Dask learn that a task has
    ended if its thread could not signal it. The stream of messages to the scheduler can end in the
    same way; and data that arrived and could not be deserialized is not fetched again
    (dask/distributed#6705). The worker still answers calls in all these cases.
    """
    return [
        *_tasks_in_no_thread(dask_worker),
        *_unsent(dask_worker.batched_stream),
        *_not_loaded(dask_worker.state.waiting),
    ]


def _tasks_in_no_thread(worker: Any) -> Iterator[str]:
    executor = worker.executors["default"]
    with worker.active_threads_lock:
        at_work = dict(worker.active_threads)
    threads = list(executor._threads)
    busy = sum(thread.is_alive() and thread.ident in at_work for thread in threads)
    # Threads that seceded and rejoined may take the places of others.
    if busy < executor._max_workers:
        for key in worker.active_keys - set(at_work.values()):
            task = worker.state.tasks.get(key)
            if task is not None and _for_threads(task):
                yield f"the task {key!r} is in none of its threads"


def _unsent(stream: Any) -> Iterator[str]:
    if stream is not None and stream.buffer:
        yield f"its messages to the scheduler after batch {stream.batch_count} are not sent"


def _not_loaded(waiting: Iterable[Any]) -> Iterator[str]:
    """Yield data that arrived for tasks and could not be deserialized.

    The scheduler is not told of that error. Dask's transfers also end so on a comm over which an
    earlier transfer failed.
    """
    wanted = {each.key: each for task in waiting for each in task.waiting_for_data}
    for key, each in wanted.items():
        if each.state == "error":
            said = each.exception_text[:ERROR_CHARACTERS]
            yield f"tasks wait for {key!r}, which came and could not be loaded ({said})"


def _for_threads(task: Any) -> bool:
    """Return whether a task runs in the worker's own thread pool."""
    executor = (task.annotations or {}).get("executor", "default")
    return executor == "default" and not task.run_spec.is_coro


class Watchdog:
    """Watchdog record: which work each worker has reported as stuck.

    Examples
    --------
    >>> seen = Watchdog()
    >>> [seen.stuck_work({"worker": ["a task"]}, now) for now in (1.0, 4.0, 8.0, 12.0)]
    [[], [], [], [('worker', 'a task')]]
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], list[float]] = {}

    def stuck_work(self, answers: Mapping[str, Sequence[str]], now: float) -> list[tuple[str, str]]:
        """Return the (worker, work) pairs that have been stuck for too long.

        Such a pair is in `answers` and in all heartbeats of at least the seconds before that the
        setting ``liveness.stuck`` says, and in `STUCK_HEARTBEATS` or more. `now` is in seconds.
        """
        limit = config.seconds("liveness.stuck")
        self._seen = {
            each: [*self._seen.get(each, []), now]
            for each in ((worker, what) for worker, some in answers.items() for what in some)
        }
        return [
            each
            for each, (first, *others) in self._seen.items()
            if now - first >= limit and len(others) + 1 >= STUCK_HEARTBEATS
        ]
