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
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import ColumnError, KeyTypeError, SpecError
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


def test_half_floats_are_keys():
    halves = pd.DataFrame({"k": np.array([1, 2.5], "float16"), "v": [1, 2]})
    wide = halves.astype({"k": "float32"})
    index = FrameIndex.build(halves, on="k")
    assert index.lookup([2.5])["v"].tolist() == [2]
    assert index.merge(halves[:1], how="anti").empty
    # They stay what they are, as in `dgpuhash.merge`; pandas merges none.
    for left in (halves, wide):
        for how in ("inner", "left", "right", "outer"):
            expected = wide.merge(wide, on="k", how=how).astype({"k": left["k"].dtype})
            assert_frame_equal(index.merge(left, how=how), expected)
            assert_frame_equal(dgpuhash.merge(left, halves, how, on="k"), expected)
    renamed = halves.rename(columns={"k": "q"})
    expected = wide.rename(columns={"k": "q"}).merge(wide, left_on="q", right_on="k")
    halved = expected.astype({"k": "float16", "q": "float16"})
    assert_frame_equal(index.merge(renamed, left_on="q"), halved)


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
    wanted = left.astype("Int64").assign(v=[3, None, 4])
    assert_frame_equal(index.merge(left, how="left"), wanted)
    assert_frame_equal(index.lookup(left), wanted)
    assert_frame_equal(dgpuhash.merge(left, index.frame(), "left", on="k"), wanted)


LEFT = pd.DataFrame({"k": [5, 6, 7, 8], "v": [0.0, 0.25, 0.5, 0.75]})
RIGHT = pd.DataFrame({"k": [7, 5, 7], "v": ["a", "b", "c"], "w": [1, 2, 3]})
MOMENTS = pd.Series(pd.to_datetime([0, 5_000_000_000, 1_700_000_000_123_456_789], unit="ns"))


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
@pytest.mark.parametrize(
    ("left", "on"), [(["z", 5], [5]), ([1, 2], [2, 1])], ids=["beside others", "crossed"]
)
def test_labels_that_pandas_would_give_twice_are_refused(left, on, how):
    right = pd.DataFrame({label: [1, 2] for label in [5, 1, 2, "k"]})
    index = FrameIndex.build(right[[5, "k"]], "k") if on == [5] else FrameIndex.build(right, [1, 2])
    with pytest.raises(ColumnError, match="rename them"):
        index.merge(pd.DataFrame({label: [1, 2] for label in left}), left_on=on, how=how)


@pytest.mark.parametrize("suffixes", [("_x", "_y"), (None, "_r"), ("", "_r"), ("_l", None)])
def test_suffixes(suffixes):
    index = FrameIndex.build(RIGHT, "k")
    expected = LEFT.merge(RIGHT, on="k", suffixes=suffixes)
    assert_frame_equal(index.merge(LEFT, on="k", suffixes=suffixes), expected)


def test_overlapping_columns_are_refused():
    index = FrameIndex.build(RIGHT, "k")
    with pytest.raises(ColumnError, match=r"overlap.*suffixes="):
        index.merge(LEFT, suffixes=(None, None))
    with pytest.raises(ColumnError, match="duplicate columns"):
        index.merge(LEFT.assign(v_y=1))


def test_moments_of_arrow_beside_others_are_refused_with_the_way_out():
    arrow = LEFT[:3].assign(k=MOMENTS.astype("timestamp[ns][pyarrow]"))
    index = FrameIndex.build(RIGHT.assign(k=MOMENTS), "k")
    with pytest.raises(KeyTypeError, match=r"timestamp\[ns\]\[pyarrow\] and datetime64.*astype"):
        index.merge(arrow)


def test_key_columns_of_other_names_stay_on_both_sides():
    index = FrameIndex.build(RIGHT, "k")
    left = LEFT.rename(columns={"k": "key"}).assign(k="own")
    for how in ("inner", "left"):
        expected = left.merge(RIGHT, left_on="key", right_on="k", how=how)
        assert_frame_equal(index.merge(left, left_on="key", how=how), expected)


def test_number_labels():
    left, right = LEFT.set_axis([0, 1], axis=1), RIGHT.set_axis([0, 1, 2], axis=1)
    expected = left.merge(right.astype({0: "int8"}), on=0, how="left")
    found = FrameIndex.build(right.astype({0: "int8"}), 0).merge(left, how="left")
    assert_frame_equal(found, expected)


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "semi", "anti"])
def test_no_other_engine_runs_beneath_a_merge_with_an_index(how):
    index = FrameIndex.build(RIGHT, "k")
    with no_other_engine():
        found = index.merge(LEFT.assign(own=1), how=how)
    assert len(found)


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("others", [{}, {"c": "category"}])
@pytest.mark.parametrize(
    ("dtype", "index_dtype"),
    [
        ("M8[ns]", "M8[s]"),
        ("M8[s]", "M8[ns]"),
        ("M8[ms]", "M8[us]"),
        ("datetime64[ns, Europe/Berlin]", "datetime64[s, UTC]"),
        ("datetime64[s, UTC]", "datetime64[ns, UTC]"),
        ("datetime64[us, UTC]", "datetime64[us, America/New_York]"),
    ],
)
def test_moments_of_two_units_or_zones_keep_what_pandas_keeps(dtype, index_dtype, others, how):
    def moments(dtype, rows):
        known = MOMENTS if dtype.startswith("M8") else MOMENTS.dt.tz_localize("UTC")
        return known.iloc[rows].astype(dtype).reset_index(drop=True)

    left = pd.DataFrame({"k": moments(dtype, [2, 1, 0]), "c": ["a", "b", "c"]})
    right = pd.DataFrame({"k": moments(index_dtype, [0, 1, 1]), "c": ["c", "b", "b"]})
    right, on = right.astype(others), ["k", *others]
    expected = left.merge(right, on=on, how=how)
    assert_frame_equal(FrameIndex.build(right, on).merge(left, on=on, how=how), expected)
