"""Batch merge tasks: one task probes for others waiting on its worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Worker

from dgpuhash.backend import is_out_of_memory
from dgpuhash.distributed.cluster.dask_internals import (
    Task,
    TaskRef,
    next_tasks,
    ready_count,
    sync,
    task_of,
)

# Seconds after the last call during which a batch waits for more, and between two checks.
PAUSE = 0.05
QUIET_SECONDS = 0.0005


@dataclass(eq=False, slots=True)
class Call:
    """Call of one thread, and its result."""

    kind: int
    thing: Any
    nbytes: int
    taken: bool = False
    alone: bool = False
    answered: bool = False
    answer: Any = None
    error: BaseException | None = None


class Coalescer:
    """Combine waiting calls into batches; one of the calling threads runs each.

    A batch begins when it is full, when no call has come for a moment, or when none is about to
    come.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[Call] = []
        self._at_work = 0
        self._came = 0.0

    def call(
        self,
        work: Callable[[Sequence[Any]], Iterator[Any]],
        thing: Any,
        *,
        kind: int,
        nbytes: int,
        most_nbytes: int,
        at_once: int,
        more: Callable[[], bool],
    ) -> Any:
        """Return the result of `work` for `thing`, as part of a batch.

        Parameters
        ----------
        work : callable
            Function of the things of a batch that yields an answer for each, in their order.
        thing : Any
        kind : int
            Only calls of one kind share a batch; their `work` does the same.
        nbytes : int
            Bytes of `thing`.
        most_nbytes : int
            Limit of a batch; a single thing may have more.
        at_once : int
            Batches at work at once: with two, one is prepared while another waits for answers.
        more : callable
            Whether other threads may be about to call.

        Raises
        ------
        Exception
            What `work` raised for a batch. After a batch has run out of memory, the calls that are
            not answered try again, each alone.
        """
        own = Call(kind, thing, nbytes)
        with self._changed:
            self._waiting.append(own)
            self._came = time.monotonic()
            self._changed.notify_all()
        while True:
            with self._changed:
                try:
                    batch = self._next_batch(own, most_nbytes, at_once, more)
                except BaseException:
                    # Other calls wait until the first one has left the queue.
                    if not own.taken:
                        self._waiting.remove(own)
                    self._changed.notify_all()
                    raise
            if batch is None:
                break
            self._work_on(batch, work)
        if own.error is not None:
            raise own.error
        return own.answer

    def _next_batch(
        self, own: Call, most_nbytes: int, at_once: int, more: Callable[[], bool]
    ) -> list[Call] | None:
        """Wait, and return a batch that begins with `own`; None once answered.

        The batch is to be worked on.
        """
        while not own.answered:
            if own.taken or self._waiting[0] is not own or self._at_work >= at_once:
                self._changed.wait()
                continue
            batch, full = self._batch(own, most_nbytes)
            pause = self._came + PAUSE - time.monotonic()
            if not full and pause > 0 and more():
                self._changed.wait(min(pause, QUIET_SECONDS))
                continue
            for call in batch:
                call.taken = True
                self._waiting.remove(call)
            self._at_work += 1
            self._changed.notify_all()
            return batch
        return None

    def _batch(self, own: Call, most_nbytes: int) -> tuple[list[Call], bool]:
        """Return the waiting calls compatible with `own`, and whether those are all."""
        batch, nbytes = [own], own.nbytes
        if own.alone:
            return batch, True
        for call in self._waiting[1:]:
            if call.kind == own.kind and not call.alone:
                if nbytes + call.nbytes > most_nbytes:
                    return batch, True
                batch.append(call)
                nbytes += call.nbytes
        return batch, nbytes >= most_nbytes

    def _work_on(self, batch: list[Call], work: Callable[[Sequence[Any]], Iterator[Any]]) -> None:
        try:
            answers = work([call.thing for call in batch])
            for call, answer in zip(batch, answers, strict=True):
                call.answer = answer
                self._tell(call)
        except BaseException as error:
            left = [call for call in batch if not call.answered]
            again = len(batch) > 1 and is_out_of_memory(error)
            with self._changed:
                for call in left:
                    call.alone, call.taken = again, not again
                    call.error = None if again else error
                    call.answered = not again
                self._waiting += left if again else []
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def _tell(self, call: Call) -> None:
        with self._changed:
            call.answered = True
            self._changed.notify_all()


