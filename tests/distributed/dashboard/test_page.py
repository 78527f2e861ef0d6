"""The dashboard's page as its server has it: figures equal `stats()`, and cost nothing unread."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of, lazy, until
from distributed import Client

from dgpuhash.distributed import DistributedIndex, DistributedMap
from dgpuhash.distributed.dashboard import cluster_figures
from dgpuhash.distributed.dashboard.cluster_figures import figures_of
from dgpuhash.distributed.dashboard.server import PATH, add_page
from dgpuhash.distributed.shards.table_shard import TableShard

pytestmark = pytest.mark.cluster


def address(client: Client, path: str = PATH) -> str:
    return f"http://127.0.0.1:{client.cluster.scheduler.http_server.port}{path}"


@contextmanager
def reader(client: Client) -> Iterator[Any]:
    """Yield the page's document as the server has it for one reader, who has the page open."""
    # `make ucx` collects this file in an environment without Bokeh.
    from bokeh.client import pull_session

    session = pull_session(url=address(client))
    (served,) = (each for each in pages(client) if PATH in each.app_paths)
    try:
        yield served.get_session(PATH, session.id).document
    finally:
        session.close()


def pages(client: Client) -> list[Any]:
    return client.cluster.scheduler.http_application.applications


def shown(page: Any, name: str) -> pd.DataFrame:
    """Return what a source of the page has now."""
    return pd.DataFrame(dict(page.get_model_by_name(name).data))


def of(page: Any, name: str) -> Any:
    """Return the page's row for an index."""
    holders = shown(page, "holders")
    return holders[holders["name"] == name].iloc[0]


def select(page: Any, number: int) -> None:
    """Select an index as a reader does."""
    page.get_model_by_name("holders").selected.indices = [number]


def test_the_page_shows_what_stats_says():
    rows = pd.DataFrame({"k": np.arange(3000), "v": np.arange(3000) / 4})
    with ExitStack() as stack:
        client = stack.enter_context(cluster_of(2, processes=False, dashboard=True))
        stack.enter_context(client.as_current())
        flights = DistributedIndex.build(lazy(rows), on="k", name="flights")
        planes = DistributedIndex.build(rows.head(50), on="k", name="planes", mode="replicated")
        table = DistributedMap("int64", "float64")
        table.insert(da.arange(900, chunks=300), da.ones(900, chunks=300))
        scheduler = client.cluster.scheduler
        # As long as nobody has the page open, no worker is asked.
        assert figures_of(scheduler).calls == 0

        page = stack.enter_context(reader(client))
        until(lambda: len(shown(page, "holders")) == 3 and all(shown(page, "holders")["told"]))
        for index, placement, counted in (
            (flights, "distributed", sum), (planes, "replicated", max)
        ):  # fmt: skip
            found, stats = of(page, index.name), index.stats()
            assert (found["kind"], found["placement"], found["epoch"]) == ("index", placement, 1)
            assert found["rows"] == len(index) == counted(stats["rows"])
            assert found["nbytes"] == index.nbytes and found["shards"] == "2 of 2"
            assert found["stored"] == stats["table"].iloc[0]
            assert found["skew"] == stats["rows"].max() / stats["rows"].mean()
        bars, stats = shown(page, "shards"), flights.stats()
        assert bars["worker"].tolist() == stats["worker"].tolist()
        assert bars["rows"].tolist() == stats["rows"].tolist()
        assert bars["nbytes"].tolist() == (stats["row_nbytes"] + stats["table_nbytes"]).tolist()

        found = shown(page, "holders").iloc[2]
        assert (found["kind"], found["stored"]) == ("HashMap", "int64 → float64")
        assert (found["rows"], found["nbytes"]) == (900, table.nbytes)
        stats = table.stats()
        assert found["load"] == (stats["size"] / stats["capacity"]).max()

        # Two readers together have each worker asked once a second.
        stack.enter_context(reader(client))
        before, start = figures_of(scheduler).calls, time.monotonic()
        until(lambda: figures_of(scheduler).calls > before)
        rounds = (time.monotonic() - start) / cluster_figures.PERIOD + 1
        assert figures_of(scheduler).calls - before <= 2 * rounds

        # A reader selects another one.
        names = shown(page, "holders")["name"].tolist()
        client.loop.add_callback(select, page, names.index("planes"))
        until(lambda: shown(page, "shards")["rows"].tolist() == [50, 50])


