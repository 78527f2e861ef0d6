"""Events of verbs and losses in Dask's event log."""

from __future__ import annotations

from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import cluster_of, lazy, until
from distributed import Client

from dgpuhash.distributed import DistributedIndex, DistributedSet

pytestmark = pytest.mark.cluster


def events(client: Client, topic: str) -> list[dict[str, Any]]:
    """Return the messages of a topic, once there are some."""
    until(lambda: bool(client.get_events(topic)))
    return [message for _, message in client.get_events(topic)]


def test_verbs_and_losses_are_logged():
    rows = pd.DataFrame({"k": np.arange(100), "v": np.arange(100)})
    with cluster_of(3, processes=False) as client, client.as_current():
        workers = sorted(client.nthreads())
        index = DistributedIndex.build(lazy(rows), on="k", name="planes", workers=workers[:2])
        table = DistributedSet("int64", workers=workers[1:])
        (built,) = events(client, "dgpuhash-build")
        assert built["index"] == "planes" and built["epoch"] == 1 and built["shards"] == 2
        assert built["held_rows"] == 100 and built["seconds"] > 0

        index.insert(rows.assign(k=rows["k"] + 100))
        (inserted,) = events(client, "dgpuhash-insert")
        assert (inserted["rows"], inserted["held_rows"], inserted["epoch"]) == (100, 200, 2)
        index.erase(rows[["k"]].head(7))
        (erased,) = events(client, "dgpuhash-erase")
        assert (erased["rows"], erased["held_rows"], erased["uid"]) == (7, 193, built["uid"])

        index.merge(lazy(rows, 2), persist=True)
        held = client.scatter(rows, workers=workers[:1], hash=False)
        index.merge(dd.from_delayed([held], meta=rows, verify_meta=False), persist=True)
        merged = events(client, "dgpuhash-merge")
        assert [each["by"] for each in merged] == ["tasks", "one phase"]
        assert merged[0]["why"] == "the frame is not persisted" and merged[1]["rows"] == 100

        table.insert(da.arange(50, chunks=25))
        until(lambda: len(client.get_events("dgpuhash-insert")) == 2)
        _, put = events(client, "dgpuhash-insert")
        assert (put["kind"], put["rows"], put["shards"]) == ("set", 50, 2)

        client.retire_workers(workers[:1])
        (retired,) = events(client, "dgpuhash-loss")
        assert retired == {
            "worker": workers[0], "expected": True,
            "index": "planes", "uid": built["uid"], "epoch": 3,
        }  # fmt: skip
        client.run_on_scheduler(lose, workers[1])
        _, *lost = events(client, "dgpuhash-loss")
        assert [each["expected"] for each in lost] == [False, False]
        assert {each.get("index") or each["table"] for each in lost} == {"planes", put["table"]}


async def lose(worker: str, dask_scheduler: Any) -> None:
    """Remove a worker as the scheduler does when it hears nothing of it any more."""
    await dask_scheduler.remove_worker(worker, stimulus_id="silent", close=False)


def test_a_loss_is_a_line_of_the_schedulers_log():
    rows = pd.DataFrame({"k": np.arange(10)})
    with cluster_of(2, processes=False) as client:
        DistributedIndex.build(lazy(rows), on="k", name="planes", client=client)
        (worker, *_) = client.nthreads()
        client.run_on_scheduler(lose, worker)
        said = [line for _, line in client.get_scheduler_logs() if "left with a shard" in line]
        assert len(said) == 1 and worker in said[0] and "'index': 'planes'" in said[0]
