"""Requests of one worker to another."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pytest
from clusters import cluster_of

from dgpuhash.distributed import DistributedIndex, request
from dgpuhash.distributed.plugin import NAME
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
        asking = asyncio.ensure_future(request.request(worker, "tcp://there:1", "known", {}))
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
