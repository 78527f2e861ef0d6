"""Broadcasts through the scheduler: results, errors, order."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from clusters import until
from distributed import Client

from dgpuhash.distributed.cluster import scheduler as relay
from dgpuhash.distributed.cluster.locality import DataNotLocal, InputSpec, LocalInputs, TaskOutput
from dgpuhash.distributed.cluster.scheduler import broadcast_call, leave_queue

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
    """Close the gate, and open it after the test at the latest."""
    begun.clear()
    gate.clear()
    yield
    gate.set()


def test_results_and_errors(asking: Client) -> None:
    client, workers = asking, sorted(asking.nthreads())
    found = client.sync(broadcast_call, client, workers, address, (2,))
    assert found == {worker: worker * 2 for worker in workers}
    failed = client.sync(broadcast_call, client, workers[:1], fail)
    assert isinstance(failed[workers[0]], ValueError)
    nobody = "tcp://127.0.0.1:1"
    assert isinstance(client.sync(broadcast_call, client, [nobody], fail)[nobody], OSError)


def test_named_phases_take_turns(threads: Client) -> None:
    (worker, *_) = threads.nthreads()

    async def several() -> list[dict[str, int]]:
        phases = [broadcast_call(threads, [worker], alone, (), f"phase {n}") for n in range(5)]
        return list(await asyncio.gather(*phases))

    assert threads.sync(several) == [{worker: 1}] * 5


def test_who_waits_for_one_that_failed_is_not_waited_for(
    threads: Client, closed_gate: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ABORT_SECONDS", 0.1)
    first, second, *_ = threads.nthreads()
    found = threads.sync(broadcast_call, threads, [first, second], fail_on, (first,), "ranks")
    assert isinstance(found[first], ValueError)
    assert isinstance(found[second], TimeoutError)


def test_the_error_that_others_led_to_is_waited_for(
    threads: Client, closed_gate: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ABORT_SECONDS", 60.0)
    first, second, *_ = threads.nthreads()
    threading.Timer(0.2, gate.set).start()
    found = threads.sync(broadcast_call, threads, [first, second], fail_on, (first,), "ranks")
    assert isinstance(found[first], ValueError)
    assert found[second] is None


def test_a_turn_that_was_given_up(threads: Client, closed_gate: None) -> None:
    first, second, *_ = threads.nthreads()

    async def phases() -> dict[str, int]:
        stuck = asyncio.ensure_future(broadcast_call(threads, [first], held, (), "stuck"))
        assert await asyncio.to_thread(begun.wait, 10)
        waiting = asyncio.ensure_future(broadcast_call(threads, [second], alone, (), "next"))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await leave_queue(threads, "stuck")
        found = await asyncio.wait_for(waiting, 10)
        gate.set()
        await stuck
        return found

    assert threads.sync(phases) == {second: 1}


def test_a_turn_of_a_client_that_is_gone(
    threads: Client, closed_gate: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "CLIENT_CHECK_SECONDS", 0.1)
    first, second, *_ = threads.nthreads()
    message = {"workers": [first], "function": held, "turn": "stuck"}

    async def phases() -> dict[str, int]:
        stuck = asyncio.ensure_future(broadcast_call(Gone(threads), **message))
        assert await asyncio.to_thread(begun.wait, 10)
        found = await asyncio.wait_for(broadcast_call(threads, [second], alone, (), "next"), 10)
        gate.set()
        await stuck
        return found

    assert threads.sync(phases) == {second: 1}


class Gone:
    """Client that the scheduler no longer knows."""

    id = "gone"

    def __init__(self, client: Client) -> None:
        self.run_on_scheduler, self.scheduler = client.run_on_scheduler, client.scheduler
        self.cluster = None


def deal(
    workers: list[str], labels: list[str], holders: dict[str, list[str]]
) -> list[list[Any]] | str:
    """Assign each label to the worker that holds it."""
    if not all(holders[label] for label in labels):
        return "nobody has it"
    return [
        [SimpleNamespace(labels=(label,)) for label in labels if holders[label] == [worker]]
        for worker in workers
    ]


def double(given: LocalInputs, dask_worker: Any) -> TaskOutput[int]:
    """Leave the given numbers on the worker, doubled."""
    own = zip(given.own, given.things, strict=True)
    left = {f"doubled-{given.token}-{item.labels[0]}": 2 * one for item, (one,) in own}
    return TaskOutput(given.rank, left)


def double_or_fail(worker: str, given: LocalInputs, dask_worker: Any) -> TaskOutput[int]:
    if dask_worker.address == worker:
        raise ValueError("no")
    return double(given, dask_worker)


async def double_late(given: LocalInputs, dask_worker: Any) -> TaskOutput[int]:
    await held(dask_worker)
    return double(given, dask_worker)


def labels_of(dask_worker: Any) -> list[str]:
    return list(map(str, dask_worker.data))


def none_doubled(client: Client) -> bool:
    """Return whether workers hold nothing that `double` left.

    They may hold the data of other tests.
    """
    labels = [label for each in client.run(labels_of).values() for label in each]
    return not any(label.startswith("doubled-") for label in labels)


@pytest.fixture
def needed(asking: Client) -> Iterator[InputSpec]:
    """Yield one number on each worker as the input of a broadcast."""
    futures = {
        asking.scatter(number, workers=[worker], hash=False)
        for number, worker in enumerate(sorted(asking.nthreads()))
    }
    yield InputSpec([future.key for future in futures], deal)
    del futures
    # An error refers to the frame of its test, and so to what a phase left.
    gc.collect()


def test_what_a_phase_needs_and_leaves(asking: Client, needed: InputSpec) -> None:
    client, workers = asking, sorted(asking.nthreads())
    found = client.sync(broadcast_call, client, workers, double, needed=needed)
    assert [found[worker].result for worker in workers] == list(range(len(workers)))
    left = [found[worker].data for worker in workers]
    for number, futures in enumerate(left):
        (future,) = futures.values()
        assert future.result() == 2 * number
    (holders,) = client.who_has([*left[0].values()]).values()
    assert [*holders] == workers[:1]
    assert not none_doubled(client)
    del found, left, future, futures
    until(lambda: none_doubled(client))


def test_what_nobody_has(asking: Client) -> None:
    work = sorted(asking.nthreads()), double, (), None, InputSpec(["x"], deal)
    with pytest.raises(DataNotLocal, match="nobody has it"):
        asking.sync(broadcast_call, asking, *work)


def test_what_workers_have_no_room_for(asking: Client, needed: InputSpec) -> None:
    work = asking, sorted(asking.nthreads()), double
    with pytest.raises(DataNotLocal, match="short of memory"):
        asking.sync(broadcast_call, *work, needed=replace(needed, growth=1e15))
    found = asking.sync(broadcast_call, *work, needed=replace(needed, growth=1.0))
    assert sorted(each.result for each in found.values()) == list(range(len(work[1])))


def test_a_worker_that_has_gone_needs_no_room() -> None:
    scheduler = SimpleNamespace(get_who_has=lambda labels: {}, tasks={}, workers={})
    assert InputSpec([], lambda *given: [[], []], growth=2.0).dealt(["a", "b"], scheduler) == [
        [],
        [],
    ]


def test_what_has_left_its_worker() -> None:
    worker = SimpleNamespace(address="a", data={})
    given = LocalInputs.to(worker, ["a"], [[SimpleNamespace(labels=("gone",))]], "token")
    with pytest.raises(KeyError, match="gone"):
        assert given.things


@pytest.mark.parametrize("turn", [None, "named"])
def test_nothing_is_left_when_a_worker_fails(
    asking: Client, needed: InputSpec, turn: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ABORT_SECONDS", 60.0)
    client, workers = asking, sorted(asking.nthreads())
    work = client, workers, double_or_fail, (workers[0],), turn, needed
    found = client.sync(broadcast_call, *work)
    assert isinstance(found[workers[0]], ValueError)
    assert [found[worker].data for worker in workers[1:]] == [{}] * (len(workers) - 1)
    until(lambda: none_doubled(client))


def test_nothing_is_left_for_who_gave_up(threads: Client) -> None:
    workers = sorted(threads.nthreads())
    kept = threads.scatter(1, workers=workers[:1], hash=False)
    gate.clear()

    async def phases() -> None:
        work = threads, workers[:1], double_late, (), "given up", InputSpec([kept.key], deal)
        phase = asyncio.ensure_future(broadcast_call(*work))
        await asyncio.sleep(0.05)
        await leave_queue(threads, "given up")
        gate.set()
        assert (await phase)[workers[0]].data == {}

    threads.sync(phases)
    until(lambda: none_doubled(threads))
