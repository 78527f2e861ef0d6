"""Phases that the scheduler passes on: results, errors, turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client

from dgpuhash.distributed import relay
from dgpuhash.distributed.relay import end_turn, relayed

pytestmark = pytest.mark.cluster

under_way: list[int] = []
begun, gate = threading.Event(), threading.Event()


def address(times: int, dask_worker: Any) -> str:
    return str(dask_worker.address) * times


def fail(dask_worker: Any) -> None:
    raise ValueError("no")


async def alone(dask_worker: Any) -> int:
    """How many others are under way."""
    under_way.append(1)
    try:
        await asyncio.sleep(0.01)
        return len(under_way)
    finally:
        under_way.pop()


async def held(dask_worker: Any) -> None:
    begun.set()
    while not gate.is_set():
        await asyncio.sleep(0.01)


async def fail_on(worker: str, dask_worker: Any) -> None:
    if dask_worker.address == worker:
        raise ValueError("no")
    await held(dask_worker)


@pytest.fixture
def closed_gate() -> Iterator[None]:
    """What is held goes on after the test, at the latest."""
    begun.clear()
    gate.clear()
    yield
    gate.set()


def test_results_and_errors(client: Client) -> None:
    workers = sorted(client.nthreads())
    found = client.sync(relayed, client, workers, address, (2,))
    assert found == {worker: worker * 2 for worker in workers}
    failed = client.sync(relayed, client, workers[:1], fail)
    assert isinstance(failed[workers[0]], ValueError)
    nobody = "tcp://127.0.0.1:1"
    assert isinstance(client.sync(relayed, client, [nobody], fail)[nobody], OSError)


def test_named_phases_take_turns(threads: Client) -> None:
    (worker, *_) = threads.nthreads()

    async def several() -> list[dict[str, int]]:
        phases = [relayed(threads, [worker], alone, (), f"phase {n}") for n in range(5)]
        return list(await asyncio.gather(*phases))

    assert threads.sync(several) == [{worker: 1}] * 5


def test_who_waits_for_one_that_failed_is_not_waited_for(
    threads: Client, closed_gate: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "FAREWELL", 0.1)
    first, second, *_ = threads.nthreads()
    found = threads.sync(relayed, threads, [first, second], fail_on, (first,), "ranks")
    assert isinstance(found[first], ValueError)
    assert isinstance(found[second], TimeoutError)


def test_the_error_that_others_led_to_is_waited_for(
    threads: Client, closed_gate: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "FAREWELL", 60.0)
    first, second, *_ = threads.nthreads()
    threading.Timer(0.2, gate.set).start()
    found = threads.sync(relayed, threads, [first, second], fail_on, (first,), "ranks")
    assert isinstance(found[first], ValueError)
    assert found[second] is None


def test_a_turn_that_was_given_up(threads: Client, closed_gate: None) -> None:
    first, second, *_ = threads.nthreads()

    async def phases() -> dict[str, int]:
        stuck = asyncio.ensure_future(relayed(threads, [first], held, (), "stuck"))
        assert await asyncio.to_thread(begun.wait, 10)
        waiting = asyncio.ensure_future(relayed(threads, [second], alone, (), "next"))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await end_turn(threads, "stuck")
        found = await asyncio.wait_for(waiting, 10)
        gate.set()
        await stuck
        return found

    assert threads.sync(phases) == {second: 1}


def test_a_turn_of_a_client_that_is_gone(
    threads: Client, closed_gate: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "PATIENCE", 0.1)
    first, second, *_ = threads.nthreads()
    message = {"workers": [first], "function": held, "turn": "stuck"}

    async def phases() -> dict[str, int]:
        stuck = asyncio.ensure_future(relayed(Gone(threads), **message))
        assert await asyncio.to_thread(begun.wait, 10)
        found = await asyncio.wait_for(relayed(threads, [second], alone, (), "next"), 10)
        gate.set()
        await stuck
        return found

    assert threads.sync(phases) == {second: 1}


class Gone:
    """A client that the scheduler does not know any more."""

    id = "gone"

    def __init__(self, client: Client) -> None:
        self.run_on_scheduler = client.run_on_scheduler
