"""Merges of simulated cuDF frames beside those of pandas; GPU tests use the real cuDF."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from frames import paper_groups

import dgpuhash
from dgpuhash import FrameIndex

HOWS = ["inner", "left", "right", "outer", "semi", "anti", "left_anti", "right_anti"]
KEYS: list[dict[str, Any]] = [
    {"on": "k"},
    {"on": ["k", "j"]},
    {"on": "t"},
    {"left_on": "k", "right_on": "j"},
    {"left_index": True, "right_index": True},
    {"left_on": "k", "right_index": True},
    {"left_index": True, "right_on": "k"},
    {"on": "k", "indicator": True},
    {"on": "k", "suffixes": ("_l", None)},
    {"on": "k", "sort": True},
]


@pytest.fixture(autouse=True)
def paper(monkeypatch):
    paper_groups.install(monkeypatch)


def sides():
    made = []
    for seed, n in ((1, 12), (2, 7)):
        rng = np.random.default_rng(seed)
        made.append(pd.DataFrame({
            "k": rng.integers(0, 8, n),
            "j": rng.integers(0, 3, n),
            "v": rng.random(n),
            "t": [f"s{number}" for number in rng.integers(0, 9, n)],
        }))  # fmt: skip
    return made[0], made[1].rename(columns={"v": "w"})


def assert_same(found, expected):
    assert type(found).__module__ == "cudf.paper"
    found = pd.DataFrame(found)
    assert list(found.columns) == list(expected.columns)
    assert list(found.index.names) == list(expected.index.names)
    tables = [
        each.reset_index().astype(object).where(each.reset_index().notna(), None).to_numpy()
        for each in (found, expected)
    ]
    assert tables[0].tolist() == tables[1].tolist()


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("keys", KEYS, ids=str)
def test_merges_are_those_of_pandas(how, keys):
    left, right = sides()
    expected = dgpuhash.merge(left, right, how, **keys)
    paper = map(paper_groups.DataFrame, (left, right))
    assert_same(dgpuhash.merge(*paper, how, **keys), expected)


@pytest.mark.parametrize("how", HOWS[:4])
def test_keys_are_cast_by_position_not_by_label(how):
    left, right = sides()
    left, right = left.astype({"k": "int32"}), right.set_axis([5, 5, 4, 0, 1, 2, 9])
    left.index = np.arange(len(left)) % 3
    expected = dgpuhash.merge(left, right, how, on="k")
    paper = map(paper_groups.DataFrame, (left, right))
    assert_same(dgpuhash.merge(*paper, how, on="k"), expected)


@pytest.mark.parametrize("how", HOWS[:4])
def test_several_arrays_are_columns_of_the_result(how):
    def merged(left, right):
        keys = [[side["k"].rename(None), side["j"].rename(None)] for side in (left, right)]
        sides = left[["v"]], right[["w"]]
        return dgpuhash.merge(*sides, how, left_on=keys[0], right_on=keys[1])

    expected = merged(*sides())
    assert list(expected.columns) == ["key_0", "key_1", "v", "w"]
    assert_same(merged(*map(paper_groups.DataFrame, sides())), expected)


def test_a_cross_merge_is_that_of_pandas():
    left, right = sides()
    paper = map(paper_groups.DataFrame, (left, right))
    assert_same(dgpuhash.merge(*paper, "cross"), dgpuhash.merge(left, right, "cross"))


@pytest.mark.parametrize("how", HOWS[:6])
@pytest.mark.parametrize("on", ["k", ["k", "j"], "t"])
def test_merges_with_an_index_are_those_of_pandas(how, on):
    left, right = sides()
    expected = FrameIndex.build(right, on).merge(left, on, how=how)
    paper = [paper_groups.DataFrame(side) for side in (left, right)]
    assert_same(FrameIndex.build(paper[1], on).merge(paper[0], on, how=how), expected)


# Functions of the package that each verb enters for simulated cuDF frames of 1,000 rows.
MOST_FUNCTIONS = {"merge": 143, "semi": 104, "standing": 91, "standing semi": 58}


@pytest.mark.parametrize("verb", MOST_FUNCTIONS)
def test_verbs_enter_few_functions(verb):
    rows = np.arange(1000)
    left = paper_groups.DataFrame({"k": rows, "v": rows.astype(float)})
    right = paper_groups.DataFrame({"k": rows[::-1], "w": rows})
    index = FrameIndex.build(right, "k")
    verbs: dict[str, Callable[[], object]] = {
        "merge": lambda: dgpuhash.merge(left, right, on="k"),
        "semi": lambda: dgpuhash.merge(left, right, "semi", on="k"),
        "standing": lambda: index.merge(left, "k"),
        "standing semi": lambda: index.merge(left, "k", how="semi"),
    }
    calls = min(calls_of(verbs[verb]) for _ in range(4))
    assert calls <= MOST_FUNCTIONS[verb]


def calls_of(verb):
    package, calls, before = dgpuhash.__path__[0], [0], sys.getprofile()

    def note(frame, event, _):
        calls[0] += event == "call" and frame.f_code.co_filename.startswith(package)

    sys.setprofile(note)
    try:
        verb()
    finally:
        sys.setprofile(before)
    return calls[0]
