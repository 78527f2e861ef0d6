"""Folds of many states at once, as GPUs have them, beside those of states one part at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dgpuhash.frames.groupby.partial import GroupByCall, GroupPlan
from dgpuhash.frames.groupby.partial.fold import Folds, Gathered, folded_fields, plain
from dgpuhash.frames.groupby.partial.kinds import fields_of, prefix_of

ROWS = 600
RNG = np.random.default_rng(57)


def frame_of(*, nulls: bool) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "k": RNG.integers(0, 40, ROWS),
            "i": RNG.integers(-(2**62), 2**62, ROWS),
            "s": RNG.integers(-4, 5, ROWS).astype("int8"),
            "f": 1e9 + RNG.normal(size=ROWS) * 10.0 ** RNG.integers(-8, 8, ROWS),
            "b": RNG.random(ROWS) < 0.5,
        }
    )
    if nulls:
        frame.loc[(RNG.random(ROWS) < 0.4) | (frame["k"] == 7), "f"] = np.nan
    return frame


def never_chosen(column: Any, name: str) -> Any:
    raise AssertionError("these are numbers")


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("parts", [9])
@pytest.mark.parametrize(
    ("how", "columns"),
    [
        (["sum", "mean", "count"], "isfb"),
        (["var", "sem"], "isf"),
        (["min", "max", "first", "last"], "isfb"),
        (["any", "all"], "isb"),
        (["prod"], "sf"),
        (["idxmin", "idxmax"], "is"),
    ],
)
def test_fields_are_those_of_folds_one_by_one(nulls, parts, how, columns):
    frame = frame_of(nulls=nulls)
    plan = GroupPlan.of(frame, "k", how=GroupByCall("agg", (how,)), selection=list(columns))
    cuts = np.linspace(0, ROWS, parts + 1).astype(int)
    states = [
        plan.reduce(frame.iloc[cuts[number] : cuts[number + 1]], number)
        for number in RNG.permutation(parts).tolist()
    ]
    whole, expected = pd.concat(states, ignore_index=True), plan.folded(states)
    codes = pd.Index(expected["key0"]).get_indexer(whole["key0"])
    folds = Folds(codes.astype(np.int64), len(expected))
    assert (folds.sums([whole["n"].to_numpy()])[0] == expected["n"]).all()
    assert (folds.extreme("least", whole["at"].to_numpy()) == expected["at"]).all()
    assert plan.wanted is not None
    for place, kinds in plan.wanted.items():
        fields = {name: plain(whole[prefix_of(place) + name]) for name in fields_of(kinds)}
        if nulls and "count" in fields:
            # Where a GPU has no value it has the worst one, which pandas' states need not.
            for name, worst in (("least", np.inf), ("greatest", -np.inf)):
                if name in fields and fields[name].dtype.kind == "f":
                    fields[name] = np.where(fields["count"] > 0, fields[name], worst)
        made = folded_fields(folds, kinds, fields, never_chosen)
        assert set(made) == set(fields)
        there = expected[f"{prefix_of(place)}count"].to_numpy() > 0
        for name, found in made.items():
            array = fields[name][found.rows] if isinstance(found, Gathered) else found
            wanted = plain(expected[prefix_of(place) + name])
            mask = slice(None) if name == "count" else there
            if name in {"real", "rest", "moment", "prod"}:
                np.testing.assert_allclose(array[mask], wanted[mask], rtol=1e-12, atol=1e-3)
            else:
                np.testing.assert_array_equal(array[mask], wanted[mask])


def test_sums_of_pairs():
    folds = Folds(np.array([0, 0, 1, 1, 2, 2, 3]), 4)
    total, rest = folds.pairs(
        np.array([1e16, 1.0, np.inf, 3.0, np.inf, -np.inf, np.nan]), np.full(7, 0.5)
    )
    assert total[0] + rest[0] == 1e16 + 2.0
    assert np.isposinf(total[1])
    assert np.isnan(total[2:]).all()
    assert rest[2:].tolist() == [0.0, 0.0]
