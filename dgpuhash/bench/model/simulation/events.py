"""Clock of discrete events, and servers that serve one request after the other."""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable, Generator
from itertools import count
from typing import Any


class Clock:
    """Simulated time, and what happens when.

    Attributes
    ----------
    now : float
        Seconds.

    Examples
    --------
    >>> clock, seen = Clock(), []
    >>> clock.at(2.0, seen.append, "late")
    >>> clock.at(1.0, seen.append, "early")
    >>> clock.run(), seen
    (2.0, ['early', 'late'])
    """

    def __init__(self) -> None:
        self.now: float = 0.0
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        # Events of one time happen in the order in which they were planned.
        self._numbers = count()

    def at(self, time: float, call: Callable[..., None], *args: Any) -> None:
        """Call ``call(*args)`` at a time."""
        heapq.heappush(self._due, (time, next(self._numbers), call, args))

    def run(self) -> float:
        """Let everything happen; return the time of the last event."""
        due, pop, collecting = self._due, heapq.heappop, gc.isenabled()
        # Looking for cycles among a million events takes as long as the events.
        gc.disable()
        try:
            while due:
                self.now, _, call, args = pop(due)
                call(*args)
        finally:
            if collecting:
                gc.enable()
        return self.now

    def start(self, program: Program, ended: Callable[[], None]) -> None:
        """Run a program; it goes on when a signal that it yields is given, or a time has come."""
        try:
            wait = next(program)
        except StopIteration:
            ended()
            return
        if isinstance(wait, Signal):
            wait.then(self.start, program, ended)
        else:
            self.at(max(wait, self.now), self.start, program, ended)


class Signal:
    """Signal that is given once, after `count` calls of `tell`.

    Examples
    --------
    >>> both = Signal(2)
    >>> both.then(print, "both")
    >>> both.tell()
    >>> both.tell()
    both
    """

    __slots__ = ("_left", "_waiting")

    def __init__(self, count: int = 1) -> None:
        self._left = count
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def tell(self) -> None:
        """Count one of the calls."""
        self._left -= 1
        if self._left == 0:
            waiting, self._waiting = self._waiting, []
            for call, args in waiting:
                call(*args)

    def then(self, call: Callable[..., None], *args: Any) -> None:
        """Call ``call(*args)`` once the signal is given, or at once if it was."""
        if self._left <= 0:
            call(*args)
        else:
            self._waiting.append((call, args))


# What a rank does: it yields signals that it waits for, and times until which it is busy.
Program = Generator[Signal | float, None, None]


class Server:
    """What serves one request after the other: a link, an event loop, a GPU.

    Attributes
    ----------
    free : float
        When it has served all requests so far.
    busy : float
        Seconds in which it was busy.

    Examples
    --------
    >>> link = Server()
    >>> link.serve(0.0, 2.0), link.serve(1.0, 2.0), link.serve(9.0, 1.0), link.busy
    (2.0, 4.0, 10.0, 5.0)
    """

    __slots__ = ("busy", "free")

    def __init__(self) -> None:
        self.free: float = 0.0
        self.busy: float = 0.0

    def serve(self, time: float, seconds: float) -> float:
        """Return when a request of `time`, made in the order of times, has been served."""
        start = self.free if self.free > time else time
        self.free = start + seconds
        self.busy += seconds
        return self.free
