"""Key columns of different dtypes: valid pairs, and the result's dtype."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

from dgpuhash.frames import FrameIndex

STAMPS = pd.to_datetime(["2020-01-01", "2020-06-01", None]).astype("M8[us]")


def arrow(values, type_):
    return pd.Series(pd.array(values, dtype=pd.ArrowDtype(type_)))


def plain(values, dtype):
    return pd.Series(values, dtype=dtype)


PAIRS = {
    "int64 uint64": (plain([-1, 1, 5], "int64"), plain([1, 2**64 - 1, 5], "uint64")),
    "uint8 int8": (plain([1, 255], "uint8"), plain([1, -1], "int8")),
    "int64 float64": (plain([1, 2, 3], "int64"), plain([1.0, 2.5, np.nan], "float64")),
    "float64 int32": (plain([1.0, 2.5, np.nan], "float64"), plain([1, 2], "int32")),
    "float32 float64": (plain([0.5, 0.1], "float32"), plain([0.5, 0.1], "float64")),
    "bool int64": (plain([True, False], "bool"), plain([1, 2], "int64")),
    "float64 bool": (plain([1.0, 0.5], "float64"), plain([True, False], "bool")),
    "int64 category": (plain([1, 2, 3], "int64"), pd.Series(pd.Categorical([1, 3]))),
    "category int64": (pd.Series(pd.Categorical([1, 3])), plain([1, 2], "int64")),
    "Int64 uint8": (plain([1, None, 300], "Int64"), plain([1, 44], "uint8")),
    "UInt8 Int64": (plain([1, None], "UInt8"), plain([1, None, 257], "Int64")),
    "s ns": (pd.Series(STAMPS).astype("M8[s]"), pd.Series(STAMPS[[1, 2]]).astype("M8[ns]")),
    "zones": (
        pd.Series(STAMPS).dt.tz_localize("UTC"),
        pd.Series(STAMPS[[2, 0]]).dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"),
    ),
    "arrow times": (
        arrow([0, None, 7_000], pa.timestamp("ms")),
        arrow([7, 8, None], pa.timestamp("s")),
    ),
    "arrow dates": (arrow([0, None], pa.date32()), arrow([0, 5], pa.date32())),
    "categories of times, arrow times": (
        pd.Series(pd.Categorical(np.array([1_577_836_800_000, 7_001], "M8[ms]").astype("M8[ns]"))),
        arrow([1_577_836_800, 7], pa.timestamp("s")),
    ),
    "bool arrow bool": (plain([True, False], "bool"), arrow([False], pa.bool_())),
    "no categories int64": (plain([None, None], "object").astype("category"), plain([1], "int64")),
    "arrow int Int64": (arrow([1, None], pa.int32()), plain([1, None], "Int64")),
    "str category": (plain(["a", "b", None], "str"), pd.Series(pd.Categorical(["b", None]))),
    "category str": (pd.Series(pd.Categorical(["a", "b", None])), plain(["b", None], "str")),
    "same categories in another order": (
        pd.Series(pd.Categorical(["a", "b"], categories=["b", "a"])),
        pd.Series(pd.Categorical(["b", "a", "a"], categories=["a", "b"])),
    ),
    "other categories": (
        pd.Series(pd.Categorical(["a", "b", None])),
        pd.Series(pd.Categorical(["z", "b", None])),
    ),
    "object of None and NaN": (
        pd.Series(["a", None, "b"], dtype=object),
        pd.Series(["b", np.nan, None], dtype=object),
    ),
}
if pd.__version__ < "3.1":  # which has them in an order of its own
    del PAIRS["object of None and NaN"]


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_pair(pair, how):
    left = pd.DataFrame({"k": pair[0], "x": range(len(pair[0]))})
    right = pd.DataFrame({"k": pair[1], "y": range(len(pair[1]))})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = left.merge(right, on="k", how=how)
        found = FrameIndex.build(right, "k").merge(left, how=how)
    assert_frame_equal(found, expected)


def test_large_integers_and_floats_compare_exactly():
    left = pd.DataFrame({"k": np.array([2**53, 2**53 + 1])})
    right = pd.DataFrame({"k": [2.0**53], "y": [1]})
    assert FrameIndex.build(right, "k").merge(left)["k"].tolist() == [2**53]
