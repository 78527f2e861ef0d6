"""lookup, contains and find on a cluster against pandas, in keys' form."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from answers import answers_like_pandas, same_array
from clusters import assert_same
from distributed import Client

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.query.fetch import ShardReader
from dgpuhash.errors import (
    ColumnError,
    KeyTypeError,
    OutOfMemoryError,
    ShapeError,
    UnsupportedError,
)

pytestmark = pytest.mark.cluster


@pytest.fixture
def asked(left) -> pd.DataFrame:
    """Return probe keys with repeated labels.

    The keys are stored once, often and not at all, and null.
    """
    return left[:60].set_axis(pd.Index(np.arange(60) // 2, name="label"), axis=0)


@pytest.mark.parametrize("columns", [["y"], ["y", "note"]], ids=len)
def test_every_form_agrees_with_pandas(client, right, asked, columns):
    rows = right[["k", *columns]]
    with DistributedIndex.build(rows, on="k", client=client) as index:
        for keys in (asked, asked[:1], asked[:0]):
            # Shards keep the order of one key's rows, so pandas gives the same order.
            answers_like_pandas(index, keys, rows, ["k"])


def test_unique_keys_and_dtypes_that_pandas_promotes(client):
    rows = pd.DataFrame(
        {
            "k": np.arange(40),
            "count": np.arange(40) * 3,
            "flag": np.arange(40) % 2 == 0,
            "kind": pd.Categorical(["p", "q"] * 20),
            "when": pd.date_range("2026-01-01", periods=40, tz="UTC"),
            "text": [f"t{number}" for number in range(40)],
        }
    )
    for label in rows.columns[1:]:
        part = rows[["k", label]]
        with DistributedIndex.build(part, on="k", unique=True, client=client) as index:
            for keys in ([39, 0, 7], [39, 40, 7]):
                frame = pd.DataFrame({"k": np.array(keys)}, index=list("zyx"))
                answers_like_pandas(index, frame, part, ["k"])


def test_several_key_columns_of_text_and_dates(client):
    rng = np.random.default_rng(0)
    days = pd.date_range("2026-01-01", periods=10)
    cities = pd.Series(["Oslo", "Rome", None], dtype="str")

    def frame(rows: int) -> pd.DataFrame:
        city = cities.take(rng.integers(0, 3, rows)).to_numpy()
        return pd.DataFrame(
            {"city": pd.Series(city, dtype="str"), "day": days[rng.integers(0, 10, rows)]}
        )

    rows, keys = frame(25).assign(v=np.arange(25)), frame(40)
    with DistributedIndex.build(rows, on=["city", "day"], client=client) as index:
        answers_like_pandas(index, keys, rows, ["city", "day"])
        known = keys.dropna()
        one = (known["city"].iloc[0], known["day"].iloc[0])
        assert_same(index.lookup(one), index.lookup(known[:1]))
        same_array(index.contains([one, ("Bonn", days[0])])[1:], np.array([False]))


def test_scalars_lists_and_no_keys(threads, right):
    planes = right.dropna().drop_duplicates("k").astype({"k": "int64"})
    with DistributedIndex.build(planes, on="k", unique=True, client=threads) as index:
        keys = [9_999, 45, 44, 45, 199, -1]
        wanted = pd.DataFrame({"k": keys}).merge(planes, on="k", how="left")
        assert_same(index.lookup(keys), wanted)
        same_array(index.contains(keys), wanted["y"].notna().to_numpy())
        assert index.lookup(45)["y"].tolist() == [planes.set_index("k")["y"][45]]
        same_array(index.contains(45), np.array([True]))
        assert len(index.lookup([])) == 0
        same_array(index.contains([]), np.array([], bool))


@pytest.mark.parametrize("doubled", [False, True], ids=["unique", "doubled"])
def test_many_keys_are_cut_into_pieces(threads, monkeypatch, doubled):
    rows = pd.DataFrame({"k": np.arange(9000) // (2 if doubled else 1), "v": np.arange(9000) * 2})
    monkeypatch.setitem(dask.config.get("dgpuhash.placement"), "piece", 500_000)
    numbers = np.random.default_rng(0).integers(0, 10_000, 200_000)
    # All keys of the first piece are there, so its integers stay such.
    numbers[:62_500] %= 4000
    keys = pd.DataFrame({"k": numbers}, index=np.arange(200_000) // 3)
    with DistributedIndex.build(rows, on="k", client=threads) as index:
        answers_like_pandas(index, keys, rows, ["k"])


def test_keys_of_more_than_a_message(processes):
    rows = pd.DataFrame({"k": np.arange(1000), "v": np.arange(1000) * 2})
    keys = np.random.default_rng(0).integers(0, 1500, 5_000_000)
    with DistributedIndex.build(rows, on="k", client=processes) as index:
        values, there = index.lookup(keys), index.contains(keys)
    same_array(there, keys < 1000)
    same_array(values, np.where(there, keys * 2, np.nan))


def test_in_tasks_of_the_cluster(client, right, asked):
    rows = right[["k", "y"]]

    def agree(index: DistributedIndex, asked: pd.DataFrame, rows: pd.DataFrame) -> bool:
        from dgpuhash.frames import FrameIndex

        alone = FrameIndex.build(rows, on="k")
        keys = asked["k"]
        return (
            index.lookup(keys).equals(alone.lookup(keys))
            and index.lookup(keys.array).equals(alone.lookup(keys.array))
            and index.contains(keys).equals(alone.contains(keys))
            and index.find(keys).frame.equals(alone.find(keys).frame)
        )

    with DistributedIndex.build(rows, on="k", client=client) as index:
        tasks = client.map(agree, [index] * 4, [asked] * 4, [rows] * 4, pure=False)
        assert client.gather(tasks) == [True] * 4


def test_contains_asks_for_no_columns(threads, right, monkeypatch):
    asked = []

    def spy(
        worker: Any, descriptor: Any, how: str, columns: Any, marks: str, limit: Any
    ) -> ShardReader:
        asked.append((how, list(columns)))
        return ShardReader(worker, descriptor, how, columns, marks, limit)

    monkeypatch.setattr("dgpuhash.distributed.query.fetch.ShardReader", spy)
    with DistributedIndex.build(right, on="k", client=threads) as index:
        assert index.contains(np.arange(200)).sum() == right["k"].nunique()
        index.lookup(np.arange(200))
    assert asked == [("semi", []), ("inner", ["y", "note"])]


def test_refusals(client: Client, right):
    with DistributedIndex.build(right, on="k", client=client) as index:
        lazy = dd.from_pandas(right, npartitions=2)
        for verb in (index.lookup, index.contains, index.find):
            with pytest.raises(KeyTypeError, match="'k' holds string"):
                verb(np.array(["a"]))
            with pytest.raises(ShapeError, match="2 dimensions"):
                verb(np.ones((2, 2)))
            with pytest.raises(ColumnError, match="'k'"):
                verb(right[["y"]])
            with pytest.raises(UnsupportedError, match="Dask DataFrame with the index"):
                verb(lazy)
        with pytest.raises(UnsupportedError, match=r"columns \['k'\], or compute"):
            index.erase(da.ones(3))


def test_a_lookup_without_memory_says_so(threads, right, asked, monkeypatch):
    def full(*arguments, **options):
        raise MemoryError("on purpose")

    with DistributedIndex.build(right, on="k", client=threads) as index:
        monkeypatch.setattr("dgpuhash.distributed.index.reads.lookup_rows", full)
        with pytest.raises(OutOfMemoryError, match=r"ran out of memory: on purpose; free memory"):
            index.lookup(asked)
