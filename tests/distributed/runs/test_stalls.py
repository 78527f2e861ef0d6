"""Merges and groupbys that stand still beside paused workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from clusters import lazy, until
from distributed import Client, Status

import dgpuhash
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.groupby.owners import GroupOwners
from dgpuhash.distributed.runs import stalls
from dgpuhash.errors import IndexLost, OutOfMemoryError

pytestmark = pytest.mark.cluster

ROWS = pd.DataFrame({"k": np.arange(600) % 150, "v": np.arange(600)})
MESSAGE = r"stands still: .* Worker \S+ takes [\d,]+ of [\d,]+ bytes.*; use workers with more"


def grouped(rows: Any) -> Any:
    return dgpuhash.groupby(rows, "k").agg({"v": ["sum", "median"]})


def merged(rows: Any, how: str = "inner") -> Any:
    return dgpuhash.merge(rows, lazy(ROWS, 3), how, on="k")


WORK: dict[str, Callable[[Any], Any]] = {
    "sum": lambda rows: dgpuhash.groupby(rows, "k").sum(),
    "median": grouped,
    "nunique": lambda rows: dgpuhash.groupby(rows, "k")["v"].nunique(),
    "inner": merged,
    "outer": partial(merged, how="outer"),
    "broadcast": lambda rows: dgpuhash.merge(rows, lazy(ROWS, 1), on="k"),
    "distinct": lambda rows: rows.dgpuhash.drop_duplicates("k"),
}


@pytest.fixture
def patience() -> Iterator[None]:
    with dask.config.set({"dgpuhash.liveness.patience": "1 s"}):
        yield


@pytest.fixture
def paused(threads: Client, patience: None) -> Iterator[Callable[[bool], None]]:
    """Yield a function that pauses all workers, or has them go on."""

    def pause(now: bool) -> None:
        for worker in threads.cluster.workers.values():
            worker.memory_manager.memory_pause_fraction = False if now else 0.8
            worker.status = Status.paused if now else Status.running
        until(lambda: threads.run_on_scheduler(running) == (0 if now else 3))

    yield pause
    pause(False)


BEGUN = threading.Event()


def slowly(part: pd.DataFrame, seconds: float) -> pd.DataFrame:
    BEGUN.set()
    time.sleep(seconds)
    return part


def running(dask_scheduler: Any) -> int:
    return len(dask_scheduler.running)


def runs(client: Client) -> int:
    """Return how many runs, or shards, the workers have."""
    hosts = [plugin_of(each) for each in client.cluster.workers.values()]
    shards = sum(len(each.shards._shards) + len(each.shards._staged) for each in hosts)
    return shards + sum(len(each.service(GroupOwners).runs) for each in hosts)


@pytest.mark.parametrize("name", WORK)
def test_what_cannot_begin_is_ended(threads, paused, name):
    result = WORK[name](lazy(ROWS, 6))
    paused(True)
    start = time.monotonic()
    with pytest.raises(OutOfMemoryError, match=MESSAGE):
        result.compute()
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("name", ["sum", "median", "outer"])
def test_a_run_that_cannot_go_on_is_ended_and_leaves_nothing(threads, paused, name):
    source = lazy(ROWS, 60).map_partitions(slowly, 0.05, meta=ROWS[:0])
    future = threads.compute(WORK[name](source))
    until(lambda: runs(threads) > 0)
    paused(True)
    with pytest.raises(OutOfMemoryError, match=MESSAGE):
        future.result()
    # A task that failed stays so while somebody wants its result.
    future.release()
    paused(False)
    until(lambda: runs(threads) == 0)
    found = WORK[name](lazy(ROWS, 6)).compute()
    assert len(found) == len(WORK[name](ROWS))


def test_workers_that_go_on_in_time_end_nothing(threads, paused):
    result = grouped(lazy(ROWS, 6))
    with dask.config.set({"dgpuhash.liveness.patience": "5 s"}):
        for _ in range(3):
            paused(True)
            future = threads.compute(result)
            time.sleep(0.5)
            paused(False)
            assert len(future.result()) == 150
            del future


def test_a_task_that_works_is_waited_for(threads, paused):
    source = lazy(ROWS, 2).map_partitions(slowly, 6, meta=ROWS[:0])
    # Heartbeats tell what is carried out.
    with dask.config.set({"dgpuhash.liveness.patience": "3 s"}):
        BEGUN.clear()
        future = threads.compute(grouped(source))
        # Tasks that only begin a groupby are none that work.
        assert BEGUN.wait(60)
        paused(True)
        time.sleep(4.5)
        assert not future.done()
        paused(False)
    assert len(future.result()) == 150


@pytest.mark.parametrize("ended", [0, 1])
def test_only_lost_workers_are_missed_and_none_that_has_yet_to_come(monkeypatch, ended):
    task = SimpleNamespace(key="dgpuhash-a", state="queued", processing_on=None, suspicious=ended)
    scheduler = SimpleNamespace(workers={}, running=set(), tasks={task.key: task})
    failed: list[Any] = []
    monkeypatch.setattr(stalls, "fail_tasks", lambda *told: failed.append(told))
    watch = stalls.StallWatch(scheduler)
    watch._computations = [stalls.Computation([task.key])]
    with dask.config.set({"dgpuhash.liveness.patience": "1 us"}):
        for _ in range(3):
            watch.look()
    assert len(failed) == ended
    if ended:
        _, keys, error, _ = failed[0]
        assert keys == [task.key] and isinstance(error, IndexLost)
        assert "the last worker ended while it carried out one; start workers" in str(error)
    scheduler.tasks.clear()
    watch.look()
    assert not watch._computations
