"""Merge results beside rows: class, warnings and labels as in pandas."""

from __future__ import annotations

import decimal
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from dgpuhash.errors import ColumnError, KeyTypeError
from dgpuhash.frames import FrameIndex

HOWS = ["inner", "left", "semi", "anti"]


class Trips(pd.DataFrame):
    """Subclass of DataFrame, written as pandas' documentation has it."""

    @property
    def _constructor(self) -> Any:
        return Trips


@pytest.mark.parametrize("keys", [[1, 2], [1, 9], [1.5, None], ["a", "b"]])
@pytest.mark.parametrize("how", HOWS)
def test_results_are_of_the_class_of_the_left_frame(keys, how):
    left, right = Trips({"k": keys}), pd.DataFrame({"k": keys[:1], "y": [1]})
    index = FrameIndex.build(right, "k")
    assert type(index.merge(left, how=how)) is Trips
    assert type(index.lookup(left)) is type(index.find(left).frame) is Trips
    assert type(FrameIndex.build(left, "k").merge(right, how=how)) is pd.DataFrame


@pytest.mark.parametrize("how", ["inner", "left"])
def test_attributes_that_both_have_are_kept(how):
    left, right = pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"k": [1, 2], "y": [1, 2]})
    for own, other in (({}, {}), ({"unit": "m"}, {"unit": "m"}), ({"unit": "m"}, {})):
        left.attrs, right.attrs = own, other
        found = FrameIndex.build(right, "k").merge(left, how=how)
        assert found.attrs == left.merge(right, on="k", how=how).attrs


def warned(merge: Any) -> tuple[list[str], Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = merge()
    assert all(each.filename == __file__ and each.category is UserWarning for each in caught)
    return [str(each.message) for each in caught], found


NUMBERS = ["int8", "uint8", "int64", "uint64", "float32", "float64", "bool"]


@settings(max_examples=80)
@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from(NUMBERS))
def test_warnings_are_those_of_pandas(data, left_dtype, right_dtype):
    def frame(dtype: str, name: str) -> pd.DataFrame:
        pool = [0, 1, 3] if dtype[0] != "f" else [0.0, 1.0, 2.5, 300.0, np.nan]
        values = data.draw(st.lists(st.sampled_from(pool), max_size=4))
        return pd.DataFrame({"k": np.array(values, dtype), name: np.zeros(len(values))})

    left, right = frame(left_dtype, "x"), frame(right_dtype, "y")
    index = FrameIndex.build(right, "k")
    told, wanted = warned(lambda: left.merge(right, on="k"))
    ours, found = warned(lambda: index.merge(left))
    assert ours == told and len(found) == len(wanted)


def test_warnings_follow_the_rows_that_are_there():
    left = pd.DataFrame({"k": [1, 2]})
    index = FrameIndex.build(pd.DataFrame({"k": [1.0, np.nan]}), "k")
    assert warned(lambda: index.merge(left))[0] == []
    index.insert(pd.DataFrame({"k": [0.5]}))
    for how in HOWS:
        (told,) = warned(lambda how=how: index.merge(left, how=how))[0]
        assert "not equal to their int representation" in told
    index.erase(pd.DataFrame({"k": [0.5]}))
    assert warned(lambda: index.merge(left))[0] == []
    nullable = FrameIndex.build(pd.DataFrame({"k": pd.array([0.5], "Float64")}), "k")
    assert warned(lambda: nullable.merge(left))[0] == []


@pytest.mark.parametrize("label", [np.nan, float("nan"), pd.NaT, pd.NA], ids=str)
def test_labels_that_are_null_are_named_as_such(label):
    frame = pd.DataFrame([[1, 2]], columns=pd.Index([label, "b"], dtype=object))
    index = FrameIndex.build(frame, "b", columns=[])
    for refused in (
        lambda: FrameIndex.build(frame, label),
        lambda: FrameIndex.build(frame, [label, "b"]),
        lambda: FrameIndex.build(frame, float("nan")),
        lambda: FrameIndex.build(frame, "b", columns=[float("nan")]),
        lambda: index.merge(frame, left_on=label),
        lambda: index.merge(frame, columns=[label]),
    ):
        with pytest.raises(ColumnError, match=r"have nulls as labels.*; rename them"):
            refused()
    assert_frame_equal(index.merge(frame), frame.merge(frame[["b"]], on="b"))
    numbers = frame.set_axis(pd.Index([np.nan, 1.0]), axis=1)
    with pytest.raises(ColumnError, match=r"have nulls as labels"):
        FrameIndex.build(numbers, 1.0)
    with pytest.raises(ColumnError, match=r"no column \['z'\]; the columns are"):
        FrameIndex.build(frame, "z")


@pytest.mark.parametrize("dtype", [object, pd.ArrowDtype(pa.decimal128(9, 3))], ids=str)
def test_the_remedy_for_decimals_finds_all_that_are_equal(dtype):
    prices = [decimal.Decimal(text) for text in ("1.2", "1.20", "100", "1E+2", "-0.001")]
    left = pd.DataFrame({"k": pd.Series([*prices, None], dtype=dtype), "x": range(6)})
    right = pd.DataFrame({"k": pd.Series([decimal.Decimal("1.200"), None], dtype=object)})
    with pytest.raises(KeyTypeError, match="decimal") as refusal:
        FrameIndex.build(left, "k")
    remedy = str(refusal.value).partition("decimal128: ")[2]
    assert remedy.startswith(".astype(")

    def as_told(frame: pd.DataFrame) -> pd.DataFrame:
        column = eval(f"column{remedy}", {"column": frame["k"], "pandas": pd, "pyarrow": pa})
        return frame.assign(k=column)

    found = FrameIndex.build(as_told(right), "k").merge(as_told(left))
    assert found["x"].tolist() == [0, 1, 5]
    same = FrameIndex.build(as_told(left), "k").merge(as_told(left))
    assert len(same) == 2 * 2 + 2 * 2 + 2
