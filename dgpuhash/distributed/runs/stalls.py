"""Scheduler watch: end merges and groupbys deadlocked by full workers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tornado.ioloop import PeriodicCallback

from dgpuhash import config
from dgpuhash.distributed.cluster.dask_internals import fail_tasks, paused_workers, waits_on
from dgpuhash.distributed.cluster.host import NAME
from dgpuhash.errors import DgpuhashError, IndexLost, OutOfMemoryError

# Looks in the time after which a computation is ended.
LOOKS = 12
# States of tasks that have not begun, or are under way.
BEGINNING = ("queued", "no-worker", "processing")


@dataclass(eq=False, slots=True)
class Computation:
    """A graph with tasks of this library.

    Attributes
    ----------
    keys : sequence of key
    states : Counter
        The number of its tasks in each state when it was looked at last.
    since : float or None
        When they were first so and all that can go on waits for paused workers.
    """

    keys: Sequence[Any]
    states: Counter[str] = field(default_factory=Counter)
    since: float | None = None


class StallWatch:
    """Periodic check of a scheduler's computations for deadlocks.

    Dask begins no tasks on a worker whose memory is full, and lets them wait without end where
    nothing can be spilled, or where the last worker was ended. Such a computation ends in an error
    once it has stood still for ``liveness.patience``: none of its tasks is carried out or has
    another worker to go to. One for which the first worker has yet to come is no such.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._computations: list[Computation] = []
        self._looks: PeriodicCallback | None = None

    def note(self, keys: Sequence[Any]) -> None:
        """Watch a graph if it has tasks of this library."""
        if not any(map(_is_ours, keys)):
            return
        self._computations.append(Computation(tuple(keys)))
        if self._looks is None:
            every = config.seconds("liveness.patience") / LOOKS
            self._looks = PeriodicCallback(self.look, 1000 * every)
            self._looks.start()

    def stop(self) -> None:
        """Stop the periodic check."""
        if self._looks is not None:
            self._looks.stop()
            self._looks = None

    def look(self) -> None:
        """Forget finished computations, and end those without progress for too long."""
        tasks = self._scheduler.tasks
        self._computations = [
            each for each in self._computations if any(key in tasks for key in each.keys)
        ]
        if not self._computations:
            self.stop()
        stands = paused_workers(self._scheduler) or not self._scheduler.workers
        for each in self._computations:
            waiting = self._waiting(each) if stands else []
            if not waiting:
                each.since = None
            elif each.since is None:
                each.since = time.monotonic()
            elif (seconds := time.monotonic() - each.since) >= config.seconds("liveness.patience"):
                each.since = None
                self._end(waiting, seconds)

    def _waiting(self, computation: Computation) -> list[Any]:
        """Return tasks that wait for full or lost workers; none if any task makes progress."""
        states, waiting, others = Counter[str](), [], False
        for key in computation.keys:
            task = self._scheduler.tasks.get(key)
            if task is None:
                continue
            states[task.state] += 1
            if task.state in BEGINNING:
                waiting.append(task)
                others = others or not waits_on(task, self._scheduler)
        moved = states != computation.states
        computation.states = states
        if moved:
            computation.since = None
        if not self._scheduler.workers:
            # Dask counts the workers that ended while they carried out a task.
            others = others or not any(task.suspicious for task in waiting)
        return [] if others else waiting

    def _end(self, waiting: list[Any], seconds: float) -> None:
        """Fail waiting tasks and their dependents."""
        paused = paused_workers(self._scheduler)
        stands = (
            f"a merge or groupby stands still: {len(waiting):,} of its tasks have waited for "
            f"{seconds:,.0f} s"
        )
        error: DgpuhashError
        if paused:
            counts = Counter(task.processing_on for task in waiting)
            worker = max(paused, key=lambda each: (counts[each], each.memory.process))
            limit = f"{worker.memory_limit:,}" if worker.memory_limit else "unlimited"
            error = OutOfMemoryError(
                f"{stands} for workers whose memory is full, and that Dask has paused. Worker "
                f"{worker.address} takes {worker.memory.process:,} of {limit} bytes, of which "
                f"{worker.memory.managed:,} are results; use workers with more memory, or more "
                "workers, or frames in smaller partitions"
            )
        else:
            error = IndexLost(
                f"{stands}, since the last worker ended while it carried out one; start workers, "
                "such with more memory if that ran out, and compute it again"
            )
        keys = [task.key for task in waiting]
        fail_tasks(self._scheduler, keys, error, f"{NAME}-stall-{time.time()}")


def _is_ours(key: Any) -> bool:
    """Return whether a task's key is one of this library's."""
    name = key[0] if isinstance(key, tuple) else key
    return isinstance(name, str) and NAME in name
