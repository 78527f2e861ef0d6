"""What the event loop does for a thread that waits for it."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any

__all__ = ["Work"]

# Seconds between two looks whether it has ended and nobody told.
LOOK = 1.0


class Work:
    """Work of an event loop; its end is found, also where the loop could not tell.

    A process whose memory ran out may have none left to wake who waits.

    Attributes
    ----------
    told : Future
        What comes of it.
    task : Task, optional
        That does it, once it was begun.
    """

    told: Future[Any]
    task: asyncio.Task[Any] | None = None
    _ended = False

    def over(self, given_up: bool) -> bool:
        """Wait for a moment; whether there is an outcome.

        Parameters
        ----------
        given_up : bool
            Whether it is to end in any case.
        """
        with suppress(TimeoutError, CancelledError):
            self.told.exception(LOOK)
        # One that is about to tell is waited for until the next look.
        before, self._ended = self._ended, given_up or (self.task is not None and self.task.done())
        return self.told.done() or (before and self._ended)

    def outcome(self, error: BaseException) -> Any:
        """The result, or its error raised; `error` where there is neither."""
        if self.told.done():
            return self.told.result()
        if self.task is not None and self.task.done() and not self.task.cancelled():
            return self.task.result()
        raise error
