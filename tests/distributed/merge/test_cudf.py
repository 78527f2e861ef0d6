"""`dgpuhash.merge` of Dask frames of cuDF, on one GPU that two workers share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same_rows, cluster_of, device_frame
from distributed import Client

import dgpuhash
from dgpuhash.distributed import DistributedIndex

pytestmark = [pytest.mark.gpu, pytest.mark.cudf, pytest.mark.cluster, pytest.mark.timeout(180)]

HOWS = ["inner", "left", "right", "outer"]
RNG = np.random.default_rng(3)
LEFT = pd.DataFrame(
    {
        "k": RNG.integers(0, 300, 500),
        "t": RNG.choice(["a", "b", "c", "d"], 500),
        "x": np.arange(500) + 2**60,
        "b": RNG.random(500) < 0.5,
    }
)
RIGHT = pd.DataFrame(
    {
        "k": RNG.integers(100, 400, 400),
        "t": RNG.choice(["c", "d", "e"], 400),
        "y": RNG.random(400),
        "x": np.arange(400),
    }
)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster_of(2, processes=False) as client:
        yield client


def host(merged: dd.DataFrame) -> pd.DataFrame:
    """Return the rows of a merge, each of whose partitions has the dtypes of its meta."""
    parts = [part.compute() for part in merged.partitions]
    for part in parts:
        assert type(part).__module__.startswith("cudf")
        for label in merged.columns:
            assert part[label].dtype == merged._meta[label].dtype, label
    frames = [
        pd.DataFrame(
            {label: part[label].to_arrow().to_pylist() for label in part.columns}, dtype=object
        )
        for part in parts
    ]
    return pd.concat(frames, ignore_index=True)


def nullable(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose integers may have nulls, as cuDF's may."""
    return frame.astype({"x": "Int64"} if "x" in frame else {})


def assert_merged(merged: dd.DataFrame, expected: pd.DataFrame) -> None:
    found = host(merged)
    assert list(found.columns) == list(expected.columns)
    told = [
        sorted(
            tuple("null" if pd.isna(each) else str(each) for each in row)
            for row in frame.astype(object).itertuples(index=False, name=None)
        )
        for frame in (found, expected)
    ]
    assert told[0] == told[1]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    "given", [{"on": "k"}, {"on": ["k", "t"]}, {"left_on": "k", "right_on": "k"}], ids=str
)
@pytest.mark.parametrize("build", ["auto", "replicate"])
def test_merges_have_the_rows_of_pandas(client, how, given, build):
    if build == "replicate" and how == "right":
        build = "left"
    ours, theirs = (nullable(each) for each in (LEFT, RIGHT))
    merged = dgpuhash.merge(
        device_frame(LEFT, 3), device_frame(RIGHT, 2), how, build=build, **given
    )
    assert_merged(merged, ours.merge(theirs, how, **given))


@pytest.mark.parametrize("how", HOWS)
def test_merges_by_an_index_keep_it(client, how):
    left, right = LEFT.set_index("k"), RIGHT.set_index("k")
    merged = dgpuhash.merge(
        device_frame(left, 3), device_frame(right, 2), how, left_index=True, right_index=True
    )
    expected = nullable(left.rename(columns={"x": "x_x"})).astype({"x_x": "Int64"})
    expected = expected.merge(
        right.rename(columns={"x": "x_y"}).astype({"x_y": "Int64"}), how,
        left_index=True, right_index=True, suffixes=("_x", "_y"),
    )  # fmt: skip
    assert_merged(merged.reset_index(), expected.reset_index())


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_filters(client, how):
    merged = dgpuhash.merge(device_frame(LEFT, 3), device_frame(RIGHT, 2), how, on="k")
    there = LEFT["k"].isin(RIGHT["k"])
    assert_same_rows(merged.compute(), LEFT[there if how == "semi" else ~there])


def test_a_pandas_side_goes_to_the_gpu(client):
    merged = dgpuhash.merge(device_frame(LEFT, 3), RIGHT, on="k", indicator=True)
    expected = nullable(LEFT).merge(nullable(RIGHT), on="k", indicator=True)
    assert_merged(merged, expected)


def test_distinct_rows_and_members(client):
    frame = device_frame(LEFT, 3)
    found: Any = frame.dgpuhash.drop_duplicates(subset=["k"]).compute()
    assert_same_rows(found, LEFT.drop_duplicates(subset=["k"]))
    there: Any = frame.dgpuhash.isin(device_frame(RIGHT[["k"]], 2), on="k").compute()
    assert there.to_pandas().tolist() == LEFT["k"].isin(RIGHT["k"]).tolist()


@pytest.mark.parametrize("how", ["right", "outer"])
def test_an_index_tells_rows_that_nothing_matches(client, how):
    index = DistributedIndex.build(device_frame(RIGHT, 2), on="k", client=client)
    merged = index.merge(device_frame(LEFT, 3), how=how)
    assert_merged(merged, nullable(LEFT).merge(nullable(RIGHT), how, on="k"))
    index.close()
