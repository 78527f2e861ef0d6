"""Merges of frames of one partition each, which one task makes, beside pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from clusters import assert_same_rows, lazy
from dask.dataframe.dask_expr._expr import Fused
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed.merge.aligned import PairExpr
from dgpuhash.distributed.query import fetch
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames.merge.keys import MergeError

pytestmark = pytest.mark.cluster

RANDOM = np.random.default_rng(5)
LEFT = pd.DataFrame({"k": RANDOM.integers(0, 9, 30), "j": RANDOM.integers(0, 2, 30)})
LEFT["a"] = np.arange(30)
RIGHT = pd.DataFrame({"k": [3, 3, 8, 11, 1], "j": [0, 1, 1, 0, 1], "b": [1.5, 2.5, 3.5, 4.5, 5.5]})


def merged(left, right, *args, **how):
    found = dgpuhash.merge(lazy(left, 1), lazy(right, 1), *args, **how)
    assert found.npartitions == 1
    assert list(found.optimize(fuse=False).expr.find_operations(PairExpr))
    with no_other_engine():
        return found.compute()


@pytest.mark.parametrize("right", [RIGHT, RIGHT.iloc[:0]], ids=["some", "none"])
@pytest.mark.parametrize("on", [["k"], ["k", "j"]])
@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "left_anti", "right_anti"])
def test_rows_are_those_of_pandas_in_order(threads, right, on, how):
    found = merged(LEFT, right, on=on, how=how, suffixes=("", "_r"))
    wanted = LEFT.merge(right, on=on, how=how, suffixes=("", "_r"))
    assert_same_rows(found, wanted)
    assert list(found) == list(wanted)
    if how in ("inner", "left"):
        assert found["a"].tolist() == wanted["a"].tolist()


def test_filters_products_and_marks(threads):
    assert merged(LEFT, RIGHT, how="semi", on="k")["a"].tolist() == (
        LEFT["a"][LEFT["k"].isin(RIGHT["k"])].tolist()
    )
    assert merged(LEFT, RIGHT, how="anti", on="k")["a"].tolist() == (
        LEFT["a"][~LEFT["k"].isin(RIGHT["k"])].tolist()
    )
    crossed = merged(LEFT, RIGHT, how="cross", suffixes=("", "_r"))
    pd.testing.assert_frame_equal(
        crossed.reset_index(drop=True), LEFT.merge(RIGHT, how="cross", suffixes=("", "_r"))
    )
    told = merged(LEFT, RIGHT, "outer", on=["k", "j"], indicator=True)
    wanted = LEFT.merge(RIGHT, "outer", on=["k", "j"], indicator=True)
    assert_same_rows(told, wanted)


def test_a_copy_for_each_worker_is_none_for_one_task(threads):
    found = merged(LEFT, RIGHT, on="k", build="replicate", suffixes=("", "_r"))
    assert_same_rows(found, LEFT.merge(RIGHT, on="k", suffixes=("", "_r")))


def test_keys_that_are_to_be_unique(threads):
    with pytest.raises(MergeError, match="not unique in right"):
        merged(LEFT, RIGHT, on="k", validate="m:1")
    assert len(merged(LEFT, RIGHT, on=["k", "j"], validate="m:1")) == len(
        LEFT.merge(RIGHT, on=["k", "j"])
    )


def test_nulls_meet_where_they_may(threads):
    left, right = (
        side.assign(k=side["k"].astype("Int64").mask(side["k"] == 3)) for side in (LEFT, RIGHT)
    )
    for equal in (True, False):
        found = merged(left, right, on="k", nulls_equal=equal, suffixes=("", "_r"))
        kept = right if equal else right.dropna(subset="k")
        assert_same_rows(found, left.merge(kept, on="k", suffixes=("", "_r")))


@pytest.mark.parametrize("how", ["inner", "cross"])
def test_a_result_without_place_is_told_before_it_is_there(threads, monkeypatch, how):
    many = pd.DataFrame({"k": np.zeros(50, "int64"), "v": np.arange(50)})
    on = {} if how == "cross" else {"on": "k"}
    monkeypatch.setattr(fetch, "MOST_ROWS", 2499)
    with pytest.raises(OutOfMemoryError, match=r"2,500 rows.*place for 2,499 rows; use finer"):
        merged(many, many, how, **on)


def test_a_query_of_single_partitions_is_one_task(threads):
    left, right = lazy(LEFT, 1), lazy(RIGHT, 1)
    chosen = left[left["a"] > 3]
    joined = dgpuhash.merge(chosen, right, on=["k", "j"])
    again = dgpuhash.merge(joined.assign(c=joined["a"] + joined["b"]), right[["k"]], "left", on="k")
    grouped = dgpuhash.groupby(again, "j", sort=False).agg(total=("c", "sum"))
    optimized = grouped.optimize()
    assert isinstance(optimized.expr, Fused)
    wanted = LEFT[LEFT["a"] > 3].merge(RIGHT, on=["k", "j"])
    wanted = wanted.assign(c=wanted["a"] + wanted["b"]).merge(RIGHT[["k"]], "left", on="k")
    wanted = wanted.groupby("j").agg(total=("c", "sum"))
    pd.testing.assert_frame_equal(grouped.compute().sort_index(), wanted)


def test_several_partitions_on_request(threads):
    found = dgpuhash.merge(lazy(LEFT, 1), lazy(RIGHT, 1), "outer", on="k", npartitions=2)
    assert found.npartitions == 3
    assert_same_rows(found.compute(), LEFT.merge(RIGHT, "outer", on="k"))


def test_a_chosen_partition_and_what_is_told(threads):
    found = dgpuhash.merge(lazy(LEFT, 1), lazy(RIGHT, 1), "outer", on="k")
    assert_same_rows(found.partitions[0].compute(), LEFT.merge(RIGHT, "outer", on="k"))
    told = found.dgpuhash.explain()
    assert "one task merges both" in told
    assert "shards" not in told


def test_columns_that_nobody_asks_for_are_not_merged(threads):
    found = dgpuhash.merge(lazy(LEFT, 1), lazy(RIGHT, 1), on="k", suffixes=("", "_r"))["b"]
    (single,) = found.optimize(fuse=False).expr.find_operations(PairExpr)
    assert list(single.left.columns) == ["k"]
    wanted = LEFT.merge(RIGHT, on="k", suffixes=("", "_r"))["b"]
    assert found.compute().tolist() == wanted.tolist()
