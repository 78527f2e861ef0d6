"""The dashboard's page in a browser: its cells equal `stats()`, also as these change.

`make dashboard` runs it. With ``PICTURE``, the path of a file, the page is drawn there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from browser.chromium import Page, chromium
from clusters import cluster_of
from distributed import Client

from dgpuhash.distributed import DistributedIndex, DistributedMap
from dgpuhash.distributed.dashboard.server import PATH
from dgpuhash.tables.stats import format_bytes

pytestmark = [pytest.mark.cluster, pytest.mark.browser]

# The texts of the cells of all tables' rows, which lie in trees of their own.
ROWS = """
(() => {
  const found = []
  const walk = node => {
    if (node.classList?.contains("slick-row"))
      found.push(Array.from(node.querySelectorAll(".slick-cell"), cell => cell.innerText.trim()))
    else
      for (const each of [...(node.shadowRoot?.children ?? []), ...node.children]) walk(each)
  }
  walk(document.body)
  return JSON.stringify(found)
})()"""
ROWS_A_PART, PARTS = 60_000, 12


def flights(number: int) -> pd.DataFrame:
    keys = np.arange(ROWS_A_PART) + number * ROWS_A_PART
    return pd.DataFrame({"flight": keys, "delay": keys / 7})


def late_flights(number: int) -> pd.DataFrame:
    time.sleep(0.1 * (number - PARTS) + 0.5)
    return flights(number)


@pytest.fixture
def client() -> Iterator[Client]:
    with cluster_of(3, processes=True, dashboard=True) as client, client.as_current():
        yield client


def rows_of(page: Page) -> list[list[str]]:
    """Return the texts of the cells of all rows; none while the page is loaded."""
    return json.loads(page.read(ROWS) or "[]")


def wait_for(page: Page, name: str, **wanted: str) -> None:
    """Wait until the cells of a row are these."""
    columns = {"rows": 4, "nbytes": 5, "skew": 7, "shards": 8, "epoch": 9}
    end = time.monotonic() + 30
    while True:
        row = next((row for row in rows_of(page) if row[0] == name), [])
        found = {column: row[columns[column]] if row else "" for column in wanted}
        if found == wanted:
            return
        assert time.monotonic() < end, f"{found}, not {wanted}"
        time.sleep(0.1)


def test_cells_equal_stats_and_change_during_an_insert(client):
    frame = dd.from_map(flights, range(PARTS), meta=flights(0).head(0))
    index = DistributedIndex.build(frame, on="flight", name="flights")
    rng = np.random.default_rng(1)
    codes = pd.DataFrame({"carrier": rng.zipf(1.5, 9000) % 700, "planes": np.arange(9000)})
    carriers = DistributedIndex.build(
        dd.from_pandas(codes, npartitions=2), on="carrier", name="carriers", mode="independent"
    )
    planes = DistributedIndex.build(codes.head(900), on="planes", name="planes", mode="replicated")
    table = DistributedMap("int64", "float64")
    table.insert(da.arange(90_000, chunks=30_000), da.ones(90_000, chunks=30_000))

    with chromium() as page, ThreadPoolExecutor(1) as beside:
        port = client.cluster.scheduler.http_server.port
        page.open(f"http://127.0.0.1:{port}{PATH}", width=1200, height=760)
        for each in (index, carriers, planes):
            rows = each.stats()["rows"]
            wait_for(
                page, each.name, rows=f"{len(each):,}", nbytes=format_bytes(each.nbytes),
                skew=f"{rows.max() / rows.mean():.2f}", shards="3 of 3", epoch="1",
            )  # fmt: skip
        (of_table,) = (row for row in rows_of(page) if row[1] == "HashMap")
        assert of_table[4:6] == ["90,000", format_bytes(table.nbytes)]
        assert of_table[0].startswith("(")

        late = dd.from_map(late_flights, range(PARTS, 2 * PARTS), meta=flights(0).head(0))
        inserted = beside.submit(index.insert, late)
        seen = set()
        while not inserted.done():
            # Cells that have no room yet are not there.
            under_way = [row for row in rows_of(page) if row[1] == "insert" and len(row) == 7]
            seen.update(row[4] for row in under_way)
            if (path := os.environ.get("PICTURE")) and any("%" in row[3] for row in under_way):
                Path(path).write_bytes(page.picture())
            time.sleep(0.1)
        # Partitions came one after the other, and the reader saw it.
        assert len({text for text in seen if text.endswith(f" of {PARTS} partitions")}) > 1
        assert inserted.result() == PARTS * ROWS_A_PART
        rows = f"{2 * PARTS * ROWS_A_PART:,}"
        wait_for(page, "flights", rows=rows, nbytes=format_bytes(index.nbytes), epoch="2")
        page.until("Bokeh.documents[0].get_model_by_name('idle').visible")

        # A click on a row shows its shards.
        page.read(
            "Bokeh.documents[0].get_model_by_name('holders').selected.indices = "
            "[Bokeh.documents[0].get_model_by_name('holders').data.name.indexOf('planes')]"
        )
        shown = "Array.from(Bokeh.documents[0].get_model_by_name('shards').data.rows).join()"
        page.until(f"{shown} === '900,900,900'")
