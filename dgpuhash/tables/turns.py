"""Threads that share a table: those that read take part together, one that changes it is alone."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from dgpuhash.tables.interrupts import uninterrupted

__all__ = ["Turns", "changes", "changes_whole", "reads"]

Rest = ParamSpec("Rest")
Answer = TypeVar("Answer")


class Turns:
    """Who may work on one table, in the order in which they came.

    Whoever works on it may enter again.

    Parameters
    ----------
    guard : callable, optional
        Called by whoever enters; raises where the table's memory cannot be worked on.
    """

    def __init__(self, guard: Callable[[], None] | None = None) -> None:
        self.guard = guard
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)
        self._waiting: deque[object] = deque()
        self._readers: set[int] = set()
        self._writer: int | None = None

    def __reduce__(self) -> tuple[type[Turns], tuple[()]]:
        # Nobody is at work on a copy yet.
        return Turns, ()

    def read(self) -> bool:
        """Wait until nobody changes the table; whether `leave` must follow."""
        me = threading.get_ident()
        if self._writer == me or me in self._readers:
            return False
        if self.guard is not None:
            self.guard()
        with self._lock:
            if self._waiting or self._writer is not None:
                self._wait(lambda: self._writer is None)
            self._readers.add(me)
        return True

    def change(self) -> bool:
        """Wait until nobody reads or changes the table; whether `leave` must follow."""
        me = threading.get_ident()
        if self._writer == me:
            return False
        if self.guard is not None:
            self.guard()
        with self._lock:
            if self._waiting or self._readers or self._writer is not None:
                self._wait(lambda: self._writer is None and not self._readers)
            self._writer = me
        return True

    def leave(self) -> None:
        """End what `read` or `change` began."""
        with self._lock:
            if self._writer is None:
                self._readers.remove(threading.get_ident())
            else:
                self._writer = None
            if self._waiting:
                self._moved.notify_all()

    def _wait(self, free: Callable[[], bool]) -> None:
        """Until the table is `free` and all have entered who came before: none is passed over."""
        me = object()
        self._waiting.append(me)
        try:
            while self._waiting[0] is not me or not free():
                self._moved.wait()
        finally:
            self._waiting.remove(me)
            self._moved.notify_all()


def reads(
    verb: Callable[Concatenate[Any, Rest], Answer],
) -> Callable[Concatenate[Any, Rest], Answer]:
    """A table's verb that leaves it as it is."""

    @functools.wraps(verb)
    def waiting(self: Any, *args: Rest.args, **kwargs: Rest.kwargs) -> Answer:
        turns = self._turns
        entered = turns.read()
        try:
            return verb(self, *args, **kwargs)
        finally:
            if entered:
                turns.leave()

    return waiting


def changes(
    verb: Callable[Concatenate[Any, Rest], Answer],
) -> Callable[Concatenate[Any, Rest], Answer]:
    """A table's verb that changes it."""

    @functools.wraps(verb)
    def waiting(self: Any, *args: Rest.args, **kwargs: Rest.kwargs) -> Answer:
        turns = self._turns
        entered = turns.change()
        try:
            return verb(self, *args, **kwargs)
        finally:
            if entered:
                turns.leave()

    return waiting


def changes_whole(
    verb: Callable[Concatenate[Any, Rest], Answer],
) -> Callable[Concatenate[Any, Rest], Answer]:
    """A table's verb that changes it by several kernels: Ctrl-C waits for the last one."""
    return changes(uninterrupted(verb))
