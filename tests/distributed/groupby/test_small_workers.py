"""Groupbys and merges of more rows than small workers have memory for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pytest
from clusters import cluster_of
from distributed import Client

import dgpuhash

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

MORE = pytest.mark.exhaustive

PARTS, ROWS, KEYS = 16, 250_000, 6_000_000


def reader() -> Callable[[int], pd.DataFrame]:
    """Return a function that makes a partition, for workers that need not have the tests."""
    rows, keys = ROWS, KEYS

    def rows_of(part: int) -> pd.DataFrame:
        import numpy as np
        import pandas as pd

        rng = np.random.default_rng(part)
        return pd.DataFrame({"k": rng.integers(0, keys, rows), "x": rng.integers(0, 1000, rows)})

    return rows_of


def summing() -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a function that counts and adds up a partition of a result."""

    def sums(frame: Any) -> Any:
        import pandas as pd

        frame = frame.reset_index()
        values = frame.iloc[:, -1].astype("float64").fillna(-1)
        words = int((frame["k"] * (values + 2).astype("int64")).sum())
        return pd.DataFrame({"rows": [len(frame)], "words": [words]})

    return sums


def source(first: int, parts: int) -> tuple[Any, pd.DataFrame]:
    """Return lazy rows, and all of them."""
    read, numbers = reader(), range(first, first + parts)
    whole = pd.concat(map(read, numbers), ignore_index=True)
    return dd.from_map(read, numbers, meta=whole[:0]), whole


def assert_alike(result: Any, wanted: pd.DataFrame) -> None:
    sums = summing()
    meta = pd.DataFrame({"rows": [0], "words": [0]})[:0]
    found = result.map_partitions(sums, meta=meta).sum().compute()
    assert found.to_dict() == sums(wanted).iloc[0].to_dict()


@pytest.fixture(scope="module")
def small() -> Iterator[Client]:
    with cluster_of(2, processes=True, memory_limit="400MiB") as client:
        yield client


@pytest.mark.parametrize("how", ["sum", "nunique", pytest.param("median", marks=MORE)])
def test_more_groups_than_memory(small: Client, how: str) -> None:
    lazily, whole = source(0, PARTS)
    found = dgpuhash.groupby(lazily, "k").agg(s=("x", how))
    assert_alike(found, whole.groupby("k").agg(s=("x", how)))


@pytest.mark.parametrize("how", ["outer", pytest.param("inner", marks=MORE)])
def test_more_rows_to_merge_than_memory(small: Client, how: str) -> None:
    left, ours = source(0, PARTS // 2)
    right, others = source(100, PARTS // 2)
    assert_alike(dgpuhash.merge(left, right, how, on="k"), ours.merge(others, how, on="k"))
