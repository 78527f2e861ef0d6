"""Lookups by scalar, list, array, Series, frame and tuples."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from dgpuhash.errors import ColumnError, ShapeError
from dgpuhash.frames import FrameIndex

WEATHER = pd.DataFrame(
    {
        "origin": ["EWR", "JFK", "JFK", "LGA"],
        "hour": np.array([1, 1, 2, 1], "int8"),
        "wind": [3.5, np.nan, 9.0, 1.0],
    }
)


@pytest.fixture(scope="module")
def unique():
    return FrameIndex.build(pd.DataFrame({"k": [10, 20, 30], "v": ["a", "b", None]}), "k")


@pytest.fixture(scope="module")
def doubles():
    return FrameIndex.build(pd.DataFrame({"k": ["x", "y", "x"], "v": [1, 2, 3]}), "k")


@pytest.mark.parametrize(
    "keys",
    [
        [30, 99, 10],
        (30, 99, 10),
        np.array([30, 99, 10]),
        np.array([30, 99, 10], "uint8"),
        pd.Series([30, 99, 10], index=[5, 5, 5]),
        pd.Index([30, 99, 10]),
        pd.array([30, 99, 10], dtype="Int64"),
        pd.DataFrame({"other": 1, "k": [30, 99, 10]}),
        {"k": [30, 99, 10]},
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_keys_in_any_form_come_back_in_input_order(unique, keys):
    found = unique.lookup(keys)
    assert list(found.frame.columns) == ["k", "v"]
    assert found.frame["k"].tolist() == [30, 99, 10]
    assert found.frame["v"].isna().tolist() == [True, True, False]
    assert found.query_rows.tolist() == [0, 1, 2]
    assert found.found.tolist() == [True, False, True]
    assert found.frame.index.equals(pd.RangeIndex(3))


@pytest.mark.parametrize(("key", "rows"), [("x", 2), ("y", 1), ("z", 1)])
def test_a_single_key(doubles, key, rows):
    found = doubles.lookup(key)
    assert len(found) == rows
    assert found.found.tolist() == [key != "z"]


def test_all_rows_of_a_key_in_insertion_order(doubles):
    found = doubles.lookup(["z", "x", "y", "x"])
    assert found.query_rows.tolist() == [0, 1, 1, 2, 3, 3]
    assert found.found.tolist() == [False, True, True, True]
    np.testing.assert_array_equal(found.arrays()["v"], [np.nan, 1, 3, 2, 1, 3])


def test_several_key_columns():
    index = FrameIndex.build(WEATHER, ["origin", "hour"])
    tuples = index.lookup([("JFK", 2), ("JFK", 7)])
    assert tuples.frame["wind"].tolist()[0] == 9.0
    assert tuples.found.tolist() == [True, False]
    assert index.lookup(("LGA", 1)).frame["wind"].tolist() == [1.0]
    columns = index.lookup({"hour": np.array([2, 7]), "origin": ["JFK", "JFK"]})
    assert_frame_equal(columns.frame, tuples.frame)
    for wrong in ("JFK", ["JFK"], [("JFK",)], np.array([1, 2])):
        with pytest.raises(ShapeError, match="one tuple of 2 values"):
            index.lookup(wrong)
    with pytest.raises(ColumnError, match="'hour'"):
        index.lookup({"origin": ["JFK"]})
    with pytest.raises(ColumnError, match="'hour'"):
        index.lookup(WEATHER[["origin"]])
    with pytest.raises(ShapeError, match="different lengths"):
        index.lookup({"hour": [1], "origin": ["JFK", "EWR"]})


@pytest.mark.parametrize(
    "keys", [[], np.array([], "int64"), pd.DataFrame({"k": []}, dtype="int64")]
)
def test_no_keys(unique, keys):
    found = unique.lookup(keys)
    assert len(found) == 0
    assert list(found.frame.columns) == ["k", "v"]
    assert len(found.found) == 0


def test_nulls_and_two_dimensions(unique, doubles):
    assert unique.lookup([None, 10]).found.tolist() == [False, True]
    assert doubles.lookup([None]).found.tolist() == [False]
    with pytest.raises(ShapeError, match="2 dimensions"):
        unique.lookup(np.ones((2, 2)))
