"""FrameIndex.merge against pandas.merge, for generated frames."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from frames.generated import frame_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from dgpuhash.frames import FrameIndex, KeyEncoder


def build(right: pd.DataFrame, on: list[str], hash_bits: int) -> FrameIndex:
    return FrameIndex.build(right, on, encoder=KeyEncoder.for_frame(right, on, hash_bits=hash_bits))


def reference(left: Any, right: Any, how: str, left_on: Any, right_on: Any) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return left.merge(right, how=how, left_on=left_on, right_on=right_on)


@settings(max_examples=100)
@given(frame_pairs(), st.sampled_from(["inner", "left"]), st.sampled_from([64, 3]))
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
