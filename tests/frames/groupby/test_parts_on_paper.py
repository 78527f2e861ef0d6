"""Groupbys of cuDF frames in parts on a simulated cuDF; GPU tests use the real one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from frames import paper_groups
from frames.paper_groups import DataFrame

import dgpuhash
from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.frames.dataframes import dispatch
from dgpuhash.frames.groupby.partial import GroupByCall, GroupPlan
from dgpuhash.frames.groupby.partial.fold import folding
from dgpuhash.frames.groupby.partial.rows import parts_of_rows

RNG = np.random.default_rng(57)
ROWS, PARTS = 240, 3


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    # The real one, if there is any, is kept by this function.
    dispatch.frames_named.cache_clear()
    paper_groups.install(monkeypatch)
    yield
    dispatch.frames_named.cache_clear()


def rows_of() -> Any:
    frame = pd.DataFrame(
        {
            "k": pd.array(RNG.integers(0, 8, ROWS), "Int64"),
            "t": pd.array(RNG.choice(["a", "b", "c"], ROWS), "str"),
            "i": pd.array(RNG.integers(-50, 50, ROWS), "Int64"),
            "w": pd.array(RNG.integers(-(2**62), 2**62, ROWS), "Int64"),
            "s": pd.array(RNG.integers(-5, 5, ROWS), "Int8"),
            "f": pd.array(RNG.normal(size=ROWS), "Float64"),
            "b": pd.array(RNG.random(ROWS) < 0.5, "boolean"),
            "d": pd.to_datetime(RNG.integers(0, 10**6, ROWS), unit="s").astype("M8[ns]"),
            "x": pd.array(RNG.choice(["", "u", "vv"], ROWS), "str"),
        }
    )
    for label in frame:
        frame.loc[RNG.random(ROWS) < 0.15, label] = None
    frame.loc[frame["k"] == 3, ["i", "s", "f", "b", "d", "x"]] = None
    return frame


FRAME = rows_of()
WHOLE = [
    (list("iwsf"), GroupByCall("agg", (["sum", "mean", "var", "sem", "prod"],))),
    (list("if"), GroupByCall("median")),
    (list("isfbdx"), GroupByCall("agg", (["count", "min", "max", "first", "last"],))),
    (list("ifx"), GroupByCall("nunique")),
]
OTHERS = [
    (None, GroupByCall("size")),
    (["b"], GroupByCall("any")),
    (["b"], GroupByCall("all")),
    (None, GroupByCall("agg", (), {"a": ("i", "max"), "c": ("k", "count"), "m": ("f", "median")})),
    (None, GroupByCall("agg", ({"i": ["min", "max"], "f": "mean", "w": ["sum", "mean"]},))),
    (["i", "x"], GroupByCall("first", (), {"skipna": False})),
    (["i", "x"], GroupByCall("last", (), {"skipna": False})),
    (["i", "f"], GroupByCall("sum", (), {"min_count": 20})),
    (["i", "f"], GroupByCall("quantile", (), {"q": [0.1, 0.9]})),
    ("i", GroupByCall("agg", ("list",))),
    ("i", GroupByCall("unique")),
    ("s", GroupByCall("value_counts")),
    (["i", "f"], GroupByCall("cov")),
    (None, GroupByCall("head", (2,))),
]


def parts_of(frame: Any) -> list[Any]:
    cuts = np.linspace(0, len(frame), PARTS + 1).astype(int)
    return [frame.iloc[cuts[number] : cuts[number + 1]] for number in range(PARTS)]


def told(made: Any) -> tuple[list[Any], list[Any], list[list[Any]]]:
    frame = pd.DataFrame(made if made.ndim == 2 else made.to_frame())
    columns = [
        [None if np.ndim(each) == 0 and pd.isna(each) else each for each in frame.iloc[:, place]]
        for place in range(frame.shape[1])
    ]
    return list(frame.columns), [str(each) for each in frame.index], columns


def assert_same(found: Any, expected: Any) -> None:
    assert type(found).__module__.startswith("cudf")
    ours, theirs = told(found), told(expected)
    assert ours[:2] == theirs[:2]
    assert list(found.index.names) == list(expected.index.names)
    for one, other in zip(ours[2], theirs[2], strict=True):
        for left, right in zip(one, other, strict=True):
            floats = isinstance(right, float)
            assert left == (pytest.approx(right, rel=1e-12, nan_ok=True) if floats else right)


@pytest.mark.parametrize(
    ("by", "sort", "dropna"), [("k", True, True), (["k", "t"], False, False)]
)  # fmt: skip
@pytest.mark.parametrize("asked", [WHOLE, OTHERS], ids=["aggregates", "verbs"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_parts_have_the_answers_of_the_whole(by, sort, dropna, asked):
    frame = DataFrame(FRAME)
    groups = dgpuhash.groupby(frame, by, sort=sort, dropna=dropna)
    for selection, verb in asked:
        plan = GroupPlan.of(
            frame.iloc[:0], by, how=verb, sort=sort, dropna=dropna, selection=selection
        )
        states = folding(plan)
        parts = parts_of(frame)
        for number in RNG.permutation(PARTS).tolist():
            states.fold(plan.reduce(parts[number], number))
        found = states.result()
        assert_same(found, verb.of(groups if selection is None else groups[selection]))
        meta = plan.meta
        assert list(meta.index.names) == list(found.index.names)
        if found.ndim == 1:
            assert meta.dtype == found.dtype
        else:
            assert meta.dtypes.to_dict() == found.dtypes.to_dict(), verb


def test_rows_in_place_of_states():
    frame = DataFrame(FRAME)[["k", "i", "f"]]
    how = GroupByCall("agg", (["sum", "mean", "first", "count"],))
    plan = GroupPlan.of(frame.iloc[:0], "k", how=how)
    rows_plan = plan.row_plan
    rows = folding(rows_plan)
    for number, part in reversed(list(enumerate(parts_of(frame)))):
        rows.fold(rows_plan.reduce(part, number))
    expected = how.of(dgpuhash.groupby(frame, "k"))
    assert_same(rows.result(), expected)
    states = folding(plan)
    for number, part in parts_of_rows(rows_plan, rows.frame()):
        states.fold(plan.reduce(part, number))
    assert_same(states.result(), expected)
    texts = DataFrame(FRAME)[["k", "x"]].iloc[:0]
    assert GroupPlan.of(texts, "k", how=GroupByCall("first")).row_plan is None


def test_labels_of_extremes():
    frame = DataFrame(FRAME.dropna(subset=["i"])).set_index("w")
    for how in ("idxmin", "idxmax"):
        plan = GroupPlan.of(frame.iloc[:0], "k", how=GroupByCall(how), selection="i")
        assert not plan.needs_rows
        states = folding(plan)
        for number, part in reversed(list(enumerate(parts_of(frame)))):
            states.fold(plan.reduce(part, number))
        assert_same(states.result(), GroupByCall(how).of(dgpuhash.groupby(frame, "k")["i"]))


def test_no_rows_and_refusals():
    frame = DataFrame(FRAME).iloc[:0]
    plan = GroupPlan.of(frame, "k", how=GroupByCall("mean"), selection=["i", "f"])
    states = folding(plan)
    states.fold(plan.reduce(frame, 0))
    assert states.result().dtypes.to_dict() == plan.meta.dtypes.to_dict()
    with pytest.raises(UnsupportedError, match="apply is not supported for groups of cuDF"):
        GroupPlan.of(frame, "k", how=GroupByCall("apply", (len,)))
    with pytest.raises(SpecError):
        GroupPlan.of(frame, [], how=GroupByCall("size")).reduce(DataFrame(FRAME), 0)
