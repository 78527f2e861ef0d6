"""Clusters of one to eight workers in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from clusters import cluster_of
from distributed import Client
from kmer.workers.pairs import WORLD

# Commands find a cluster with an address; tasks of one worker run at once where it has threads.
_OPTIONS: dict[int, dict[str, Any]] = {2: {"protocol": "tcp"}, 4: {"threads_per_worker": 2}}


class Clients(dict[int, Client]):
    """Clients of clusters by their numbers of workers, made as they are asked for."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self._stack = stack

    def __missing__(self, n: int) -> Client:
        options = {"protocol": "inproc", **_OPTIONS.get(n, {})}
        self[n] = self._stack.enter_context(cluster_of(n, processes=False, **options))
        return self[n]


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    """Yield clients of clusters by their numbers of workers."""
    with ExitStack() as stack:
        yield Clients(stack)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the world's references."""
    return WORLD.write(tmp_path_factory.mktemp("world"))
