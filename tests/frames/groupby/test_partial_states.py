"""States of parts: numbers beside exact rationals, keys of one hash, requests, saves."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from frames.groupby.test_groupby import REQUESTS, same
from frames.groupby.test_numbers import covariance, exact_by_group, variance
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import ColumnError, SpecError, UnsupportedError
from dgpuhash.frames.groupby.partial import GroupByCall, GroupPlan, fold
from dgpuhash.frames.groupby.partial.fold import folding
from dgpuhash.frames.keys.encoding import KeyEncoder


class Asked:
    """Stand-in for groups: a call returns what is selected, and the verb."""

    def __init__(self, selection=None):
        self.selection = selection

    def __getitem__(self, key):
        return Asked(key)

    def __getattr__(self, name):
        return lambda *args, **kwargs: (self.selection, GroupByCall(name, args, kwargs))


def parts_of(frame, number):
    """Return a frame cut into so many parts."""
    edges = np.linspace(0, len(frame), number + 1).astype(int)
    return [frame.iloc[start:end] for start, end in itertools.pairwise(edges)]


def result(frame, number, by="k", order=None, **options):
    """Return the result of so many parts."""
    plan = GroupPlan.of(frame.iloc[:0], by, **options)
    parts = list(enumerate(parts_of(frame, number)))
    states = folding(plan)
    for place in range(number) if order is None else order.permutation(number):
        states.fold(plan.reduce(parts[place][1], parts[place][0]))
    return states.result()


@pytest.mark.parametrize("number", [1, 7, 129])
def test_sums_that_nearly_cancel(number):
    rng = np.random.default_rng(number)
    keys = rng.integers(0, 5, 3000)
    values = rng.normal(size=3000) * 10.0 ** rng.integers(0, 9, 3000)
    for key in range(5):
        # The sum is a trillionth of what is added up, spread over the parts.
        rows = np.flatnonzero(keys == key)
        half = len(rows) // 2
        values[rows[half : 2 * half]] = -values[rows[:half]]
        values[rows[-1]] = np.abs(values[rows]).sum() * 1.5e-12
    frame = pd.DataFrame({"k": keys, "v": values})
    with no_other_engine():
        made = result(frame, number, how="sum", order=rng)["v"]
    for key, exact in exact_by_group(frame["k"], frame["v"]).items():
        wanted = sum(exact)
        assert sum(map(abs, exact)) <= 10**12 * abs(wanted)
        ulp = Fraction(float(np.spacing(abs(float(wanted)))))
        assert abs(Fraction(float(made[key])) - wanted) <= 2 * ulp


@pytest.mark.parametrize("number", [1, 129])
def test_moments_about_a_large_mean(number):
    rng = np.random.default_rng(9)
    frame = pd.DataFrame({"k": rng.integers(0, 4, 2000), "v": 1e9 + rng.normal(size=2000)})
    frame["i"] = rng.integers(0, 9, 2000) + 2**62
    with no_other_engine():
        made = result(
            frame, number, how=GroupByCall("agg", (["var", "std", "sem", "mean"],)), order=rng
        )
    for column in ("v", "i"):
        for key, values in exact_by_group(frame["k"], frame[column]).items():
            wanted = float(variance(values))
            row = made.loc[key, column]
            assert row["var"] == pytest.approx(wanted, rel=1e-6)
            assert row["std"] == pytest.approx(wanted**0.5, rel=1e-6)
            assert row["sem"] == pytest.approx((wanted / len(values)) ** 0.5, rel=1e-6)
            assert row["mean"] == float(sum(values) / len(values))


@pytest.mark.parametrize("number", [7])
def test_pairs_of_columns_about_a_large_mean(number):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"k": rng.integers(0, 3, 500), "v": 1e9 + rng.normal(size=500)})
    frame["w"] = frame["v"] - 3 * rng.normal(size=500)
    frame["i"] = rng.integers(0, 9, 500) + 2**60
    with no_other_engine():
        both, together = (
            result(frame, number, how=how, order=rng, sort=False) for how in ("cov", "corr")
        )
    exact = {column: exact_by_group(frame["k"], frame[column]) for column in "vwi"}
    for key in exact["v"]:
        for ours, theirs in (("v", "w"), ("v", "i"), ("i", "i")):
            left, right = exact[ours][key], exact[theirs][key]
            mixed = float(covariance(left, right))
            assert both.loc[(key, ours), theirs] == pytest.approx(mixed, rel=1e-6)
            spread = float(variance(left) * variance(right)) ** 0.5
            assert together.loc[(key, theirs), ours] == pytest.approx(mixed / spread, rel=1e-6)


def test_infinities_and_nulls_in_parts():
    values = [np.inf, 1.0, np.inf, -np.inf, np.nan, 2.0, np.nan, np.nan]
    frame = pd.DataFrame({"k": [0, 0, 1, 1, 2, 2, 3, 3], "v": values})
    how = GroupByCall("agg", (["sum", "mean", "var", "min", "max", "count", "first", "last"],))
    with no_other_engine():
        for number in (1, 4, 8):
            same(result(frame, number, how=how), how.of(dgpuhash.groupby(frame, "k")))


def test_integers_wrap_in_parts():
    values = np.array([2**62, 2**62, 2**62, -1])
    frame = pd.DataFrame({"k": [0, 0, 0, 1], "v": values, "u": values.view(np.uint64)})
    made = result(frame, 3, how="sum")
    pd.testing.assert_frame_equal(made, frame.groupby("k").sum())


@pytest.mark.parametrize("name", [name for name in REQUESTS if "transform" not in name])
def test_requests_of_parts(name):
    rng = np.random.default_rng(31)
    frame = pd.DataFrame({
        "k": rng.integers(0, 3, 40), "t": rng.choice(["x", "y", None], 40),
        "i": rng.integers(0, 9, 40), "f": rng.normal(size=40).round(2),
    }, index=np.arange(40) * 2)  # fmt: skip
    frame.loc[::10, "f"] = np.nan
    keys = [
        ("k", {}),
        (["k", "t"], {"sort": False}),
        (lambda label: label % 4, {"as_index": False}),
    ]
    turn = list(REQUESTS).index(name) % 3
    for by, options in keys[turn : turn + 1]:
        expected = REQUESTS[name](dgpuhash.groupby(frame, by, **options))
        with no_other_engine():
            selection, how = REQUESTS[name](Asked())
            plan = GroupPlan.of(frame.iloc[:0], by, how=how, selection=selection, **options)
            states = folding(plan)
            for number in (1, 2, 0):
                states.fold(plan.reduce(parts_of(frame, 3)[number], number))
            made = states.result()
        if name == "min_count":
            # Whether there are enough values is not known before.
            made = made.astype({label: expected[label].dtype for label in expected})
        same(made, expected)


UNKNOWN = pd.CategoricalDtype(["__UNKNOWN_CATEGORIES__"])


def test_equal_rows_are_left_out_where_one_is_enough(monkeypatch):
    monkeypatch.setitem(fold._FEW, "cpu", 8)
    frame = pd.DataFrame({"k": [1, 2] * 50, "v": [1, 1, 2, 3] * 25, "w": 0})
    plan = GroupPlan.of(frame[:0], "k", how="nunique")
    states = folding(plan)
    for number, part in enumerate(parts_of(frame, 5)):
        reduced = plan.reduce(part, number)
        assert len(reduced) == 4
        states.fold(reduced)
    assert len(states) <= 12
    same(states.result(), dgpuhash.groupby(frame, "k").nunique())


def test_categories_that_only_parts_know():
    parts = [pd.Categorical(["b", "a", None]), pd.Categorical(["a", "c", "b"], ordered=True)]
    parts = [pd.DataFrame({"k": part, "c": part, "v": [1, 2, 3]}) for part in parts]
    meta = parts[0].iloc[:0].astype({"k": UNKNOWN, "c": UNKNOWN})
    how = GroupByCall(
        "agg", options={"sum": ("v", "sum"), "first": ("c", "first"), "n": ("c", "nunique")}
    )
    plan = GroupPlan.of(meta, "k", how=how)
    states = folding(plan)
    for number, part in enumerate(parts):
        states.fold(plan.reduce(part, number))
    whole = pd.concat([part.astype({"k": object, "c": object}) for part in parts])
    same(states.result(), how.of(dgpuhash.groupby(whole, "k")))
    with pytest.raises(UnsupportedError, match="as_known"):
        GroupPlan.of(meta, "k", how=how, observed=False)
    for wrong in (["x", "y", "z"], [1.5, 2, 3], [1, 2, None], [2**63, 1, 2]):
        with pytest.raises(
            ColumnError, match=r"column 'v' is .* in a partition, and int64 in the plan"
        ):
            plan.reduce(parts[0].assign(v=pd.Series(wrong)), 0)
    narrow = plan.reduce(parts[0].astype({"v": "int8"}), 0)
    pd.testing.assert_frame_equal(narrow, plan.reduce(parts[0], 0))
    with pytest.raises(SpecError, match="part number"):
        plan.reduce(parts[0], -1)


@pytest.fixture
def colliding(monkeypatch):
    """Keys with two different hashes altogether."""
    original = KeyEncoder.for_frame.__func__
    monkeypatch.setattr(
        KeyEncoder, "for_frame", classmethod(lambda cls, *args: original(cls, *args, hash_bits=1))
    )


@pytest.mark.usefixtures("colliding")
def test_keys_of_one_hash_are_told_apart_in_parts():
    rng = np.random.default_rng(8)
    frame = pd.DataFrame({
        "a": rng.integers(0, 9, 200).astype(str), "b": rng.integers(0, 9, 200).astype(str),
        "v": rng.integers(0, 99, 200),
    })  # fmt: skip
    for sort in (True, False):
        expected = frame.groupby(["a", "b"], sort=sort)["v"].max()
        with no_other_engine():
            made = result(
                frame, 5, ["a", "b"], how="max", selection="v", sort=sort, order=rng
            )  # fmt: skip
        same(made, expected)
    plan = GroupPlan.of(frame.iloc[:0], ["a", "b"], how="sum")
    owners = plan.owners(plan.reduce(frame, 0), 7)
    assert len(set(owners.tolist())) <= 2


def test_owners_are_those_of_keys():
    keys = [1, 1.0, True, "a", "\0a", None, (1, "a"), 2**70, b"a", float("nan")]
    frame = pd.DataFrame({"k": pd.Series(keys, dtype=object), "v": range(len(keys))})
    plan = GroupPlan.of(frame.iloc[:0], "k", how="sum", dropna=False, sort=False)
    found = {}
    for number in range(len(keys)):
        states = plan.reduce(frame.iloc[[number]], number)
        found.setdefault(keys[number], set()).update(plan.owners(states, 1000).tolist())
    assert all(len(owners) == 1 for owners in found.values())
    assert len(set.union(*found.values())) > 5
    made = result(frame, 10, how="sum", dropna=False, sort=False)["v"]
    assert made.tolist() == [0 + 1 + 2, 3, 4, 5 + 9, 6, 7, 8]


def test_states_are_folded_again(tmp_path):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({
        "k": rng.choice(["x", "y", "z", None], 60), "v": rng.normal(size=60),
        "d": pd.to_datetime(rng.integers(0, 99, 60), unit="s"), "t": rng.choice(["a", "b"], 60),
    })  # fmt: skip
    how = GroupByCall("agg", options={
        "mean": ("v", "mean"), "spread": ("v", "std"), "start": ("d", "min"), "last": ("t", "last"),
    })  # fmt: skip
    plan = GroupPlan.of(frame.iloc[:0], "k", how=how, dropna=False)
    halves = [folding(plan), folding(plan)]
    for number, part in enumerate(parts_of(frame, 6)):
        halves[number % 2].fold(plan.reduce(part, number))
    states = folding(plan)
    for place, half in enumerate(halves):
        half.frame().to_parquet(tmp_path / f"{place}.parquet")
        saved = pd.read_parquet(tmp_path / f"{place}.parquet")
        owners = plan.owners(saved, 3)
        for owner in range(3):
            states.fold(saved[owners == owner])
    same(states.result(), how.of(dgpuhash.groupby(frame, "k", dropna=False)))
    # Parts that are folded together.
    together = folding(plan)
    together.fold(
        pd.concat([plan.reduce(part, number) for number, part in enumerate(parts_of(frame, 6))])
    )
    assert len(together.frame()) == len(together) == 4
    same(together.result(), states.result())


@pytest.mark.parametrize("dtype", ["uint64", "UInt64", "uint64[pyarrow]"])
@pytest.mark.parametrize("how", ["cov", "corr"])
def test_pairs_of_the_largest_integers(how, dtype):
    x, y = (np.array(each, np.uint64) for each in ([5, 1, 7], [2, 9, 4]))
    near, far = (
        pd.DataFrame({"k": 1, "x": x + np.uint64(a), "y": y + np.uint64(b)})
        for a, b in ((0, 0), (2**63, 2**64 - 10))
    )
    far = far.astype({"x": dtype, "y": dtype})
    plan = GroupPlan.of(far.iloc[:0], "k", how=how)
    states = folding(plan)
    states.fold(plan.reduce(far.iloc[:2], 0))
    states.fold(plan.reduce(far.iloc[2:], 1))
    exact = getattr(near.groupby("k"), how)().astype(float)
    assert np.allclose(states.result().astype(float), exact, rtol=1e-12)
