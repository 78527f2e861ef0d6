"""Groupbys of frames in parts, beside those of the whole frame."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from frames.groupby.test_groupby import VALUES, frame_of, outcome, same
from hypothesis import given, settings
from hypothesis import strategies as st
from suites.raising import no_other_engine
from support.strategies import KEY_COLUMNS

import dgpuhash
from dgpuhash.frames.groupby.partial import GroupByCall, GroupPlan
from dgpuhash.frames.groupby.partial.fold import folding

KEYS = st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=1, max_size=14)
STATES = [
    "size", "count", "sum", "mean", "min", "max", "first", "last", "any", "all", "var", "std",
    "sem", "prod", "idxmin", "idxmax",
]  # fmt: skip
ROWS = ["nunique", "median", "head", "nth"]


def folded(plan, frame, cuts, rng):
    """Return the standing states of the parts of a frame, folded in any order."""
    parts = np.split(np.arange(len(frame)), sorted(cuts))
    plan = pickle.loads(pickle.dumps(plan))
    states = folding(plan)
    for number in rng.permutation(len(parts)):
        part = frame.iloc[parts[number]]
        part = part if rng.integers(2) or part.ndim == 1 else part[plan.columns]
        states.fold(plan.reduce(part, int(number)))
    return states


def check(frame, by, verb, cuts, seed=0, **options):
    """Assert that parts give what the frame gives, in the dtypes of the meta."""
    selection = options.pop("selection", None)
    with no_other_engine():
        groups = dgpuhash.groupby(frame, by, **options)
        expected = outcome(lambda: verb.of(groups if selection is None else groups[selection]))
        plan = GroupPlan.of(frame.iloc[:0], by, how=verb, selection=selection, **options)
        made = outcome(folded(plan, frame, cuts, np.random.default_rng(seed)).result)
    if isinstance(expected, Exception):
        assert (type(made), str(made)) == (type(expected), str(expected))
        return
    same(made, in_dtypes_of(expected, plan.meta))
    same(made.iloc[:0].reset_index(drop=True), plan.meta.reset_index(drop=True))
    for level, known in enumerate(dtypes_of(plan.meta.index)):
        # What objects are is known from all of them.
        assert known == dtypes_of(made.index)[level] or known == np.dtype(object)


def dtypes_of(index):
    return list(index.dtypes) if index.nlevels > 1 else [index.dtype]


def in_dtypes_of(expected, meta):
    """Return a result in the dtypes of a meta, which are as wide or wider."""
    dtypes = meta.dtypes if meta.ndim == 2 else meta.dtype
    for own, wide in zip(np.atleast_1d(expected.dtypes), np.atleast_1d(dtypes), strict=True):
        if own != wide and wide.kind != "O":
            assert isinstance(own, np.dtype) is isinstance(wide, np.dtype)
            assert np.can_cast(getattr(own, "numpy_dtype", own), getattr(wide, "numpy_dtype", wide))
    return expected.astype(dtypes)


@settings(deadline=None, max_examples=20)
@given(
    kind=st.sampled_from(sorted(KEY_COLUMNS)), keys=KEYS, how=st.sampled_from(STATES + ROWS),
    dropna=st.booleans(), sort=st.booleans(), both=st.booleans(), as_index=st.booleans(),
    cuts=st.lists(st.integers(0, 14), max_size=4), seed=st.integers(0, 9),
)  # fmt: skip
def test_parts_of_keys_of_each_kind(kind, keys, how, dropna, sort, both, as_index, cuts, seed):
    frame = frame_of(kind, keys)
    verb = GroupByCall(how, {"head": (2,), "nth": (1,)}.get(how, ()))
    check(
        frame, ["key", "other"] if both else "key", verb, [min(cut, len(keys)) for cut in cuts],
        seed, dropna=dropna, sort=sort, as_index=as_index,
    )  # fmt: skip


@settings(deadline=None, max_examples=12)
@given(
    kind=st.sampled_from(["categories", "texts", "floats"]), keys=KEYS,
    observed=st.booleans(), sort=st.booleans(), dropna=st.booleans(), how=st.sampled_from(STATES),
)  # fmt: skip
def test_parts_of_categories_that_no_row_has(kind, keys, observed, sort, dropna, how):
    frame = frame_of("categories", keys)
    frame["second"] = KEY_COLUMNS[kind](keys[::-1])
    frame["third"] = KEY_COLUMNS["categories"]([3, *keys[1:]])
    options = {"observed": observed, "sort": sort, "dropna": dropna}
    for by in (["key", "third"], ["second", "key"]):
        chosen = ["ints", "floats", "nullable", "flags"]
        check(frame, by, GroupByCall(how), [1, len(keys) // 2], selection=chosen, **options)


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_each_dtype_in_parts(kind):
    frame = pd.DataFrame({"k": [1, 1, 2, 1, 2, 2], "v": VALUES[kind]})
    groups, there = dgpuhash.groupby(frame, "k")["v"], []
    for how in [*STATES, "median", "list"]:
        expected = outcome(lambda how=how: groups.agg(how))
        if not isinstance(expected, Exception):
            there.append(how)
        elif "object" not in str(frame["v"].dtype):
            with pytest.raises(type(expected)):
                GroupPlan.of(frame.iloc[:0], "k", how=how, selection="v")
    states = [how for how in there if how in STATES]
    for hows in (states, there[len(states) :]):
        check(frame, "k", GroupByCall("agg", (hows,)), [2, 3], selection="v")


def parity(label):
    return label[1] % 2


def odd_frames():
    """Return frames with keys and verbs that are out of the ordinary, by what they are."""
    rng = np.random.default_rng(6)
    index = pd.MultiIndex.from_product([list("abc"), range(4)], names=["x", "y"])
    numbers = pd.DataFrame(rng.integers(0, 4, (12, 4)), index=index, columns=[3, 1, 0, 2])
    twice = numbers.set_axis(["k", "v", "v", "w"], axis=1)
    levels = numbers.set_axis(pd.MultiIndex.from_product([["a", "b"], [1, 2]]), axis=1)
    period = twice.assign(k=pd.period_range("2026", periods=3, freq="M").repeat(4))
    arrow = twice.assign(k=pd.array(twice["k"].astype(str), pd.ArrowDtype(pa.string())))
    return {
        "series by level": (numbers[3], None, GroupByCall("sum"), {"level": "x"}),
        "series by function": (numbers[3], parity, GroupByCall("median"), {}),
        "numbers as labels": (numbers, [1, 0], GroupByCall("max"), {"as_index": False}),
        "labels twice": (twice, "k", GroupByCall("sum"), {}),
        "levels of labels": (levels, [("a", 1)], GroupByCall("mean"), {}),
        "keys aggregated": (numbers, 3, GroupByCall("agg", options={"k": (3, "max")}), {}),
        "keys in a list": (
            numbers,
            3,
            GroupByCall("agg", ({3: ["sum"], 0: ["first", "last"]},)),
            {},
        ),
        "level and column": (numbers, ["x", 3], GroupByCall("size"), {"as_index": False}),
        "periods": (period, "k", GroupByCall("sum"), {"sort": False}),
        "texts of Arrow": (arrow, "k", GroupByCall("count"), {}),
        "levels of rows": (numbers, 3, GroupByCall("idxmax"), {}),
        "labels of rows": (numbers.reset_index(drop=True), 3, GroupByCall("idxmax"), {}),
        "texts of rows": (
            numbers.set_axis(list("lkjihgfedcba")),
            3,
            GroupByCall("idxmin"),
            {"selection": 0},
        ),
        "no rows": (numbers[:0], 3, GroupByCall("mean"), {}),
        "no rows of some": (numbers[:0], 3, GroupByCall("median"), {"selection": [0]}),
    }


@pytest.mark.parametrize("name", odd_frames())
def test_odd_frames_in_parts(name):
    frame, by, verb, options = odd_frames()[name]
    check(frame, by, verb, [3, 4, 9] if len(frame) else [], **options)


def test_plans_are_pickled_without_cached_properties():
    # Threads that share a plan add these while others pickle it.
    frame = pd.DataFrame({"key": [1, 2, 1], "v": [1.0, 2.0, 3.0]})
    plan = GroupPlan.of(frame.iloc[:0], "key", how=GroupByCall("mean"))
    before = pickle.dumps(plan)
    assert not len(plan.states_meta)
    assert pickle.dumps(plan) == before
