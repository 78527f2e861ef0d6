"""`dgpuhash.merge` of cuDF frames on a GPU, beside that of pandas frames, which is pandas'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from frames.generated import frame_pairs
from frames.test_gpu import assert_same_values, on_gpu
from hypothesis import given, settings
from hypothesis import strategies as st

import dgpuhash
from dgpuhash.errors import KeyTypeError, UnsupportedError
from dgpuhash.frames import FrameIndex

pytestmark = [pytest.mark.gpu, pytest.mark.cudf]

HOWS = ["inner", "left", "right", "outer"]


def assert_merged(found: Any, expected: pd.DataFrame, *, index: bool = True) -> None:
    """Assert the rows of pandas in its order, and its labels."""
    assert type(found).__module__.startswith("cudf")
    assert_same_values(found, expected)
    if index:
        ours, theirs = (made.reset_index() for made in (found, expected))
        assert list(found.index.names) == list(expected.index.names)
        assert_same_values(ours, theirs)


def merged(left: pd.DataFrame, right: pd.DataFrame, how: str, **given: Any) -> None:
    found = dgpuhash.merge(on_gpu(left), on_gpu(right), how, **given)
    assert_merged(found, dgpuhash.merge(left, right, how, **given))


@settings(max_examples=80, deadline=None)
@given(frame_pairs(), st.sampled_from(HOWS), st.booleans())
def test_merges_have_the_rows_of_pandas_in_its_order(pair, how, sort):
    left, right, left_on, right_on = pair
    given = {"left_on": left_on, "right_on": right_on, "sort": sort}
    found = dgpuhash.merge(on_gpu(left), on_gpu(right), how, **given)
    expected = dgpuhash.merge(left, right, how, **given)
    nulls = any(keys.isna().any(axis=None) for keys in (left[left_on], right[right_on]))
    if (sort or how == "outer") and nulls:
        # pandas sorts NaT first, cuDF last.
        found, expected = (made.sort_values(["x", "v_x", "v_y"]) for made in (found, expected))
    assert_same_values(found, expected)


LEFT = pd.DataFrame(
    {"k": [3, 1, 2, 1, 9], "t": ["b", None, "a", "b", "a"], "x": np.arange(5), "b": [True] * 5},
    index=pd.Index([10, 20, 30, 40, 50], name="row"),
)
RIGHT = pd.DataFrame(
    {"k": [1, 1, 3, 7], "t": ["b", "b", "a", None], "y": [0.5, 1.5, 2.5, 3.5], "x": [7, 8, 9, 10]},
    index=pd.Index([1, 2, 9, 9], name="own"),
)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    "given",
    [
        {"on": "k"},
        {"on": ["t", "k"]},
        {"on": "k", "indicator": True},
        {"on": "t", "suffixes": ("", "_r")},
        {"left_on": "k", "right_on": "x"},
        {"left_on": "k", "right_index": True},
        {"left_index": True, "right_on": "y"},
        {"left_index": True, "right_index": True},
        {"left_on": "row", "right_on": "own"},
    ],
    ids=str,
)
def test_keys_of_columns_and_indexes(how, given):
    merged(LEFT, RIGHT, how, **given)


@pytest.mark.parametrize("how", HOWS)
def test_levels(how):
    left, right = LEFT.set_index(["k", "t"]), RIGHT.set_index(["k", "t"])
    merged(left, right, how, on=["k", "t"])
    merged(left, right, how, left_index=True, right_index=True)
    merged(left, right.droplevel("t"), how, on="k", suffixes=("_l", "_r"))


@pytest.mark.parametrize("how", HOWS)
def test_arrays_as_keys(how):
    import cupy

    ours, theirs = np.array([1, 2, 3, 4, 5]), np.array([5, 5, 1, 0])
    found = dgpuhash.merge(
        on_gpu(LEFT), on_gpu(RIGHT), how, left_on=[cupy.asarray(ours)],
        right_on=[cupy.asarray(theirs)],
    )  # fmt: skip
    assert_merged(found, dgpuhash.merge(LEFT, RIGHT, how, left_on=[ours], right_on=[theirs]))


def test_cross_semi_and_anti():
    found = dgpuhash.merge(on_gpu(LEFT), on_gpu(RIGHT), "cross")
    assert_merged(found, dgpuhash.merge(LEFT, RIGHT, "cross"))
    there = LEFT["k"].isin(RIGHT["k"])
    for how, expected in (("leftsemi", LEFT[there]), ("anti", LEFT[~there])):
        assert_merged(dgpuhash.merge(on_gpu(LEFT), on_gpu(RIGHT), how, on="k"), expected)
    for how in ("left_anti", "right_anti"):
        merged(LEFT, RIGHT, how, on="k")


def test_nulls_that_equal_nothing():
    found = dgpuhash.merge(on_gpu(LEFT), on_gpu(RIGHT), on="t", nulls_equal=False)
    assert_merged(found, dgpuhash.merge(LEFT.dropna(), RIGHT.dropna(), on="t"))


def test_validate_and_columns():
    with pytest.raises(pd.errors.MergeError, match="not unique in right"):
        dgpuhash.merge(on_gpu(LEFT), on_gpu(RIGHT), on="k", validate="m:1")
    found = dgpuhash.merge(on_gpu(LEFT), on_gpu(RIGHT), on="k", columns=["y"])
    assert_merged(found, dgpuhash.merge(LEFT, RIGHT[["k", "y"]], on="k"))


@pytest.mark.parametrize("how", HOWS)
def test_integers_are_floats_where_a_side_lacks_rows(how):
    found = dgpuhash.merge(on_gpu(LEFT), on_gpu(RIGHT), how, on="k")
    expected = dgpuhash.merge(LEFT, RIGHT, how, on="k")
    assert {label: found[label].dtype.kind for label in ("k", "x_x", "x_y")} == {
        label: expected[label].dtype.kind for label in ("k", "x_x", "x_y")
    }


@pytest.mark.parametrize("width", ["Decimal32Dtype", "Decimal64Dtype", "Decimal128Dtype"])
def test_decimals(width):
    import cudf

    dtype = getattr(cudf, width)(7, 2)
    ours, theirs = (
        cudf.DataFrame({"k": cudf.Series(texts).astype(dtype)})
        for texts in (["1.25", "-7.50", None, "3.00"], ["-7.50", "3.00", "9.99", None])
    )
    ours["x"], theirs["y"] = [0, 1, 2, 3], [0, 1, 2, 3]
    found = dgpuhash.merge(ours, theirs, on="k")
    assert found["k"].dtype == dtype
    assert found[["x", "y"]].to_pandas().to_numpy().tolist() == [[1, 0], [2, 3], [3, 1]]
    with pytest.raises(KeyTypeError, match="same precision and scale"):
        dgpuhash.merge(ours, theirs.astype({"k": getattr(cudf, width)(7, 3)}), on="k")


@pytest.mark.parametrize("how", HOWS)
def test_categoricals(how):
    left, right = LEFT.dropna(), RIGHT.dropna()
    dtype = pd.CategoricalDtype(["a", "b", "c"])
    found = dgpuhash.merge(
        on_gpu(left).astype({"t": "category"}), on_gpu(right).astype({"t": "category"}), how, on="t"
    )
    expected = dgpuhash.merge(left.astype({"t": dtype}), right.astype({"t": dtype}), how, on="t")
    assert_merged(found, expected)
    assert str(found["t"].dtype) == "category"


@pytest.mark.parametrize("how", ["right", "outer"])
def test_an_index_tells_rows_that_nothing_matches(how):
    index = FrameIndex.build(on_gpu(RIGHT.reset_index(drop=True)), "k")
    left = LEFT.reset_index(drop=True)
    found = index.merge(on_gpu(left), how=how)
    assert_same_values(found, dgpuhash.merge(left, RIGHT, on="k", how=how))
    assert found["x_x"].dtype == np.int64


def test_a_host_frame_beside_a_gpu_one():
    for sides in ((LEFT, on_gpu(RIGHT)), (on_gpu(LEFT), RIGHT)):
        assert_merged(dgpuhash.merge(*sides, on="k"), dgpuhash.merge(LEFT, RIGHT, on="k"))


def test_refusals():
    left, right = on_gpu(LEFT), on_gpu(RIGHT)
    with pytest.raises(ValueError, match="You are trying to merge on"):
        dgpuhash.merge(left, right, left_on="k", right_on="t")
    with pytest.raises(UnsupportedError, match="suffixes"):
        dgpuhash.merge(left, right.rename(columns={"y": "b"}), on="k", suffixes=("_x", "_x"))
