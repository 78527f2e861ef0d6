"""``value_counts`` of groups beside pandas, with every other engine shut."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import ColumnError, SpecError, UnsupportedError

FLAGS = [False, True]
# Whether counts are normalized, sorted, ascending, and of no nulls.
OPTIONS = [(False, False, False, False), (True, True, False, True), (False, True, True, False)]
LETTERS = ["a", "b", "a", None, "c", "b", "a", "a", "b", "c"]
FRAME = pd.DataFrame({
    "key": [2, 1, 2, 1, 1, 2, None, 2, 1, 2],
    "cat": pd.Categorical(LETTERS, categories=["c", "x", "a", "b"]),
    "text": ["p", "q", None, "q", "q", "p", "p", "p", "r", "p"],
    "flag": pd.array([1, 0, 1, 0, 0, None, 1, 1, 0, 1], "boolean"),
    "number": [1.0, 2.5, np.nan, 2.5, 9.0, 1.0, 4.0, 0.0, 3.0, 1.0],
})  # fmt: skip


def same_as_pandas(by, chosen, **groups):
    """Assert that counts are pandas', whatever their options are."""
    ours, theirs = dgpuhash.groupby(FRAME, by, **groups), FRAME.groupby(by, **groups)
    if chosen is not None:
        ours, theirs = ours[chosen], theirs[chosen]
    for normalize, sort, ascending, dropna in OPTIONS:
        given = {"normalize": normalize, "sort": sort, "ascending": ascending, "dropna": dropna}
        with no_other_engine():
            made = ours.value_counts(**given)
        expected = theirs.value_counts(**given)
        if expected.ndim == 1:
            pd.testing.assert_series_equal(made, expected)
        else:
            pd.testing.assert_frame_equal(made, expected)


@pytest.mark.parametrize("sort", FLAGS)
@pytest.mark.parametrize(
    ("by", "chosen"),
    [("key", None), ("cat", ["number", "flag"]), (["text", "key"], ["number", "cat"])],
    ids=str,
)
def test_columns_beside_pandas(by, chosen, sort):
    same_as_pandas(by, chosen, sort=sort)


@pytest.mark.parametrize("chosen", ["cat", "text", "flag", "number"])
def test_one_column_beside_pandas(chosen):
    same_as_pandas("key", chosen, dropna=False)
    same_as_pandas(["key"], chosen, as_index=False)


@pytest.mark.parametrize("sort", FLAGS)
def test_all_categories_are_counted(sort):
    same_as_pandas("cat", "text", observed=False, sort=sort)
    same_as_pandas(["key", "cat"], "flag", observed=False, sort=sort)
    same_as_pandas("key", ["cat", "text"], sort=sort)


@pytest.mark.parametrize("sort", FLAGS)
@pytest.mark.parametrize("by", ["key", ["key", "text"]], ids=str)
def test_bins_beside_pandas(by, sort):
    with no_other_engine():
        made = dgpuhash.groupby(FRAME, by, sort=sort)["number"].value_counts(bins=[0, 2, 5])
    expected = FRAME.groupby(by, sort=sort)["number"].value_counts(bins=[0, 2, 5])
    pd.testing.assert_series_equal(made.sort_index(), expected.sort_index())
    shares = dgpuhash.groupby(FRAME, "key")["number"].value_counts(bins=[0, 2, 5], normalize=True)
    assert shares[2].tolist() == [0.8, 0.0], "of five rows four lie in the first"


def test_a_series_by_values():
    series = pd.Series([3, 1, 3, 3], name="n")
    keys = np.array(["u", "v", "u", "v"])
    made = dgpuhash.groupby(series, keys).value_counts()
    pd.testing.assert_series_equal(made, series.groupby(keys).value_counts())


def test_what_is_refused():
    groups = dgpuhash.groupby(FRAME, "key")
    with pytest.raises(SpecError, match="cannot be in the groupby column keys"):
        groups.value_counts(["key"])
    with pytest.raises(SpecError, match="do not exist"):
        groups.value_counts(["none"])
    with pytest.raises(UnsupportedError, match="give the edges of the bins"):
        groups["number"].value_counts(bins=3)
    with pytest.raises(UnsupportedError, match="select it with"):
        groups.value_counts(bins=[1, 2])
    renamed = FRAME.rename(columns={"text": "count"})
    with pytest.raises(ColumnError, match="duplicate of result column"):
        dgpuhash.groupby(renamed, "key", as_index=False)["count"].value_counts()
