"""The one thread of a worker that works on shards."""

from __future__ import annotations

import asyncio
import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from dgpuhash.distributed.cluster.rpc import REMEDY
from dgpuhash.errors import IndexLost

__all__ = ["ShardThread"]

Args = ParamSpec("Args")
Result = TypeVar("Result")

# Seconds between two looks whether work is done whose end was not told.
LOOK = 1.0


class ShardThread:
    """Runs work one piece after the other, off the event loop, in the order it was asked for.

    Shards are touched by this thread only, so they need no locks, and a change of an index falls
    between two requests, never into one. It begins at once and outlives errors of any kind: a
    process whose memory ran out may not be able to start a thread, or to tell of an end.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._closed = False
        # A finaliser of this very thread may ask for work, or close it.
        self._closing = threading.RLock()
        threading.Thread(target=self._work, name="dgpuhash-shards", daemon=True).start()

    async def run(
        self, work: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        """The result of ``work(*args, **kwargs)``.

        Raises
        ------
        IndexLost
            When the worker is ending.
        """
        job = Awaited(functools.partial(work, *args, **kwargs))
        job.look()
        self._put(job)
        return await job.outcome()

    def submit(
        self, work: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs
    ) -> Submitted:
        """As `run`, for other threads: without the event loop; the work's `outcome` waits for it.

        Raises
        ------
        IndexLost
            When the worker is ending.
        """
        job = Submitted(functools.partial(work, *args, **kwargs))
        self._put(job)
        return job

    def close(self) -> None:
        """Finish the piece at hand and drop the others."""
        with self._closing:
            self._closed = True
            self._jobs.put(None)

    def _put(self, job: Job) -> None:
        # Behind the last one nothing is looked at.
        with self._closing:
            if not self._closed:
                self._jobs.put(job)
            # It may have been closed in between.
            if self._closed:
                raise ending()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._closed:
                job.work = _refused
            try:
                job.carry_out()
            except BaseException as error:
                # Without memory for a call, or to tell, or after the end of the event loop.
                if not job.done:
                    job.error, job.done = error, True
            del job


class Job(ABC):
    """A piece of work, and what came of it: `done`, and the `error` if any."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.done = False
        self._result: Any = None
        self.error: BaseException | None = None

    def carry_out(self) -> None:
        """Do the work, unless nobody waits for it any more, and tell; runs on the thread."""
        if self._wanted():
            try:
                self._result = self.work()
            except BaseException as error:
                self.error = error
        self.done = True
        self._tell()

    def _wanted(self) -> bool:
        return True

    @abstractmethod
    def _tell(self) -> None:
        """Wake who waits."""

    def _told(self) -> Any:
        error, self.error = self.error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            # Its traceback holds this frame.
            del error


class Awaited(Job):
    """Work that an event loop waits for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(work)
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    async def outcome(self) -> Any:
        """The result, or its error raised."""
        try:
            await self._end
        finally:
            if self._timer is not None:
                self._timer.cancel()
        return self._told()

    def look(self) -> None:
        """Find an end that was not told, now and again."""
        self._find()
        if not self._end.done():
            self._timer = self._loop.call_later(LOOK, self.look)

    def _wanted(self) -> bool:
        return not self._end.cancelled()

    def _tell(self) -> None:
        self._loop.call_soon_threadsafe(self._find)

    def _find(self) -> None:
        if self.done and not self._end.done():
            self._end.set_result(None)


class Submitted(Job):
    """Work that a thread waits for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(work)
        self._end = threading.Event()

    def outcome(self) -> Any:
        """The result, or its error raised."""
        while not self.done:
            self._end.wait(LOOK)
        return self._told()

    def _tell(self) -> None:
        self._end.set()


def ending() -> IndexLost:
    """The error of work on a worker that ends."""
    return IndexLost(f"a worker with a shard of the index is ending; {REMEDY}")


def _refused() -> None:
    raise ending()
