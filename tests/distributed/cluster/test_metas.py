"""Empty frames of Dask's expressions, which those with equal inputs share."""

from __future__ import annotations

import gc
import weakref
from decimal import Decimal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask.dataframe.dask_expr._expr import Blockwise, Projection
from dask.tokenize import normalize_object, normalize_token

from dgpuhash.distributed.cluster.serialization import schema_key

FRAME = pd.DataFrame(
    {
        "k": np.arange(6),
        "f": np.arange(6) / 2,
        "t": pd.array(list("abcabc"), dtype="string[pyarrow]"),
        "d": pd.array([Decimal("1.25")] * 6, dtype=pd.ArrowDtype(pa.decimal128(6, 2))),
    }
)


def lazily(frame: pd.DataFrame = FRAME) -> dd.DataFrame:
    return dd.from_pandas(frame, npartitions=2)


@pytest.mark.parametrize(
    "verb",
    [
        lambda frame: frame[["t", "k"]],
        lambda frame: frame["f"],
        lambda frame: frame.assign(z=frame["k"] + frame["f"], y=frame["t"] == "a"),
        lambda frame: frame[frame["k"] > 2],
        lambda frame: frame.reset_index(),
        lambda frame: frame.reset_index(drop=True),
        lambda frame: frame["k"] * 1.5,
        lambda frame: frame["k"] * 2,
        lambda frame: frame["d"] * Decimal("1.5"),
        lambda frame: frame["d"] * Decimal("1.500"),
        lambda frame: ~(frame["k"] == 3) & (frame["f"] < 1),
        lambda frame: -frame[["k", "f"]],
        lambda frame: frame["k"].isin([1, 2]),
        lambda frame: frame.assign(s="text", n=1, h=0.5),
    ],
)
def test_metas_have_the_dtypes_of_rows(verb):
    wanted = verb(FRAME).iloc[:0]
    metas = [verb(lazily(frame))._meta for frame in (FRAME, FRAME.iloc[::-1])]
    for meta in metas:
        if wanted.ndim == 2:
            pd.testing.assert_frame_equal(meta, wanted, check_index_type=False)
        else:
            pd.testing.assert_series_equal(meta, wanted, check_index_type=False)


def test_metas_of_equal_inputs_are_one():
    first, second = lazily(), lazily(FRAME.iloc[::-1])
    assert first._meta is not second._meta
    assert first[["k", "t"]]._meta is second[["k", "t"]]._meta
    assert (first["k"] > 2)._meta is (second["k"] > 2)._meta
    assert first[["k", "t"]]._meta is not first[["t", "k"]]._meta


@pytest.mark.parametrize(
    "other",
    [
        FRAME.astype({"k": "int32"}),
        FRAME.rename(columns={"k": "K", "f": "k"}),
        FRAME.astype({"t": "string[python]"}),
        FRAME.set_axis(pd.Index(np.arange(6.0)), axis=0),
        FRAME.set_axis(pd.Index(np.arange(6), name="k"), axis=0),
    ],
)
def test_metas_of_other_schemas_are_others(other):
    ours, theirs = lazily()[["k"]]._meta, lazily(other)[["k"]]._meta
    assert ours is not theirs
    pd.testing.assert_frame_equal(theirs, other[["k"]].iloc[:0], check_index_type=False)


def test_labels_that_are_equal_and_of_other_types_are_others():
    frames = [lazily(pd.DataFrame({label: [1, 2], "b": 1})) for label in (1, True)]
    kinds = [
        type(frame[["b", label]]._meta.columns[1])
        for frame, label in zip(frames, (1, True), strict=True)
    ]
    assert kinds == [int, bool]


def test_no_meta_keeps_rows_in_memory():
    values = np.arange(1000)
    rows = weakref.ref(values)
    frame = pd.DataFrame({"only here": values, "b": 1.5}, copy=False)
    assert np.shares_memory(frame["only here"].to_numpy(), values)
    meta = lazily(frame)[["only here"]]._meta
    assert schema_key(meta) is not None
    del frame, values
    gc.collect()
    assert rows() is None
    assert lazily(pd.DataFrame({"only here": [1], "b": 1.5}))[["only here"]]._meta is meta


def test_frames_with_categories_or_attributes_have_metas_of_their_own():
    frame = pd.DataFrame({"c": pd.Categorical(["a"]), "k": [1]})
    other = pd.DataFrame({"c": pd.Categorical(["b"]), "k": [1]})
    metas = [dd.from_pandas(each, npartitions=1)[["c"]]._meta for each in (frame, other)]
    assert [list(meta["c"].cat.categories) for meta in metas] == [["a"], ["b"]]


@pytest.mark.parametrize("kind", [Blockwise, Projection, dict, type(pd.NA), FRAME.__class__])
def test_classes_have_the_tokens_that_dask_gives_them(kind):
    assert normalize_token(kind) == normalize_object(kind)
