"""Tasks that build and change indexes, on workers with a single thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of
from distributed import Client, Scheduler, get_worker, secede, worker_client

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.client import task_client
from dgpuhash.distributed.cluster.rpc import call_scheduler
from dgpuhash.errors import ColumnError

pytestmark = pytest.mark.cluster

# Seconds that a task may take; one that waits for itself takes forever.
LIMIT = 120


@pytest.fixture(scope="module", params=[(1, False), (2, False), (1, True), (2, True)], ids=str)
def few(request: pytest.FixtureRequest) -> Iterator[Client]:
    workers, processes = request.param
    with cluster_of(workers, processes) as client:
        yield client


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame({"k": np.arange(1000) % 300, "v": np.arange(1000)})


def threads_of(client: Client) -> list[int]:
    """Return the number of task threads of each worker."""

    def count(dask_worker) -> int:
        return len(dask_worker.executor._threads)

    return list(client.run(count).values())


def test_every_change_from_a_task(few, frame, tmp_path):
    def change(frame: pd.DataFrame, folder: Path) -> list[int]:
        index = DistributedIndex.build(frame, on="k", name="from a task")
        steps = [index.insert(frame[:10]), index.erase([5, 6]), len(index)]
        steps.append(len(index.merge(frame[7:9]).compute()))
        index.save(folder / "saved")
        index.rebuild()
        index.close()
        with DistributedIndex.load(folder / "saved", name="loaded in a task") as loaded:
            return [*steps, len(loaded), len(loaded.lookup([7, 7]))]

    erased = int(frame["k"].isin([5, 6]).sum()) + 2
    found = few.submit(change, frame, tmp_path).result(timeout=LIMIT)
    assert found == [10, erased, 1010 - erased, 2 * 5, 1010 - erased, 2 * 5]
    assert max(threads_of(few)) == 1


def test_more_tasks_than_threads_insert_at_once(few, frame):
    def insert(index: DistributedIndex, number: int) -> int:
        return index.insert(pd.DataFrame({"k": [1000 + number] * 2, "v": [number, -number]}))

    with DistributedIndex.build(frame, on="k", client=few) as index:
        tasks = few.map(insert, [index] * 6, range(6))
        assert [task.result(timeout=LIMIT) for task in tasks] == [2] * 6
        index.refresh()
        assert len(index) == 1012
        assert index.epoch == 7
    assert max(threads_of(few)) == 1


def test_a_task_that_has_given_its_thread_away_before(few, frame):
    def in_a_block(index: DistributedIndex) -> int:
        with worker_client() as client:
            return DistributedIndex.open(index.name, client).insert(index.meta)

    def for_good(index: DistributedIndex) -> int:
        secede()
        return index.insert(pd.DataFrame({"k": [7], "v": [8]}))

    with DistributedIndex.build(frame, on="k", client=few) as index:
        assert few.submit(in_a_block, index).result(timeout=LIMIT) == 0
        assert few.submit(for_good, index).result(timeout=LIMIT) == 1
        names = few.map(lambda number: get_worker().name, range(8), pure=False)
        assert len(few.gather(names)) == 8
    assert max(threads_of(few)) == 1


def test_a_change_that_fails_takes_the_thread_back(few, frame):
    def insert(index: DistributedIndex) -> bool:
        with pytest.raises(ColumnError):
            index.insert(pd.DataFrame({"k": [1]}))
        return get_worker().executor._threads != set()

    with DistributedIndex.build(frame, on="k", client=few) as index:
        assert few.submit(insert, index).result(timeout=LIMIT)
        assert index.insert(frame[:1]) == 1
    assert max(threads_of(few)) == 1


ASKED, LEFT, ANSWERED = threading.Event(), threading.Event(), threading.Event()


async def answer_when_the_program_has_left(dask_scheduler: Scheduler) -> None:
    ASKED.set()
    while not LEFT.is_set():
        await asyncio.sleep(0.01)


def ask() -> None:
    call_scheduler(task_client(), answer_when_the_program_has_left)
    ANSWERED.set()


def test_a_task_beside_its_program_is_answered_when_that_has_left():
    with cluster_of(1, processes=False) as client:
        DistributedIndex.build(pd.DataFrame({"k": [1]}), on="k", client=client).close()
        with Client(client.scheduler.address) as program:
            asking = program.submit(ask, pure=False)
            assert ASKED.wait(LIMIT)
            del asking
        LEFT.set()
        assert ANSWERED.wait(LIMIT)
