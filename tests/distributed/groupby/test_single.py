"""Groups of frames of one partition, which one task answers, beside pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from clusters import lazy
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed.groupby.steps import FoldExpr, SingleGroupsExpr

pytestmark = pytest.mark.cluster

RANDOM = np.random.default_rng(6)
ROWS = 500
FRAME = pd.DataFrame(
    {
        "k": RANDOM.integers(0, 20, ROWS),
        "t": np.array(["x", "yy", None, "z"], object)[RANDOM.integers(0, 4, ROWS)],
        "v": RANDOM.integers(-50, 50, ROWS),
        "f": RANDOM.normal(size=ROWS),
    }
).astype({"t": "str"})
VERBS = {
    "agg": lambda groups: groups.agg(total=("v", "sum"), most=("f", "max"), n=("v", "count")),
    "size": lambda groups: groups.size(),
    "median": lambda groups: groups["f"].median(),
    "nunique": lambda groups: groups["v"].nunique(),
    "var": lambda groups: groups[["v", "f"]].var(),
    "first": lambda groups: groups.first(),
    "idxmax": lambda groups: groups["f"].idxmax(),
    "head": lambda groups: groups.head(2),
    "value_counts": lambda groups: groups["v"].value_counts(),
    "list": lambda groups: groups["v"].agg(list),
}


def computed(found):
    assert found.npartitions == 1
    lowered = found.optimize(fuse=False).expr
    assert list(lowered.find_operations(SingleGroupsExpr))
    assert not list(lowered.find_operations(FoldExpr))
    with no_other_engine():
        return found.compute()


@pytest.mark.parametrize("sort", [True, False], ids=["sorted", "unsorted"])
@pytest.mark.parametrize("by", ["k", "t", ["k", "t"]], ids=str)
@pytest.mark.parametrize("verb", VERBS)
def test_answers_are_those_of_pandas_in_order(threads, verb, by, sort):
    found = computed(VERBS[verb](dgpuhash.groupby(lazy(FRAME, 1), by, sort=sort)))
    wanted = VERBS[verb](FRAME.groupby(by, sort=sort))
    if verb == "value_counts":
        found, wanted = found.sort_index(), wanted.sort_index()
    same = pd.testing.assert_series_equal if wanted.ndim == 1 else pd.testing.assert_frame_equal
    same(found, wanted, check_index_type=False)


def test_categories_that_only_the_partition_knows(threads):
    frame = FRAME.assign(t=FRAME["t"].astype("category"))
    unknown = lazy(frame, 1)
    unknown["t"] = unknown["t"].cat.as_unknown()
    for observed in (True, False):
        found = computed(dgpuhash.groupby(unknown, "t", observed=observed)["v"].sum())
        wanted = frame.groupby("t", observed=observed)["v"].sum()
        assert found.to_dict() == wanted.to_dict()


def test_a_transform_and_computed_keys(threads):
    single = lazy(FRAME, 1)
    found = dgpuhash.groupby(single, "k")["v"].transform("mean").compute()
    pd.testing.assert_series_equal(found, FRAME.groupby("k")["v"].transform("mean"))
    by = computed(dgpuhash.groupby(single, single["v"] % 3)["f"].min())
    pd.testing.assert_series_equal(by, FRAME.groupby(FRAME["v"] % 3)["f"].min())


def test_functions_run_where_owners_are(threads):
    groups = dgpuhash.groupby(lazy(FRAME, 1), "k")
    assert "1 hash range" in repr(groups)
    found = groups.apply(lambda rows: rows["v"].max(), meta=pd.Series(dtype="int64"))
    assert found.npartitions > 1
    wanted = FRAME.groupby("k")["v"].max()
    assert found.compute().sort_index().tolist() == wanted.tolist()


def test_hash_ranges_on_request(threads):
    found = dgpuhash.groupby(lazy(FRAME, 1), "k", npartitions=3)["v"].sum()
    assert found.npartitions == 3
    assert found.compute().to_dict() == FRAME.groupby("k")["v"].sum().to_dict()


@pytest.mark.parametrize("keep", ["first", "last", False])
def test_distinct_rows_counts_and_what_is_told(threads, keep):
    single = lazy(FRAME, 1)
    with no_other_engine():
        rows = single.dgpuhash.drop_duplicates(["k", "t"], keep=keep).compute()
        counts = single["k"].dgpuhash.value_counts().compute()
        number = single["k"].dgpuhash.nunique().compute()
    pd.testing.assert_frame_equal(rows, FRAME.drop_duplicates(["k", "t"], keep=keep))
    assert counts.to_dict() == FRAME["k"].value_counts().to_dict()
    assert number == FRAME["k"].nunique()
    told = dgpuhash.groupby(single, "k")[["v"]].sum().dgpuhash.explain()
    assert "one task makes" in told
    assert "sent: nothing" in told
