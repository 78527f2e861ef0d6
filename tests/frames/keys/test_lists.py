"""Lists and empty arrays of any dtype as keys of a frame index."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames import FrameIndex
from dgpuhash.tables import HashSet

DAY = datetime.date(2026, 3, 1)
STORED = {
    "int8": pd.Series([1, 2, -1], dtype="int8"),
    "int64": pd.Series([1, 2**53 + 1, -1]),
    "uint64": pd.Series([1, 2**63, 2**53 + 1], dtype="uint64"),
    "float64": pd.Series([1.0, 2.5, 2.0**70]),
    "Int64": pd.Series([1, None, 2**53 + 1], dtype="Int64"),
    "arrow": pd.Series([1, 2**53 + 1, -1], dtype="int64[pyarrow]"),
    "bool": pd.Series([True, False, True]),
    "datetime": pd.Series(pd.date_range(DAY, periods=3, unit="s")),
    "date": pd.Series([DAY, DAY, None], dtype="date32[day][pyarrow]"),
    "timedelta": pd.Series(pd.to_timedelta([1, 2, 3], unit="s")),
    "str": pd.Series(["a", "b", "c"]),
}
NOTHING = [
    [],
    np.array([]),
    np.array([], "U1"),
    np.array([], object),
    np.array([], "int8"),
    np.array([], "M8[s]"),
    pa.array([], pa.int8()),
    pd.Series([], dtype="float64"),
    pd.Series([], dtype="M8[s]"),
    pd.DataFrame({"k": np.array([])}),
    {"k": np.array([])},
]


def index_of(stored):
    return FrameIndex.build(pd.DataFrame({"k": stored, "v": range(len(stored))}), "k")


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("nothing", range(len(NOTHING)))
def test_no_keys_of_any_dtype(stored, nothing):
    index, keys = index_of(STORED[stored]), NOTHING[nothing]
    assert len(index.contains(keys)) == 0
    found = index.find(keys)
    assert (len(found.frame), len(found.found)) == (0, 0)
    assert list(found.frame.columns) == ["k", "v"]
    answer = index.lookup(keys)
    assert len(answer["v"] if isinstance(answer, dict) else answer) == 0


@pytest.mark.parametrize("stored", ["int8", "int64", "uint64", "float64", "Int64", "arrow", "bool"])
@pytest.mark.parametrize(
    "keys",
    [
        [2**70, 1],
        [2**63, -1, 1],
        [2**53 + 1, 0.5, 1.0],
        [10**400, 1, 2.5],
        [1, 300],
        [2**53 + 1, 2.5, None],
        [2**70],
    ],
)
def test_numbers_of_any_size(stored, keys):
    column = STORED[stored]
    there = [int(one) if one == int(one) else one for one in column.dropna().tolist()]
    nulls = bool(column.isna().any())
    expected = [nulls if one is None else one in there for one in keys]
    index = index_of(column)
    assert index.contains(keys).tolist() == expected
    found = index.find(keys)
    assert found.found.tolist() == expected
    for row, key, there in zip(
        found.query_rows.tolist(),
        found.frame["k"].tolist(),
        found.frame["v"].notna().tolist(),
        strict=True,
    ):
        assert there == expected[row]
        assert pd.isna(key) if keys[row] is None else key == keys[row]
    answer = index.lookup(keys)
    assert answer["v"].fillna(-1).tolist() == found.frame["v"].fillna(-1).tolist()
    assert sorted(set(found.query_rows.tolist())) == list(range(len(keys)))


def test_keys_of_several_columns():
    rows = pd.DataFrame({"a": [1, 2], "b": [DAY, DAY], "v": [7, 8]})
    rows["b"] = rows["b"].astype("M8[s]")
    index = FrameIndex.build(rows, ["a", "b"])
    keys = [(2, DAY), (2**70, DAY), (1, datetime.date(9999, 1, 1)), (1, DAY)]
    assert index.contains(keys).tolist() == [True, False, False, True]
    answer = index.lookup(keys)
    assert answer["v"].fillna(-1).tolist() == [8, -1, -1, 7]
    assert answer["a"].tolist() == [2, 2**70, 1, 1]


@pytest.mark.parametrize("stored", ["datetime", "date"])
def test_lists_of_dates_and_times(stored):
    index = index_of(STORED[stored])
    midnight = datetime.datetime(2026, 3, 1)
    for moment in (DAY, midnight, pd.Timestamp(midnight), np.datetime64(DAY)):
        assert index.contains([moment]).tolist() == [True]
        assert index.contains(moment).tolist() == [True]
        asked = [moment, datetime.date(9999, 1, 1), pd.Timestamp("2026-03-01T00:00:00.5")]
        assert index.contains([DAY, *asked]).tolist() == [True, True, False, False]
        assert index.lookup([moment, DAY])["v"].notna().all()
    nulls = stored == "date"
    assert index.contains([DAY, None, pd.NaT]).tolist() == [True, nulls, nulls]
    assert index.contains([pd.NaT]).tolist() == [nulls]
    for keys in ([DAY, "x"], [DAY, 2**70], [2**70], 2**70):
        with pytest.raises(KeyTypeError):
            index.contains(keys)


@pytest.mark.parametrize(
    "dtype", ["Int64", "UInt8", "Float64", "boolean", "int64", "int64[pyarrow]", "bool[pyarrow]"]
)
def test_contains_of_a_nullable_series_has_the_dtype_of_isin(dtype):
    asked = pd.Series([1, 0, 1], dtype=dtype, index=list("abc"))
    if dtype != "int64":
        asked["b"] = None
    index = FrameIndex.build(pd.DataFrame({"k": [1, 5]}), "k")
    pd.testing.assert_series_equal(index.contains(asked), asked.isin([1]))
    assert index.contains(asked.array).tolist() == [True, False, True]
    own = HashSet.from_keys([1, 5]).contains(asked.dropna().array)
    assert type(index.contains(asked.array)) is type(own)
    assert index.contains(asked.array).dtype == own.dtype
    mask = index.contains(pd.Index(asked))
    assert isinstance(mask, pd.Index) and (mask.dtype == own.dtype or dtype == "int64")
    assert index.contains(asked.to_frame("k")).dtype == bool
