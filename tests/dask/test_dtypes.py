"""Dtypes under `enable`: Dask's meta, and in each partition those of pandas."""

from __future__ import annotations

from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import lazy
from distributed import Client
from pandas.api.types import is_extension_array_dtype
from suites.raising import no_other_engine

import dgpuhash

pytestmark = pytest.mark.cluster

LARGE = 1618556707013635763
HOWS = ["inner", "left", "right", "outer"]


@pytest.fixture(autouse=True)
def strict(cluster: Client) -> Any:
    """Let no verb be answered by Dask."""
    with dgpuhash.dask.enabled(fallback=False):
        yield


def sides() -> tuple[pd.DataFrame, pd.DataFrame]:
    left = pd.DataFrame({"k": range(12), "j": np.arange(12) % 4})
    keys = np.arange(0, 24, 2)
    right = pd.DataFrame(
        {"k": keys, "id": LARGE + keys, "f": keys % 3 == 0, "s": keys.astype("int8")}
    )
    return left, right


def parts_of(frame: Any) -> list[Any]:
    return list(dask.compute(*frame.to_delayed()))


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    """Return rows without labels, in an order of theirs, with integers as Python has them."""
    exact = frame.astype(object)
    rows = exact.where(exact.notna(), None).itertuples(index=False, name=None)
    return sorted((tuple(map(plain, row)) for row in rows), key=repr)


def plain(value: Any) -> Any:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    return value.item() if isinstance(value, np.generic) else value


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("how", HOWS)
def test_rows_that_all_match_stay_exact(parts, how):
    left = pd.DataFrame({"k": range(6)})
    right = left.assign(id=LARGE + left["k"])
    merged = lazy(left, parts).merge(lazy(right, parts), on="k", how=how)
    assert merged._meta["id"].dtype == "int64"
    assert sorted(merged.compute()["id"].tolist()) == right["id"].tolist()
    for part in parts_of(merged):
        assert part["id"].dtype == "int64" or not len(part)
    assert dgpuhash.dask.report().rounded == ()


def test_only_partitions_with_a_miss_are_rounded_and_counted():
    left = pd.DataFrame({"k": range(6)})
    right = left.assign(id=LARGE + left["k"], few=left["k"])[:5]
    merged = lazy(left, 3).merge(lazy(right, 2), on="k", how="left")
    parts = parts_of(merged)
    assert [part["id"].dtype for part in parts] == ["int64", "int64", "float64"]
    assert parts[0]["id"].tolist() == [LARGE, LARGE + 1]
    pd.testing.assert_series_equal(parts[2]["id"], pd.Series([float(LARGE), np.nan], name="id"))
    report = dgpuhash.dask.report()
    # `few` becomes float64 without being rounded.
    assert report.rounded == (dgpuhash.dask.Rounding("id", 1),)
    assert "rounded beside rows without a match: 'id' in 1 partition" in str(report)
    with dgpuhash.dask.enabled():
        merged.compute()
    assert dgpuhash.dask.report().rounded == (dgpuhash.dask.Rounding("id", 2),)


def of_columns(left: Any, right: Any, how: str) -> Any:
    return left.merge(right, on="k", how=how)


def of_two_names(left: Any, right: Any, how: str) -> Any:
    return left.merge(right.rename(columns={"k": "kk"}), left_on="k", right_on="kk", how=how)


def of_left_index(left: Any, right: Any, how: str) -> Any:
    return left.set_index("k").merge(right, left_index=True, right_on="k", how=how)


def of_right_index(left: Any, right: Any, how: str) -> Any:
    return left.merge(right.set_index("k"), left_on="k", right_index=True, how=how)


def of_indexes(left: Any, right: Any, how: str) -> Any:
    return left.set_index("k").join(right.set_index("k"), how=how)


@pytest.mark.parametrize(
    ("merge", "cuts"),
    [
        (of_columns, (1, 1)),
        (of_columns, (3, 2)),
        (of_two_names, (3, 1)),
        (of_left_index, (3, 2)),
        (of_right_index, (1, 3)),
        (of_indexes, (3, 2)),
    ],
)
def test_metas_are_dasks_and_partitions_are_of_pandas(merge, cuts):
    left, right = sides()
    for how in HOWS:
        frames = lazy(left, cuts[0]), lazy(right, cuts[1])
        ours = merge(*frames, how)
        dgpuhash.dask.disable()
        theirs = merge(*frames, how)
        dgpuhash.dask.enable(fallback=False)
        pd.testing.assert_frame_equal(ours._meta, theirs._meta)
        wanted = merge(left, right, how)
        assert rows_of(ours.compute()) == rows_of(wanted)
        for part in parts_of(ours):
            for label in ("id", "f", "s", "j"):
                own = (left if label in left else right)[label].dtype
                promoted = "object" if own.kind == "b" else "float64"
                assert part[label].dtype == (promoted if part[label].isna().any() else own)
        if cuts == (1, 1) and how != "outer":
            (part,) = parts_of(ours)
            assert part.dtypes.to_dict() == wanted.dtypes.to_dict()


