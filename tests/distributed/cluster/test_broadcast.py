"""End of a broadcast: the result of the waiting thread, and clean-up."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from functools import partial
from typing import Any

import pytest
from clusters import until
from distributed import Client
from distributed.core import CommClosedError

from dgpuhash.distributed.cluster.broadcast import (
    MEMBERSHIP_SECONDS,
    _WatchedCall,
    clear_tracebacks,
    register_plugin,
    run_on_workers,
    run_watched,
)
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.errors import IndexLost, OutOfMemoryError


class Held:
    """Stand-in for an array."""


def fail(seen: list[weakref.ref[Held]]) -> None:
    held = Held()
    seen.append(weakref.ref(held))
    error = ValueError("wrong")
    raise error


def fail_because(seen: list[weakref.ref[Held]]) -> None:
    held = Held()
    seen.append(weakref.ref(held))
    try:
        fail(seen)
    except ValueError as cause:
        raise RuntimeError("worse") from cause


def test_an_error_holds_nothing_that_its_frames_held():
    seen: list[weakref.ref[Held]] = []
    gc.disable()
    try:
        with pytest.raises(RuntimeError, match="worse") as raised:
            fail_because(seen)
        assert all(held() is not None for held in seen)
        clear_tracebacks(raised.value)
        assert [held() for held in seen] == [None, None]
        assert str(raised.value) == "worse"
    finally:
        gc.enable()


def start_a_thread(host: Any) -> None:
    usual = threading.stack_size(1 << 47)
    try:
        threading.Thread(target=host.worker.close).start()
    finally:
        threading.stack_size(usual)


def test_a_thread_without_room_for_its_stack_says_that_memory_ran_out(processes: Client):
    register_plugin(processes, ShardHost())
    with pytest.raises(OutOfMemoryError, match="start_a_thread ran out of memory: can't start new"):
        run_on_workers(processes, list(processes.nthreads()), start_a_thread)


def its_address(host: Any) -> str:
    return str(host.worker.address)


def naps(host: Any, seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def fails(host: Any) -> None:
    raise ValueError(its_address(host))


@pytest.fixture
def workers(threads: Client) -> list[str]:
    """Return the addresses of workers that hold shards."""
    register_plugin(threads, ShardHost())
    return sorted(threads.nthreads())


@pytest.mark.parametrize("seconds", [0, 0.4])
def test_results_are_in_the_order_of_workers_also_of_long_phases(threads, workers, seconds):
    done: list[float] = []
    slept = run_on_workers(threads, workers, naps, seconds, meanwhile=lambda: done.append(seconds))
    assert slept == [seconds] * len(workers)
    assert len(done) == 1 or seconds == 0
    assert run_on_workers(threads, workers[::-1], its_address) == workers[::-1]


def test_what_was_waited_for_long_is_held_no_longer(threads, workers):
    """Without the collector: device memory would wait for it."""

    async def work(held: Held) -> None:
        await asyncio.sleep(2 * MEMBERSHIP_SECONDS)

    held = Held()
    seen = weakref.ref(held)
    gc.disable()
    try:
        run_watched(threads, workers, partial(work, held))
        del held
        until(lambda: seen() is None)
    finally:
        gc.enable()


def test_errors_and_limits(threads, workers):
    with pytest.raises(ValueError, match=r"://"):
        run_on_workers(threads, workers, fails)
    with pytest.raises(IndexLost, match="not answered for 0 s"):
        run_on_workers(threads, workers, naps, 2.0, limit=0.45)
    with pytest.raises(IndexLost, match="nobody"):
        run_on_workers(threads, ["inproc://nobody/1"], its_address)


def test_who_is_interrupted_leaves_work_to_end_by_itself(threads, workers):
    ended: list[str] = []

    async def work() -> None:
        await asyncio.sleep(1)
        ended.append("work")

    def interrupt() -> None:
        raise KeyboardInterrupt

    awaited = _WatchedCall(threads, workers, work)
    with pytest.raises(KeyboardInterrupt):
        awaited.outcome(interrupt)
    assert not awaited._alarms and not ended
    until(lambda: ended == ["work"])


def test_what_cannot_begin_is_an_error_of_the_thread_that_waits(threads, workers):
    def begin() -> Any:
        raise OSError("no way to begin")

    with pytest.raises(OSError, match="no way"):
        run_watched(threads, workers, begin)


def test_work_that_is_cancelled_is_a_lost_worker(threads, workers):
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(IndexLost, match="event loop ends"):
        run_watched(threads, workers, cancelled)


def test_a_loop_that_has_ended_is_waited_for_no_longer(threads):
    """Calls that it was given when it ended are never made."""

    async def work() -> None:
        raise AssertionError("it was called")

    with Client(threads.scheduler.address, loop=None, set_as_default=False) as other:
        workers = list(other.scheduler_info(n_workers=-1)["workers"])
        loop: Any = other.loop
    assert not loop.asyncio_loop.is_running()
    ended = loop.asyncio_loop
    given: list[Any] = []
    # As in the moment before it is closed.
    ended.call_soon_threadsafe = given.append
    awaited = _WatchedCall(other, workers, work)
    assert len(given) == 1
    with pytest.raises(CommClosedError, match="lost the connection"):
        awaited.outcome()


def test_watches_that_are_cancelled_at_once_say_nothing(threads, recwarn):
    """What comes just as they begin."""
    workers = list(threads.scheduler_info(n_workers=-1)["workers"])

    async def work() -> str:
        return "done"

    async def begin() -> None:
        awaited = _WatchedCall(threads, workers, work)
        awaited._watch()
        awaited._rest()
        await asyncio.sleep(0)

    threads.sync(begin)
    gc.collect()
    assert not [each for each in recwarn if "never awaited" in str(each.message)]
