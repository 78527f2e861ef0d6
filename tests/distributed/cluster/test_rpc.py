"""RPCs from one worker to another."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, NoReturn

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of
from distributed import Client, wait
from distributed.worker import get_data_from_worker

from dgpuhash.distributed import DistributedIndex, DistributedMap
from dgpuhash.distributed.cluster import rpc as request
from dgpuhash.distributed.cluster.host import NAME
from dgpuhash.errors import IndexLost


def test_a_message_goes_on_when_its_sender_is_cancelled(monkeypatch):
    """A receive that is cancelled ends the process over UCXX."""
    came_of_it: list[str] = []
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(*message: Any) -> dict[str, Any]:
        begun.set()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            came_of_it.append("cancelled")
            raise
        finally:
            ended.set()
        came_of_it.append("answered")
        return {"status": "OK", "answer": []}

    async def ask() -> None:
        worker = SimpleNamespace(address="tcp://here:1")
        asking = asyncio.ensure_future(request.call_handler(worker, "tcp://there:1", "known", {}))
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        go_on.set()
        await ended.wait()

    monkeypatch.setattr(request, "_round_trip", slow)
    asyncio.run(asyncio.wait_for(ask(), 20))
    assert came_of_it == ["answered"]


def test_a_worker_that_is_ending_is_lost():
    """Its plugin has ended, and its comms have not yet."""
    frame = pd.DataFrame({"k": range(100)})
    with (
        cluster_of(2, processes=False) as client,
        DistributedIndex.build(frame, on="k", client=client) as index,
    ):
        first, second = sorted(client.nthreads())

        def end_here(dask_worker: Any) -> None:
            dask_worker.plugins[NAME].teardown(dask_worker)

        client.run(end_here, workers=[second])
        merged = index.merge(dd.from_pandas(frame, npartitions=1))
        with pytest.raises(IndexLost, match="is ending or new"):
            client.compute(merged, workers=[first]).result(20)


class Gated:
    """Connection or answer that comes when the gate is opened."""

    def __init__(self, answer: Any, ready: bool = False) -> None:
        self.answer, self.came_of_it = answer, 0
        self.gate = asyncio.Event()
        if ready:
            self.gate.set()

    async def __call__(self, *arguments: Any, **options: Any) -> Any:
        await self.gate.wait()
        self.came_of_it += 1
        return self.answer


def connecting(connect: Gated, there: Gated) -> Any:
    """Return a stand-in for a worker with a pool of comms.

    It can connect, and ask the scheduler for its workers.
    """
    reused: asyncio.Queue[Any] = asyncio.Queue()
    rpc = SimpleNamespace(
        connect=connect, reuse=lambda *comm: reused.put_nowait(comm), reused=reused
    )
    return SimpleNamespace(rpc=rpc, scheduler=SimpleNamespace(ncores=there))


def test_a_connection_that_comes_too_late_is_the_next_ones(monkeypatch):
    """A try that is cancelled damages memory over UCXX."""

    async def ask() -> None:
        worker = connecting(Gated("comm"), Gated({}, ready=True))
        with pytest.raises(TimeoutError):
            await request._connect(worker, "tcp://there:1")
        assert worker.rpc.reused.empty()
        worker.rpc.connect.gate.set()
        assert await worker.rpc.reused.get() == ("tcp://there:1", "comm")

    monkeypatch.setattr(request, "CONNECT_SECONDS", 0.01)
    asyncio.run(asyncio.wait_for(ask(), 20))


def test_a_slow_connection_is_waited_for_while_the_worker_is_there(monkeypatch):
    async def ask() -> None:
        worker = connecting(Gated("comm"), Gated({"tcp://there:1": 1}, ready=True))
        asking = asyncio.ensure_future(request._connect(worker, "tcp://there:1"))
        while worker.scheduler.ncores.came_of_it < 3:
            await asyncio.sleep(0.01)
        worker.rpc.connect.gate.set()
        assert await asking == "comm"
        assert worker.rpc.reused.empty()

    monkeypatch.setattr(request, "CONNECT_SECONDS", 0.01)
    asyncio.run(asyncio.wait_for(ask(), 20))


def out_of_memory() -> NoReturn:
    raise MemoryError("while it was loaded")


class Unloadable:
    """Object that takes more memory to load than its reader has."""

    def __reduce__(self) -> tuple[Any, ...]:
        return out_of_memory, ()


async def fail_to_load(key: str, there: str, pings: int, dask_worker: Any) -> int:
    """Receive unloadable data over comms; return the later answered pings."""
    pool, me = dask_worker.rpc, dask_worker.address
    gets = [get_data_from_worker(pool, [key], there, who=me) for _ in range(3)]
    came = await asyncio.gather(*gets, return_exceptions=True)
    # Dask itself may meet a comm that was left so before.
    assert any(isinstance(each, MemoryError) for each in came), came
    asked = [request.call_handler(dask_worker, there, "dgpuhash_ping", {}) for _ in range(pings)]
    return len(await asyncio.gather(*asked))


def test_comms_over_which_dask_brought_what_could_not_be_loaded(processes: Client) -> None:
    """Their other side takes the next message for the end of that."""
    with DistributedMap.from_arrays(np.arange(1000), np.arange(1000), client=processes) as table:
        first, second = sorted(table.workers)
        held = processes.submit(Unloadable, workers=[second])
        wait(held)
        for pings in (5, 0):
            args = held.key, second, pings
            assert processes.run(fail_to_load, *args, workers=[first]) == {first: pings}
        values, found = table.find(np.arange(1000))
        assert found.all()
        assert (values == np.arange(1000)).all()


def test_which_errors_say_that_a_message_was_taken_for_an_end() -> None:
    ours = AssertionError({"op": "dgpuhash_put", "payload": "long"})
    assert request._is_stale_comm(ours, "dgpuhash_put")
    assert request._is_stale_comm(Exception(repr(ours)), "dgpuhash_put")
    assert not request._is_stale_comm(ours, "dgpuhash_match")
    assert not request._is_stale_comm(MemoryError("dgpuhash_put"), "dgpuhash_put")
