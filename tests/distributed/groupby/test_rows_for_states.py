"""Partitions with few rows, or hardly fewer groups, which give their rows in place of states."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import lazy
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed.groupby import spilling, steps
from dgpuhash.distributed.shards import worker_memory
from dgpuhash.frames.groupby.partial import GroupByCall, GroupPlan
from dgpuhash.frames.groupby.partial import plan as plan_module
from dgpuhash.frames.groupby.partial import rows as partial_rows
from dgpuhash.frames.groupby.partial.rows import mostly_distinct_rows

HOWS = ["sum", "mean", "min", "max", "first", "last", "var", "prod", "any", "count", "idxmin"]


@pytest.mark.parametrize(("groups", "mostly"), [(20_000, True), (60_000, True), (6_000, False)])
def test_a_sample_tells_whether_groups_are_few(groups, mostly):
    keys = np.random.default_rng(3).integers(0, groups, 20_000)
    frame = pd.DataFrame({"k": keys, "v": 1.0})
    plan = GroupPlan.of(frame.iloc[:0], "k", how=GroupByCall("sum")).row_plan
    assert plan is not None
    found = mostly_distinct_rows(plan, frame, 5)
    assert (found is not None) is mostly
    assert found is None or found[0].equals(plan.reduce(frame, 5))
    # Many rows of each key are seen in a few rows; and small parts are not looked at.
    assert mostly_distinct_rows(plan, frame.assign(k=keys % 50), 0) is None
    assert mostly_distinct_rows(plan, frame.iloc[:100], 0) is None


def test_a_sample_of_a_large_part_tells_that_keys_have_more_than_two_rows(monkeypatch):
    rng, rows = np.random.default_rng(4), 200_000
    frame = pd.DataFrame({"k": rng.integers(0, rows // 10, rows), "v": 1.0})
    plan = GroupPlan.of(frame.iloc[:0], "k", how=GroupByCall("sum")).row_plan
    assert plan is not None
    reduce, lengths = GroupPlan.reduce, list[int]()

    def watched(self: GroupPlan, part: Any, number: int) -> Any:
        lengths.append(len(part))
        return reduce(self, part, number)

    monkeypatch.setattr(GroupPlan, "reduce", watched)
    assert mostly_distinct_rows(plan, frame, 1) is None
    assert max(lengths) == partial_rows._SAMPLE
    # Keys of two rows are too many to have states, and a few of many rows change nothing.
    alone = np.arange(rows)
    for keys in (rng.integers(0, rows, rows), np.where(rng.random(rows) < 0.05, alone % 3, alone)):
        assert mostly_distinct_rows(plan, frame.assign(k=keys), 1) is not None


def test_where_rows_are_no_smaller_than_states():
    frame = pd.DataFrame({"k": [1], "v": [0.5], "s": ["a"]})
    for column, how, wanted in (
        ("v", "sum", True), ("v", "median", False), ("s", "count", False), ("s", "first", False),
    ):  # fmt: skip
        plan = GroupPlan.of(frame.iloc[:0], "k", how=GroupByCall(how), selection=column)
        assert (plan.row_plan is not None) is wanted
    by_label = GroupPlan.of(frame.iloc[:0], level=0, how=GroupByCall("sum"), selection="v")
    assert by_label.row_plan is None


@pytest.fixture
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(8)
    made = pd.DataFrame({"k": rng.integers(0, 500, 900), "v": rng.normal(size=900)})
    made.loc[rng.random(900) < 0.2, "v"] = np.nan
    made["s"] = [None if n % 9 == 0 else f"t{n}" for n in made["k"]]
    made["n"] = rng.integers(-9, 9, 900)
    # The second partition of three has few groups.
    made.loc[300:599, "k"] = made["k"] % 7
    return made


@pytest.fixture
def given(monkeypatch) -> list[bool]:
    """Let parts of few rows have a sample; return of each attempt whether it gives rows."""
    monkeypatch.setattr(partial_rows, "_FEW_ROWS", 0)
    monkeypatch.setattr(partial_rows, "_SAMPLE", 64)
    monkeypatch.setattr(partial_rows, "_OF_KEYS", 2)
    found: list[bool] = []

    def watched(*args: Any) -> Any:
        made = mostly_distinct_rows(*args)
        found.append(made is not None)
        return made

    monkeypatch.setattr(plan_module, "mostly_distinct_rows", watched)
    return found


def alike(found: Any, wanted: Any) -> None:
    with no_other_engine():
        found = found.compute()
    if wanted.ndim == 1:
        pd.testing.assert_series_equal(found.sort_index(), wanted.sort_index())
    else:
        pd.testing.assert_frame_equal(found.sort_index(), wanted.sort_index())


@pytest.mark.cluster
@pytest.mark.parametrize("mixed", [False, True])
def test_rows_and_states_have_one_answer(threads, rows, given, mixed):
    if not mixed:
        rows = pd.concat([rows[:300], rows[600:]], ignore_index=True)
    # idxmin wants a value in each group.
    there = rows["v"].notna().groupby(rows["k"]).transform("any")
    rows = rows[there]
    ours, theirs = dgpuhash.groupby(lazy(rows, 3 if mixed else 2), "k"), rows.groupby("k")
    asked = {f"{how} {label}": (label, how) for how in HOWS for label in ("v", "n")}
    alike(ours.agg(**asked), theirs.agg(**asked))
    assert True in given and (False in given) is mixed
    alike(ours.size(), theirs.size())
    alike(dgpuhash.groupby(lazy(rows, 4), ["s", "k"], dropna=False)["n"].sum(),
          rows.groupby(["s", "k"], dropna=False)["n"].sum())  # fmt: skip
    unsorted = dgpuhash.groupby(lazy(rows, 3), "k", sort=False, npartitions=1)["n"].first()
    pd.testing.assert_series_equal(
        unsorted.compute(), rows.groupby("k", sort=False)["n"].first()
    )  # fmt: skip


@pytest.mark.cluster
@pytest.mark.parametrize("few", [300, 200])
def test_few_rows_go_unreduced(threads, rows, given, monkeypatch, few):
    monkeypatch.setitem(steps._FEW_STATES, "cpu", 3 * few)
    # Of three partitions, with 300 or fewer of these rows.
    there = rows.drop(index=range(600, 750))
    parts = [there[:300], there[300:600], there[600:]]
    lazy = dd.from_map(lambda number: parts[number], range(3), meta=rows[:0])
    for sort in (True, False):
        ours = dgpuhash.groupby(lazy, "k", sort=sort, npartitions=1)
        theirs = there.groupby("k", sort=sort)
        asked = {f"{how} {label}": (label, how) for how in HOWS[:-1] for label in ("v", "n")}
        found = ours.agg(**asked).compute()
        pd.testing.assert_frame_equal(found, theirs.agg(**asked))
    # Samples are asked for where rows are not few.
    assert len(given) == (0 if few == 300 else 4)


@pytest.mark.cluster
def test_rows_beyond_memory_become_states(threads, rows, given, monkeypatch):
    for name, value in (("WRITTEN_AT_ONCE", 0), ("SHARE", 1 << 60)):
        monkeypatch.setattr(worker_memory, name, value)
    monkeypatch.setattr(spilling, "PIECES", 3)
    alike(dgpuhash.groupby(lazy(rows, 5), "k")["n"].sum(), rows.groupby("k")["n"].sum())
    assert True in given
