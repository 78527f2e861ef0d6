"""Assembly of merge results: order, suffixes, Dask's empty frames."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from frames.generated import frame_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from suites.raising import no_other_engine

from dgpuhash.errors import ColumnError, KeyTypeError
from dgpuhash.frames import (
    FrameIndex,
    KeyEncoder,
    assemble,
    frame_from_bytes,
    frame_to_bytes,
    frames_of,
    merge_meta,
    needed_columns,
)

LEFT = pd.DataFrame({"k": [5, 6, 7, 8], "v": [0.0, 0.25, 0.5, 0.75]})
RIGHT = pd.DataFrame({"k": [7, 5, 7], "v": ["a", "b", "c"], "w": [1, 2, 3]})


@pytest.mark.parametrize("how", ["inner", "left"])
def test_answers_in_any_order_give_the_same_result(how):
    query_rows, rows = [2, 2, 0], [0, 2, 1]
    expected = LEFT.merge(RIGHT, on="k", how=how)
    for order in ([0, 1, 2], [2, 0, 1], [0, 2, 1]):
        found = assemble(
            LEFT,
            np.array(query_rows)[order],
            RIGHT[["v", "w"]].iloc[np.array(rows)[order]],
            index_meta=RIGHT.iloc[:0],
            left_on=["k"],
            right_on=["k"],
            how=how,
        )
        assert_frame_equal(found, expected)


@pytest.mark.parametrize(
    ("left", "on"), [(["z", 5], [5]), ([1, 2], [2, 1])], ids=["beside others", "crossed"]
)
def test_labels_that_pandas_would_give_twice_are_refused(left, on):
    right = pd.DataFrame({label: [1, 2] for label in [5, 1, 2, "k"]})
    index = FrameIndex.build(right[[5, "k"]], "k") if on == [5] else FrameIndex.build(right, [1, 2])
    with pytest.raises(ColumnError, match="rename them"):
        index.merge(pd.DataFrame({label: [1, 2] for label in left}), left_on=on)


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


@settings(max_examples=80)
@given(frame_pairs(), st.sampled_from(["inner", "left"]))
def test_meta_has_the_columns_and_dtypes_of_the_result(pair, how):
    left, right, left_on, right_on = pair
    meta = merge_meta(left.iloc[:0], right.iloc[:0], left_on=left_on, right_on=right_on, how=how)
    assert len(meta) == 0
    result = FrameIndex.build(right, right_on).merge(left, left_on=left_on, how=how)
    assert list(meta.columns) == list(result.columns)
    promoted = {"float64", "object"} if how == "left" else set()
    for label in meta.columns:
        assert meta[label].dtype == result[label].dtype or str(result[label].dtype) in promoted
    matched = FrameIndex.build(right, right_on).merge(left, left_on=left_on, how="inner")
    if how == "inner":
        assert_frame_equal(matched.iloc[:0], meta, check_index_type=False)


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("dtype", ["int64", "Int64", "float32", "bool", "str", "category", "M8[s]"])
def test_meta_is_that_of_dask(how, dtype):
    left = pd.DataFrame({"k": ["a"], "x": [1]})
    right = pd.DataFrame({"k": ["a"], "x": pd.Series([0]).astype(dtype), "y": [True]})
    lazy_left, lazy_right = dd.from_pandas(left, 1), dd.from_pandas(right, 1)
    planned = lazy_left.merge(lazy_right, on="k", how=how)._meta
    meta = merge_meta(lazy_left._meta, lazy_right._meta, left_on=["k"], right_on=["k"], how=how)
    assert meta.dtypes.astype(str).to_dict() == planned.dtypes.astype(str).to_dict()


MOMENTS = pd.Series(pd.to_datetime([0, 5_000_000_000, 1_700_000_000_123_456_789], unit="ns"))


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


def test_semi_and_anti_have_the_columns_of_the_left_side():
    for how in ("semi", "anti"):
        meta = merge_meta(LEFT, RIGHT, left_on=["k"], right_on=["k"], how=how)
        assert_frame_equal(meta, LEFT.iloc[:0])


@settings(max_examples=40)
@given(frame_pairs(), st.sampled_from(["inner", "left"]), st.sampled_from([64, 3]), st.data())
def test_shards_together_answer_like_one_index(pair, how, hash_bits, data):
    left, right, left_on, right_on = pair
    parts = data.draw(st.integers(1, 5))
    encoder = KeyEncoder.for_frame(right.iloc[:0], right_on, hash_bits=hash_bits)
    moved = needed_columns(right, encoder, left_on)
    owners = encoder.owners(encoder.encode(right).codes, parts)
    asked = encoder.owners(encoder.encode(left, left_on).codes, parts)
    query_rows, answers = [], []
    for part in range(parts):
        mine = right[owners == part]
        shard = FrameIndex.build(frame_from_bytes(frame_to_bytes(mine)), right_on, encoder=encoder)
        rows = np.flatnonzero(asked == part)
        matches = shard.match(left.iloc[rows], on=left_on, columns=moved)
        query_rows.append(rows[matches.query_rows])
        answers.append(matches.frame)
    found = assemble(
        left,
        np.concatenate(query_rows),
        frames_of(left).concat(answers),
        index_meta=right.iloc[:0],
        left_on=left_on,
        right_on=right_on,
        how=how,
    )
    whole = FrameIndex.build(right, right_on).merge(left, left_on=left_on, how=how)
    assert_frame_equal(found, whole)


def test_only_columns_that_the_result_needs_are_moved():
    encoder = FrameIndex.build(RIGHT, "k").encoder
    assert needed_columns(RIGHT, encoder, ["k"]) == ["v", "w"]
    assert needed_columns(RIGHT, encoder, ["other"]) == ["k", "v", "w"]
    assert needed_columns(RIGHT, encoder, ["k"], ["w"]) == ["w"]
    assert needed_columns(RIGHT, encoder, ["other"], []) == ["k"]


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "semi", "anti"])
def test_no_other_engine_runs_beneath_a_merge_with_an_index(how):
    index = FrameIndex.build(RIGHT, "k")
    with no_other_engine():
        found = index.merge(LEFT.assign(own=1), how=how)
    assert len(found)
