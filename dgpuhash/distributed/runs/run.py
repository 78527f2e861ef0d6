"""Runs on the scheduler: free the workers' state of finished ones, restart it after a loss."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

from distributed import Client, Reschedule, SchedulerPlugin

from dgpuhash.distributed.cluster.client import task_client
from dgpuhash.distributed.cluster.dask_internals import move_tasks, prefer_worker, scheduler_plugin
from dgpuhash.distributed.cluster.host import NAME, current_worker
from dgpuhash.distributed.cluster.rpc import (
    call_scheduler,
    call_worker,
    fire_and_forget,
)
from dgpuhash.distributed.runs.kept import RECEIPT, KeptBuilds, KeptStats, task_name
from dgpuhash.distributed.runs.rounding import RoundedColumns
from dgpuhash.distributed.runs.stalls import StallWatch
from dgpuhash.errors import IndexChanged, IndexLost

Task = TypeVar("Task")
Answer = TypeVar("Answer")

# Seconds that the scheduler has to notice that a worker of a run is gone, and between two looks.
NOTICE_SECONDS = 20.0
LOOK_SECONDS = 0.05
# Seconds after which a run is freed once more.
FREE_AGAIN_SECONDS = 5.0
# States in which a task is over or has not begun.
AT_REST = {"released", "forgotten", "erred"}


@dataclass(frozen=True, slots=True)
class Run:
    """Worker-side state of one merge or groupby.

    Attributes
    ----------
    uid : str
        Name of the shards, or of the marks.
    workers : tuple of str
        Addresses of the workers that hold it.
    free : bytes
        Call that frees it on a worker: `encode_call` of a function of its ``dask_worker``.
    answer : Any
        What the task that begins the run returns, also when it runs again.
    restarts : bool
        Whether the tasks can make it again when a worker is lost.
    stays : bool
        Whether it may stay for the next merges: none but probes and tails ask it.
    homes : tuple of str
        The worker that has the answer of each hash range, where its task runs, too.
    """

    uid: str
    workers: tuple[str, ...]
    free: bytes
    answer: Any
    restarts: bool = True
    stays: bool = False
    homes: tuple[str, ...] = ()


class Runs(SchedulerPlugin):
    """Scheduler plugin that frees runs after their tasks, and restarts them after a loss.

    A run belongs to the key of its seal, the task that all readers depend on. It is over when that
    task is released, erred or forgotten. When a worker of it is lost, its tasks begin again,
    together: the rows of a lost shard come from all partitions, and what it had found is lost too.
    """

    name: ClassVar[str] = f"{NAME}-runs"

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.runs: dict[Any, Run] = {}
        # Those that workers open, whose addresses these are, by name.
        self.opening: dict[str, tuple[str, Run]] = {}
        self.kept: KeptBuilds = KeptBuilds(scheduler)
        self.rounded: RoundedColumns = RoundedColumns()
        self.stalls: StallWatch = StallWatch(scheduler)
        self._broken: dict[str, list[Any]] = {}
        # Keys that have had a run.
        self._begun: set[Any] = set()

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Free the run of a finished task, or cache its build."""
        if finish == "forgotten":
            self._begun.discard(key)
        if finish in AT_REST:
            self.kept.over(key)
        elif finish == "memory" and key in self.runs and self.runs[key].stays:
            self.kept.keep(key, self.runs[key].uid, self.runs[key].workers)
        if key not in self.runs or finish not in AT_REST:
            return
        run = self.runs.pop(key)
        task = self.scheduler.tasks.get(key)
        if finish == "released" and task is not None and task.waiters and run.restarts:
            # Its result was lost, and is still wanted: `remove_worker` follows.
            self._broken.setdefault(stimulus_id, []).append(key)
        self.free(run)

    def remove_worker(
        self, scheduler: Any, worker: str, *, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Restart the runs of a lost worker; free those that it had not finished opening."""
        for opener, run in list(self.opening.values()):
            if opener == worker:
                self.free(run)
        again = self._broken.pop(stimulus_id, [])
        for key, run in list(self.runs.items()):
            if worker in run.workers and run.restarts:
                del self.runs[key]
                self.free(run)
                again.append(key)
        for key in again:
            self.begin_again(key, stimulus_id)

    def update_graph(self, scheduler: Any, *, tasks: list[Any], **kwargs: Any) -> None:
        """Note the builds in use again; watch that the tasks go on."""
        self.kept.note(tasks)
        self.stalls.note(tasks)

    async def close(self) -> None:
        """End the stall watch with the scheduler."""
        self.stalls.stop()

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Drop the cached builds of a client that has left."""
        self.kept.stop(client)

    def log_event(self, topic: str, msg: Any) -> None:
        """Count the columns that a merge rounded."""
        self.rounded.note(topic, msg)

    def begin_again(self, key: Any, stimulus_id: str) -> None:
        """Release all tasks of a run, so that they run again."""
        seal = self.scheduler.tasks.get(key)
        if seal is None or seal.state == "erred":
            return
        tasks = [seal, *seal.dependents, *seal.dependencies]
        tasks += [
            after
            for probe in seal.dependents
            for after in probe.dependents
            if task_name(after.key).startswith(RECEIPT)
        ]
        wanted = {task.key: "released" for task in tasks if task.state not in AT_REST}
        move_tasks(self.scheduler, wanted, stimulus_id)

    def announce(self, key: Any, run: Run, worker: str) -> tuple[bool, Any]:
        """Note a run that a worker opens; return whether it is wanted, and the key's answer."""
        found = self.runs.get(key)
        if found is not None:
            return True, found.answer
        there = {worker, *run.workers} <= set(self.scheduler.workers)
        if not there or key not in self.scheduler.tasks:
            return False, None
        self.opening[run.uid] = worker, run
        return True, None

    def begin(self, key: Any, run: Run, announced: bool) -> tuple[str, Any] | None:
        """Return the name of the run that a key has now, and its answer; None if unwanted."""
        there = set(run.workers) <= set(self.scheduler.workers)
        if not there or key not in self.scheduler.tasks:
            return None
        if announced and run.uid not in self.opening:
            return None
        found = self.runs.setdefault(key, run)
        if found is run:
            self.opening.pop(run.uid, None)
            self._place(key, run.homes)
        return found.uid, found.answer

    def current(self, key: Any) -> Any:
        """Return the answer of the key's run, None where there is none."""
        return None if (run := self.runs.get(key)) is None else run.answer

    def current_of_part(self, part: Any) -> tuple[Any, Any] | None:
        """Return the key of the seal that needs a task, and the answer of its run."""
        task = self.scheduler.tasks.get(part)
        # None but one seal needs it.
        for seal in () if task is None else task.dependents:
            return seal.key, self.current(seal.key)
        return None

    def end(self, key: Any) -> None:
        """Free the run of a key, if there is one."""
        if (run := self.runs.pop(key, None)) is not None:
            self.free(run)

    def begin_anew(self, key: Any) -> None:
        """Have all tasks of a run begin again."""
        self.end(key)
        self.begin_again(key, "dgpuhash-anew")

    async def is_over(self, key: Any, uid: str) -> bool:
        """Return whether a run is over, once the scheduler knows what happened to its workers."""
        loop = asyncio.get_running_loop()
        end = loop.time() + NOTICE_SECONDS
        while key in self.runs and self.runs[key].uid == uid:
            if loop.time() > end or self.runs[key].restarts is False:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        task = self.scheduler.tasks.get(key)
        if task is None:
            return True
        if task.state == "memory":
            # It will not be made again.
            return False
        if key not in self.runs and any(each.state == "memory" for each in task.dependencies):
            # The run was freed when nobody wanted it, and is wanted again.
            self.begin_again(key, f"dgpuhash-{uid}-over")
        return True

    def _place(self, key: Any, homes: tuple[str, ...]) -> None:
        """Move results to their owners, and recompute marks of an earlier run."""
        seal = self.scheduler.tasks[key]
        for each in seal.dependents if homes else ():
            # Dask would run all of them where the seal's result lies.
            if isinstance(each.key, tuple):
                prefer_worker(each, homes[each.key[1] % len(homes)])
        again = key in self._begun
        self._begun.add(key)
        if not again:
            return
        receipts = [each for each in seal.dependents if task_name(each.key).startswith(RECEIPT)]
        probes = [each for each in seal.dependents if not each.dependents.isdisjoint(receipts)]
        moved = {each.key: "released" for each in (*receipts, *probes) if each.state == "memory"}
        move_tasks(self.scheduler, moved, "dgpuhash-marks-again")

    def free(self, run: Run) -> None:
        """Free the workers' state of a run, also state that is still being created."""
        self.opening.pop(run.uid, None)
        for worker in run.workers:
            fire_and_forget(_free_on(self.scheduler, worker, run.free))


async def _free_on(scheduler: Any, worker: str, free: bytes) -> None:
    """Free a worker's state of a run, with retries while the worker is silent.

    And once more: a worker that was stopped may open a shard after that, as it was told before.
    """
    for pause in (FREE_AGAIN_SECONDS, 0):
        while worker in scheduler.workers:
            try:
                await call_worker(scheduler, worker, free, None)
                break
            except (OSError, TimeoutError):
                await asyncio.sleep(1)
        await asyncio.sleep(pause)


def free_run(client: Client, run: Run) -> None:
    """Free the workers' state of a run that never started."""
    _call(client, "free", run)


def _plugin(scheduler: Any) -> Runs:
    found: Runs = scheduler_plugin(scheduler, Runs.name, lambda: Runs(scheduler))
    return found


def _call(client: Client, method: str, *args: Any) -> Any:
    """Return what a method of the plugin gives, which is installed by the first call."""
    return call_scheduler(client, _answer, method, args)


def _answer(method: str, args: tuple[Any, ...], dask_scheduler: Any) -> Any:
    return attrgetter(method)(_plugin(dask_scheduler))(*args)


def install_runs(client: Client) -> None:
    """Install the plugin, which watches all later graphs of merges and groupbys."""
    _call(client, "current", None)


def announced_run(client: Client, key: Any, run: Run, open_it: Callable[[], object]) -> Any:
    """Return the opening result of a key's run; register this one if there is none.

    `open_it` opens it on its workers. Where the worker is lost that does so, it is freed there.

    Raises
    ------
    Reschedule
        When nobody wants the run any more, or a worker of it is gone.
    """
    is_wanted, answer = _call(client, "announce", key, run, current_worker().address)
    if not is_wanted:
        raise Reschedule
    if answer is not None:
        return answer
    try:
        open_it()
    except Exception:
        # It may be open on some of them.
        free_run(client, run)
        raise
    return begin_run(client, key, run, announced=True)


def begin_run(client: Client, key: Any, run: Run, *, announced: bool = False) -> Any:
    """Register a started run; return the opening result of the key's current run.

    Another attempt of the task may have begun one before; this one is freed then. One that was
    announced may have been freed before, when this worker was thought lost.

    Raises
    ------
    Reschedule
        When nobody wants the run any more, or a worker of it is gone.
    """
    answer = _call(client, "begin", key, run, announced)
    if answer is None or answer[0] != run.uid:
        free_run(client, run)
    if answer is None:
        raise Reschedule
    return answer[1]


def keep_builds(client: Client, limit: int | None) -> None:
    """Let builds of a client's frames stay for its next merges, in at most `limit` bytes."""
    _call(client, "kept.keep_for", client.id, limit)


def drop_builds(client: Client) -> None:
    """Drop the cached builds of a client, and cache no more."""
    _call(client, "kept.stop", client.id)


def kept_builds(client: Client) -> KeptStats | None:
    """Return the statistics of a client's build cache; None without one."""
    found: KeptStats | None = _call(client, "kept.measured_stats", client.id)
    return found


def rounded_columns(client: Client, uid: str) -> Counter[str]:
    """Return in how many partitions merges of a uid rounded columns (see `LoggedRounding`)."""
    found: Counter[str] = _call(client, "rounded.of", uid)
    return found


def current_run(client: Client, key: Any) -> Any:
    """Return the opening result of a key's run; None without a run."""
    return _call(client, "current", key)


def run_of_part(client: Client, part: Any) -> tuple[Any, Any]:
    """Return the seal key that needs a task, and the opening result of its run or None.

    Dask names a task that it has fused with others, and the seal by it, when its graph is made.

    Raises
    ------
    Reschedule
        When nobody wants the run any more.
    """
    found: tuple[Any, Any] | None = _call(client, "current_of_part", part)
    if found is None:
        raise Reschedule
    return found


def begin_anew(client: Client, key: Any) -> None:
    """Restart the calling task with all its dependencies; raises Reschedule."""
    _call(client, "begin_anew", key)
    raise Reschedule


def end_run(client: Client, key: Any) -> None:
    """Free the run of a key that its task no longer needs."""
    _call(client, "end", key)


@contextmanager
def lost_runs_again(key: Any, uid: str) -> Iterator[None]:
    """Guard a task of a run: if a loss ends the run, the task reruns in the next one.

    Without a `key`, the task asks a standing index, which no task can make again.
    """
    try:
        yield
    except IndexChanged:
        raise
    except IndexLost:
        if key and _call(task_client(), "is_over", key, uid):
            raise Reschedule from None
        raise
