"""`CudfFrames` on a simulated cuDF; GPU tests use the real one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from frames import paper_cudf
from frames.paper_cudf import DataFrame
from pandas.testing import assert_frame_equal

from dgpuhash.errors import ColumnError
from dgpuhash.frames.dataframes.cudf import CudfFrames


@pytest.fixture
def frames(monkeypatch):
    paper_cudf.install(monkeypatch)
    return CudfFrames()


NUMBERS = DataFrame(
    {
        "k": np.arange(5),
        "x": [0.5, np.nan, 2.5, 3.5, 4.5],
        "small": np.arange(5, dtype="u1"),
        "yes": [True, False, True, True, False],
        "at": pd.to_datetime(np.arange(5), unit="D").astype("M8[ns]"),
    }
)
MIXED = NUMBERS.assign(text=list("abcde"), n=pd.array([1, None, 3, 4, 5], "Int64"))
MIXED = MIXED[["text", *NUMBERS, "n"]]
ROWS = [[3, 1, 1, 4, 0, 2, 3], [4], [], [0, 1, 2, 3, 4]]


def assert_same(found, expected):
    assert isinstance(found, DataFrame)
    assert_frame_equal(pd.DataFrame(found), pd.DataFrame(expected))


@pytest.mark.parametrize("frame", [NUMBERS, MIXED, MIXED[["text"]], NUMBERS[::2]])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
def test_rows_are_taken(frames, frame, rows, dtype):
    if max(rows, default=0) >= len(frame):
        rows = [row % len(frame) for row in rows]
    rows = np.array(rows, dtype)
    assert_same(frames.take(frame, rows), frame.iloc[rows].reset_index(drop=True))


def test_taken_rows_are_the_callers_own(frames):
    whole = frames.take(NUMBERS, np.arange(5))
    whole["k"] = 7
    assert NUMBERS["k"].tolist() == [0, 1, 2, 3, 4]


def test_rows_that_are_taken_or_null(frames):
    frame = MIXED[["text", "x", "n"]]
    rows = np.array([3, -1, 1])
    expected = frame.take([3, 0, 1]).reset_index(drop=True)
    expected.loc[1] = [None, np.nan, pd.NA]
    found = frames.take_or_null(frame, rows)
    assert found.isna().to_numpy().tolist() == expected.isna().to_numpy().tolist()
    assert found["text"].tolist()[::2] == ["d", "b"]
    assert_same(frames.take_or_null(frame, np.array([2])), frame[2:3].reset_index(drop=True))
    assert frames.take_or_null(frame[:0], np.array([-1, -1])).isna().all(axis=None)


def test_columns_are_arrays_and_back(frames):
    arrays = frames.arrays(NUMBERS)
    assert [array.dtype.kind for array in arrays] == list("ifubi")
    assert_same(frames.from_arrays(arrays, NUMBERS), NUMBERS)
    assert_same(frames.from_arrays([array[:0] for array in arrays], NUMBERS), NUMBERS[:0])
    assert frames.arrays(MIXED) is None
    assert frames.arrays(NUMBERS[[]]) is None
    assert frames.dtypes(MIXED) == list(MIXED.dtypes)


def test_levels_of_columns_are_kept(frames):
    levels = pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")], names=["one", "other"])
    frame = DataFrame({"k": range(3), "v": range(3)})
    frame.columns = levels
    assert_same(frames.take(frame, np.array([2, 0])), frame.iloc[[2, 0]].reset_index(drop=True))


def test_all_rows_with_columns_beside_them_are_no_longer_those_of_the_frame(frames):
    left = NUMBERS[["k", "x"]].set_axis([3, 1, 4, 1, 5])
    arrays, added = frames.arrays(left), [np.arange(5) * 2, np.arange(5) / 4]
    like = DataFrame({"k": added[0], "x_x": added[1], "v": added[0], "x_y": added[1]})[:0]
    found = frames.append(left, arrays, added, like)
    expected = {"k": left["k"], "x_x": left["x"], "v": added[0], "x_y": added[1]}
    assert_same(found, DataFrame(expected).reset_index(drop=True))
    assert_same(frames.append(left, arrays, [], left[:0]), left.reset_index(drop=True))
    found.iloc[:, :] = -1
    assert left["k"].tolist() == [0, 1, 2, 3, 4]
    assert [array.tolist()[1] for array in added] == [2, 0.25]


def test_rows_are_conformed_exactly_or_refused(frames):
    like = DataFrame({"k": np.zeros(0, "int32"), "x": np.zeros(0)})
    given = DataFrame({"x": [1, 2], "k": np.array([3, 4])})
    assert_same(frames.conform(given, like), given[["k", "x"]].astype({"k": "int32", "x": float}))
    beyond = frames.conform(DataFrame({"k": [2**40, 1], "x": [2**53 + 1, 1]}), like)
    assert [str(dtype) for dtype in beyond.dtypes] == ["int64", "int64"]
    with pytest.raises(ColumnError, match=r"column 'x'.*astype"):
        frames.conform(DataFrame({"k": [1], "x": ["a"]}), like)


@pytest.mark.parametrize(
    ("values", "dtype", "exact"),
    [
        (np.array([-1], "i1"), "u1", False),
        (np.array([2**63], "u8"), "i8", False),
        (np.array([2**63 - 1]), "f8", False),
        (np.array([2**62]), "f8", True),
        (np.array([0.5]), "i8", False),
        (pd.array([2**63 - 1], "Int64"), "f8", False),
        (pd.array([2**62], "Int64"), "f8", True),
        (pd.array([2**63], "UInt64"), "f8", True),
        (np.array([1.0]), "i8", True),
        (np.array([0, 1], "i8"), "?", True),
        (np.array([2], "i8"), "?", False),
    ],
)
def test_casts_are_exact_or_none(frames, values, dtype, exact):
    like = DataFrame({"v": np.zeros(0, dtype)})
    found = frames.conform(DataFrame({"v": values}), like)
    assert (found["v"].dtype == np.dtype(dtype)) is exact
    assert [int(value * 2) for value in found["v"].tolist()] == [
        int(value * 2) for value in values.tolist()
    ]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (pd.array(["a", None], "str"), "string"),
        (pd.array(["a", None], "string"), "str"),
        (np.array([0.5, np.nan], "f4"), "f8"),
        (pd.array([1, None], "Int32"), "Int64"),
    ],
)
def test_nulls_are_cast_as_such(frames, values, dtype):
    like = DataFrame({"v": pd.Series([], dtype=dtype)})
    found = frames.conform(DataFrame({"v": values}), like)["v"]
    assert found.dtype == like["v"].dtype
    assert found.isna().tolist() == [False, True]


def test_nan_becomes_no_integer(frames):
    like = DataFrame({"v": np.zeros(0, "i8")})
    assert frames.conform(DataFrame({"v": [1.0, np.nan]}), like)["v"].dtype == "f8"


def test_frames_beside_and_below_each_other(frames):
    left, right = NUMBERS[["k", "x"]], NUMBERS[["k", "small"]]
    found = frames.beside(left, right, ["k_x", "x", "k_y", "small"])
    assert list(found) == ["k_x", "x", "k_y", "small"]
    assert list(left) == ["k", "x"]
    assert_same(frames.concat([left[:2], left[2:]]), left)
    assert_same(frames.concat([left[2:]]), left[2:].reset_index(drop=True))
    assert frames.nbytes(NUMBERS[["k", "small"]]) == 5 * 9
