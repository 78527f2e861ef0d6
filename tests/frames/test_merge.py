"""FrameIndex.merge against pandas.merge, for generated frames."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from frames.generated import frame_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from dgpuhash.errors import KeyTypeError, SpecError
from dgpuhash.frames import FrameIndex, KeyEncoder

# pandas 3.0 has rows of inner merges in an order of its own.
ORDERED = ["inner", "left"] if pd.__version__ >= "3.1" else ["left"]


def build(right: pd.DataFrame, on: list[str], hash_bits: int) -> FrameIndex:
    return FrameIndex.build(right, on, encoder=KeyEncoder.for_frame(right, on, hash_bits=hash_bits))


def reference(left: Any, right: Any, how: str, left_on: Any, right_on: Any) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return left.merge(right, how=how, left_on=left_on, right_on=right_on)


@settings(max_examples=100)
@given(frame_pairs(), st.sampled_from(ORDERED), st.sampled_from([64, 3]))
def test_merge_equals_pandas(pair, how, hash_bits):
    left, right, left_on, right_on = pair
    found = build(right, right_on, hash_bits).merge(left, left_on=left_on, how=how)
    expected = reference(left, right, how, left_on, right_on)
    for label in left_on:
        # pandas takes the finer unit of two only when it has to move rows; the index always.
        if found[label].dtype.kind == "M":
            expected[label] = expected[label].astype(found[label].dtype)
    assert_frame_equal(found, expected)


@settings(max_examples=60)
@given(frame_pairs(), st.sampled_from([64, 3]))
def test_semi_and_anti_split_the_left_rows(pair, hash_bits):
    left, right, left_on, right_on = pair
    left.index = pd.Index(np.arange(len(left)) * 10, name="label")
    index = build(right, right_on, hash_bits)
    kept = reference(left, right, "inner", left_on, right_on)["x"].unique()
    matched = left["x"].isin(kept)
    assert_frame_equal(index.merge(left, left_on=left_on, how="semi"), left[matched])
    assert_frame_equal(index.merge(left, left_on=left_on, how="anti"), left[~matched])


@pytest.mark.parametrize("how", ["inner", "left"])
def test_columns_of_every_dtype_are_carried_along(how):
    days = pd.date_range("2020", periods=3)
    right = pd.DataFrame(
        {
            "k": [1, 2, 2],
            "sparse": pd.arrays.SparseArray([0, 0, 5]),
            "filled": pd.arrays.SparseArray([1.5, np.nan, 1.5], fill_value=1.5),
            "interval": pd.interval_range(0, 3),
            "spell": pd.IntervalIndex.from_breaks(pd.date_range("2020", periods=4), closed="left"),
            "period": days.to_period("M"),
            "zoned": days.tz_localize("Europe/Berlin"),
            "object": [{}, [1], None],
            "bytes": [b"a", b"b", b""],
            "complex": [1j, 2, 3],
            "half": np.array([1, 2, 3], "float16"),
        }
    )
    left = pd.DataFrame({"k": [2, 7, 1, 2]})
    expected = left.merge(right, on="k", how=how)
    assert_frame_equal(FrameIndex.build(right, on="k").merge(left, how=how), expected)


@pytest.mark.parametrize("suffixes", ["ab", ("_x",), ("_x", "_y", "_z"), None, 3])
def test_suffixes_are_a_pair(suffixes):
    frame = pd.DataFrame({"k": [1], "v": [2]})
    with pytest.raises(SpecError, match="a pair of strings"):
        FrameIndex.build(frame, on="k").merge(frame, suffixes=suffixes)


def test_half_floats_are_merged_as_floats():
    halves = pd.DataFrame({"k": np.array([1, 2.5], "float16"), "v": [1, 2]})
    wide = halves.astype({"k": "float32"})
    index = FrameIndex.build(halves, on="k")
    assert index.lookup([2.5])["v"].tolist() == [2]
    assert index.merge(halves[:1], how="anti").empty
    for left in (halves, wide):
        assert_frame_equal(index.merge(left), wide.merge(wide, on="k"))
    renamed = halves.rename(columns={"k": "q"})
    expected = wide.rename(columns={"k": "q"}).merge(wide, left_on="q", right_on="k")
    assert_frame_equal(index.merge(renamed, left_on="q"), expected.astype({"k": "float16"}))


def test_frames_that_forbid_labels_to_occur_twice():
    """As what is merged, and as what was indexed: rows are taken more than once."""
    stored = pd.DataFrame({"k": [1, 2], "v": [3, 4]})
    asked = pd.DataFrame({"k": [1, 1, 3]})
    bound = stored.set_flags(allows_duplicate_labels=False)
    for how in ("inner", "left", "semi", "anti"):
        wanted = FrameIndex.build(stored, "k").merge(asked, how=how)
        for left in (asked, asked.set_flags(allows_duplicate_labels=False)):
            found = FrameIndex.build(bound, "k").merge(left, how=how)
            assert_frame_equal(found, wanted, check_flags=False)


def test_categories_with_nulls_that_become_integers():
    index = FrameIndex.build(pd.DataFrame({"k": [1, 2], "v": [3, 4]}), "k")
    left = pd.DataFrame({"k": pd.Categorical([1, None, 2])})
    with pytest.raises(KeyTypeError, match=r"'k' is category.*\.astype\('Int64'\)"):
        index.merge(left, how="left")
    found = index.merge(left.astype("Int64"), how="left")
    assert found["v"].fillna(-1).tolist() == [3, -1, 4]
