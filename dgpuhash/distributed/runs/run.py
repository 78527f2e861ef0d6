"""Runs on the scheduler: their workers, their ends, and new ones after a loss."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    """Scheduler plugin that frees runs when their tasks are over, and begins them again.

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

    def begin(self, key: Any, homes: tuple[str, ...]) -> None:
        """Have answers made at their homes, and marks again that were made in an earlier run."""
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
    """Free what a worker holds of a run, also when it is silent for a while.

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


def _free_run(run: Run, dask_scheduler: Any) -> None:
    _plugin(dask_scheduler).free(run)


def free_run(client: Client, run: Run) -> None:
    """Free the workers' state of a run that never started."""
    call_scheduler(client, _free_run, run)


def _plugin(scheduler: Any) -> Runs:
    found: Runs = scheduler_plugin(scheduler, Runs.name, lambda: Runs(scheduler))
    return found


def _install(dask_scheduler: Any) -> None:
    _plugin(dask_scheduler)


def install_runs(client: Client) -> None:
    """Install the plugin, which watches all later graphs of merges and groupbys."""
    call_scheduler(client, _install)


def announced_run(client: Client, key: Any, run: Run, open_it: Callable[[], object]) -> Any:
    """Return the opening result of a key's run; register this one if there is none.

    `open_it` opens it on its workers. Where the worker is lost that does so, it is freed there.

    Raises
    ------
    Reschedule
        When nobody wants the run any more, or a worker of it is gone.
    """
    is_wanted, answer = call_scheduler(client, _announce, key, run, current_worker().address)
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
    answer = call_scheduler(client, _begin, key, run, announced)
    if answer is None or answer[0] != run.uid:
        free_run(client, run)
    if answer is None:
        raise Reschedule
    return answer[1]


def keep_builds(client: Client, limit: int | None) -> None:
    """Let builds of a client's frames stay for its next merges, in at most `limit` bytes."""
    call_scheduler(client, _keep, client.id, limit)


def drop_builds(client: Client) -> None:
    """Drop the cached builds of a client, and cache no more."""
    call_scheduler(client, _stop, client.id)


def kept_builds(client: Client) -> KeptStats | None:
    """Return the statistics of a client's build cache; None without one."""
    found: KeptStats | None = call_scheduler(client, _stats, client.id)
    return found


def rounded_columns(client: Client, uid: str) -> Counter[str]:
    """Return in how many partitions merges of a uid have rounded columns (see `LoggedRounding`)."""
    found: Counter[str] = call_scheduler(client, _rounding_of, uid)
    return found


def _keep(client: str, limit: int | None, dask_scheduler: Any) -> None:
    _plugin(dask_scheduler).kept.keep_for(client, limit)


def _stop(client: str, dask_scheduler: Any) -> None:
    _plugin(dask_scheduler).kept.stop(client)


async def _stats(client: str, dask_scheduler: Any) -> KeptStats | None:
    kept = _plugin(dask_scheduler).kept
    await kept.measure(client)
    return kept.stats(client)


def _rounding_of(uid: str, dask_scheduler: Any) -> Counter[str]:
    return _plugin(dask_scheduler).rounded.of(uid)


def current_run(client: Client, key: Any) -> Any:
    """Return the opening result of a key's run; None without a run."""
    return call_scheduler(client, _current, key)


def run_of_part(client: Client, part: Any) -> tuple[Any, Any]:
    """Return the seal key that needs a task, and the opening result of its run or None.

    Dask names a task that it has fused with others, and the seal by it, when its graph is made.

    Raises
    ------
    Reschedule
        When nobody wants the run any more.
    """
    found: tuple[Any, Any] | None = call_scheduler(client, _current_of_part, part)
    if found is None:
        raise Reschedule
    return found


def _announce(key: Any, run: Run, worker: str, dask_scheduler: Any) -> tuple[bool, Any]:
    plugin = _plugin(dask_scheduler)
    found = plugin.runs.get(key)
    if found is not None:
        return True, found.answer
    there = {worker, *run.workers} <= set(dask_scheduler.workers)
    if not there or key not in dask_scheduler.tasks:
        return False, None
    plugin.opening[run.uid] = worker, run
    return True, None


def _begin(key: Any, run: Run, announced: bool, dask_scheduler: Any) -> tuple[str, Any] | None:
    task, plugin = dask_scheduler.tasks.get(key), _plugin(dask_scheduler)
    there = task is not None and set(run.workers) <= set(dask_scheduler.workers)
    if not there or (announced and run.uid not in plugin.opening):
        return None
    found = plugin.runs.setdefault(key, run)
    if found is run:
        plugin.opening.pop(run.uid, None)
        plugin.begin(key, run.homes)
    return found.uid, found.answer


def _current(key: Any, dask_scheduler: Any) -> Any:
    run = _plugin(dask_scheduler).runs.get(key)
    return None if run is None else run.answer


def _current_of_part(part: Any, dask_scheduler: Any) -> tuple[Any, Any] | None:
    task = dask_scheduler.tasks.get(part)
    # None but one seal needs it.
    for seal in () if task is None else task.dependents:
        return seal.key, _current(seal.key, dask_scheduler)
    return None


def begin_anew(client: Client, key: Any) -> None:
    """Restart the calling task with all its dependencies; raises Reschedule."""
    call_scheduler(client, _begin_anew, key)
    raise Reschedule


def end_run(client: Client, key: Any) -> None:
    """Free the run of a key that its task no longer needs."""
    call_scheduler(client, _end, key)


def _end(key: Any, dask_scheduler: Any) -> None:
    plugin = _plugin(dask_scheduler)
    run = plugin.runs.pop(key, None)
    if run is not None:
        plugin.free(run)


def _begin_anew(key: Any, dask_scheduler: Any) -> None:
    _end(key, dask_scheduler)
    _plugin(dask_scheduler).begin_again(key, "dgpuhash-anew")


async def _is_over(key: Any, uid: str, dask_scheduler: Any) -> bool:
    """Return whether a run has ended, after the scheduler noticed its workers' fate."""
    runs = _plugin(dask_scheduler).runs
    loop = asyncio.get_running_loop()
    end = loop.time() + NOTICE_SECONDS
    while key in runs and runs[key].uid == uid:
        if loop.time() > end:
            return False
        if runs[key].restarts is False:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    task = dask_scheduler.tasks.get(key)
    if task is None:
        return True
    if task.state == "memory":
        # It will not be made again.
        return False
    if key not in runs and any(each.state == "memory" for each in task.dependencies):
        # The run was freed when nobody wanted it, and is wanted again.
        _plugin(dask_scheduler).begin_again(key, f"dgpuhash-{uid}-over")
    return True


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
        if key and call_scheduler(task_client(), _is_over, key, uid):
            raise Reschedule from None
        raise
