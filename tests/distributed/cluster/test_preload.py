"""Preload of the library in processes of a cluster that lack it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import dask
import pandas as pd
import pytest
from distributed import Client, LocalCluster

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.collective.group import form_group
from dgpuhash.errors import UnsupportedError


@pytest.fixture
def fresh() -> Iterator[Client]:
    """Yield a client of a worker process that has imported Dask only."""
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "spawn"}),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def index_of(client: Client) -> None:
    rows = pd.DataFrame({"k": [1, 2, 3], "v": [4, 5, 6]})
    with DistributedIndex.build(rows, on="k", client=client) as index:
        assert index.lookup([2])["v"].tolist() == [5]


def group_of(client: Client) -> None:
    form_group(client, list(client.nthreads())).close(client)


@pytest.mark.parametrize("use", [index_of, group_of])
def test_no_event_loop_imports_it(fresh, use):
    # Functions of this module would bring the library with them.
    def watch() -> None:
        import threading

        class Watcher:
            def __init__(self) -> None:
                self.loops_thread = threading.current_thread()
                self.imports: list[tuple[str, bool]] = []

            def find_spec(self, name: str, path: object, target: object = None) -> None:
                on_loop = threading.current_thread() is self.loops_thread
                self.imports.append((name, on_loop))

        sys.meta_path.insert(0, Watcher())

    def imports() -> list[tuple[str, bool]]:
        return next(each.imports for each in sys.meta_path if hasattr(each, "imports"))

    fresh.run(watch)
    use(fresh)
    (found,) = fresh.run(imports).values()
    assert ("dgpuhash.distributed.shards.plugin", False) in found
    assert [name for name, on_loop in found if on_loop and name.startswith("dgpuhash")] == []


def test_a_worker_without_it_is_named(fresh):
    def hide() -> None:
        sys.modules["dgpuhash"] = None

    fresh.run(hide)
    with pytest.raises(UnsupportedError, match=r"cannot import dgpuhash.*; install the same"):
        DistributedIndex.build(pd.DataFrame({"k": [1]}), on="k", client=fresh)
    with pytest.raises(UnsupportedError, match="cannot import dgpuhash"):
        DistributedIndex.open("x", client=fresh)
