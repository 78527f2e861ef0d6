"""States of groups that stand, beside pandas' groupby of all rows so far."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suites.raising import no_other_engine

from dgpuhash.errors import ColumnError, SpecError, UnsupportedError
from dgpuhash.frames import KeyEncoder
from dgpuhash.frames.grouped.aggregation import Aggregation, LabelledResults
from dgpuhash.frames.grouped.index import GroupIndex

RETRACTABLE: dict[str, Any] = {
    "rows": ("v", "size"), "n": ("v", "count"), "total": ("v", "sum"), "mean": ("v", "mean"),
    "var": ("v", "var"), "off": ("w", "sem"), "whole": ("w", "sum"),
    "off by n": pd.NamedAgg("v", "std", ddof=0),
}  # fmt: skip
OTHERS: dict[str, Any] = {
    "least": ("v", "min"), "most": ("t", "max"), "first": ("t", "first"), "last": ("t", "last"),
    "any": ("w", "any"), "all": ("w", "all"), "times": ("w", "prod"),
}  # fmt: skip


def rows(number: int, count: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    values = np.where(rng.random(count) < 0.2, np.nan, rng.normal(5, 2, count))
    texts = pd.Series(rng.choice(["x", "yy", None], count), dtype="str")
    return pd.DataFrame({
        "k": rng.integers(0, 6, count), "s": pd.Series(rng.choice(["a", "b", None], count)),
        "v": values, "w": rng.integers(0, 3, count), "t": texts,
    })  # fmt: skip


def grouped(by: list[str], named: dict[str, Any], *, dropna: bool = True) -> Aggregation:
    return Aggregation.of(rows(0)[:0], by, named, dropna=dropna, sort=True)


def index_of(groups: Aggregation, hash_bits: int = 64) -> GroupIndex:
    encoder = KeyEncoder.for_frame(groups.source, list(groups.by), hash_bits=hash_bits)
    return GroupIndex(groups, encoder, epoch=1)


def results(index: GroupIndex, groups: Aggregation) -> pd.DataFrame:
    return LabelledResults(groups).restore(index.store.take(index.unmarked(None)))


def check(found: pd.DataFrame, given: list[pd.DataFrame], groups: Aggregation, named: Any) -> None:
    apart = pd.concat(given).groupby(list(groups.by), dropna=groups.dropna)
    wanted = apart.agg(**{label: each for label, each in named.items() if label != "off by n"})
    if "off by n" in named:
        # pandas gives no options to aggregates that are named.
        wanted["off by n"] = apart["v"].std(ddof=0)
    pd.testing.assert_frame_equal(found, wanted, rtol=1e-9, atol=1e-9)


@given(
    by=st.sampled_from([["k"], ["s"], ["k", "s"]]), dropna=st.booleans(),
    steps=st.lists(st.integers(0, 3), max_size=4), hash_bits=st.sampled_from([3, 64]),
)  # fmt: skip
@settings(max_examples=8)
def test_any_changes_are_those_of_pandas(by, dropna, steps, hash_bits):
    groups = grouped(by, RETRACTABLE, dropna=dropna)
    index, given = index_of(groups, hash_bits), [rows(99)]
    with no_other_engine():
        index.insert(groups.reduce(given[0], 0))
    for epoch, step in enumerate(steps, start=2):
        with no_other_engine():
            if step == 0 and len(given) > 1:
                gone = groups.reduce(given.pop(1), 0)
                index.stage("retract", gone, 0)
                index.fold(gone, epoch, taken_off=True)
                continue
            parts = [rows(10 * epoch + part, 25) for part in range(step)]
            given += parts
            states = [groups.reduce(part, number) for number, part in enumerate(parts)]
            index.fold(pd.concat([groups.states, *states], ignore_index=True), epoch)
    check(results(index, groups), given, groups, RETRACTABLE)


@pytest.mark.parametrize("by", [["k"], ["k", "s"]])
def test_first_and_last_values_follow_the_order_of_changes_and_parts(by):
    groups = grouped(by, OTHERS)
    index, given = index_of(groups), []
    for epoch in range(3):
        parts = [rows(10 * epoch + part, 15) for part in range(3)]
        given += parts
        states = [groups.reduce(part, number) for number, part in enumerate(parts)]
        with no_other_engine():
            index.fold(pd.concat(states, ignore_index=True), epoch)
    check(results(index, groups), given, groups, OTHERS)


def test_what_was_saved_of_groups_is_combined_as_rows_that_came_later():
    groups = grouped(["k"], OTHERS)
    first, second = index_of(groups), index_of(groups)
    first.insert(groups.reduce(rows(1), 0))
    second.insert(groups.reduce(rows(2), 0))
    first.insert(second.frame())
    check(results(first, groups), [rows(1), rows(2)], groups, OTHERS)


def test_groups_without_rows_are_dropped_and_come_back():
    groups = grouped(["k"], {"total": ("v", "sum")})
    index = index_of(groups)
    one = pd.DataFrame({"k": [7, 7, 8], "v": [1.5, np.inf, 2.0]})
    index.insert(groups.reduce(one, 0))
    index.fold(groups.reduce(one[:2], 0), 2, taken_off=True)
    assert (len(index), index.contains(np.array([7, 8])).tolist()) == (1, [False, True])
    index.fold(groups.reduce(one[:1], 0), 3)
    assert results(index, groups)["total"].to_dict() == {7: 1.5, 8: 2.0}


def test_sums_have_no_trace_of_what_was_taken_off():
    groups = grouped(["k"], {"total": ("v", "sum")})
    index = index_of(groups)
    one = pd.DataFrame({"k": 7, "v": [1e20, 1.0, -3e18, 0.1]})
    index.insert(groups.reduce(one, 0))
    index.fold(groups.reduce(one.iloc[[0, 2]], 0), 2, taken_off=True)
    assert results(index, groups)["total"].tolist() == [1.1]


def test_rows_that_were_not_added_are_not_taken_off():
    groups = grouped(["k"], {"total": ("v", "sum")})
    index = index_of(groups)
    index.insert(groups.reduce(pd.DataFrame({"k": [7, 7], "v": [1.5, np.nan]}), 0))
    for wrong in (
        {"k": [8], "v": [1.0]},
        {"k": [7, 7, 7], "v": [1.5] * 3},
        {"k": [7] * 2, "v": [1.0] * 2},
    ):
        with pytest.raises(ColumnError, match="than were added; nothing was changed"):
            index.stage("retract", groups.reduce(pd.DataFrame(wrong), 0), 2)


def test_infinite_values_are_taken_off_whole_groups_alone():
    groups = grouped(["k"], {"total": ("v", "sum")})
    index = index_of(groups)
    one = pd.DataFrame({"k": [7, 7, 8], "v": [1.5, -np.inf, 2.0]})
    index.insert(groups.reduce(one, 0))
    with pytest.raises(UnsupportedError, match="infinite values are retracted"):
        index.stage("retract", groups.reduce(one[1:2], 0), 2)
    index.stage("retract", groups.reduce(one[:1], 0), 2)
    index.stage("retract", groups.reduce(one[:2], 0), 2)


def test_which_groups_changed_since_an_epoch():
    groups = grouped(["k"], {"total": ("v", "sum")})
    index = index_of(groups)
    index.insert(groups.reduce(pd.DataFrame({"k": [1, 2, 3], "v": [1.0, 2.0, 3.0]}), 0))
    index.fold(groups.reduce(pd.DataFrame({"k": [2, 4], "v": [1.0, 2.0]}), 0), 5)
    for since, wanted in ((0, [1, 2, 3, 4]), (1, [2, 4]), (4, [2, 4]), (5, [])):
        there = index.changed_since(index.unmarked(None), since)
        assert index.store.take(there, ["k"])["k"].tolist() == wanted
    # Groups that move, as in a rebalance, keep theirs; no epoch is in the future.
    moved = GroupIndex(groups, index.encoder, epoch=3)
    moved.insert(index.frame())
    assert len(moved.changed_since(moved.unmarked(None), 2)) == 2


def test_dtypes_that_do_not_fit_are_refused():
    groups = grouped(["k"], {"total": ("v", "sum"), "most": ("w", "max")})
    fits = rows(1).astype({"k": "int16", "v": "float32"})
    groups.check(fits)
    texts = grouped(["s"], {"n": ("v", "count")})
    texts.check(rows(1).astype({"s": object}))
    with pytest.raises(ColumnError, match="column 's' is object"):
        texts.check(rows(1).assign(s=pd.Series([1, "a"] * 20, dtype=object)))
    for wrong in (
        fits.astype({"w": "float64"}),
        fits.astype({"k": "str"}),
        fits.astype({"w": bool}),
    ):
        with pytest.raises(
            ColumnError, match=r"groups were built with .*; convert it with \.astype"
        ):
            groups.check(wrong)
    with pytest.raises(ColumnError, match="no column"):
        groups.check(rows(1)[["k", "v"]])


def test_aggregates_that_states_do_not_have_are_refused_by_name():
    for how in ("median", "nunique", "list", "idxmin"):
        with pytest.raises(UnsupportedError, match=f"'{how}' of these columns cannot be updated"):
            grouped(["k"], {"x": ("v", how), "n": ("v", "count")})
    with pytest.raises(SpecError, match="no aggregate is named"):
        grouped(["k"], {})
    with pytest.raises(SpecError, match=r"cannot be called \['k'\] as keys"):
        grouped(["k"], {"k": ("v", "sum")})
    with pytest.raises(SpecError, match="no aggregate 'mode'"):
        grouped(["k"], {"x": ("v", "mode")})
    with pytest.raises(
        UnsupportedError, match=r"retracted from 'least' \(min\), 'first' \(first\), because"
    ):
        named = {"n": ("v", "count"), "least": ("v", "min"), "first": ("t", "first")}
        grouped(["k"], named).check_retractable()
    grouped(["k", "s"], RETRACTABLE).check_retractable()


def test_a_description_says_all():
    groups = grouped(["k", "s"], RETRACTABLE, dropna=False)
    again = Aggregation.from_json(groups.source, groups.to_json())
    assert replace(again, source=None) == replace(groups, source=None)
    pd.testing.assert_frame_equal(again.results, groups.results)


def test_states_of_earlier_programs_are_completed():
    frame = rows(3).assign(f=pd.array(range(40), "Float64"))
    for named in (RETRACTABLE, {"least": ("f", "min")}):
        groups = Aggregation.of(frame.iloc[:0], ["k", "s"], named, dropna=True, sort=True)
        states = groups.reduce(frame, 0)
        new = (" lost", " stray", " magnitude", " nonzero")
        earlier = states.drop(columns=[c for c in states if c.endswith(new)])
        assert list(earlier) != list(states)
        completed = groups.complete(earlier)
        # What they did not save of the sizes of floats is guessed from the sums.
        guessed = [c for c in states if c.endswith(("magnitude", "nonzero"))]
        for label in guessed:
            other = {"magnitude": "real", "nonzero": "count"}[label.split()[-1]]
            other = label.rpartition(" ")[0] + " " + other
            assert completed[label].tolist() == states[other].abs().tolist()
        pd.testing.assert_frame_equal(completed.drop(columns=guessed), states.drop(columns=guessed))


SUMS = {
    # What stays, what comes and goes again, whether its sum is known.
    "far above": ([1.1, 2.2], [[1e40], [1e25]], False),
    "in one part": ([1.1, 2.2], [[1e40, 1e25]], False),
    "opposite": ([1.1], [[-1e40, 1e40]], False),
    "above": ([1.1, 2.2], [[1e20], [-1e20]], True),
    "zeros stay": ([0.0, 0.0], [[0.1, 0.2, 0.3], [1e40]], True),
    "nothing stays but a null": ([None], [[0.1], [1e40]], True),
    "about zero": ([0.5, -0.5], [[5.0, 0.1], [1e5]], True),
    "many": ([1.25] * 1000, [[1e6] * 1000, [0.1] * 9], True),
}


@pytest.mark.parametrize("dtype", ["float64", "Float64", "double[pyarrow]"])
@pytest.mark.parametrize(("stay", "gone", "known"), SUMS.values(), ids=SUMS)
def test_sums_of_floats_bound_what_retracted_rows_took(stay, gone, known, dtype):
    def part(values, key=1):
        return pd.DataFrame({"k": [key] * len(values), "x": pd.array(values, dtype)})

    named = {how: ("x", how) for how in ("sum", "mean", "count")}
    groups = Aggregation.of(part([0.5]).iloc[:0], ["k"], named, dropna=True, sort=True)
    index, moved = index_of(groups), index_of(groups)
    index.fold(groups.reduce(part(stay), 0), 1)
    index.fold(groups.reduce(part([1e40, 1e25, 1.5], key=2), 0), 1)
    for values in gone:
        index.fold(groups.reduce(part(values), 1), 2)
    assert len(groups.results_of(index.frame())) == 2
    for values in gone:
        index.fold(groups.reduce(part(values), 1), 3, taken_off=True)
    # What is lost goes where states go.
    moved.fold(index.frame(), 3)
    for each in (index, moved):
        if known:
            found = groups.results_of(each.frame())["sum"].tolist()
            assert found[0] == pytest.approx(sum(v for v in stay if v), abs=0)
            continue
        for how in ("sum", "mean"):
            with pytest.raises(UnsupportedError, match=f"{how} of 1 group, as 1, is not known"):
                groups.results_of(each.frame(), ["k", how])
        assert groups.results_of(each.frame(), ["k", "count"])["count"].tolist() == [len(stay), 3]
