"""A cluster of threads, and verbs of Dask that are Dask's again after each test."""

from __future__ import annotations

from collections.abc import Iterator

import dask
import pytest
from clusters import cluster_of
from distributed import Client

import dgpuhash


@pytest.fixture(scope="module")
def shared() -> Iterator[Client]:
    with cluster_of(2, processes=False) as client:
        yield client


@pytest.fixture
def cluster(shared: Client) -> Iterator[Client]:
    """Yield the current client of two workers in this process."""
    with shared.as_current():
        yield shared


@pytest.fixture(autouse=True)
def disabled() -> Iterator[None]:
    """Keep pandas' dtype of strings, and let Dask answer its verbs after the test."""
    with dask.config.set({"dataframe.convert-string": False}):
        yield
    dgpuhash.dask.disable()
