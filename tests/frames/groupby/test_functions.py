"""Functions of groups, beside pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import DgpuhashError, UnsupportedError

ROWS = 40


def frame_of(rows=ROWS):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "k": rng.choice(["a", "b", "c", None], rows),
            "j": rng.integers(0, 3, rows),
            "v": rng.integers(0, 9, rows),
            "f": rng.normal(size=rows),
            "s": rng.choice(["x", "yy"], rows),
            "i": pd.array(rng.integers(0, 9, rows), dtype="Int64"),
            "t": pd.date_range("2026", periods=rows),
        },
        index=pd.Index(rng.permutation(rows), name="row"),
    )
    frame.iloc[3, 3] = np.nan
    return frame


FRAMES = {"rows": frame_of(), "none": frame_of().iloc[:0], "tuples": frame_of().set_index(
    ["j", "s"], append=True, drop=False).rename_axis(["one", "two", "three"])}  # fmt: skip


def spread(values):
    return values.max() - values.min()


def more(values, *, by):
    return values.iloc[0] + by


def labels(part):
    return f"{part.name} of {len(part)}"


def check(made, expected):
    assert type(made) is type(expected)
    same = pd.testing.assert_frame_equal if made.ndim == 2 else pd.testing.assert_series_equal
    same(made, expected)


def check_both(frame, by, call, **options):
    with no_other_engine():
        made = call(dgpuhash.groupby(frame, by, **options))
    check(made, call(frame.groupby(by, **options)))


COLUMN = {
    "scalar": lambda values: values.iloc[-1],
    "spread": spread,
    "size": len,
    "object": lambda values: [len(values)],
    "nothing": lambda values: None,
    "truth": lambda values: bool(len(values) > 3),
    "text": lambda values: f"{len(values)}",
}
WHOLE = {
    "scalar": lambda part: part["v"].sum() - 1.5,
    "key": labels,
    "row": lambda part: pd.Series({"p": part["v"].sum(), "q": part["f"].mean()}),
    "mixed": lambda part: pd.Series({"p": part["v"].sum(), "q": "z"}, name="n"),
    "unequal": lambda part: part["v"].sort_values().head(2),
    "head": lambda part: part.head(2),
    "some": lambda part: None if len(part) < 5 else part.head(1),
    "nothing": lambda part: None,
    "new": lambda part: pd.DataFrame({"m": [len(part)], "n": [part["v"].max()]}),
    "like": lambda part: part[["v", "f"]] - part[["v", "f"]].mean(),
    "array": lambda part: part["v"].to_numpy()[:2],
}


@pytest.mark.parametrize("which", FRAMES)
@pytest.mark.parametrize("by", [["k"], ["k", "v"]], ids=str)
def test_functions_of_columns_as_in_pandas(which, by):
    frame = FRAMES[which]
    options = {"dropna": False, "sort": False} if len(by) == 2 else {}
    for name, func in COLUMN.items():
        for label in ("f", "i", "t", "s"):
            if name != "spread" or label != "s":
                check_both(frame, by, lambda groups, f=func, to=label: groups[to].agg(f), **options)
        check_both(frame, by, lambda groups, f=func: groups["f"].apply(f), **options)
        if name != "object" and len(frame):
            check_both(frame, by, lambda groups, f=func: groups["f"].transform(f), **options)


@pytest.mark.parametrize("which", ["rows", "tuples"])
@pytest.mark.parametrize("as_index", [True, False])
def test_functions_among_names_as_in_pandas(which, as_index):
    calls = [
        lambda groups: groups[["v", "f"]].agg(spread),
        lambda groups: groups[["v", "f"]].agg([spread, "sum", lambda v: 1, lambda v: v.iloc[0]]),
        lambda groups: groups.agg({"v": spread, "f": [np.mean, "sum"]}),
        lambda groups: groups.agg({"v": spread, "s": "first"}),
        lambda groups: groups.agg(a=("v", spread), b=("f", "sum"), c=("i", lambda v: v.sum())),
        lambda groups: groups["f"].agg([spread, "min"]),
        lambda groups: groups["v"].agg(more, by=3),
        lambda groups: groups[["v", "f"]].transform(lambda values: values - values.mean()),
        lambda groups: groups[["v", "f"]].transform(len),
        lambda groups: groups["v"].transform(lambda values: values.cumsum()),
    ]  # fmt: skip
    for call in calls:
        check_both(FRAMES[which], "k", call, as_index=as_index)


@pytest.mark.parametrize("name", WHOLE)
def test_apply_as_in_pandas(name):
    func = WHOLE[name]
    for which, frame in FRAMES.items():
        check_both(frame, ["k"], lambda groups: groups.apply(func))
        check_both(frame, ["k", "i"], lambda groups: groups.apply(func), dropna=False, sort=False)
        if which != "none" and name not in {"scalar", "key"}:
            check_both(frame, ["k"], lambda groups: groups.apply(func), as_index=False)
        if name in {"key", "head", "like"}:
            check_both(frame, ["k"], lambda groups: groups[["v", "f"]].apply(func))
            check_both(frame, ["k"], lambda groups: groups["v"].apply(COLUMN["text"]))


def test_apply_of_dictionaries_and_names():
    def told(values):
        return {"n": len(values), "top": values.max()}

    check_both(FRAMES["rows"], ["k", "j"], lambda groups: groups["v"].apply(told))
    check_both(FRAMES["rows"], "k", lambda groups: groups["v"].apply("sum"))
    with pytest.raises(DgpuhashError, match="cannot apply 3"):
        dgpuhash.groupby(FRAMES["rows"], "k").apply(3)
    with pytest.raises(AttributeError, match="no 'rank'"):
        dgpuhash.groupby(FRAMES["rows"], "k").apply("rank")


def test_groups_that_no_row_has():
    frame = FRAMES["rows"].assign(c=pd.Categorical(["x", "z"] * 20, categories=["x", "y", "z"]))
    for call in (
        lambda groups: groups["v"].agg(len),
        lambda groups: groups["v"].transform(len),
        lambda groups: groups.apply(len),
    ):
        check_both(frame, "c", call, observed=False)


@pytest.mark.parametrize("options", [{}, {"sort": False}, {"dropna": False}], ids=str)
def test_groupers_without_a_frequency(options):
    frame = FRAMES["tuples"]
    keys = [
        pd.Grouper(key="k"), pd.Grouper(key="k", sort=True, dropna=False), pd.Grouper(level="two"),
        [pd.Grouper(key="k"), pd.Grouper(level=2)],
    ]  # fmt: skip
    for by in keys:
        check_both(frame, by, lambda groups: groups[["v", "f"]].sum(), **options)
    with pytest.raises(UnsupportedError, match=r"freq=.*dt\.normalize"):
        dgpuhash.groupby(frame, pd.Grouper(key="t", freq="D"))