def test_an_insert_is_seen_under_way_and_done(tmp_path, monkeypatch):
    rows = pd.DataFrame({"k": np.arange(300)})
    go_on = tmp_path / "go on"
    monkeypatch.setattr(cluster_figures, "PERIOD", 0.05)
    monkeypatch.setattr("dgpuhash.distributed.dashboard.page.LOOK", 50)

    def part(number: int) -> pd.DataFrame:
        if number == 2:
            until(go_on.exists)
        return rows.assign(k=rows["k"] + 1000 * (number + 1))

    with ExitStack() as stack:
        client = stack.enter_context(cluster_of(2, processes=False, dashboard=True))
        stack.enter_context(client.as_current())
        index = DistributedIndex.build(lazy(rows), on="k", name="flights")
        page = stack.enter_context(reader(client))
        until(lambda: shown(page, "holders")["rows"].tolist() == [300])
        assert shown(page, "phases").empty
        with ThreadPoolExecutor(1) as beside:
            new = dd.from_map(part, range(3), meta=rows)
            inserted = beside.submit(index.insert, new)
            until(lambda: shown(page, "phases")["done"].tolist() == [2])
            (phase,) = shown(page, "phases").to_dict("records")
            assert (phase["name"], phase["verb"]) == ("flights", "insert")
            assert (phase["step"], phase["amount"]) == ("receive rows", "2 of 3 partitions")
            assert phase["workers"] == 2 and of(page, "flights")["rows"] == 300
            go_on.touch()
            assert inserted.result() == 900
        until(lambda: of(page, "flights")["rows"] == 1200)
        assert of(page, "flights")["epoch"] == 2 and shown(page, "phases").empty
        assert of(page, "flights")["nbytes"] == index.nbytes

        # A shard that is lost is missing on the page, and a page that is closed asks nobody.
        client.retire_workers(index.workers[:1])
        until(lambda: of(page, "flights")["shards"] == "1 of 2")


def test_verbs_of_tables_tell_how_many_rows_are_done(monkeypatch):
    monkeypatch.setattr(cluster_figures, "PERIOD", 0.01)
    go_on, serve = threading.Event(), TableShard.serve

    def served_late(*args: Any) -> Any:
        assert go_on.wait(60)
        return serve(*args)

    monkeypatch.setattr(TableShard, "serve", served_late)
    keys = da.arange(900, chunks=300)
    with cluster_of(2, processes=False) as client, client.as_current():
        scheduler, table = client.cluster.scheduler, DistributedMap("int64", "int64")
        figures = figures_of(scheduler)

        def phases() -> list[cluster_figures.WorkPhase]:
            client.loop.add_callback(figures.ask, scheduler)
            return figures.phases(scheduler)

        with ThreadPoolExecutor(1) as beside:
            inserted = beside.submit(table.insert, keys, keys)
            until(lambda: bool(phases()) and phases()[0].workers == 2)
            (phase,) = phases()
            assert (phase.verb, phase.step) == ("insert", "exchange and serve rows")
            assert (phase.done, phase.total, phase.unit) == (0, 900, "rows")
            go_on.set()
            assert len(inserted.result()) == 900
        until(lambda: not phases())
        (held,) = figures.holders(scheduler)
        assert (held.rows, held.name) == (900, phase.name)


def test_the_page_is_linked_once():
    with cluster_of(1, processes=False, dashboard=True) as client:
        scheduler = client.cluster.scheduler
        DistributedIndex.build(pd.DataFrame({"k": [1]}), on="k", client=client)
        assert client.run_on_scheduler(lambda dask_scheduler: add_page(dask_scheduler))
        assert sum(PATH in each.app_paths for each in pages(client)) == 1
        with urllib.request.urlopen(address(client, "/workers"), timeout=30) as answer:
            assert answer.read().count(b'href="dgpuhash"') == 1
        assert figures_of(scheduler).calls == 0


def test_without_dasks_dashboard_there_is_no_page():
    """As where Bokeh is not installed."""
    with cluster_of(1, processes=False) as client:
        DistributedIndex.build(pd.DataFrame({"k": [1]}), on="k", client=client)
        assert not client.run_on_scheduler(lambda dask_scheduler: add_page(dask_scheduler))
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(address(client), timeout=30)