@pytest.mark.parametrize("cuts", [(1, 1), (1, 3), (3, 1), (3, 2)])
@pytest.mark.parametrize("empty", ["left", "right"])
@pytest.mark.filterwarnings("ignore:Merging dataframes with merge column data type mismatches")
def test_keys_of_a_side_without_rows_get_no_common_dtype(cuts, empty):
    """pandas makes objects of booleans that meet numbers, where any row is there to meet."""
    left = pd.DataFrame({"k": pd.array([True, False, None] * 2, "bool[pyarrow]")})
    right = pd.DataFrame({"l": pd.array([1.0, 0.5, None] * 2, "double[pyarrow]")})
    if empty == "left":
        left = left.iloc[:0]
    else:
        right = right.iloc[:0]
    for how in ("inner", "left", "right"):
        frames = lazy(left, cuts[0]), lazy(right, cuts[1])
        wanted = left.merge(right, left_on="k", right_on="l", how=how)
        found = frames[0].merge(frames[1], left_on="k", right_on="l", how=how).compute()
        assert found.dtypes.to_dict() == wanted.dtypes.to_dict()
        assert rows_of(found) == rows_of(wanted)


def merged_twice(first: Any, frames: Any, how: str, on: str) -> Any:
    third = frames[1].rename(columns={"id": "id2", "s": "s2", "f": "f2"})
    if on == "k":
        return third.merge(first, on="k", how=how)
    return third.rename(columns={"k": "k2", f"{on}2": on}).merge(first, on=on, how=how)


@pytest.mark.parametrize("on", ["k", "s", "f"])
def test_partitions_of_promoted_dtypes_are_merged_again(on):
    """Keys and columns of the side that is stored, and of the one that asks."""
    left, right = sides()
    right["id"] -= LARGE
    wanted_first = left.merge(right, on="k", how="left")
    frames = lazy(left, 3), lazy(right, 2)
    first = frames[0].merge(frames[1], on="k", how="left").persist()
    for how in ("left", "outer"):
        wanted = merged_twice(wanted_first, (left, right), how, on)
        found = merged_twice(first, frames, how, on)
        assert rows_of(found.compute()) == rows_of(wanted)
    # Nulls match nulls.
    again = first.merge(found, on=["k", "s", "f"], how="outer")
    both = wanted_first.merge(wanted, on=["k", "s", "f"], how="outer")
    assert rows_of(again.compute()) == rows_of(both)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("how", ["sum", "min", "mean", "count", "first", "std"])
def test_groups_of_promoted_partitions(how, parts):
    left, right = sides()
    right["id"] -= LARGE
    wanted = left.merge(right, on="k", how="left")
    first = lazy(left, parts).merge(lazy(right, 2), on="k", how="left")
    for by in ("j", ["f", "s"]):
        made = getattr(first.groupby(by)[["id", "k"]], how)().compute()
        expected = getattr(wanted.groupby(by)[["id", "k"]], how)()
        assert rows_of(made.reset_index()) == rows_of(expected.reset_index())
        assert {dtype.kind for dtype in made.dtypes} <= set("if")
        assert not any(map(is_extension_array_dtype, [*made.dtypes, made.index.dtype]))


def test_products_are_floats_where_a_value_lacks():
    left, right = sides()
    right["id"] = 2**40 + right["k"]
    found = lazy(left, 3).merge(lazy(right, 2), on="k", how="left").groupby("j")["id"].prod()
    wanted = left.merge(right, on="k", how="left").groupby("j")["id"].prod()
    assert wanted.max() > 2**63
    pd.testing.assert_series_equal(found.compute().sort_index(), wanted, check_dtype=False)


def test_numbers_of_values_of_groups():
    left, right = sides()
    right["id"] = right["k"] * 2**50
    wanted = left.merge(right, on="k", how="left")
    first = lazy(left, 3).merge(lazy(right, 2), on="k", how="left")
    for by in ("j", "s"):
        numbers = first.groupby(by)["id"].nunique().compute()
        assert numbers.to_dict() == wanted.groupby(by)["id"].nunique().to_dict()
        assert not is_extension_array_dtype(numbers.index.dtype)


def test_functions_get_rows_in_pandas_dtypes():
    left, right = sides()
    first = lazy(left, 3).merge(lazy(right, 2), on="k", how="left")
    wanted = left.merge(right, on="k", how="left")
    kinds = first.groupby("j").apply(dtypes_of, meta=("kinds", object)).compute()
    assert set(kinds) <= {"int64,int8", "float64,float64"}
    sums = first.groupby("j")["s"].apply(total, meta=("s", "float64")).compute()
    assert sums.sort_index().tolist() == wanted.groupby("j")["s"].sum().tolist()
    beside = first.groupby("j")["s"].transform("sum", meta=("s", "float64")).compute()
    assert sorted(beside.tolist()) == sorted(wanted.groupby("j")["s"].transform("sum").tolist())


