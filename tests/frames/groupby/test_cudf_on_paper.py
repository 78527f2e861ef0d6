"""Groupbys of simulated cuDF frames beside those of pandas, and what they make; GPU tests use cuDF.

Each Series, index and gather of cuDF makes some twenty to sixty calls of Python.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from frames import paper_groups

import dgpuhash
from dgpuhash.frames.dataframes import dispatch

# Of ours, of a sum of one column by one.
MOST_FUNCTIONS = 240
MADE = {"gather": 1, "sorted_order": 1, "index_of_columns": 1, "array_column": 2}
MOST_SERIES = 2
FRAME = pd.DataFrame(
    {
        "k": [3, 1, 3, 2, 1, 3],
        "j": [0, 0, 1, 1, 0, 0],
        "t": list("baabca"),
        "c": pd.Categorical(list("vuuvvu")),
        "v": [5, 1, 4, 2, 8, 7],
        "f": [0.5, 1.5, 2.5, -1.0, 0.0, 3.0],
    }
)


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    dispatch.frames_named.cache_clear()
    paper_groups.install(monkeypatch)
    yield
    dispatch.frames_named.cache_clear()


def values_of(made: Any) -> list[Any]:
    flat = pd.DataFrame(made.to_frame() if made.ndim == 1 else made).reset_index()
    return [list(map(str, flat.columns)), *(list(map(str, each)) for each in flat.to_numpy())]


@pytest.mark.parametrize("by", ["k", "t", "c", ["k", "j"], ["t", "c"]], ids=str)
@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("as_index", [True, False])
def test_groupbys_are_those_of_pandas(by, sort, as_index):
    ours, theirs = (
        dgpuhash.groupby(frame, by, sort=sort, as_index=as_index)
        for frame in (paper_groups.DataFrame(FRAME), FRAME)
    )
    for how in ("sum", "mean", "min", "max", "first", "last", "count", "nunique", "median", "size"):
        assert values_of(ours["v"].agg(how)) == values_of(theirs["v"].agg(how)), how
        if how != "size":
            found, expected = (each[["v", "f"]].agg(how) for each in (ours, theirs))
            assert values_of(found) == values_of(expected), how
    for how in ("sum", "size"):
        found, expected = (each["v"].transform(how) for each in (ours, theirs))
        assert values_of(found) == values_of(expected)


@pytest.mark.parametrize("by", ["k", ["k", "j"]], ids=str)
def test_aggregates_of_nulls_and_options_are_those_of_pandas(by):
    frame = pd.concat([FRAME] * 3, ignore_index=True)
    for label, dtype in {"v": "Int16", "f": "Float64", "b": "boolean"}.items():
        column = frame["v"] > 3 if label == "b" else frame[label]
        frame[label] = column.astype(dtype).where(np.arange(len(frame)) % 4 > 0)
    frame["n"] = frame["v"].fillna(0).astype("int64")
    ours, theirs = (dgpuhash.groupby(each, by) for each in (paper_groups.DataFrame(frame), frame))
    for label, how, options in (
        *((label, how, {}) for label in "vfn" for how in ("sum", "mean", "var", "std", "prod")),
        *((label, "sem", {"ddof": 0}) for label in "vfn"),
        *(("f", how, {"min_count": 4}) for how in ("sum", "prod", "min", "max", "first")),
        *(("b", how, {}) for how in ("any", "all")),
        *(("n", how, {}) for how in ("idxmin", "idxmax", "nunique", "size")),
        *(
            ("v", "quantile", {"q": 0.3, "interpolation": how})
            for how in ("linear", "lower", "higher", "nearest", "midpoint")
        ),
    ):
        found, expected = (getattr(each[label], how)(**options) for each in (ours, theirs))
        found, expected = (
            pd.Series(each).astype("float64").to_numpy() for each in (found, expected)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=f"{how} of {label}")


def test_repeated_results_do_not_share_labels():
    groups = dgpuhash.groupby(paper_groups.DataFrame(FRAME), "k")["v"]
    first, second = groups.sum(), groups.sum()
    assert first.index is not second.index
    assert not np.shares_memory(first.index.to_numpy(), second.index.to_numpy())


def test_a_sum_makes_few_objects():
    frame = paper_groups.DataFrame(FRAME)

    def work() -> Any:
        return dgpuhash.groupby(frame, "k")["v"].sum()

    work()
    functions, made = 0, Counter[str]()

    def note(frame: Any, event: str, _: Any) -> None:
        nonlocal functions
        if event == "call":
            code = frame.f_code
            functions += code.co_filename.startswith(dgpuhash.__path__[0])
            made[code.co_name] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    assert functions <= MOST_FUNCTIONS
    assert {name: made[name] for name in MADE} == MADE
    # That of the key, which is numbered as it is, and the result.
    assert made["series_of_column"] <= MOST_SERIES
