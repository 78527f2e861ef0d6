"""NaN that is no null, as Arrow, pandas' nullable floats and polars have it: one rule for all."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dgpuhash
from dgpuhash.errors import SpecError
from dgpuhash.frames.groupby.partial import GroupByCall, GroupPlan
from dgpuhash.frames.groupby.partial.fold import folding

NAN = math.nan
KEYS = [1, 1, 2, 1, 3, 2, 1, 2, 4, 4]
VALUES = [1.0, NAN, NAN, 3.0, None, NAN, 2.0, None, 5.0, 4.0]
STORAGES = ["double[pyarrow]", "float[pyarrow]", "Float64", "Float32"]
# Of the groups 1 to 4.
WANTED: dict[str, list[Any]] = {
    "size": [4, 3, 1, 2],
    "count": [4, 2, 0, 2],
    "nunique": [4, 1, 0, 2],
    "first": [1.0, NAN, None, 5.0],
    "last": [2.0, NAN, None, 4.0],
    "any": [1, 1, 0, 1],
    "all": [1, 1, 1, 1],
    "min": [1.0, None, None, 4.0],
    "max": [3.0, None, None, 5.0],
    "median": [2.0, None, None, 4.5],
    "quantile": [2.0, None, None, 4.5],
    "sum": [None, None, 0.0, 9.0],
    "mean": [None, None, None, 4.5],
    "prod": [None, None, 1.0, 20.0],
    "var": [None, None, None, 0.5],
    "std": [None, None, None, 0.5**0.5],
    "sem": [None, None, None, 0.5],
}
MOMENTS = {"sum", "mean", "prod", "var", "std", "sem"}


def column(storage: str, values: list[Any]) -> pd.Series:
    """Return values whose NaNs are no nulls."""
    nulls = np.array([each is None for each in values], bool)
    numbers = np.array([0.0 if each is None else each for each in values])
    if storage.endswith("[pyarrow]"):
        kind = pa.float32() if storage.startswith("float") else pa.float64()
        made = pa.array(numbers, kind, mask=nulls)
        return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([made])))
    return pd.Series(pd.arrays.FloatingArray(numbers.astype(storage.lower()), nulls))


def told(results: Any) -> list[Any]:
    """Return results as numbers, NaN and None."""
    return [None if each is None or each is pd.NA else float(each) for each in list(results)]


def assert_same(found: list[Any], wanted: list[Any]) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours is None) == (theirs is None), (found, wanted)
        assert ours is None or ours == pytest.approx(theirs, nan_ok=True), (found, wanted)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("how", WANTED)
def test_rows_and_parts(storage, how):
    frame = pd.DataFrame({"k": KEYS, "x": column(storage, VALUES)})
    groups = dgpuhash.groupby(frame, "k")["x"]
    assert_same(told(groups.agg(how)), WANTED[how])
    rows = told(groups.transform(how))
    assert_same(rows, [WANTED[how][key - 1] for key in KEYS])
    if how == "size":
        return
    plan = GroupPlan.of(frame.iloc[:0], "k", how=how, selection="x")
    for cuts in ([0, 10], [0, 1, 3, 8, 10], list(range(11))):
        states = folding(plan)
        for number, (start, end) in enumerate(pairwise(cuts)):
            states.fold(plan.reduce(frame.iloc[start:end], number))
        assert_same(told(states.result()), WANTED[how])
        parts = pairwise(cuts)
        if not plan.needs_rows:
            some = [plan.reduce(frame.iloc[a:b], at) for at, (a, b) in enumerate(parts)]
            assert_same(told(plan.result(plan.folded(some))), WANTED[how])


INF = math.inf
ENDLESS = [
    [INF, INF], [-INF, -INF], [-INF, INF], [-INF, 1.25], [1.25, INF], [INF], [0.0, INF],
    [-INF, None, INF], [-INF, 1.0, INF],
]  # fmt: skip


@pytest.mark.parametrize("storage", [*STORAGES, "float64"])
@pytest.mark.parametrize("how", [*sorted(MOMENTS), "median", "quantile", "min", "max"])
def test_nan_that_arises_is_null(storage, how):
    keys = [key for key, group in enumerate(ENDLESS) for _ in group]
    values = [each for group in ENDLESS for each in group]
    plain = pd.Series([NAN if each is None else each for each in values])
    x = plain if storage == "float64" else column(storage, values)
    frame = pd.DataFrame({"k": keys, "x": x})
    given = (0.3,) if how == "quantile" else ()
    theirs = getattr(frame.groupby("k")["x"], how)(*given)
    ours = getattr(dgpuhash.groupby(frame, "k")["x"], how)(*given)
    assert theirs.isna().any() or how in {"min", "max"}
    assert_same(told(ours), told(theirs))
    plan = GroupPlan.of(frame.iloc[:0], "k", how=GroupByCall(how, given), selection="x")
    states = folding(plan)
    for number in range(len(frame)):
        states.fold(plan.reduce(frame.iloc[number : number + 1], number))
    assert_same(told(states.result()), told(theirs))
    rows = [] if how == "quantile" else told(dgpuhash.groupby(frame, "k")["x"].transform(how))
    assert_same(rows, [told(theirs)[key] for key in keys][: len(rows)])


def test_middles_beside_infinities_and_of_large_floats():
    frame = pd.DataFrame({"k": [1, 1, 2, 2, 3, 3], "x": [-1e308, 1e308, INF, INF, -INF, 2.0]})
    for kind in ("float64", "Float64", "double[pyarrow]"):
        groups = dgpuhash.groupby(frame.astype({"x": kind}), "k")["x"]
        assert groups.median().tolist() == [0.0, INF, -INF]
        assert groups.quantile(interpolation="midpoint").tolist() == [0.0, INF, -INF]
        assert groups.quantile(0.75).tolist()[0] == 5e307


@pytest.mark.parametrize("storage", [*STORAGES, "float64", "object"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_correlations_leave_infinities_out_and_covariances_are_null(storage):
    values = [INF, 0.5, 127.0, 3.0, INF, INF, 1.0, 2.0]
    x = pd.Series(values, dtype=storage) if storage in {"float64", "object"} else None
    x = column(storage, values) if x is None else x
    y = [3, 1, 2, 2, 7, 8, 1, 5]
    frame = pd.DataFrame({"k": [1, 1, 1, 1, 2, 2, 3, 3], "x": x, "y": y})
    for how in ("corr", "cov"):
        theirs = getattr(frame.groupby("k"), how)().astype(float)
        pd.testing.assert_frame_equal(
            getattr(dgpuhash.groupby(frame, "k"), how)().astype(float), theirs
        )
        if storage != "object":
            for verb in (GroupByCall(how), GroupByCall("agg", (how,))):
                plan = GroupPlan.of(frame.iloc[:0], "k", how=verb)
                states = folding(plan)
                for number in range(len(frame)):
                    states.fold(plan.reduce(frame.iloc[number : number + 1], number))
                pd.testing.assert_frame_equal(states.result().astype(float), theirs)
    # pandas leaves infinities out of a group's covariances where anything in it is null.
    lacking = frame.assign(y=[3, None, 2, 2, 7, 8, 1, 5])
    assert math.isnan(dgpuhash.groupby(lacking, "k").cov().loc[(1, "x"), "x"])


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("how", ["nlargest", "nsmallest"])
def test_ends_of_groups(storage, how):
    frame = pd.DataFrame({"k": KEYS, "x": column(storage, VALUES)})
    found = getattr(dgpuhash.groupby(frame, "k")["x"], how)(2)
    ordered = {"nlargest": [3.0, 2.0], "nsmallest": [1.0, 2.0]}[how]
    assert_same(told(found[1]), ordered)
    # As nulls, they fill up what is asked for.
    assert_same(told(found[2]), [NAN, NAN])
    many = pd.DataFrame({"k": [1] * 200, "x": column(storage, [NAN, None, *range(198)])})
    found = getattr(dgpuhash.groupby(many, "k")["x"], how)(3)
    assert_same(told(found), [197, 196, 195] if how == "nlargest" else [0, 1, 2])


@pytest.mark.parametrize("storage", STORAGES)
def test_labels_of_extremes(storage):
    frame = pd.DataFrame({"k": KEYS, "x": column(storage, VALUES)})
    kept = frame[frame["k"].isin([1, 4])]
    plan = GroupPlan.of(frame.iloc[:0], "k", how="idxmax", selection="x")
    for how, wanted in (("idxmin", [0, 9]), ("idxmax", [3, 8])):
        assert dgpuhash.groupby(kept, "k")["x"].agg(how).tolist() == wanted
        with pytest.raises(SpecError, match="all NA values in a group"):
            dgpuhash.groupby(frame[frame["k"] == 2], "k")["x"].agg(how)
    states = folding(plan)
    for number in range(len(kept)):
        states.fold(plan.reduce(kept.iloc[number : number + 1], number))
    assert states.result().tolist() == [3, 8]
    states.fold(plan.reduce(frame.iloc[[2]], 99))
    with pytest.raises(SpecError, match="all NA values in a group"):
        states.result()


@pytest.mark.parametrize("how", WANTED)
@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_tables(library, how):
    pl = pytest.importorskip("polars")
    table = pa.table({"k": KEYS, "x": pa.array(VALUES, pa.float64())})
    frame = pl.from_arrow(table) if library == "polars" else table
    found = dgpuhash.groupby(frame, "k")["x"].agg(how)
    results = found[how if how == "size" else "x"]
    wanted = list(WANTED[how])
    if library == "polars" and how in MOMENTS:
        # A NaN among what is added up, as in polars.
        wanted[:2] = [NAN, NAN]
    assert_same(told(results.to_list() if library == "polars" else results.to_pylist()), wanted)


@pytest.mark.parametrize("how", [*sorted(MOMENTS), "median"])
def test_tables_with_infinities(how):
    pl = pytest.importorskip("polars")
    values = [-INF, INF] if how != "prod" else [0.0, INF]
    table = pa.table({"k": [1, 1], "x": values})
    polars = dgpuhash.groupby(pl.from_arrow(table), "k")["x"].agg(how)["x"].to_list()
    assert math.isnan(polars[0])
    assert dgpuhash.groupby(table, "k")["x"].agg(how)["x"].to_pylist() == [None]


def test_several_aggregates_of_parts():
    frame = pd.DataFrame({"k": KEYS, "x": column("Float64", VALUES)})
    named = {how: ("x", how) for how in ("count", "min", "max", "sum", "first")}
    plan = GroupPlan.of(frame.iloc[:0], "k", how=GroupByCall("agg", options=named))
    states = folding(plan)
    for number in range(0, len(frame), 2):
        states.fold(plan.reduce(frame.iloc[number : number + 2], number))
    for how in named:
        assert_same(told(states.result()[how]), WANTED[how])
