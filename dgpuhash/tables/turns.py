"""Threads that share a table: those that read take part together, one that changes it is alone."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["Turns", "changes", "reads"]

Rest = ParamSpec("Rest")
Answer = TypeVar("Answer")


class Turns:
    """Who may work on one table; whoever changes it may enter again."""

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._readers = 0
        self._writer: int | None = None

    def __reduce__(self) -> tuple[type[Turns], tuple[()]]:
        # Nobody is at work on a copy yet.
        return Turns, ()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Wait until nobody changes the table."""
        if self._writer == threading.get_ident():
            yield
            return
        with self._free:
            self._free.wait_for(lambda: self._writer is None)
            self._readers += 1
        try:
            yield
        finally:
            with self._free:
                self._readers -= 1
                self._free.notify_all()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Wait until nobody reads or changes the table."""
        me = threading.get_ident()
        if self._writer == me:
            yield
            return
        with self._free:
            self._free.wait_for(lambda: self._writer is None and self._readers == 0)
            self._writer = me
        try:
            yield
        finally:
            with self._free:
                self._writer = None
                self._free.notify_all()


def reads(
    verb: Callable[Concatenate[Any, Rest], Answer],
) -> Callable[Concatenate[Any, Rest], Answer]:
    """A table's verb that leaves it as it is."""

    @functools.wraps(verb)
    def waiting(self: Any, *args: Rest.args, **kwargs: Rest.kwargs) -> Answer:
        with self._turns.reading():
            return verb(self, *args, **kwargs)

    return waiting


def changes(
    verb: Callable[Concatenate[Any, Rest], Answer],
) -> Callable[Concatenate[Any, Rest], Answer]:
    """A table's verb that changes it."""

    @functools.wraps(verb)
    def waiting(self: Any, *args: Rest.args, **kwargs: Rest.kwargs) -> Answer:
        with self._turns.changing():
            return verb(self, *args, **kwargs)

    return waiting