# Tasks that one task may probe for.
MOST = 64
# Seconds between two checks whether the thread that probes for others has died.
LOOK = 1.0
# States of tasks that are going to end on their worker.
BEFORE_END = {"ready", "executing"}

Function = Callable[..., Any]


class WaitingTask:
    """Pending task, and its result if another task computed it.

    Attributes
    ----------
    argument : Any
        Argument that the task is going to call its function with.
    told : bool
        Whether the task was told its answer, its error, or that there is none.
    """

    def __init__(self, argument: Any, asker: threading.Thread) -> None:
        self.argument = argument
        self.told: bool = False
        self._asker = asker
        self._answer: Any = None
        self._error: Exception | None = None
        self._end = threading.Event()

    def tell(self, answer: Any = None, error: Exception | None = None) -> None:
        """Set the task's result or error, once.

        Without either, the task has to probe by itself.
        """
        if not self.told:
            self._answer, self._error, self.told = answer, error, True
            self._end.set()

    def answer(self) -> Any:
        """Wait for the result and return it, or raise the error that was set.

        None: the task has to probe by itself.
        """
        while not self.told and self._asker.is_alive():
            self._end.wait(LOOK)
        if self._error is not None:
            raise self._error
        return self._answer


class WaitingTasks:
    """Tasks of one worker that other tasks probe for.

    A task that is gone without having run takes its answer along.
    """

    def __init__(self) -> None:
        self._chosen: WeakKeyDictionary[Any, WaitingTask] = WeakKeyDictionary()

    def answer(self, worker: Worker, argument: Any) -> Any:
        """Return the result that another task computed for the current one.

        None: the current task has to probe by itself.
        """
        task = task_of(worker, worker.get_current_task())
        own = None if task is None else self._chosen.pop(task, None)
        # The argument may have been computed again since.
        return own.answer() if own is not None and own.argument is argument else None

    @contextmanager
    def ready(
        self, worker: Worker, function: Function, most_nbytes: int
    ) -> Iterator[list[WaitingTask]]:
        """Choose tasks about to call `function`, for the block to probe for.

        Tasks that the block has told nothing probe by themselves.

        Parameters
        ----------
        worker : distributed.Worker
        function : callable
            Its first argument is the one to probe for; a second one is the same for all tasks.
        most_nbytes : int
            Limit of the bytes of all arguments.
        """
        found: dict[Any, WaitingTask] = {}
        try:
            if ready_count(worker):
                choose = self._choose, worker, function, most_nbytes, threading.current_thread()
                sync(worker.loop, *choose, found)
            yield list(found.values())
        finally:
            for task, sibling in found.items():
                # Another worker may run the task, and its result may come here.
                if not sibling.told or task.state not in BEFORE_END:
                    self._chosen.pop(task, None)
                sibling.tell()

    async def _choose(
        self,
        worker: Worker,
        function: Function,
        most_nbytes: int,
        asker: threading.Thread,
        found: dict[Any, WaitingTask],
    ) -> None:
        """Append the next tasks in the worker's order to `found`.

        Runs on the event loop, so that none of them begins meanwhile.
        """
        # The worker's other threads are about to choose tasks as well.
        for task in next_tasks(worker, MOST, of=worker.state.nthreads):
            key = _argument(task.run_spec, function)
            if key is None or task in self._chosen:
                continue
            most_nbytes -= task_of(worker, key).get_nbytes()
            if most_nbytes < 0:
                return
            found[task] = self._chosen[task] = WaitingTask(worker.data[key], asker)


def _of_others(step: Task) -> bool:
    """Return whether a task's arguments, probe and index, are results of other tasks."""
    return bool(step.args) and all(isinstance(each, TaskRef) for each in step.args[1:])


def _argument(spec: Any, function: Function) -> Any:
    """Return the key of the first argument of a task that calls `function`.

    None for other tasks, and where the argument is not there before the task begins.
    """
    if not isinstance(spec, Task):
        return None
    # Dask may have fused several steps into one task.
    inner = spec.args[0] if spec.args else None
    for step in inner.values() if isinstance(inner, Mapping) else (spec,):
        if isinstance(step, Task) and function == step.func and _of_others(step):
            argument = step.args[0]
            if isinstance(argument, TaskRef) and argument.key in spec.dependencies:
                return argument.key
    return None
