"""Crews of benchmarks on threads of this process, which start at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clusters import cluster_of

from dgpuhash.bench.workers.cluster import BenchWorkers

__all__ = ["crew_of_threads"]


@contextmanager
def crew_of_threads(used: Any, count: int, **options: Any) -> Iterator[BenchWorkers]:
    """Yield a crew in place of the processes that `start` makes."""
    with cluster_of(count, processes=False) as client:
        yield BenchWorkers(client, used.name)
