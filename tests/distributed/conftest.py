"""Clusters that the tests of a module share, and frames to index."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import dask
import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of
from distributed import Client

from dgpuhash.distributed.cluster import rpc
from dgpuhash.distributed.groupby import steps
from dgpuhash.distributed.merge import strategy, verb


@pytest.fixture(autouse=True)
def pandas_strings() -> Iterator[None]:
    """Keep pandas' dtype of strings, as results are compared with pandas'."""
    with dask.config.set({"dataframe.convert-string": False}):
        yield


@pytest.fixture(autouse=True)
def few_rows_get_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have merges send rows to owners, though the stored side of most tests is small."""
    for module in (strategy, verb):
        monkeypatch.setattr(module, "late_broadcast_nbytes", lambda: 0)


@pytest.fixture(autouse=True)
def few_states_get_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have owners fold the states of groups, though most tests have few of them."""
    monkeypatch.setattr(steps, "_FEW_STATES", dict.fromkeys(steps._FEW_STATES, 0))


@pytest.fixture
def dask_logs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    """Return what is logged, also where Dask keeps the lines of its loggers to itself."""
    monkeypatch.setattr(logging.getLogger("distributed"), "propagate", True)
    return caplog


@pytest.fixture(scope="module")
def shared_threads() -> Iterator[Client]:
    with cluster_of(3, processes=False) as client:
        yield client


@pytest.fixture(scope="module")
def shared_processes() -> Iterator[Client]:
    with cluster_of(2, processes=True) as client:
        yield client


@pytest.fixture(scope="session")
def shared_over_ucxx() -> Iterator[Client]:
    # One for all tests: UCXX 0.52 does not bear a second cluster in a process that had one.
    with cluster_of(3, processes=True, protocol="ucxx") as client:
        yield client


@pytest.fixture
def threads(shared_threads: Client) -> Iterator[Client]:
    """Yield the current client of three workers in this process."""
    with shared_threads.as_current():
        yield shared_threads


@pytest.fixture
def processes(shared_processes: Client) -> Iterator[Client]:
    """Yield the current client of two worker processes."""
    with shared_processes.as_current():
        yield shared_processes


@pytest.fixture
def over_ucxx(shared_over_ucxx: Client) -> Iterator[Client]:
    """Yield the current client of three worker processes over UCXX."""
    with shared_over_ucxx.as_current():
        yield shared_over_ucxx


@pytest.fixture(params=["threads", "processes", pytest.param("over_ucxx", marks=pytest.mark.ucxx)])
def client(request: pytest.FixtureRequest) -> Client:
    """Return a client of every kind of cluster in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def left() -> pd.DataFrame:
    """Return rows to probe with: keys 0 to 119 and nulls."""
    rng = np.random.default_rng(1)
    keys = pd.array(rng.integers(0, 120, 700), dtype="Int64")
    keys[rng.integers(0, 700, 20)] = pd.NA
    return pd.DataFrame({"k": keys, "x": np.arange(700) / 8, "note": [f"l{i}" for i in range(700)]})


@pytest.fixture
def right() -> pd.DataFrame:
    """Return rows to index: keys 40 to 199, mostly repeated, and nulls."""
    rng = np.random.default_rng(2)
    keys = pd.array(rng.integers(40, 200, 500), dtype="Int64")
    keys[rng.integers(0, 500, 5)] = pd.NA
    return pd.DataFrame({"k": keys, "y": np.arange(500), "note": [f"r{i}" for i in range(500)]})


@pytest.fixture(params=["near", "afar"])
def asking(
    request: pytest.FixtureRequest, client: Client, monkeypatch: pytest.MonkeyPatch
) -> Client:
    """Return a client that calls its scheduler directly, then by messages."""
    if request.param == "afar":
        monkeypatch.setattr(rpc, "_scheduler_here", lambda client: None)
    return client
