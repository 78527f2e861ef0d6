"""States that are folded many at a time: what pandas gives, and what folding one by one does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dgpuhash.frames.groupby.partial import GroupByCall, GroupPlan, fold
from dgpuhash.frames.groupby.partial.fold import GroupBatches, GroupRows, distinct_parts, folding

ROWS, PARTS = 600, 12


def frame() -> pd.DataFrame:
    random = np.random.default_rng(7)
    floats = random.normal(size=ROWS)
    floats[random.integers(0, ROWS, 40)] = np.nan
    return pd.DataFrame(
        {
            "k": random.integers(0, 50, ROWS),
            "text": pd.array(random.choice(["a", "bb", "ccc"], ROWS), dtype="str"),
            "v": floats,
            "w": random.integers(-(2**62), 2**62, ROWS),
            "u": random.integers(0, 2**63, ROWS, dtype=np.uint64),
            "s": random.choice(["x", "yy", None], ROWS),
        }
    ).astype({"s": "str"})


def folded_in_parts(plan: GroupPlan, rows: pd.DataFrame, states: Any) -> Any:
    edges = np.linspace(0, len(rows), PARTS + 1).astype(int)
    for number in range(PARTS):
        states.fold(plan.reduce(rows.iloc[edges[number] : edges[number + 1]], number))
    return states


@pytest.fixture(autouse=True, params=[16, 2**18])
def waiting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "_WAITING", request.param)


@pytest.mark.parametrize(("by", "sort"), [("k", False), (["text", "k"], True), ("v", False)])
@pytest.mark.parametrize(
    "asked",
    [
        {"v": ["sum", "mean"], "w": ["sum", "mean"], "u": ["sum", "count"]},
        {"v": ["std", "min", "first"], "w": ["max", "var"], "s": ["first", "last", "min", "count"]},
    ],
)
def test_answers_are_those_of_pandas(by: Any, asked: Any, sort: bool) -> None:
    rows = frame()
    asked = {column: hows for column, hows in asked.items() if column != by}
    plan = GroupPlan.of(rows, by, sort=sort, how=GroupByCall("agg", (asked,), {}))
    states = folded_in_parts(plan, rows, folding(plan))
    made = states.result()
    wanted = rows.groupby(by, sort=sort).agg(asked)
    assert made.index.equals(wanted.index)
    pd.testing.assert_frame_equal(made, wanted, check_dtype=False, rtol=1e-12)
    exact = [label for label in wanted if label[0] != "v" and label[1] not in ("mean", "var")]
    pd.testing.assert_frame_equal(made[exact], wanted[exact], check_dtype=False, check_exact=True)
    assert len(states) == len(states.frame()) == len(wanted)
    assert states.nbytes > 0


def test_sums_of_infinite_values_and_of_many_magnitudes() -> None:
    rows = pd.DataFrame(
        {
            "k": [0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4],
            "v": [np.inf, 1, np.inf, -np.inf, -np.inf, -np.inf, 1e100, 1, -1e100, 1, 1e16, 1],
        }
    )
    plan = GroupPlan.of(rows, "k", how="sum")
    made = folded_in_parts(plan, rows, folding(plan)).result()["v"]
    assert made.tolist()[3:] == [2.0, 1e16]
    np.testing.assert_array_equal(made.to_numpy()[:3], [np.inf, np.nan, -np.inf])
    # A part in which infinities meet, and others.
    states = folding(plan)
    for number in range(3):
        states.fold(plan.reduce(rows.iloc[2:4] if number == 1 else rows.iloc[4:], number))
    np.testing.assert_array_equal(states.result()["v"].to_numpy()[:1], [np.nan])


def test_keys_that_are_equal_in_one_part_and_no_states_at_all() -> None:
    rows = frame()
    plan = GroupPlan.of(rows, "k", how=GroupByCall("agg", ({"v": ["var", "sum"]},), {}))
    halves = [plan.reduce(rows.iloc[some], 0) for some in (slice(0, 300), slice(300, None))]
    states = folding(plan)
    states.fold(pd.concat(halves, ignore_index=True))
    wanted = rows.groupby("k").agg({"v": ["var", "sum"]})
    pd.testing.assert_frame_equal(states.result(), wanted, rtol=1e-12)
    none = folding(plan)
    none.fold(plan.states_meta)
    assert len(none) == none.nbytes == len(none.result()) == 0


def test_rows_are_kept_where_aggregates_need_them() -> None:
    plan = GroupPlan.of(frame(), "k", how=GroupByCall("agg", ({"v": "median"},), {}))
    assert isinstance(folding(plan), GroupRows)
    assert isinstance(folding(GroupPlan.of(frame(), "k", how="size")), GroupBatches)


def test_parts_have_each_code_once() -> None:
    codes = np.random.default_rng(1).integers(0, 9, 40)
    parts = distinct_parts(codes, np.arange(40))
    assert sorted(np.concatenate(parts).tolist()) == list(range(40))
    assert all(len(set(codes[part])) == len(part) for part in parts)
    assert len(parts) == np.bincount(codes).max()
