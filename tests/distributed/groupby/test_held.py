"""Partitions with few states of groups, which no owner gets unless another partition has many."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import lazy, until

import dgpuhash
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.groupby import steps, tasks
from dgpuhash.distributed.groupby.owners import GroupOwners

pytestmark = pytest.mark.cluster

HOWS = ["sum", "mean", "var", "first", "max", "median", "nunique"]
RNG = np.random.default_rng(63)
ROWS = pd.DataFrame(
    {
        "k": RNG.integers(0, 40, 900),
        "v": RNG.normal(size=900).round(2),
        "n": RNG.integers(-9, 9, 900),
        "t": RNG.choice(["a", "b", None], 900),
        "c": pd.Categorical(RNG.choice(["x", "y"], 900)),
        "d": pd.Timestamp("2026-11-29", tz="UTC") + pd.to_timedelta(np.arange(900) % 3, "D"),
    }
)
# The last of three partitions has a group for each row.
ROWS.loc[600:, "k"] = np.arange(40, 340)
PARTS = [ROWS[:300], ROWS[300:600], ROWS[600:]]


@pytest.fixture
def folded(monkeypatch) -> list[int]:
    """Let 200 states of each partition be few; return the partitions that owners get."""
    monkeypatch.setitem(steps._FEW_STATES, "cpu", 600)
    found: list[int] = []
    receipt = tasks.FoldExchange.receipt

    def spied(self: Any, frame: Any) -> Any:
        found.append(self._made.partition)
        return receipt(self, frame)

    monkeypatch.setattr(tasks.FoldExchange, "receipt", spied)
    return found


def few_groups() -> tuple[dd.DataFrame, pd.DataFrame]:
    """Return a lazy frame whose partitions have 40 groups each, and its rows."""
    lazy = dd.from_map(lambda number: PARTS[number % 2], range(3), meta=ROWS[:0])
    return lazy, pd.concat([*PARTS[:2], PARTS[0]])


def test_aggregates_come_in_the_order_in_which_they_are_asked(threads):
    frame = lazy(ROWS, 2)
    for order in ("nv", "vn"):
        named = dgpuhash.groupby(frame, "k").agg(**{each: (each, "max") for each in order})
        listed = dgpuhash.groupby(frame, "k").agg({each: ["max", "min"] for each in order})
        assert named.compute().columns.tolist() == list(order)
        assert listed.compute().columns.get_level_values(0).unique().tolist() == list(order)


@pytest.mark.parametrize("sort", [True, False])
def test_few_states_have_no_owners(threads, folded, sort):
    frame, rows = few_groups()
    ours = dgpuhash.groupby(frame, "k", sort=sort, npartitions=1)
    theirs = rows.groupby("k", sort=sort)
    for columns in (["n"], ["n", "v"]):
        asked = {f"{how} {label}": (label, how) for how in HOWS for label in columns}
        # Medians and numbers of different values have rows of all in place of states.
        for given in (asked, {name: how for name, how in asked.items() if how[1] in HOWS[:5]}):
            folded.clear()
            found = ours.agg(**given).compute()
            pd.testing.assert_frame_equal(found, theirs.agg(**given))
            assert bool(folded) is (given is asked)
    folded.clear()
    pd.testing.assert_series_equal(ours.size().compute(), theirs.size())
    assert not folded


def test_all_groups_are_in_one_partition(threads, folded):
    frame, rows = few_groups()
    made = dgpuhash.groupby(frame, ["t", "k"], npartitions=3)["n"].sum()
    first, *others = [made.partitions[number].compute() for number in range(3)]
    pd.testing.assert_series_equal(first, rows.groupby(["t", "k"])["n"].sum())
    assert [len(each) for each in others] == [0, 0]
    assert {each.dtype for each in others} == {first.dtype}
    assert not folded


def test_owners_get_few_states_where_others_are_many(threads, folded):
    frame = dd.from_map(lambda number: PARTS[number], range(3), meta=ROWS[:0])
    groups, theirs = dgpuhash.groupby(frame, "k"), ROWS.groupby("k")
    asked = {f"{how} {label}": (label, how) for how in HOWS[:5] for label in ("v", "n")}
    pd.testing.assert_frame_equal(
        groups.agg(**asked).compute().sort_index(), theirs.agg(**asked), rtol=1e-12
    )
    assert set(folded) == {0, 1, 2}
    pd.testing.assert_series_equal(
        groups["v"].median().compute().sort_index(), theirs["v"].median()
    )


def test_owners_get_states_of_many_bytes(threads, folded, monkeypatch):
    monkeypatch.setitem(steps._FEW_NBYTES, "cpu", 3000)
    frame, rows = few_groups()
    found = dgpuhash.groupby(frame, "k", npartitions=1)["n"].sum().compute()
    pd.testing.assert_series_equal(found, rows.groupby("k")["n"].sum())
    assert set(folded) == {0, 1, 2}


def test_categories_that_partitions_know(threads, folded):
    halves = [ROWS[:100].copy(), ROWS[100:200].copy()]
    for half, names in zip(halves, (["x", "y"], ["y", "z"]), strict=True):
        half["c"] = pd.Categorical(half["c"].map(dict(zip("xy", names, strict=True))))
    frame = dd.from_map(lambda n: halves[n], range(2), meta=halves[0][:0])
    frame["c"] = frame["c"].cat.as_unknown()
    made = dgpuhash.groupby(frame, "c", npartitions=2)["n"].sum().compute()
    rows = pd.concat([half.astype({"c": object}) for half in halves])
    assert made.index.astype(str).tolist() == ["x", "y", "z"]
    assert made.tolist() == rows.groupby("c")["n"].sum().tolist()
    assert not folded


def test_functions_of_users_run_at_owners(threads, folded):
    frame = lazy(ROWS[:600], 3)
    made = dgpuhash.groupby(frame, "k")[["n"]].apply(
        lambda rows: rows["n"].sum(), meta=pd.Series(dtype="int64", index=pd.Index([], "int64"))
    )
    wanted = ROWS[:600].groupby("k")[["n"]].apply(lambda rows: rows["n"].sum())
    assert made.compute().sort_index().tolist() == wanted.tolist()
    assert set(folded) == {0, 1, 2}


def test_no_rows(threads, folded):
    frame = lazy(ROWS, 3)
    made = dgpuhash.groupby(frame[frame["n"] > 99], "k")["v"].sum()
    found = made.compute()
    assert len(found) == 0
    assert found.dtype == made.dtype
    assert not folded


@pytest.mark.parametrize("by", ["k", ["t", "k"], "c", ["c", "k"], ["d", "k"]])
@pytest.mark.parametrize("few", [True, False])
def test_one_task_puts_all_groups_together(threads, folded, monkeypatch, by, few):
    if not few:
        monkeypatch.setitem(steps._FEW_STATES, "cpu", 0)
    frame, rows = few_groups()
    groups, theirs = dgpuhash.groupby(frame, by, npartitions=3), rows.groupby(by, observed=True)
    asked = {"n": ("n", "sum"), "least": ("v", "min"), "t": ("t", "count")}
    made = groups.agg(**asked)
    whole = made.expr.finalize_compute().optimize()
    assert list(whole.find_operations(steps.WholeGroupsExpr)) and whole.npartitions == 1
    found, ranges = made.compute(), [made.partitions[number].compute() for number in range(3)]
    pd.testing.assert_frame_equal(found.sort_index(), theirs.agg(**asked).sort_index())
    # Hash ranges come one after the other.
    pd.testing.assert_frame_equal(found, pd.concat([each for each in ranges if len(each)]))
    assert bool(folded) is not few
    workers = threads.cluster.workers.values()
    until(lambda: not any(plugin_of(each).service(GroupOwners).runs for each in workers))
