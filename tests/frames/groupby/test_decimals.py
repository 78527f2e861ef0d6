"""Sums and means of decimals beside Python's exact ones."""

from __future__ import annotations

from collections import defaultdict
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import DgpuhashError
from dgpuhash.frames.groupby.partial import GroupByCall, GroupPlan
from dgpuhash.frames.groupby.partial.fold import folding

EXACT = Context(prec=60)
KEYS = 5


def sums_of(frame):
    """Return for each key the exact sum and the number of its values."""
    found = defaultdict(lambda: [Decimal(0), 0])
    for key, value in zip(frame["k"], frame["v"], strict=True):
        if value is not pd.NA:
            found[key] = [EXACT.add(found[key][0], value), found[key][1] + 1]
    return dict(found)


def decimals(values, digits=38, scale=3):
    return pd.Series(values, dtype=pd.ArrowDtype(pa.decimal128(digits, scale)))


@pytest.mark.parametrize("most", [10**4, 10**22, 10**35])
def test_sums_and_means_are_exact(most):
    """Of a word, of two, and with words whose sums are more."""
    rng = np.random.default_rng(11)
    numbers = [int(part * most) for part in rng.uniform(-1, 1, 400)]
    values = decimals([Decimal(each).scaleb(-3, EXACT) for each in numbers])
    values[rng.random(400) < 0.1] = pd.NA
    frame = pd.DataFrame({"k": rng.integers(0, KEYS, 400), "v": values})
    with no_other_engine():
        groups = dgpuhash.groupby(frame, "k")["v"]
        made = groups.agg(["sum", "mean", "count"])
    assert made.dtypes["sum"] == pd.ArrowDtype(pa.decimal128(38, 3))
    assert made.dtypes["mean"] == values.dtype
    expected = sums_of(frame)
    assert len(expected) == len(made) == KEYS
    for key, (total, count) in expected.items():
        mean = EXACT.divide(total, count).quantize(Decimal("0.001"), ROUND_HALF_UP, EXACT)
        assert list(made.loc[key]) == [total, mean, count]


@pytest.mark.parametrize("most", [10**4, 10**22, 10**35])
def test_parts_folded_are_exact(most):
    rng = np.random.default_rng(12)
    numbers = [int(part * most) for part in rng.uniform(-1, 1, 300)]
    values = decimals([Decimal(each).scaleb(-3, EXACT) for each in numbers])
    values[rng.random(300) < 0.1] = pd.NA
    frame = pd.DataFrame({"k": rng.integers(0, KEYS, 300), "v": values})
    plan = GroupPlan.of(frame, "k", how=GroupByCall("agg", (["sum", "mean", "min"],)))
    assert not plan.needs_rows
    states = folding(plan)
    for number in range(7):
        states.fold(plan.reduce(frame.iloc[number * 43 : number * 43 + 43], number))
    expected = dgpuhash.groupby(frame, "k").agg(["sum", "mean", "min"])
    pd.testing.assert_frame_equal(states.result(), expected)
    assert expected["v", "sum"].to_dict() == {key: each[0] for key, each in sums_of(frame).items()}


def test_groups_without_values_and_nulls_that_count():
    frame = pd.DataFrame({"k": ["a", "a", "b"], "v": decimals([Decimal("1.5"), None, None])})
    groups = dgpuhash.groupby(frame, "k")["v"]
    assert groups.sum().tolist() == [Decimal("1.5"), Decimal(0)]
    assert groups.sum(min_count=1).tolist() == [Decimal("1.5"), pd.NA]
    assert groups.sum(skipna=False).isna().tolist() == [True, True]
    assert groups.mean().tolist() == [Decimal("1.5"), pd.NA]
    assert len(dgpuhash.groupby(frame.iloc[:0], "k")["v"].sum()) == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_with_too_many_digits_is_refused(sign):
    most = Decimal(sign * (10**38 - 1))
    frame = pd.DataFrame({"k": [1, 1, 2], "v": decimals([most, sign, most], scale=0)})
    with pytest.raises(DgpuhashError, match=r"more than 38 digits.*astype\('float64'\)"):
        dgpuhash.groupby(frame, "k").sum()
    assert dgpuhash.groupby(frame[1:], "k")["v"].sum().tolist() == [sign, most]
    with pytest.raises(DgpuhashError, match="var of decimal128"):
        dgpuhash.groupby(frame, "k").var()
