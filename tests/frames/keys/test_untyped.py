"""Empty and all-null object columns, which compare with any key type."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames import FrameIndex

DAYS = pd.to_datetime(["2020-01-01", None])
TYPED = {
    **{
        dtype: pd.Series([1, None], dtype=dtype)
        for dtype in ("float64", "Float64", "double[pyarrow]", "Int64", "int64[pyarrow]")
    },
    **{dtype: pd.Series([1, 0], dtype=dtype) for dtype in ("int64", "uint8", "bool")},
    "boolean": pd.Series([True, None], dtype="boolean"),
    **{dtype: pd.Series(["a", None], dtype=dtype) for dtype in ("str", "string", "category")},
    "moments": pd.Series(DAYS),
    "zoned": pd.Series(DAYS.tz_localize("UTC")),
    "spans": pd.Series(DAYS - DAYS[0]),
    "dates": pd.Series(pa.array([0, None], pa.date32()), dtype="date32[day][pyarrow]"),
    "arrow": pd.Series(pa.array([0, None]), dtype="timestamp[us][pyarrow]"),
}
NULLS: dict[str, list[Any]] = {
    "nothing": [],
    "None": [None, None],
    "NaT": [pd.NaT, None],
    "NaN": [np.nan],
    "NA": [pd.NA],
}


def merged(left: pd.DataFrame, right: pd.DataFrame, **options: Any) -> pd.DataFrame | None:
    """Return the merge of pandas; None where pandas refuses.

    Whether pandas refuses depends on the rows.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return left.merge(right, **options)
        except ValueError:
            return None


@pytest.mark.parametrize("nulls", NULLS.values(), ids=NULLS)
@pytest.mark.parametrize("typed", TYPED.values(), ids=TYPED)
@pytest.mark.parametrize("name", ["k", "other"])
def test_they_are_merged_with_keys_of_every_type(typed, nulls, name):
    left = pd.DataFrame({name: pd.Series(nulls, dtype=object), "x": range(len(nulls))})
    right = pd.DataFrame({"k": typed, "y": [1, 2]})
    index = FrameIndex.build(right, "k")
    matches = int(bool(typed.isna().any()))
    for how in ("inner", "left"):
        found = index.merge(left, left_on=name, how=how)
        wanted = merged(left, right, left_on=name, right_on="k", how=how)
        if wanted is not None:
            assert_frame_equal(found, wanted)
        assert found[name].dtype == object and found["y"].notna().sum() == matches * len(nulls)
    assert_frame_equal(index.merge(left, left_on=name, how="semi"), left[: matches * len(left)])
    assert len(index.merge(left, left_on=name, how="anti")) == (1 - matches) * len(left)
    keys = left[[name]].set_axis(["k"], axis=1)
    assert index.contains(keys).tolist() == [bool(matches)] * len(nulls)
    assert len(index.lookup(keys)) == len(nulls)
    assert index.erase(keys) == (matches if nulls else 0)


@pytest.mark.parametrize("nulls", NULLS.values(), ids=NULLS)
@pytest.mark.parametrize("typed", TYPED.values(), ids=TYPED)
def test_they_are_inserted_as_the_columns_of_the_index(typed, nulls):
    index = FrameIndex.build(pd.DataFrame({"k": typed, "y": [0.5, 1.5]}), "k")
    rows = pd.DataFrame({"k": nulls, "y": nulls}, dtype=object)
    if nulls and not typed.isna().any():
        with pytest.raises((ValueError, KeyTypeError), match=r"nulls"):
            index.insert(rows)
        assert len(index) == 2
        return
    index.insert(rows)
    assert index.frame()["k"].dtype == typed.dtype and index.frame()["y"].dtype == "float64"
    assert index.contains(rows[["k"]]).all() and len(index) == 2 + len(nulls)


@pytest.mark.parametrize("typed", TYPED.values(), ids=TYPED)
def test_an_index_without_rows_has_no_key_of_any_type(typed):
    left = pd.DataFrame({"k": typed, "x": [1, 2]})
    index = FrameIndex.build(pd.DataFrame(columns=["k", "y"]), "k")
    assert len(index.merge(left)) == len(index.merge(left, how="semi")) == index.erase(left) == 0
    found = index.merge(left, how="left")
    assert found["x"].tolist() == [1, 2] and found["y"].isna().all()
    assert_frame_equal(index.merge(left, how="anti"), left)
    assert not index.contains(left).any() and not index.find(left).found.any()


def test_both_keys_of_two():
    right = pd.DataFrame({"k": [1, 2], "c": ["a", "b"], "y": [1, 2]})
    index = FrameIndex.build(right, ["k", "c"])
    left = pd.DataFrame(columns=["k", "c", "x"])
    for how in ("inner", "left"):
        assert_frame_equal(index.merge(left, how=how), left.merge(right, on=["k", "c"], how=how))


def test_nulls_beside_texts_are_nulls_of_whatever_kind():
    """So that no cut decides: pandas' kind of a piece with NaT is another one."""
    keys = pd.Series(["a", pd.NaT, None, pd.NA, "b"], dtype=object)
    rows = pd.DataFrame({"k": keys, "y": range(5)})
    index = FrameIndex.build(rows, "k")
    for start, end in ((0, 5), (0, 2), (1, 2), (1, 4), (4, 5)):
        left = rows[start:end]
        assert_frame_equal(index.merge(left), left.merge(rows, on="k"))
    with pytest.raises(KeyTypeError, match="object"):
        index.merge(pd.DataFrame({"k": pd.Series([pd.NaT, 1], dtype=object)}))


@pytest.mark.parametrize("one", ["str", "string", "category", "int64", "Int64", "bool", "zoned"])
@pytest.mark.parametrize("two", ["str", "string", "int64", "int64[pyarrow]", "spans"])
def test_keys_of_whatever_types_where_one_side_has_rows_alone(one, two):
    """As pandas has it, which compares nothing then."""
    typed, other = TYPED[one], TYPED[two]
    left = pd.DataFrame({"k": typed, "x": [1, 2]})
    right = pd.DataFrame({"k": other, "y": [1, 2]})
    indexes = FrameIndex.build(right, "k"), FrameIndex.build(right[:0], "k")
    keys = left[["k"]]
    for index, some, rows in ((indexes[0], 0, 2), (indexes[1], 2, 0)):
        asked, stored = left[:some], right[:rows]
        for how in ("inner", "left"):
            found, wanted = index.merge(asked, how=how), asked.merge(stored, on="k", how=how)
            assert_frame_equal(found, wanted)
        assert_frame_equal(index.merge(asked, how="semi"), asked[:0])
        assert_frame_equal(index.merge(asked, how="anti"), asked)
        assert not index.contains(keys[:some]).any() and not index.find(keys[:some]).found.any()
        assert len(index.lookup(keys[:some])) == some and index.erase(keys[:some]) == 0
        assert len(index.match(keys[:some]).query_rows) == 0
        index.insert(pd.DataFrame({"k": keys["k"][:0], "y": []}))
        assert_frame_equal(index.frame(), stored)
    if comparable(typed, other) or typed.dtype == "category":
        return
    for index, some in ((indexes[0], 2), (indexes[1], 0)):
        with pytest.raises(KeyTypeError, match="convert"):
            index.merge(left[:some])


def comparable(one: pd.Series, other: pd.Series) -> bool:
    """Return whether pandas merges rows of these keys."""
    frames = [pd.DataFrame({"k": keys}) for keys in (one, other)]
    return merged(frames[0], frames[1], on="k") is not None
