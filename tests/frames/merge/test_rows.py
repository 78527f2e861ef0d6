"""Rows of merges by arrays, hash tables and lists of rows, which all agree with pandas."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from suites.raising import no_other_engine

import dgpuhash

RANDOM = np.random.default_rng(11)
DTYPES = ["int64", "int8", "uint32", "Int64", "float64", "Float64", "str", "category", "M8[s]"]


def keys(dtype: str, kinds: int, rows: int, *, unique: bool, nulls: bool) -> pd.Series:
    """Return keys that lie close together for few kinds, and far apart for many."""
    if dtype == "int8":
        kinds = min(kinds, 100)
    picked = RANDOM.permutation(kinds)[:rows] if unique else RANDOM.integers(0, kinds, rows)
    values = pd.Series(picked * (1 if kinds < 10**4 else 10**6))
    if dtype not in ("int64", "int8", "uint32", "M8[s]"):
        values = values.astype("Int64").mask(pd.Series(RANDOM.random(len(values)) < 0.1 * nulls))
    return values.astype("str").astype(dtype) if dtype == "category" else values.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kinds", [60, 10**4])
@pytest.mark.parametrize("unique", [(True, True), (False, True), (False, False)])
def test_rows(dtype, kinds, unique):
    hows = ["inner", "left", "right", "outer"]
    for how, (n, m, nulls) in itertools.product(hows, [(30, 50, True), (55, 20, False)]):
        left = pd.DataFrame({"k": keys(dtype, kinds, n, unique=unique[0], nulls=nulls)})
        right = pd.DataFrame({"k": keys(dtype, kinds, m, unique=unique[1], nulls=nulls)})
        left["a"], right["b"] = np.arange(len(left)), np.arange(len(right))
        wanted = left.merge(right, how=how, on="k")
        with no_other_engine():
            found = dgpuhash.merge(left, right, how=how, on="k")
        pd.testing.assert_frame_equal(found, wanted)
        there = left["a"].isin(left.merge(right, on="k")["a"])
        with no_other_engine():
            semi = dgpuhash.merge(left, right, how="semi", on="k")
        pd.testing.assert_frame_equal(semi, left[there])


def test_nulls_that_meet_no_others():
    left = pd.DataFrame({"k": pd.Series([1, None, 3], dtype="Int64"), "a": [0, 1, 2]})
    right = pd.DataFrame({"k": pd.Series([3, None, 1, None], dtype="Int64"), "b": [0, 1, 2, 3]})
    found = dgpuhash.merge(left, right, on="k", how="outer", nulls_equal=False)
    assert found["a"].fillna(-1).tolist() == [0, 2, 1, -1, -1]
    assert found["b"].fillna(-1).tolist() == [2, 0, -1, 1, 3]
    # The code of a null is one that a number may have.
    wide = pd.DataFrame({"k": pd.Series([0x9E3779B97F4A7C15 - 2**64, 5], dtype="Int64")})
    none = pd.DataFrame({"k": pd.Series([None, 5], dtype="Int64"), "a": [0, 1]})
    assert dgpuhash.merge(none, wide, on="k")["a"].tolist() == [1]
    assert dgpuhash.merge(none, wide[:1], on="k")["a"].tolist() == []


def test_shared_columns_are_copied_when_written():
    left = pd.DataFrame({"k": [1, 2, 3], "a": [0.5, 1.5, 2.5], "t": ["x", "y", "z"]})
    right = pd.DataFrame({"k": [3, 2, 1], "b": [1, 2, 3]})
    made = dgpuhash.merge(left, right, how="left", on="k")
    made.loc[0, ["k", "a", "t"]] = [9, 9.5, "w"]
    assert left.iloc[0].tolist() == [1, 0.5, "x"]
    left.loc[1, "a"] = 7.5
    assert made["a"].tolist() == [9.5, 1.5, 2.5]
