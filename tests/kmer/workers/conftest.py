"""Clusters of one, two and three workers in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from clusters import cluster_of
from distributed import Client


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[int, Client]]:
    """Yield clients of clusters by their numbers of workers."""
    with ExitStack() as stack:
        yield {n: stack.enter_context(cluster_of(n, processes=False)) for n in (1, 2, 3)}
