"""Rest for an event loop while another thread does what the loop has no part in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["resting"]

# Seconds that the event loop sleeps between two rounds of what it has to do.
SLEEP = 3e-4


@contextmanager
def resting(loop: asyncio.AbstractEventLoop, device: str) -> Iterator[None]:
    """A block of another thread, of work on a GPU, in which `loop` takes naps.

    That of a worker on UCXX never rests, and each call that gives Python's lock away waits for it,
    for about 25 us. What it carries waits for the naps.
    """
    if device == "cpu":
        yield
        return
    rest = Rest(loop)
    loop.call_soon_threadsafe(rest.go_on)
    try:
        yield
    finally:
        rest.over.set()


class Rest:
    """Naps of an event loop, one after each round of what else it has to do.

    Attributes
    ----------
    over : threading.Event
        Ends the nap, and the naps.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.over = threading.Event()

    def go_on(self) -> None:
        """Take a nap, and later the next."""
        if not self.over.wait(SLEEP):
            self._loop.call_soon(self.go_on)
