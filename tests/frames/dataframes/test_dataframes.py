"""Adapters of dataframe libraries: inputs, and errors without cuDF."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

from dgpuhash.errors import DeviceError, KeyTypeError, ShapeError, UnsupportedError
from dgpuhash.frames import FrameIndex, frames_named, frames_of, make_frame


def test_the_library_is_found_by_the_frame():
    class Planes(pd.DataFrame):
        pass

    for frame in (pd.DataFrame(), pd.Series(dtype="int8"), Planes()):
        assert frames_of(frame).name == "pandas"
    with pytest.raises(KeyTypeError, match=r"not dict.*pandas\.DataFrame"):
        frames_of({})


def test_without_cudf(monkeypatch):
    monkeypatch.setitem(sys.modules, "cudf", None)
    frames_named.cache_clear()
    with pytest.raises(UnsupportedError, match=r"'\.\[cudf-cu13\]'"):
        frames_named("cudf")
    frames_named.cache_clear()


def test_other_libraries_are_refused():
    with pytest.raises(UnsupportedError, match="polars"):
        frames_named("polars")


def test_frames_of_columns():
    made = make_frame({"a": np.arange(2), "b": pd.Series(["x", "y"], index=[7, 8]), 3: [None, 1]})
    assert made["b"].tolist() == ["x", "y"]
    assert list(made.columns) == ["a", "b", 3]
    with pytest.raises(ShapeError, match="different lengths"):
        make_frame({"a": [1], "b": [1, 2]})
    with pytest.raises(ShapeError, match="2 dimensions"):
        make_frame({"a": np.ones((2, 1))})


def test_host_and_gpu_columns_do_not_mix():
    class OnGpu:
        __cuda_array_interface__ = {}  # noqa: RUF012
        ndim = 1

        def __len__(self):
            return 1

    with pytest.raises(DeviceError, match=r"cupy\.asarray"):
        make_frame({"a": np.arange(1), "b": OnGpu()})


def test_read_only_and_strided_columns():
    values = np.arange(10)[::3]
    values.setflags(write=False)
    frame = pd.DataFrame({"k": values, "v": np.asfortranarray(np.ones((4, 2)))[:, 0]})
    index = FrameIndex.build(frame, "k")
    assert index.find(values[::-1]).frame["k"].tolist() == [9, 6, 3, 0]


def test_bytes_of_rows_are_without_categories():
    frame = pd.DataFrame({"n": np.arange(300), "s": [f"t{n}" for n in range(300)], "o": None})
    frames = frames_of(frame)
    assert frames.nbytes(frame) == frame.memory_usage(index=False, deep=True).sum()
    for some in (frame, frame[["n"]]):
        assert frames.rows_nbytes(some) == frames.nbytes(some)
    of_kinds = pd.DataFrame({"c": pd.Categorical(frame["s"])})
    assert frames.rows_nbytes(of_kinds) == 300 * of_kinds["c"].cat.codes.dtype.itemsize
