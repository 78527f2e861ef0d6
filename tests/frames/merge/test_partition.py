"""Plans of partitions that are merged with an index: dtypes of results, and answers of shards."""

from __future__ import annotations

import pickle
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from frames.generated import frame_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from dgpuhash.distributed.query.merge_tasks import sample
from dgpuhash.frames import (
    FrameIndex,
    KeyEncoder,
    frame_from_bytes,
    frame_to_bytes,
    frames_of,
    needed_columns,
    sort_by_query_row,
)
from dgpuhash.frames.merge.partition import PartitionPlan, StandingPlan

LEFT = pd.DataFrame({"k": [5, 6, 7, 8], "v": [0.0, 0.25, 0.5, 0.75]})
RIGHT = pd.DataFrame({"k": [7, 5, 7], "v": ["a", "b", "c"], "w": [1, 2, 3]})


def plan_of(
    left: Any, right: Any, how: str, left_on: Any = ("k",), right_on: Any = ("k",),
    promote: str | None = None,
) -> PartitionPlan:  # fmt: skip
    sides = (sample(frame.iloc[:0]) for frame in (left, right))
    return StandingPlan.to_index(*sides, how, left_on, right_on, ("_x", "_y"), promote=promote)


def test_keys_are_sent_without_what_was_read_of_them():
    keys = plan_of(LEFT, RIGHT, "inner").keys
    before = keys.sides
    sent = pickle.loads(pickle.dumps(keys))
    assert vars(sent).keys() == {"pairs", "left_index", "right_index", "as_text"}
    assert [side.columns[0].type for side in sent.sides] == [
        side.columns[0].type for side in before
    ]


@settings(max_examples=80)
@given(frame_pairs(), st.sampled_from(["inner", "left"]))
def test_meta_has_the_columns_and_dtypes_of_the_result(pair, how):
    left, right, left_on, right_on = pair
    meta = plan_of(left, right, how, left_on, right_on).meta
    index = FrameIndex.build(right, right_on)
    result = index.merge(left, left_on=left_on, how=how, promote="nullable")
    # The unit of datetimes of two units depends on which rows match, in pandas.
    kept = [label for label in meta if label not in left_on or meta[label].dtype.kind != "M"]
    assert list(result) == list(meta)
    assert_frame_equal(result[kept].iloc[:0], meta[kept], check_index_type=False)


@pytest.mark.parametrize("dtype", ["int64", "Int64", "float32", "bool", "str", "category", "M8[s]"])
def test_meta_is_that_of_dask(dtype):
    left = pd.DataFrame({"k": ["a"], "x": [1]})
    right = pd.DataFrame({"k": ["a"], "x": pd.Series([0]).astype(dtype), "y": [True]})
    lazy_left, lazy_right = dd.from_pandas(left, 1), dd.from_pandas(right, 1)
    planned = lazy_left.merge(lazy_right, on="k")._meta
    meta = plan_of(lazy_left._meta, lazy_right._meta, "inner").meta
    assert meta.dtypes.astype(str).to_dict() == planned.dtypes.astype(str).to_dict()


def test_semi_and_anti_have_the_columns_of_the_left_side():
    for how in ("semi", "anti"):
        assert_frame_equal(plan_of(LEFT, RIGHT, how).meta, LEFT.iloc[:0], check_index_type=False)


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
    rows, order, _ = sort_by_query_row(np.concatenate(query_rows), len(left), np)
    stored = frames_of(left).take(frames_of(left).concat(answers), order)
    plan = plan_of(left, right, how, left_on, right_on)
    assert plan.fetched == moved
    found = plan.result(left, rows, stored)
    whole = FrameIndex.build(right, right_on).merge(
        left, left_on=left_on, how=how, promote="nullable"
    )
    assert_frame_equal(found, whole)


def test_only_columns_that_the_result_needs_are_moved():
    encoder = FrameIndex.build(RIGHT, "k").encoder
    assert needed_columns(RIGHT, encoder, ["k"]) == ["v", "w"]
    assert needed_columns(RIGHT, encoder, ["other"]) == ["k", "v", "w"]
    assert needed_columns(RIGHT, encoder, ["k"], ["w"]) == ["w"]
    assert needed_columns(RIGHT, encoder, ["other"], []) == ["k"]


class Adding:
    """A value that adds to the attributes of a plan while it is pickled."""

    def __init__(self, plan: PartitionPlan) -> None:
        self.plan = plan

    def __reduce__(self) -> tuple[Any, ...]:
        vars(self.plan).update(dict.fromkeys("abcdefgh"))
        return dict, ()


def test_plans_are_pickled_while_threads_add_cached_properties():
    plan = plan_of(LEFT, RIGHT, "inner")
    vars(plan)["first"] = Adding(plan)
    assert pickle.loads(pickle.dumps(plan)).keys.pairs[0].name == "k"
