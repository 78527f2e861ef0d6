"""Device thread when memory is too short to report the end of work."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dgpuhash.distributed.cluster.device_thread import AsyncJob, DeviceThread
from dgpuhash.errors import IndexLost


class Held:
    """Work that ends when the test lets it."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.go_on.wait(10)


def on_thread(*works: Callable[[], Any]) -> list[Any]:
    """Run works on one device thread at once; return results and exceptions."""

    async def ask() -> list[Any]:
        thread = DeviceThread()
        try:
            return await asyncio.gather(*map(thread.run, works), return_exceptions=True)
        finally:
            thread.close()

    return asyncio.run(asyncio.wait_for(ask(), 20))


def test_in_order_on_one_other_thread():
    seen: list[int] = []
    names = on_thread(*(lambda n=n: seen.append(n) or threading.get_ident() for n in range(20)))
    assert seen == list(range(20))
    assert len(set(names)) == 1
    assert names[0] != threading.get_ident()


def test_errors_are_those_of_the_call():
    wrong, right = on_thread(lambda: 1 / 0, lambda: 1)
    assert isinstance(wrong, ZeroDivisionError)
    assert right == 1


def test_an_end_that_could_not_be_told(monkeypatch):
    """Telling the event loop takes memory; what was done meanwhile is done, and answered."""

    async def ask() -> list[int]:
        thread, loop = DeviceThread(), asyncio.get_running_loop()
        tell = loop.call_soon_threadsafe
        left = [2]

        def short_of_memory(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] >= 0:
                raise MemoryError
            return tell(*args, **kwargs)

        monkeypatch.setattr(loop, "call_soon_threadsafe", short_of_memory)
        try:
            return [await thread.run(int, text) for text in ("1", "2", "3")]
        finally:
            thread.close()

    assert asyncio.run(asyncio.wait_for(ask(), 20)) == [1, 2, 3]


def test_it_outlives_memory_that_runs_out_between_two_pieces(monkeypatch):
    """A call that cannot be made ends the piece, and not the thread."""
    wanted, calls = AsyncJob._is_wanted, itertools.count()

    def short_of_memory(job: AsyncJob) -> bool:
        if next(calls) == 0:
            raise MemoryError
        return wanted(job)

    async def ask() -> list[Any]:
        thread = DeviceThread()
        pieces = [thread.run(int, text) for text in ("1", "2")]
        try:
            return await asyncio.gather(*pieces, return_exceptions=True)
        finally:
            thread.close()

    monkeypatch.setattr(AsyncJob, "_is_wanted", short_of_memory)
    first, second = asyncio.run(asyncio.wait_for(ask(), 20))
    assert isinstance(first, MemoryError)
    assert second == 2


def test_whoever_waits_when_it_is_closed_is_told():
    async def ask() -> list[Any]:
        thread, work = DeviceThread(), Held()
        waiting = [asyncio.ensure_future(thread.run(work)) for _ in range(3)]
        await asyncio.to_thread(work.begun.wait, 10)
        thread.close()
        work.go_on.set()
        late = asyncio.ensure_future(thread.run(int))
        return await asyncio.gather(*waiting, late, return_exceptions=True)

    first, *others = asyncio.run(asyncio.wait_for(ask(), 20))
    assert first is None
    assert len(others) == 3
    for each in others:
        with pytest.raises(IndexLost, match="is ending"):
            raise each


def test_work_that_nobody_waits_for_is_not_done():
    done: list[int] = []

    async def ask() -> None:
        thread, work = DeviceThread(), Held()
        first = asyncio.ensure_future(thread.run(work))
        given_up = asyncio.ensure_future(thread.run(done.append, 1))
        await asyncio.to_thread(work.begun.wait, 10)
        given_up.cancel()
        work.go_on.set()
        await first
        await thread.run(done.append, 2)
        thread.close()

    asyncio.run(asyncio.wait_for(ask(), 20))
    assert done == [2]


def test_other_threads_wait_without_an_event_loop():
    thread = DeviceThread()
    try:
        slow, wrong, right = (
            thread.submit(*each) for each in [(time.sleep, 0.05), (int, "x"), (int, "7")]
        )
        assert slow.outcome() is None
        with pytest.raises(ValueError, match="invalid literal"):
            wrong.outcome()
        assert right.outcome() == 7
    finally:
        thread.close()
    with pytest.raises(IndexLost, match="ending"):
        thread.submit(int, "7")


def test_work_that_a_thread_submitted_is_refused_when_it_is_closed():
    thread, work = DeviceThread(), Held()
    waiting = [thread.submit(work), thread.submit(int, "7")]
    assert work.begun.wait(10)
    thread.close()
    work.go_on.set()
    assert waiting[0].outcome() is None
    with pytest.raises(IndexLost, match="ending"):
        waiting[1].outcome()


def test_an_end_that_a_thread_was_not_told(monkeypatch):
    def no_memory(job: object) -> None:
        raise MemoryError

    monkeypatch.setattr("dgpuhash.distributed.cluster.device_thread.BlockingJob._tell", no_memory)
    thread = DeviceThread()
    try:
        assert thread.submit(int, "7").outcome() == 7
    finally:
        thread.close()


def test_closed_by_the_thread_that_asks():
    """As by a finaliser, which the collector may run in the middle of the question."""
    thread = DeviceThread()
    jobs = thread._jobs

    class Closing:
        def put(self, job):
            thread._jobs = jobs
            jobs.put(job)
            thread.close()

    thread._jobs = Closing()
    with pytest.raises(IndexLost, match="ending"):
        thread.submit(lambda: 1)
    with pytest.raises(IndexLost, match="ending"):
        thread.submit(lambda: 1)
