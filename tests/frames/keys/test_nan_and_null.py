"""NaN and null in float keys: one key or two, as pandas has it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal, assert_series_equal

from dgpuhash.errors import ColumnError
from dgpuhash.frames import FrameIndex, KeyEncoder

FLOATS = ["float64", "float32", "Float64", "Float32", "double[pyarrow]", "float[pyarrow]"]
OTHERS = ["Int64", "Int32", "int64[pyarrow]", "boolean", "bool[pyarrow]", "category"]
NAN, NULL = float("nan"), None
# pandas itself fails where NaN of Arrow would become an integer of Arrow.
REFUSED = {(one, "int64[pyarrow]") for one in FLOATS if "pyarrow" in one}


def column(values: list[Any], dtype: str) -> pd.Series:
    """Return floats, NaN and nulls as a Series; some dtypes lack NaN.

    In these, NaN is null.
    """
    nulls = np.array([value is NULL for value in values])
    floats = np.array([NAN if value is NULL else value for value in values], dtype="float64")
    if dtype in {"float64", "float32"}:
        return pd.Series(floats.astype(dtype))
    if dtype in {"Float64", "Float32"}:
        return pd.Series(pd.arrays.FloatingArray(floats.astype(dtype.lower()), nulls))
    if dtype in {"double[pyarrow]", "float[pyarrow]"}:
        kind = pa.float64() if dtype[0] == "d" else pa.float32()
        array = pa.array(floats.astype(kind.to_pandas_dtype()), kind, mask=nulls)
        return pd.Series(pd.array(array, dtype=pd.ArrowDtype(kind)))
    if dtype == "category":
        return pd.Series(pd.Categorical(floats, categories=[0.0, 1.0]))
    whole = [None if np.isnan(value) else int(value) for value in floats]
    return pd.Series(whole, dtype=dtype)


def frame(values: list[Any], dtype: str, other: str, name: str) -> pd.DataFrame:
    """Return a key column, perhaps a second one, and row numbers."""
    made = pd.DataFrame({"k": column(values, dtype), name: range(len(values))})
    return made if other == "none" else made.assign(c="t" if other == "str" else np.int8(3))


def merged(left: pd.DataFrame, right: pd.DataFrame, on: list[str], how: str) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return left.merge(right, on=on, how=how)


VALUES = st.lists(st.sampled_from([NAN, NULL, 0.0, 1.0]), min_size=1, max_size=6)


@settings(max_examples=60)
@given(
    VALUES,
    VALUES,
    st.sampled_from(FLOATS + OTHERS),
    st.sampled_from(FLOATS + OTHERS),
    st.sampled_from(["none", "int8", "str"]),
    st.sampled_from([64, 3]),
)
def test_every_verb_answers_as_pandas_merge(asked, stored, left_dtype, right_dtype, other, bits):
    if (left_dtype, right_dtype) in REFUSED:
        return
    left, right = frame(asked, left_dtype, other, "x"), frame(stored, right_dtype, other, "y")
    on = [label for label in ("k", "c") if label in left]
    encoder = KeyEncoder.for_frame(right, on, hash_bits=bits)
    index = FrameIndex.build(right, on, encoder=encoder)
    inner = merged(left, right, on, "inner")
    assert_frame_equal(index.merge(left), inner)
    assert_frame_equal(index.merge(left, how="left"), merged(left, right, on, "left"))
    there = left["x"].isin(inner["x"])
    assert_frame_equal(index.merge(left, how="semi"), left[there])
    assert_frame_equal(index.merge(left, how="anti"), left[~there])
    assert_series_equal(index.contains(left), there, check_names=False)
    assert_frame_equal(index.lookup(left), merged(left[on], right, on, "left"))
    if other == "none":
        assert index.contains(left["k"].array).tolist() == there.tolist()
    assert index.erase(left) == inner["y"].nunique()
    assert index.frame()["y"].tolist() == sorted(set(right["y"]) - set(inner["y"]))


@pytest.mark.parametrize("dtype", FLOATS[2:])
def test_two_keys_are_no_double(dtype):
    rows = frame([NAN, NULL, 2.0], dtype, "none", "y")
    index = FrameIndex.build(rows, "k", unique=True)
    assert_frame_equal(index.merge(rows), merged(rows, rows, ["k"], "inner"))
    for again in (NAN, NULL):
        with pytest.raises(ColumnError, match="a key of more than one row"):
            index.insert(frame([again], dtype, "none", "y"))


@pytest.mark.parametrize("index_dtype", ["float64", "Float64", "double[pyarrow]"])
def test_arrays_of_arrow_are_asked_as_its_dtype(index_dtype):
    values = [NAN, NULL, 1.0]
    right = frame(values, index_dtype, "none", "y")
    left = frame(values, "double[pyarrow]", "none", "x")
    found = FrameIndex.build(right, "k").contains(pa.array(values, pa.float64()))
    kept = merged(left, right, ["k"], "inner")["x"]
    assert pd.Series(found).tolist() == left["x"].isin(kept).tolist()


@pytest.mark.parametrize("added", FLOATS)
@pytest.mark.parametrize("stored", FLOATS)
def test_rows_that_are_inserted_keep_nan_where_the_index_has_it(stored, added):
    index = FrameIndex.build(frame([5.0], stored, "none", "y"), "k")
    index.insert(frame([NAN, NULL, 1.0], added, "none", "y"))
    kept = [NULL if added.startswith("float") and "[" not in added else NAN, NULL]
    wanted = column([5.0, kept[0], NULL, 1.0], stored)
    assert_series_equal(index.frame()["k"], wanted, check_names=False)


def test_saves_keep_them_apart(tmp_path):
    rows = frame([NAN, NULL, 1.0], "Float64", "str", "y")
    FrameIndex.build(rows, ["k", "c"]).save(tmp_path / "index")
    loaded = FrameIndex.load(tmp_path / "index")
    assert_frame_equal(loaded.merge(rows), merged(rows, rows, ["k", "c"], "inner"))
    assert loaded.erase(rows[:1]) == 1
    assert loaded.frame()["y"].tolist() == [1, 2]


@pytest.mark.parametrize("dtype", ["Float64", "double[pyarrow]", "float64"])
def test_descriptions_that_do_not_say_who_tells_nulls_are_completed(dtype):
    """Those of files of before."""
    rows = frame([NAN, NULL, 1.0], dtype, "none", "y")
    encoder = KeyEncoder.for_frame(rows, "k")
    saved = encoder.to_json()
    (type_,) = saved["types"]
    del type_["missing"]
    old = KeyEncoder.from_json({**saved, "types": [{**type_, "nullable": False}]})
    assert old.read_as(rows[:0]) == encoder
    np.testing.assert_array_equal(old.encode(rows).codes, encoder.encode(rows).codes)
