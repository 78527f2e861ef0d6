"""Dedicated thread for a worker's shards: it runs jobs on them one by one."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from dgpuhash.distributed.cluster.rpc import REMEDY
from dgpuhash.errors import IndexLost

Args = ParamSpec("Args")
Result = TypeVar("Result")

# Seconds between two checks for finished work whose waiter could not be woken.
POLL_SECONDS = 1.0


@dataclass(slots=True)
class ThreadProgress:
    """ThreadProgress of a bulk operation on a shard thread: rows done of rows in all.

    Attributes
    ----------
    uid : str
        Id of the index or table; empty for a frame.
    verb, step : str
        What is done to it, as ``"insert"``, and which part of that, as ``"exchange rows"``.
    rows, done : int
        Rows of this worker in all, 0 where nobody knows them, and those that are done.
    since : float
        When the work began, by `time.monotonic`.
    """

    uid: str
    verb: str
    step: str
    rows: int = 0
    done: int = 0
    since: float = field(default_factory=time.monotonic)

    def advance(self, rows: int) -> None:
        """Count `rows` more rows as done."""
        self.done += rows

    def go_on(self, step: str, rows: int | None = None) -> None:
        """Start the next step, with the same number of rows or `rows`."""
        self.step, self.done = step, 0
        self.rows = self.rows if rows is None else rows


class DeviceThread:
    """Dedicated thread that runs all jobs on a worker's shards, one after the other.

    Jobs run off the event loop, in the order of submission. As no other thread touches the shards,
    they need no locks, and a change of an index falls between two requests, never into one. The
    thread starts at once and survives errors of any kind: a process whose memory ran out may not be
    able to start a thread, or to signal the end of a job.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[DeviceJob | None] = SimpleQueue()
        self._closed = False
        self.progress: ThreadProgress | None = None
        """Of the bulk work that the thread does now; others only read it."""
        # A finaliser that runs on this very thread may submit work, or close it.
        self._closing = threading.RLock()
        threading.Thread(target=self._work, name="dgpuhash-shards", daemon=True).start()

    async def run(
        self, work: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        """Return the result of ``work(*args, **kwargs)``, run on the thread.

        Raises
        ------
        IndexLost
            When the worker is ending.
        """
        job = AsyncJob(functools.partial(work, *args, **kwargs))
        job.look()
        self._put(job)
        return await job.outcome()

    @contextmanager
    def telling(self, progress: ThreadProgress) -> Iterator[ThreadProgress]:
        """Publish the progress of this thread's bulk work within a block."""
        self.progress = progress
        try:
            yield progress
        finally:
            self.progress = None

    def submit(
        self, work: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs
    ) -> BlockingJob:
        """Submit work from another thread; its `outcome` waits for the result.

        As `run`, without an event loop.

        Raises
        ------
        IndexLost
            When the worker is ending.
        """
        job = BlockingJob(functools.partial(work, *args, **kwargs))
        self._put(job)
        return job

    def close(self) -> None:
        """Finish the running job and refuse all others."""
        with self._closing:
            self._closed = True
            self._jobs.put(None)

    def _put(self, job: DeviceJob) -> None:
        # The thread reads nothing behind the closing None.
        with self._closing:
            if not self._closed:
                self._jobs.put(job)
            # A finaliser on this thread may have closed it in between.
            if self._closed:
                raise worker_ending_error()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._closed:
                job.work = _refuse
            try:
                job.carry_out()
            except BaseException as error:
                # No memory for a call or for the signal, or the event loop has ended.
                if not job.done:
                    job.error, job.done = error, True
            del job


class DeviceJob(ABC):
    """Job of the shard thread: `done`, its result, and its `error` if any."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.done: bool = False
        self._result: Any = None
        self.error: BaseException | None = None

    def carry_out(self) -> None:
        """Run the job, unless its waiter was cancelled, and wake the waiter.

        Runs on the shard thread.
        """
        if self._is_wanted():
            try:
                self._result = self.work()
            except BaseException as error:
                self.error = error
        self.done = True
        self._tell()

    def _is_wanted(self) -> bool:
        return True

    @abstractmethod
    def _tell(self) -> None:
        """Wake the waiter."""

    def _outcome(self) -> Any:
        error, self.error = self.error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            # The error's traceback refers to this frame.
            del error


class AsyncJob(DeviceJob):
    """Job whose waiter is a coroutine."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(work)
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    async def outcome(self) -> Any:
        """Return the result, or raise its error."""
        try:
            await self._end
        finally:
            if self._timer is not None:
                self._timer.cancel()
        return self._outcome()

    def look(self) -> None:
        """Poll for the end of the job, if the thread could not signal it."""
        self._find()
        if not self._end.done():
            self._timer = self._loop.call_later(POLL_SECONDS, self.look)

    def _is_wanted(self) -> bool:
        return not self._end.cancelled()

    def _tell(self) -> None:
        self._loop.call_soon_threadsafe(self._find)

    def _find(self) -> None:
        if self.done and not self._end.done():
            self._end.set_result(None)


class BlockingJob(DeviceJob):
    """Job whose waiter is a thread."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(work)
        self._end = threading.Event()

    def outcome(self) -> Any:
        """Return the result, or raise its error."""
        while not self.done:
            self._end.wait(POLL_SECONDS)
        return self._outcome()

    def _tell(self) -> None:
        self._end.set()


def worker_ending_error() -> IndexLost:
    """Return the error of work submitted to a worker that is ending."""
    return IndexLost(f"a worker with a shard is ending; {REMEDY}")


def _refuse() -> None:
    raise worker_ending_error()
