"""Bars of bulk work: shown on a terminal while it runs, and nobody is asked elsewhere."""

from __future__ import annotations

import io
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of, lazy
from rich.console import Console

from dgpuhash.distributed import DistributedIndex, WorkProgress
from dgpuhash.distributed.dashboard import cluster_figures, work_progress
from dgpuhash.distributed.dashboard.cluster_figures import figures_of
from dgpuhash.errors import UnsupportedError

pytestmark = pytest.mark.cluster

FRAME = pd.DataFrame({"k": np.arange(400), "v": 1.5})


@pytest.fixture(scope="module")
def client():
    with cluster_of(2, processes=False) as client:
        yield client


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_figures, "PERIOD", 0.02)
    monkeypatch.setattr(work_progress, "PERIOD", 0.02)


def slow(part: Any) -> Any:
    if len(part):
        time.sleep(0.15)
    return part


def test_bars_of_an_insert(client):
    index = DistributedIndex.build(FRAME, on="k", client=client)
    more = lazy(FRAME.assign(k=FRAME["k"] + 400), 6).map_partitions(slow, meta=FRAME.iloc[:0])
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with WorkProgress(client, console=console) as progress:
        assert index.insert(more) == 400
    said = console.file.getvalue()
    assert "insert" in said
    assert "/6" in said
    assert "partitions" in said
    # The last look was while it ran, or after.
    progress._show([])
    assert progress._of == {}
    index.close()


def test_nobody_is_asked_without_a_terminal(client):
    calls = client.run_on_scheduler(lambda dask_scheduler: figures_of(dask_scheduler).calls)
    console = Console(file=io.StringIO())
    with WorkProgress(client, console=console), DistributedIndex.build(FRAME, on="k") as index:
        assert len(index) == 400
    assert not console.file.getvalue()
    assert calls == client.run_on_scheduler(lambda dask_scheduler: figures_of(dask_scheduler).calls)


def test_an_error_of_the_work_is_raised(client):
    console = Console(file=io.StringIO(), force_terminal=True)
    with pytest.raises(ZeroDivisionError), WorkProgress(client, console=console):
        _ = 1 // 0


def test_without_a_client():
    with pytest.raises(UnsupportedError, match="Client"):
        WorkProgress("tcp://nobody")
