"""Dtypes of lazy merges: nullable where a side may lack rows, from dtypes alone."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dgpuhash
from dgpuhash.distributed import DistributedGroupBy, DistributedIndex
from dgpuhash.errors import ColumnError

pytestmark = pytest.mark.cluster

BIG = 1618556707013635763
LEFT = [pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"k": [3, 4]})]
RIGHT = [
    pd.DataFrame({"k": [1, 4], "id": [BIG, BIG + 2], "there": [True, False]}),
    pd.DataFrame({"k": [7], "id": [BIG + 1], "there": [True]}),
]
IDS = {1: BIG, 4: BIG + 2, 7: BIG + 1}
CUTS = ["one", "several", "small right side", "empty partitions"]


def lazy(*parts: pd.DataFrame) -> dd.DataFrame:
    """Return a lazy frame of these partitions."""
    return dd.from_map(lambda part: part, parts, meta=parts[0].iloc[:0])


def cut(parts: list[pd.DataFrame], how: str, *, right: bool = False) -> object:
    whole = pd.concat(parts, ignore_index=True)
    if how == "one":
        return dd.from_pandas(whole, npartitions=1)
    if how == "small right side" and right:
        return whole
    if how == "empty partitions":
        return lazy(whole[:0], *parts, whole[:0])
    return lazy(*parts)


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "left_anti", "right_anti"])
def test_values_and_dtypes(threads, how, cuts):
    merged = dgpuhash.merge(cut(LEFT, cuts), cut(RIGHT, cuts, right=True), how, on="k")
    lacks = how in ("left", "outer", "left_anti")
    wanted = {"k": "int64", "id": "Int64" if lacks else "int64"}
    wanted["there"] = "boolean" if lacks else "bool"
    parts = [part.compute() for part in merged.partitions]
    for frame in (merged._meta, *parts):
        assert {label: str(dtype) for label, dtype in frame.dtypes.items()} == wanted
    whole = pd.concat(parts)
    keys = {
        "inner": {1, 4}, "left": {1, 2, 3, 4}, "right": {1, 4, 7}, "outer": {1, 2, 3, 4, 7},
        "left_anti": {2, 3}, "right_anti": {7},
    }[how]  # fmt: skip
    assert dict(zip(whole["k"], whole["id"].astype(object).where(whole["id"].notna(), None),
                    strict=True)) == {key: IDS.get(key) for key in keys}  # fmt: skip


@pytest.mark.parametrize("cuts", CUTS)
def test_the_dtypes_of_pandas(threads, cuts):
    right = [part.assign(id=part["id"] // 2**20) for part in RIGHT]
    left = cut(LEFT, cuts)
    merged = dgpuhash.merge(left, cut(right, cuts, right=True), "left", on="k", promote="pandas")
    wanted = pd.concat(LEFT).merge(pd.concat(right), "left", on="k")
    found = merged.compute().sort_values("k", ignore_index=True)
    assert merged.dtypes.tolist() == wanted.dtypes.tolist()
    pd.testing.assert_frame_equal(found, wanted)
    exact = dgpuhash.merge(left, cut(RIGHT, cuts, right=True), "left", on="k", promote="pandas")
    with pytest.raises(ColumnError, match=r"'id'.*promote='nullable'"):
        exact.compute()


def test_labels(threads):
    merged = dgpuhash.merge(
        lazy(*LEFT), lazy(*(part.set_index("k") for part in RIGHT)), "outer", left_on="k",
        right_index=True,
    )  # fmt: skip
    parts = [part.compute() for part in merged.partitions]
    assert {str(part.index.dtype) for part in (merged._meta, *parts)} == {"Int64"}


@pytest.mark.parametrize("persist", [False, True])
@pytest.mark.parametrize("how", ["left", "right", "outer"])
def test_standing_indexes(threads, how, persist):
    with DistributedIndex.build(lazy(*RIGHT), on="k") as index:
        merged = index.merge(lazy(*LEFT).persist(), on="k", how=how, persist=persist)
        found = merged.compute()
        assert merged.dtypes.tolist() == found.dtypes.tolist()
        assert found["id"].dtype == ("int64" if how == "right" else "Int64")
        assert (
            dict.fromkeys((1,), BIG).items()
            <= dict(zip(found["k"], found["id"].astype(object), strict=True)).items()
        )
        if how == "left":
            with pytest.raises(ColumnError, match=r"'id'.*promote='nullable'"):
                index.merge(lazy(*LEFT), on="k", how=how, promote="pandas").compute()


def test_lookups_with_a_miss(threads):
    keys = pd.DataFrame({"k": [1, 3]})
    with DistributedIndex.build(lazy(*RIGHT), on="k") as index:
        for verb in (index.lookup, index.find):
            with pytest.raises(ColumnError, match=r"'id'.*promote='nullable'"):
                verb(keys)
        assert index.lookup(keys, promote="nullable")["id"].tolist() == [BIG, pd.NA]
        assert index.find(keys, promote="nullable").frame["id"].tolist() == [BIG, pd.NA]
        assert index.lookup(keys[:1])["id"].tolist() == [BIG]


def test_standing_groups(threads):
    with DistributedGroupBy.build(lazy(*RIGHT), "k", last=("id", "max")) as groups:
        found = groups.merge(lazy(*LEFT), on="k", how="left").compute()
        assert dict(zip(found["k"], found["last"], strict=True))[4] == BIG + 2
        assert found["last"].dtype == "Int64"
        with pytest.raises(ColumnError, match=r"'last'.*promote='nullable'"):
            groups.lookup([1, 3])
        assert groups.lookup([1, 3], promote="nullable")["last"].tolist() == [BIG, pd.NA]


def test_transforms(threads):
    rows = [pd.DataFrame({"k": [1.0, np.nan], "v": [BIG, 3]}),
            pd.DataFrame({"k": [1.0, 2.0], "v": [BIG + 1, 4]})]  # fmt: skip
    found = dgpuhash.groupby(lazy(*rows), "k")["v"].transform("max")
    assert found.dtype == "Int64"
    assert found.compute().tolist() == [BIG + 1, pd.NA, BIG + 1, 4]
    # A key of integers lacks no row.
    whole = dgpuhash.groupby(lazy(*RIGHT), "k")["id"].transform("max")
    assert whole.dtype == np.int64 and whole.compute().tolist() == [BIG, BIG + 2, BIG + 1]


def test_partitions_that_are_not_what_meta_says(threads):
    """What Dask took for bool, and another merge has given nulls, does not become true."""
    truths = pd.DataFrame({"k": [1, 2], "t": pd.Series([True, None], dtype=object)})
    meta = pd.DataFrame({"k": [1], "t": [True]}).iloc[:0]
    given = dd.from_map(lambda part: part, [truths], meta=meta)
    merged = dgpuhash.merge(given, lazy(*LEFT), "inner", on="k")
    with pytest.raises(ColumnError, match=r"'t' of a partition is object.*bool"):
        merged.compute()
    texts = pd.DataFrame({"k": [1], "t": pd.Series([5], dtype=object)})
    meta = pd.DataFrame({"k": [1], "t": ["a"]}).iloc[:0]
    merged = dgpuhash.merge(dd.from_map(lambda part: part, [texts], meta=meta), lazy(*LEFT), on="k")
    with pytest.raises(ColumnError, match=r"'t' of a partition"):
        merged.compute()


@pytest.mark.parametrize("days", [[], [None], [None, "2026-03-01"]])
def test_keys_that_are_categories_of_dates(threads, days):
    day = pd.Series(days, dtype="str").astype("date32[day][pyarrow]").astype("category")
    right = pd.DataFrame({"k": day.astype("date32[day][pyarrow]") if days[1:] else day})
    left = pd.DataFrame({"k": day, "v": range(len(day))})
    merged = dgpuhash.merge(lazy(left), lazy(right[:0], right), "left", on="k").compute()
    assert merged["v"].tolist() == left["v"].tolist()
    groups = dgpuhash.groupby(lazy(left), "k", dropna=False)["v"]
    assert groups.transform("sum").compute().tolist() == left["v"].tolist()
