"""Whether workers that are waited for are there, and go on with all that they have begun."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Attendance", "unattended"]

# Seconds, and looks, after which what nobody goes on with is lost: a machine may stand for a while.
LOST, LOOKS = 10.0, 4
# Of an error.
TOLD = 200


def unattended(dask_worker: Any) -> list[str]:
    """Runs on a worker's event loop: what it has begun and, as it seems, nobody goes on with.

    A thread of Dask's ends without a word when memory runs out while it waits for work, and no
    other takes its place; nor does Dask hear of a task whose end its thread could not tell. What
    sends messages to the scheduler can end so, too; and what came and could not be loaded is not
    brought again (dask/distributed#6705). The worker answers all the same.
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
    # Those that have left the pool and come back may take the place of others.
    if busy < executor._max_workers:
        for key in worker.active_keys - set(at_work.values()):
            task = worker.state.tasks.get(key)
            if task is not None and _for_threads(task):
                yield f"the task {key!r} is in none of its threads"


def _unsent(stream: Any) -> Iterator[str]:
    if stream is not None and stream.buffer:
        yield f"its messages to the scheduler after batch {stream.batch_count} are not sent"


def _not_loaded(waiting: Iterable[Any]) -> Iterator[str]:
    """Data that came for tasks and could not be made objects of; the scheduler hears of no error.

    Dask's transfers end so, too, where they meet a comm over which others did.
    """
    wanted = {each.key: each for task in waiting for each in task.waiting_for_data}
    for key, each in wanted.items():
        if each.state == "error":
            said = each.exception_text[:TOLD]
            yield f"tasks wait for {key!r}, which came and could not be loaded ({said})"


def _for_threads(task: Any) -> bool:
    """Whether a task is one for the worker's own threads."""
    executor = (task.annotations or {}).get("executor", "default")
    return executor == "default" and not task.run_spec.is_coro


class Attendance:
    """What workers have said so far.

    Examples
    --------
    >>> seen = Attendance()
    >>> [seen.missed({"worker": ["a task"]}, now) for now in (1.0, 4.0, 8.0, 12.0)]
    [[], [], [], [('worker', 'a task')]]
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], list[float]] = {}

    def missed(self, answers: Mapping[str, Sequence[str]], now: float) -> list[tuple[str, str]]:
        """The workers, and what of theirs `answers` and all in `LOST` seconds before speak of."""
        self._seen = {
            each: [*self._seen.get(each, []), now]
            for each in ((worker, what) for worker, some in answers.items() for what in some)
        }
        return [
            each
            for each, (first, *others) in self._seen.items()
            if now - first >= LOST and len(others) + 1 >= LOOKS
        ]
