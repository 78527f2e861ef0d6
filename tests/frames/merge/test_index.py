"""Labels of several levels, which are those of pandas without its hashing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dgpuhash
from dgpuhash.frames.merge.index import index_of

RNG = np.random.default_rng(3)
FEW = RNG.integers(0, 6, 300)
SOME = RNG.random(300) < 0.8
VALUES = {
    "int64": pd.Series(FEW),
    "uint64": pd.Series(FEW.astype(np.uint64) + np.uint64(2**63)),
    "float64": pd.Series(np.where(SOME, FEW / 2, np.nan)),
    "zeros": pd.Series(np.where(SOME, 0.0, -0.0)),
    "Int64": pd.Series(FEW).astype("Int64").where(SOME),
    "double[pyarrow]": pd.Series(FEW).astype("double[pyarrow]").where(SOME),
    "bool": pd.Series(SOME),
    "str": pd.Series([f"t{each}" for each in FEW]).where(SOME),
    "datetime64": pd.Series(pd.to_datetime(FEW, unit="D")).where(SOME),
    "with zone": pd.Series(pd.to_datetime(FEW, unit="D", utc=True)),
    "timedelta64": pd.Series(pd.to_timedelta(FEW, unit="D")),
    "category": pd.Series(pd.Categorical(FEW, categories=[5, 1, 0, 2, 4, 3])).where(SOME),
    "mixed": pd.Series([1 if each < 3 else "b" for each in FEW], dtype=object),
    "nulls": pd.Series([None] * 300, dtype=object),
    "none": pd.Series([], dtype="int64"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_levels_are_those_of_pandas(kind):
    column = VALUES[kind]
    rows = np.arange(len(column))
    made = index_of([column, rows], ["value", "row"])
    expected = pd.MultiIndex.from_arrays([column, rows], names=["value", "row"])
    pd.testing.assert_index_equal(made, expected)
    if kind != "mixed":
        # Others cannot be sorted.
        pd.testing.assert_index_equal(made.levels[0], expected.levels[0])


def test_an_index_of_one_level_is_a_plain_one():
    made = index_of([VALUES["str"]], ["value"])
    pd.testing.assert_index_equal(made, pd.Index(VALUES["str"].array, name="value"))


@pytest.mark.parametrize("values", [["True"], [pd.Timedelta(1, "s")], [1]], ids=repr)
def test_labels_of_objects_stay_objects(values):
    left = pd.DataFrame(index=pd.Index([], dtype=object, name="k"))
    right = pd.DataFrame(index=pd.Index(values, dtype=object, name="k"))
    merged = dgpuhash.merge(left, right, "outer", left_index=True, right_index=True)
    wanted = left.merge(right, "outer", left_index=True, right_index=True)
    pd.testing.assert_index_equal(merged.index, wanted.index)
