"""Liveness: connected workers that do not continue or cannot report."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import dask
import pytest
from clusters import cluster_of, until
from distributed import Client, rejoin, secede

from dgpuhash.distributed.cluster import broadcast
from dgpuhash.distributed.cluster.liveness import stuck_work
from dgpuhash.errors import IndexLost

pytestmark = pytest.mark.cluster

came_back, gate, over = threading.Event(), threading.Event(), threading.Event()


@pytest.fixture
def one() -> Iterator[Client]:
    """Yield a client of a worker with one thread in this process."""
    with cluster_of(1, processes=False) as client:
        yield client


class Starved:
    """Work at which a thread ends, as Dask's does without memory."""

    def run(self) -> None:
        raise MemoryError


def end_thread(dask_worker: Any) -> None:
    dask_worker.executor._work_queue.put(Starved())


def threads_end(dask_worker: Any) -> bool:
    return not any(each.is_alive() for each in dask_worker.executor._threads)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_task_that_no_thread_takes_is_lost(one: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "heartbeat", 0.1)
    monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "stuck", 0.5)
    one.submit(int).result()
    one.run(end_thread)
    until(lambda: all(one.run(threads_end).values()))
    with pytest.raises(IndexLost, match="in none of its threads"):
        broadcast.gather_watched(one, list(one.nthreads()), [one.submit(int, "1")])


def end_sender(dask_worker: Any) -> None:
    """End the coroutine that sends to the scheduler, as without memory."""

    def wait(*_: Any) -> None:
        raise MemoryError

    waker = dask_worker.batched_stream.waker
    waker.wait = wait
    waker.set()


def begin_sender(dask_worker: Any) -> None:
    del dask_worker.batched_stream.waker.wait
    dask_worker.loop.add_callback(dask_worker.batched_stream._background_send)


def test_an_end_that_is_not_sent_is_lost(one: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "heartbeat", 0.1)
    monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "stuck", 0.5)
    one.run(end_sender)
    with pytest.raises(IndexLost, match="are not sent"):
        broadcast.gather_watched(one, list(one.nthreads()), [one.submit(int, "1")])
    one.run(begin_sender)


def without_memory(dask_worker: Any) -> list[str]:
    raise MemoryError


def test_a_worker_that_cannot_answer_is_lost(one: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask asks for its results on and on."""
    monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "heartbeat", 0.1)
    monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "stuck", 0.5)
    monkeypatch.setattr(broadcast, "stuck_work", without_memory)
    waiting = one.submit(wait_for_it)
    with pytest.raises(IndexLost, match="no answer of it comes"):
        broadcast.gather_watched(one, list(one.nthreads()), [waiting])
    over.set()


def out_of_memory() -> NoReturn:
    raise MemoryError("while it was loaded")


class Unloadable:
    """Object that takes more memory to load than its reader has."""

    def __reduce__(self) -> tuple[Any, ...]:
        return out_of_memory, ()


def test_data_that_could_not_be_loaded_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask lets the task that needs them wait on and on."""
    monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "heartbeat", 0.1)
    monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "stuck", 0.5)
    with cluster_of(2, processes=True) as client:
        first, second = client.nthreads()
        held = client.submit(Unloadable, workers=[second])
        wanted = client.submit(type, held, workers=[first])
        with pytest.raises(IndexLost, match=r"could not be loaded .*while it was.*; end it"):
            broadcast.gather_watched(client, [first, second], [wanted])


def wait_for_it() -> None:
    assert over.wait(60)


def stay() -> None:
    secede()
    rejoin()
    came_back.set()
    assert gate.wait(60)


def test_a_task_that_waits_for_a_thread_that_came_back_is_not(one: Client) -> None:
    first = one.submit(stay)
    assert came_back.wait(60)
    second = one.submit(int, "1")

    def begun(dask_worker: Any) -> bool:
        return second.key in dask_worker.active_keys

    until(lambda: all(one.run(begun).values()))
    assert list(one.run(stuck_work).values()) == [[]]
    gate.set()
    assert one.gather([first, second]) == [None, 1]
