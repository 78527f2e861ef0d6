"""Siblings: tasks that are ready on a worker, for which one like them that runs asks as well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from dask._task_spec import Task, TaskRef
from distributed import Worker
from distributed.utils import sync

__all__ = ["Sibling", "Siblings"]

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
