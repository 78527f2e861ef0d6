"""Siblings: tasks that are ready on a worker, for which one like them that runs asks as well."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from dask._task_spec import Task, TaskRef
from distributed import Worker
from distributed.utils import sync

from dgpuhash.backend import ran_out

__all__ = ["Sibling", "Siblings", "Together"]

# Seconds from one call to the next in which a batch waits, and between two looks for one.
PAUSE = 0.05
QUIET_SECONDS = 0.0005


@dataclass(eq=False, slots=True)
class Call:
    """What one thread wants to be worked on."""

    kind: int
    thing: Any
    nbytes: int
    taken: bool = False
    alone: bool = False
    answered: bool = False
    answer: Any = None
    error: BaseException | None = None


class Together:
    """Puts the calls that wait into batches, each worked on by one of the threads that called.

    A batch begins when it is full, or no call has come for a moment or is about to.
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
        """What `work` gives for `thing`.

        Parameters
        ----------
        work : callable
            From the things of a batch to an answer for each, in their order.
        thing : Any
        kind : int
            Only calls of one kind share a batch; their `work` does the same.
        nbytes : int
            Of `thing`.
        most_nbytes : int
            Of a batch; a single thing may have more.
        at_once : int
            Batches at work at once: with two, one is prepared while another waits for answers.
        more : callable
            Whether other threads may be about to call.

        Raises
        ------
        Exception
            What `work` raised for a batch. One that has run out of memory is tried again by the
            calls that are not answered, each alone.
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
                    # Others wait for the first one to go.
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
        """A batch that begins with `own`, once it is to be worked on; None when it is answered."""
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
        """The calls that wait and go with `own`, and whether no more would."""
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
            again = len(batch) > 1 and ran_out(error)
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


# Tasks that one asks for.
MOST = 64
# Seconds between two looks whether a task that asks for others has ended without a word.
LOOK = 1.0
# Of tasks that are going to end on their worker.
BEFORE_END = {"ready", "executing"}

Function = Callable[[Any], Any]


class Sibling:
    """A task that has not begun, and what another one was answered for it.

    Attributes
    ----------
    argument : Any
        What it is going to call its function with.
    told : bool
        Whether it was told what came of it.
    """

    def __init__(self, argument: Any, asker: threading.Thread) -> None:
        self.argument = argument
        self.told = False
        self._asker = asker
        self._answer: Any = None
        self._error: Exception | None = None
        self._end = threading.Event()

    def tell(self, answer: Any = None, error: Exception | None = None) -> None:
        """Say what came of it, once; nothing: it has to ask by itself."""
        if not self.told:
            self._answer, self._error, self.told = answer, error, True
            self._end.set()

    def answer(self) -> Any:
        """What it was told, as soon as it is; an error is raised."""
        while not self.told and self._asker.is_alive():
            self._end.wait(LOOK)
        if self._error is not None:
            raise self._error
        return self._answer


class Siblings:
    """Those of one worker. A task that goes without having run takes its answer along."""

    def __init__(self) -> None:
        self._chosen: WeakKeyDictionary[Any, Sibling] = WeakKeyDictionary()

    def answer(self, worker: Worker, argument: Any) -> Any:
        """What another task was answered for the current one; None: it has to ask by itself."""
        task = worker.state.tasks.get(worker.get_current_task())
        own = None if task is None else self._chosen.pop(task, None)
        # What it was to be called with may have been made anew.
        return own.answer() if own is not None and own.argument is argument else None

    @contextmanager
    def ready(
        self, worker: Worker, function: Function, most_nbytes: int
    ) -> Iterator[list[Sibling]]:
        """Tasks that are about to call `function`, for which the block asks.

        Those that it does not tell what came of it ask by themselves.

        Parameters
        ----------
        worker : distributed.Worker
        function : callable
            Of one argument.
        most_nbytes : int
            Of the arguments of all.
        """
        found: dict[Any, Sibling] = {}
        try:
            if worker.state.ready:
                choose = self._choose, worker, function, most_nbytes, threading.current_thread()
                sync(worker.loop, *choose, found)
            yield list(found.values())
        finally:
            for task, sibling in found.items():
                # What another worker does may come here as its result.
                if not sibling.told or task.state not in BEFORE_END:
                    self._chosen.pop(task, None)
                sibling.tell()

    async def _choose(
        self,
        worker: Worker,
        function: Function,
        most_nbytes: int,
        asker: threading.Thread,
        found: dict[Any, Sibling],
    ) -> None:
        """Put those whose turn comes next into `found`: on the event loop, where none begins."""
        ready = worker.state.ready
        # Its other threads are about to ask as well.
        for task in ready.peekn(min(MOST, -(-len(ready) // worker.state.nthreads))):
            key = _argument(task.run_spec, function)
            if key is None or task in self._chosen:
                continue
            most_nbytes -= worker.state.tasks[key].get_nbytes()
            if most_nbytes < 0:
                return
            found[task] = self._chosen[task] = Sibling(worker.data[key], asker)


def _argument(spec: Any, function: Function) -> Any:
    """The key of what a task calls `function` with, if that is there before it begins; or None."""
    if not isinstance(spec, Task):
        return None
    # Steps that Dask has made one task of.
    inner = spec.args[0] if spec.args else None
    for step in inner.values() if isinstance(inner, Mapping) else (spec,):
        if isinstance(step, Task) and function == step.func and len(step.args) == 1:
            argument = step.args[0]
            if isinstance(argument, TaskRef) and argument.key in spec.dependencies:
                return argument.key
    return None
