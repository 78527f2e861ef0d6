"""One round of each fault on this host; ``make rounds`` plays more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import dask
import pytest
from rounds.cluster import Cluster
from rounds.faults import FAULTS
from rounds.play import play

pytestmark = pytest.mark.cluster

HERE = [name for name, fault in FAULTS.items() if fault.needs in {None, "cpus"}]


@pytest.fixture(scope="module")
def processes_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("rounds"), 2)
    yield cluster
    cluster.close()


@pytest.mark.parametrize("fault", HERE)
def test_a_round(processes_here, fault, monkeypatch):
    if fault == "stop":
        # Only here: a worker that has just been started, on a busy machine, is slow to answer.
        monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "heartbeat", 1.0)
        monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "timeout", 8.0)
    (outcome,) = play(processes_here, fault, [0])
    assert not outcome.failed, outcome


@pytest.mark.parametrize(("fault", "work"), [("kill", "map insert"), ("late", "map find")])
def test_a_round_with_a_table(processes_here, fault, work):
    (outcome,) = play(processes_here, fault, [0], [work])
    assert not outcome.failed, outcome


def test_a_worker_that_has_left_and_does_not_end(processes_here, monkeypatch):
    monkeypatch.setattr("rounds.cluster.JOINED", 5.0)
    processes_here.mend()
    before = processes_here.pids()
    address = min(before)
    processes_here.client.run(stay, workers=[address])
    processes_here.client.retire_workers([address], close_workers=False)
    processes_here.mend()
    after = set(processes_here.pids().values())
    assert after & set(before.values()) == set(before.values()) - {before[address]}
    assert len(after) == len(before)


def stay(dask_worker: Any) -> None:
    """Let this worker not end any more."""

    async def without_end(*args: Any, **kwargs: Any) -> None:
        await asyncio.Event().wait()

    dask_worker.close = without_end
