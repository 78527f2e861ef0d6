"""Bounded messages of merges and lookups, whatever the keys and rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, joined, lazy
from distributed import Client
from distributed.protocol import dumps, to_serialize

from dgpuhash import config
from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.errors import IndexLost

pytestmark = pytest.mark.cluster

BOUND = 20_000


def weighed(message: Any) -> int:
    """Return the bytes of a message on the wire."""
    return sum(memoryview(frame).nbytes for frame in dumps(message))


def watch(bound: int, dask_worker: Any) -> None:
    """Bound a worker's messages, and record the bytes of its answers."""
    host = plugin_of(dask_worker)
    # Workers in one process have one configuration, of which the first takes care.
    if config.nbytes("exchange.message") != bound:
        host.bound = dask.config.set({"dgpuhash.exchange.message": bound})
    host.weighed = []
    host.match_before = match = dask_worker.handlers["dgpuhash_match"]

    async def weighing(**message: Any) -> dict[str, Any]:
        answer = await match(**message)
        asked = message | {"keys": to_serialize(message["keys"])}
        # What a frame weighs without rows is not bounded.
        empty = [to_serialize(message["keys"][:0])]
        if answer["status"] == "OK":
            positions, frame, _ = (getattr(part, "data", part) for part in answer["answer"])
            empty += [
                to_serialize(positions[:0]),
                to_serialize(None if frame is None else frame[:0]),
            ]
            assert (frame is None) == (message["how"] in {"semi", "anti"})
        host.weighed.append((weighed(asked), weighed(answer), weighed(empty)))
        return answer

    weighing.__wrapped__ = match.__wrapped__
    dask_worker.handlers["dgpuhash_match"] = weighing


def unwatch(dask_worker: Any) -> None:
    host = plugin_of(dask_worker)
    dask_worker.handlers["dgpuhash_match"] = host.match_before
    if hasattr(host, "bound"):
        host.bound.__exit__(None, None, None)
        del host.bound


def seen(dask_worker: Any) -> list[tuple[int, int, int]]:
    return plugin_of(dask_worker).weighed


class Watched:
    """Messages of a cluster, with their bytes."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def messages(self) -> list[tuple[int, int, int]]:
        return [message for each in self.client.run(seen).values() for message in each]

    def check(self, least: int) -> None:
        """Assert that there were `least` messages, each within the bound."""
        messages = self.messages()
        assert len(messages) >= least
        for asked, answered, empty in messages:
            assert max(asked, answered) <= BOUND + empty + 1000


@pytest.fixture
def watched(client: Client) -> Iterator[Watched]:
    with DistributedIndex.build(pd.DataFrame({"k": [1]}), on="k", client=client):
        client.run(watch, BOUND)
    yield Watched(client)
    client.run(unwatch)


def heavy(rows: int) -> pd.DataFrame:
    """Return rows with a heavy key and strings of very different lengths."""
    rng = np.random.default_rng(0)
    keys = np.where(rng.random(rows) < 0.5, 7, rng.integers(0, rows, rows))
    texts = ["w" * int(width) for width in rng.integers(1, 10, rows) ** 3]
    return pd.DataFrame({"k": keys, "v": np.arange(rows), "text": pd.Series(texts, dtype="str")})


@pytest.mark.parametrize(
    ("kind", "how"),
    [("int64", "inner"), ("int64", "left"), ("int64", "semi"), ("int64", "anti"),
     ("str", "left"), ("str", "anti"), ("object", "inner"), ("object", "semi")],
)  # fmt: skip
def test_one_key_with_half_of_the_rows(watched, how, kind):
    right = heavy(3000)
    left = pd.DataFrame({"k": np.r_[0:3000, 7, 7], "x": np.arange(3002)})
    if kind == "object":
        right = right.assign(k=right["k"].astype("str"), text=right["text"].astype("object"))
        left = left.assign(k=left["k"].astype("str"))
    right, left = right.astype({"k": kind}), left.astype({"k": kind})
    with DistributedIndex.build(lazy(right, 3), on="k", client=watched.client) as index:
        result = index.merge(lazy(left, 4), how=how).compute()
    assert_same(result, joined(left, right, ["k"], how))
    watched.check(1 if how in {"semi", "anti"} else 10)


def test_lookup(watched):
    right = heavy(2000)
    keys = np.append(np.random.default_rng(1).integers(0, 2000, 500), 7)
    asked = pd.DataFrame({"k": keys})
    with DistributedIndex.build(lazy(right, 2), on="k", client=watched.client) as index:
        found = index.lookup(asked)
    assert_same(found, asked.merge(right, on="k", how="left"))
    watched.check(2)


def test_narrow_keys_and_wide_rows(watched):
    """One byte asks for thousands; and only the columns that were asked for are moved."""
    right = pd.DataFrame({"k": np.arange(100, dtype="int8"), "v": 0.5})
    right["text"] = pd.Series(["w" * 4000] * 100, dtype="str")
    left = pd.DataFrame({"k": np.resize(np.arange(-20, 120, dtype="int8"), 9000)})
    with DistributedIndex.build(right, on="k", client=watched.client) as index:
        for how in ("semi", "anti"):
            result = index.merge(lazy(left, 1), how=how).compute()
            assert_same(result, joined(left, right, ["k"], how))
        few = index.merge(lazy(left, 1), columns=["v"]).compute()
        watched.check(4)
        before = len(watched.messages())
        assert_same(few, left.merge(right[["k", "v"]], on="k"))
        wide = index.merge(lazy(left[:500], 1)).compute()
        assert_same(wide, left[:500].merge(right, on="k"))
    watched.check(before + 30)


def test_wide_keys_are_asked_for_in_pieces(watched):
    texts = ["w" * 9000 + str(number) if number % 20 == 0 else str(number) for number in range(400)]
    right = pd.DataFrame({"k": pd.Series(texts, dtype="str"), "v": np.arange(400)})
    with DistributedIndex.build(right, on="k", client=watched.client) as index:
        assert_same(index.merge(lazy(right[["k"]], 1)).compute(), right)
    watched.check(3)


def test_a_change_between_two_pages_raises(threads, monkeypatch):
    """The second page is of another epoch than the first one."""
    monkeypatch.setitem(dask.config.get("dgpuhash.exchange"), "message", BOUND)
    right = heavy(4000)
    right["k"] = 7
    with DistributedIndex.build(lazy(right, 2), on="k", client=threads) as index:
        stats = index.stats()
        owner = stats.loc[stats["rows"] > 0, "worker"].iloc[0]
        asker = next(worker for worker in index.workers if worker != owner)
        asked = []
        (worker,) = (each for each in threads.cluster.workers.values() if each.address == owner)
        handler = worker.handlers["dgpuhash_match"]

        async def changing(**message: Any) -> dict[str, Any]:
            asked.append(message["skip"])
            if len(asked) == 2:
                await asyncio.to_thread(other.insert, added)
            return await handler(**message)

        other = DistributedIndex.open(index.name, threads)
        added = dd.from_map(lambda part: right[:1], [0], meta=right[:0])
        worker.handlers["dgpuhash_match"] = changing
        try:
            merged = threads.compute(index.merge(pd.DataFrame({"k": [7]})), workers=[asker])
            with pytest.raises(IndexLost, match="again"):
                merged.result(timeout=120)
        finally:
            worker.handlers["dgpuhash_match"] = handler
        assert len(asked) == 2
        assert asked[1] > 0
        assert len(index.merge(pd.DataFrame({"k": [7]})).compute()) == 4001