def dtypes_of(rows: pd.DataFrame) -> str:
    return f"{rows['id'].dtype},{rows['s'].dtype}"


def total(values: pd.Series) -> float:
    return float(values.sum())


@pytest.mark.parametrize("parts", [1, 3])
def test_values_of_promoted_partitions(parts):
    left, right = sides()
    wanted = left.merge(right, on="k", how="left")
    first = lazy(left, parts).merge(lazy(right, 2), on="k", how="left")
    assert first._meta["s"].dtype == "int8"
    for label in ("s", "f"):
        distinct = first[[label]].drop_duplicates()
        assert rows_of(distinct.compute()) == rows_of(wanted[[label]].drop_duplicates())
        assert distinct._meta[label].dtype == right[label].dtype
        assert first[label].nunique().compute() == wanted[label].nunique()
        for dropna in (True, False):
            counts = first[label].value_counts(dropna=dropna).compute().reset_index()
            expected = wanted[label].value_counts(dropna=dropna).reset_index()
            assert rows_of(counts) == rows_of(expected)


def test_keys_that_are_null_have_no_group_beside_them():
    left, right = sides()
    first = lazy(left, 3).merge(lazy(right, 2), on="k", how="left")
    wanted = left.merge(right, on="k", how="left")
    beside = first.groupby("s")["k"].transform("sum", meta=("k", "float64")).compute()
    expected = wanted.groupby("s")["k"].transform("sum")
    assert len(beside) == len(wanted)
    assert beside.isna().sum() == expected.isna().sum() == wanted["s"].isna().sum()


def test_metas_of_dask_frames_that_are_no_merge():
    """Dask's own meta says int32 of years, of which a partition lacks one."""
    days = pd.DataFrame({"day": pd.to_datetime(["2020-01-01", "2021-05-01", None, "2021-02-03"])})
    frame = dd.from_pandas(days, npartitions=2, sort=False)
    years = frame.assign(year=frame["day"].dt.year)
    assert years._meta["year"].dtype == "int32"
    assert years.groupby("year").size().compute().to_dict() == {2020: 1, 2021: 2}
    assert years["year"].value_counts().compute().to_dict() == {2020: 1, 2021: 2}
    assert len(years[["year"]].drop_duplicates().compute()) == 3


@pytest.mark.parametrize("dtype", ["int64", "Int64", "int64[pyarrow]", "str", "string"])
def test_counts_are_in_the_dtypes_of_pandas(dtype):
    values = pd.Series([1, 2, 2, None], dtype="Int64").astype("str" if dtype[0] == "s" else "Int64")
    values = values.fillna(3).astype(dtype) if dtype == "int64" else values.astype(dtype)
    for normalize in (False, True):
        counts = dd.from_pandas(values, npartitions=2, sort=False).value_counts(normalize=normalize)
        wanted = values.value_counts(normalize=normalize)
        assert counts.dtype == counts.compute().dtype == wanted.dtype


@pytest.mark.parametrize("how", ["right", "inner", "outer"])
@pytest.mark.parametrize("dtypes", [("Int8", "int64"), ("int64", "Int8")], ids=str)
def test_nullable_keys_that_the_meta_does_not_tell(how, dtypes):
    # Samples have texts as other key, of two dtypes: no rows of theirs match.
    texts = pd.Series([None], dtype="large_string[pyarrow]"), pd.Series([None], dtype=object)
    left, right = (
        pd.DataFrame({"k": k, "j": pd.Series([1], dtype=dtype)})
        for k, dtype in zip(texts, dtypes, strict=True)
    )
    for keys in ([1], [1, 2], [2]):
        theirs = pd.concat([right.assign(j=pd.Series([j], dtype=dtypes[1])) for j in keys])
        with no_other_engine():
            found = lazy(left, 1).merge(lazy(theirs, 2), how, on=["k", "j"])
            parts = parts_of(found)
        wanted = left.merge(theirs, how, on=["k", "j"])
        assert sorted(pd.concat(parts)["j"]) == sorted(wanted["j"])
        if keys == [1]:
            assert {part["j"].dtype for part in parts if len(part)} == {wanted["j"].dtype}


def test_keys_of_tasks_are_words():
    frame = pd.DataFrame({"k": [1, 1, 2], "j": [0, 0, 1], "v": [5, 6, 7]})
    with no_other_engine():
        counts = lazy(frame, 2).groupby(["k", "j"])["v"].nunique()
        assert counts.compute().to_dict() == {(1, 0): 2, (2, 1): 1}
    assert not [key for key in map(str, counts.optimize().dask) if " " in key.split(",")[0]]
