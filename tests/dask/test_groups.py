"""Dask's groupbys and counts of values, answered by ours, beside pandas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import lazy
from dask.dataframe.dask_expr import _groupby
from distributed import Client
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import UnsupportedError

pytestmark = pytest.mark.cluster

RNG = np.random.default_rng(8)
ROWS = pd.DataFrame(
    {
        "k": RNG.integers(0, 12, 200),
        "t": [f"t{n}" for n in RNG.integers(0, 5, 200)],
        "x": RNG.integers(0, 40, 200) / 4,
        "y": RNG.integers(0, 9, 200),
    }
)
AGGREGATES: dict[str, Callable[[Any], Any]] = {
    "agg": lambda frame: frame.groupby("t").agg({"x": ["sum", "mean"], "y": "max"}),
    "agg by name": lambda frame: frame.groupby("k").agg(a=("x", "sum"), b=("y", "count")),
    "apply": lambda frame: frame.groupby("k")["x"].apply(lambda values: values.iloc[0]),
    "condition": lambda frame: frame.groupby(frame["x"] > 5)["y"].sum(),
    "cov": lambda frame: frame[["k", "x", "y"]].groupby("k").cov(),
    "nunique": lambda frame: frame.groupby("k")["y"].nunique(),
    "series": lambda frame: frame["x"].groupby(frame["k"]).max(),
    "sum": lambda frame: frame.groupby(["k", "t"])[["x", "y"]].sum(min_count=3),
    "transform": lambda frame: frame.groupby("k")["x"].transform("sum"),
    "value_counts": lambda frame: frame.groupby("k")["y"].value_counts(),
    "values": lambda frame: frame["t"].value_counts(),
    "shares": lambda frame: frame["y"].value_counts(normalize=True, sort=True),
    "numbers": lambda frame: frame.nunique(),
    "var": lambda frame: frame.groupby("k")[["x", "y"]].var(ddof=0),
}


@pytest.mark.filterwarnings("ignore:.*meta. is not specified")
@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_aggregates(cluster: Client, name: str):
    call = AGGREGATES[name]
    with dgpuhash.dask.enabled(fallback=False):
        with no_other_engine():
            found = call(lazy(ROWS, 3)).compute()
        told = dgpuhash.dask.report()
    assert {each.by for each in told.answers} == {"dgpuhash"}
    wanted = call(ROWS)
    alike = pd.testing.assert_series_equal if wanted.ndim == 1 else pd.testing.assert_frame_equal
    alike(found.sort_index(kind="stable"), wanted.sort_index(kind="stable"))


def test_partitions_and_order(cluster: Client):
    frame = lazy(ROWS, 3)
    with dgpuhash.dask.enabled(fallback=False):
        groups = frame.groupby("k", sort=True)["x"]
        assert groups.sum().npartitions == 1
        pd.testing.assert_series_equal(groups.sum().compute(), ROWS.groupby("k")["x"].sum())
        halves = groups.sum(split_out=2)
        assert halves.npartitions == 2 and halves.compute().index.is_monotonic_increasing
        split = frame.groupby("k")["x"].sum(split_out=3, split_every=2, shuffle_method="tasks")
        assert split.npartitions == 3
        counts = frame["k"].value_counts(split_out=1)
        assert counts.compute().is_monotonic_decreasing
        assert frame["k"].value_counts(split_out=3).npartitions == 3
        assert frame["k"].nunique(split_out=3).compute() == 12


def test_groups_are_also_dasks(cluster: Client):
    frame = lazy(ROWS, 3)
    with dgpuhash.dask.enabled():
        groups = frame.groupby("k")
        assert isinstance(groups, _groupby.GroupBy)
        assert isinstance(groups["x"], _groupby.SeriesGroupBy)
        assert groups.by == ["k"] and groups.x.obj.npartitions == 3 and "x" in dir(groups)
        for wrong, kind in (
            (lambda: frame.groupby("nothing"), KeyError),
            (lambda: frame.groupby("k", as_index=False), TypeError),
            (lambda: groups["nothing"], KeyError),
            (lambda: groups.nothing, AttributeError),
        ):
            with pytest.raises(kind):
                wrong()
        assert dgpuhash.dask.report().answers == ()
        shifted = groups["x"].shift(1, meta=("x", "f8"))
        assert shifted.compute().notna().sum() == len(ROWS) - 12
        added = dd.Aggregation("added", lambda rows: rows.sum(), lambda rows: rows.sum())
        assert len(groups["x"].agg(added).compute()) == 12
        kinds = frame["t"].astype(pd.CategoricalDtype([f"t{n}" for n in range(6)]))
        assert len(kinds.value_counts().compute()) == 6
        told = {each.verb: each for each in dgpuhash.dask.report().answers}
        for call in (groups["x"].apply, groups["x"].transform):
            with pytest.warns(UserWarning, match="meta. is not specified"):
                call(lambda values: values.iloc[:1].sum())
    assert set(told) == {"groupby.shift", "groupby.agg", "value_counts"}
    assert {each.by for each in told.values()} == {"Dask"}
    assert "no method shift" in told["groupby.shift"].reason
    # What was made before is Dask's now.
    assert len(groups["x"].sum().compute()) == 12
    with dgpuhash.dask.enabled(fallback=False):
        with pytest.raises(UnsupportedError, match="Aggregation"):
            frame.groupby("k")["x"].agg(added)
        with pytest.raises(UnsupportedError, match="axis=1"):
            frame.nunique(axis=1)
