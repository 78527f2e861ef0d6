"""Merges of frames whose categories only the partitions know, beside pandas."""

from __future__ import annotations

import itertools

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.dataframe.utils import clear_known_categories
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.keys.categories import as_texts, as_values

pytestmark = pytest.mark.cluster


def with_unknown(frame: pd.DataFrame, parts: int, *columns: str) -> dd.DataFrame:
    """Return a lazy frame with categories in these columns, which Dask does not know."""
    cuts = np.linspace(0, len(frame), parts + 1).astype(int)
    pieces = [
        frame.iloc[start:stop].astype(dict.fromkeys(columns, "category"))
        for start, stop in itertools.pairwise(cuts)
    ]
    meta = clear_known_categories(pieces[0].iloc[:0], cols=list(columns))
    return dd.from_map(itself, pieces, meta=meta)


def itself(piece: pd.DataFrame) -> pd.DataFrame:
    return piece


@pytest.mark.parametrize(
    ("how", "kind"),
    [("inner", "int64"), ("left", "int64"), ("right", "int64"), ("outer", "int64"),
     ("semi", "int64"), ("outer", "float64"), ("outer", "str"), ("left", "datetime64[us]")],
)  # fmt: skip
def test_keys_and_columns(threads, how, kind):
    left = pd.DataFrame({"k": np.array([0, 1, 2, 3, 50, 51]), "x": np.arange(6)})
    right = pd.DataFrame({"k": np.array([0, 1, 2, 4, 90]), "y": [4, 5, 7, 7, 8]})
    left, right = left.astype({"k": kind}), right.astype({"k": kind}).assign(d=[1.5, 2, 3, 4, 5])
    merged = dgpuhash.merge(
        with_unknown(left, 3, "k"), with_unknown(right, 3, "k", "d"), how, on="k"
    )
    with no_other_engine():
        parts = dask.compute(*merged.to_delayed())
    dtypes = {str(part["k"].dtype.categories.dtype) for part in parts if len(part)}
    assert dtypes == {str(pd.Index(left["k"]).dtype)}
    # Dask puts categories of one dtype together.
    found = merged.compute()
    assert found.dtypes[["k", "d"] if "d" in found else ["k"]].eq("category").all()
    wanted = left[left["k"].isin(right["k"])] if how == "semi" else left.merge(right, how, "k")
    columns = list(wanted)
    pd.testing.assert_frame_equal(
        found.astype(wanted.dtypes.to_dict()).sort_values(columns, ignore_index=True),
        wanted.sort_values(columns, ignore_index=True),
    )


def test_numbers_of_two_types_are_equal(threads):
    left = pd.DataFrame({"k": [1, 2, 3], "x": [1, 2, 3]})
    right = pd.DataFrame({"k": [1.0, 2.5, 3.0], "y": [1, 2, 3]})
    merged = dgpuhash.merge(with_unknown(left, 2, "k"), with_unknown(right, 2, "k"), on="k")
    assert merged.compute()["x"].tolist() == [1, 3]


def test_texts_that_stand_for_values():
    for values in (
        ["a", "\0i5", ""], [1, -2], [1.5, 2.0], [True, False], [pd.Timedelta(5), pd.Timedelta(7)],
        [pd.Timestamp("2026-01-01", tz="UTC"), pd.Timestamp(2026, 1, 2, nanosecond=3, tz="UTC")],
        [pd.Timestamp(2026, 1, 1).date()],
    ):  # fmt: skip
        column = pd.Series(pd.Categorical([*values, None, values[0]]))
        for compared in (True, False):
            texts = as_texts(column, compared=compared)
            assert texts.cat.categories.dtype == "str"
            back = as_values(texts)
            assert back.tolist()[:-2] == column.tolist()[:-2]
            assert back.cat.codes.tolist() == column.cat.codes.tolist()
    with pytest.raises(KeyTypeError, match=r"categorize\(\)"):
        as_texts(pd.Series(pd.Categorical([(1, 2)])), compared=False)
