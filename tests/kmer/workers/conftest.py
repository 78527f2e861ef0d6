"""Clusters of one, two and three workers in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from clusters import cluster_of
from distributed import Client
from kmer.workers.pairs import WORLD


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[int, Client]]:
    """Yield clients of clusters by their numbers of workers."""
    with ExitStack() as stack:
        # Commands find those with an address.
        protocols = {1: "inproc", 2: "tcp", 3: "inproc"}
        yield {
            n: stack.enter_context(cluster_of(n, processes=False, protocol=protocol))
            for n, protocol in protocols.items()
        }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the world's references."""
    return WORLD.write(tmp_path_factory.mktemp("world"))
