"""Groups of more rows than are compared with each other, beside pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from suites.raising import no_other_engine

import dgpuhash

ROWS = 6000
DTYPES = ["float64", "float32", "int64", "uint8", "Int64"]


def frame_of(dtype, *, nulls):
    """Return a frame with a group of few rows, one of a single value, and others."""
    rng = np.random.default_rng(11)
    values = pd.Series(rng.integers(0, 60, ROWS)).astype(dtype)
    if nulls:
        values = values.mask(pd.Series(rng.random(ROWS) < 0.1))
    keys = np.where(rng.random(ROWS) < 0.002, 70, rng.integers(0, 9, ROWS))
    values[keys == 3] = values[0]
    return pd.DataFrame({"k": keys, "v": values, "w": rng.normal(size=ROWS)})


FRAMES = [
    pytest.param(frame_of(dtype, nulls=nulls), id=f"{dtype} {nulls=}")
    for dtype in DTYPES
    for nulls in (False, True)
    if not (nulls and dtype in ("int64", "uint8"))
]


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("how", ["nlargest", "nsmallest"])
def test_greatest_and_least_of_each_group(frame, how):
    for n, keep in ((1, "first"), (2, "last"), (3, "first"), (200, "first")):
        with no_other_engine():
            made = getattr(dgpuhash.groupby(frame, "k")["v"], how)(n, keep=keep)
        expected = getattr(frame.groupby("k")["v"], how)(n, keep=keep)
        pd.testing.assert_series_equal(made, expected)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("groups", [10, 1500, ROWS])
def test_values_between(frame, groups):
    """Groups are sorted one by one, or with those of their size."""
    frame = frame.assign(k=np.random.default_rng(groups).integers(0, groups, ROWS))
    ours, theirs = dgpuhash.groupby(frame, "k")["v"], frame.groupby("k")["v"]
    with no_other_engine():
        median, quantiles = ours.median(), ours.quantile([0.1, 0.5, 1])
    pd.testing.assert_series_equal(median, theirs.median())
    pd.testing.assert_series_equal(quantiles, theirs.quantile([0.1, 0.5, 1]))


@pytest.mark.parametrize("frame", FRAMES)
def test_different_values_and_means(frame):
    frame = frame.assign(flag=frame["k"] % 2 == 0)
    ours, theirs = dgpuhash.groupby(frame, ["flag", "k"]), frame.groupby(["flag", "k"])
    for dropna in (True, False):
        with no_other_engine():
            made = ours["v"].nunique(dropna=dropna)
        pd.testing.assert_series_equal(made, theirs["v"].nunique(dropna=dropna))
    with no_other_engine():
        made = ours.agg({"v": "mean"})
    pd.testing.assert_frame_equal(made, theirs.agg({"v": "mean"}))


@pytest.mark.parametrize("nulls", [False, True])
def test_correlations_of_three_columns(nulls):
    frame = frame_of("float64", nulls=nulls).assign(x=lambda frame: frame["w"] ** 2)
    with no_other_engine():
        groups = dgpuhash.groupby(frame, "k")
        made = groups.cov(), groups.corr()
    theirs = frame.groupby("k")
    pd.testing.assert_frame_equal(made[0], theirs.cov(), atol=1e-9)
    some = made[1].index.get_level_values(0) != 3
    pd.testing.assert_frame_equal(made[1][some], theirs.corr()[some])


TEXTS = {
    "short": lambda number: f"x{number % 90 + 10}",
    "letters of two bytes": lambda number: f"é{number % 90 + 10}",
    "eight bytes": lambda number: f"a{number % 90:07}",
    "lengths": lambda number: f"x{number % 90}",
    "nulls": lambda number: None if number % 90 == 3 else f"x{number % 90 + 10}",
    "zeros": lambda number: f"\0{number % 9}",
    "empty": lambda _: "",
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("by", [["k"], ["k", "n"], ["n", "k", "f"]])
def test_texts_that_are_numbered_without_a_hash(name, by):
    numbers = np.random.default_rng(5).integers(0, 10**6, ROWS)
    texts = pd.array([TEXTS[name](number) for number in numbers.tolist()], dtype="str")
    frame = pd.DataFrame({"k": texts, "n": numbers % 5 - 2, "f": numbers % 2 > 0, "v": numbers})
    frame = frame.iloc[1000:]
    for options in ({}, {"sort": False, "dropna": False, "as_index": False}):
        with no_other_engine():
            made = dgpuhash.groupby(frame, by, **options).agg(total=("v", "sum"), n=("v", "size"))
        expected = frame.groupby(by, **options).agg(total=("v", "sum"), n=("v", "size"))
        pd.testing.assert_frame_equal(made, expected)
    for keep in ("first", "last", False):
        with no_other_engine():
            made = frame.dgpuhash.drop_duplicates(by, keep=keep)
        pd.testing.assert_frame_equal(made, frame.drop_duplicates(by, keep=keep))


def test_results_that_are_changed_leave_frame_and_groups_alone():
    frame = pd.DataFrame({"k": np.arange(50), "v": 1.0})
    groups = dgpuhash.groupby(frame, "k", as_index=False)
    first, labels = groups.sum(), dgpuhash.groupby(frame, "k").sum().index
    first.loc[:, "k"] = -1
    frame.loc[:, "k"] = -2
    assert groups.sum()["k"].tolist() == labels.tolist() == list(range(50))
    assert (frame["k"] == -2).all()
