"""Secession of a bounded number of tasks while they wait."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.ingest.shuffle_tasks import CommExchange
from dgpuhash.distributed.query.task_batching import Coalescer
from dgpuhash.distributed.shards.secession import SecessionBudget, most_seceded_nbytes


def test_what_is_no_task_goes_on():
    ahead = SecessionBudget()
    for _ in range(3):
        with ahead.task(1, most_nbytes=10):
            pass


def test_tasks_leave_while_they_are_small_together(monkeypatch):
    left = []
    monkeypatch.setattr("dgpuhash.distributed.shards.secession._leave", lambda: left.append(True))
    ahead = SecessionBudget()
    with ahead.task(9, most_nbytes=4):
        with ahead.task(1, most_nbytes=4):
            assert len(left) == 1
        with ahead.task(1, most_nbytes=10), ahead.task(1, most_nbytes=10):
            assert len(left) == 2
    with ahead.task(1, most_nbytes=4):
        assert len(left) == 3


def test_a_task_that_fails_gives_its_place_back(monkeypatch):
    left = []
    monkeypatch.setattr("dgpuhash.distributed.shards.secession._leave", lambda: left.append(True))
    ahead = SecessionBudget()
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"), ahead.task(9, most_nbytes=4):
            raise ValueError("broken")
    assert len(left) == 2


@pytest.mark.parametrize(
    ("device", "limit", "most"),
    [
        ("cpu", None, 256 << 20),
        ("cpu", 1 << 40, 256 << 20),
        ("cpu", 1 << 30, 64 << 20),
        ("cuda", 1 << 30, 4 << 30),
    ],
)
def test_small_workers_have_less_in_memory_at_one_time(device, limit, most):
    worker = SimpleNamespace(memory_manager=SimpleNamespace(memory_limit=limit))
    assert most_seceded_nbytes(worker, device) == most


def test_one_task_is_ahead_of_another(threads, monkeypatch):
    """Each waits until two of one worker, which has one thread, are there; none asks for others."""
    monkeypatch.setattr("dgpuhash.distributed.query.task_batching.MOST", 0)
    there, two = [], threading.Event()
    call = Coalescer.call

    def meeting(together, *args, **options):
        there.append(together)
        if there.count(together) > 1:
            two.set()
        assert two.wait(30)
        return call(together, *args, **options)

    monkeypatch.setattr(Coalescer, "call", meeting)
    right = pd.DataFrame({"k": np.arange(100), "v": np.arange(100) * 2})
    left = pd.DataFrame({"k": np.arange(3000) % 150})
    with DistributedIndex.build(right, on="k", client=threads) as index:
        found = index.merge(dd.from_pandas(left, npartitions=30)).compute()
    wanted = left.merge(right, on="k")
    pd.testing.assert_frame_equal(found.reset_index(drop=True), wanted)
    assert two.is_set()


def test_rows_of_several_tasks_wait_for_a_late_worker_at_once(threads, monkeypatch):
    """Nobody takes any until two tasks of one worker, which has one thread, have sent theirs."""
    there, two = [], asyncio.Event()
    put = CommExchange.put_segments

    async def meeting(exchange, segments):
        there.append(exchange._worker)
        if there.count(exchange._worker) > 1:
            two.set()
        await asyncio.wait_for(two.wait(), 30)
        await put(exchange, segments)

    monkeypatch.setattr(CommExchange, "put_segments", meeting)
    frame = pd.DataFrame({"k": np.arange(3000), "v": np.arange(3000) * 2})
    source = dd.from_pandas(frame, npartitions=9)
    with DistributedIndex.build(source, on="k", client=threads) as index:
        found = index.lookup(frame[["k"]])
    pd.testing.assert_frame_equal(found[["k", "v"]].reset_index(drop=True), frame)
