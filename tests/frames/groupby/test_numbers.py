"""Sums and variances of floats beside exact rationals."""

from __future__ import annotations

import functools
import operator
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.groupby.partial import GroupPlan


def exact_by_group(keys, values):
    """Return the values of each group as fractions."""
    found = {}
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        found.setdefault(key, []).append(Fraction(value))
    return found


def variance(values, ddof=1):
    mean = sum(values) / len(values)
    return sum((each - mean) ** 2 for each in values) / (len(values) - ddof)


def covariance(left, right):
    means = [sum(side) / len(side) for side in (left, right)]
    pairs = zip(left, right, strict=True)
    return sum((a - means[0]) * (b - means[1]) for a, b in pairs) / (len(left) - 1)


@pytest.mark.parametrize("rows", [300, 20_000])
def test_variances_about_a_large_mean(rows):
    rng = np.random.default_rng(9)
    frame = pd.DataFrame({"k": rng.integers(0, 4, rows), "v": 1e9 + rng.normal(size=rows)})
    frame["w"] = frame["v"] - 3 * rng.normal(size=rows)
    with no_other_engine():
        groups = dgpuhash.groupby(frame, "k")
        made = groups["v"].agg(["var", "std", "sem"])
        both, together = groups.cov(), groups.corr()
    exact = exact_by_group(frame["k"], frame["v"])
    others = exact_by_group(frame["k"], frame["w"])
    for key, values in exact.items():
        wanted = float(variance(values))
        assert made["var"][key] == pytest.approx(wanted, rel=1e-6)
        assert made["std"][key] == pytest.approx(wanted**0.5, rel=1e-6)
        assert made["sem"][key] == pytest.approx((wanted / len(values)) ** 0.5, rel=1e-6)
        mixed = covariance(values, others[key])
        assert both.loc[(key, "v"), "w"] == pytest.approx(float(mixed), rel=1e-6)
        spread = (wanted * float(variance(others[key]))) ** 0.5
        assert together.loc[(key, "v"), "w"] == pytest.approx(float(mixed) / spread, rel=1e-6)


def test_variances_of_large_integers():
    values = np.array([0, 3, 6, 1, 1, 5]) + 2**62
    frame = pd.DataFrame({"k": [0, 0, 0, 1, 1, 1], "v": values})
    exact = exact_by_group(frame["k"], frame["v"])
    made = dgpuhash.groupby(frame, "k")["v"].var()
    assert made.tolist() == [float(variance(exact[0])), pytest.approx(float(variance(exact[1])))]


def test_sums_are_compensated():
    values = np.full(20_000, 0.1)
    values[0] = 1e9
    frame = pd.DataFrame({"k": np.zeros(len(values), int), "v": values})
    with no_other_engine():
        made = dgpuhash.groupby(frame, "k")["v"].agg(["sum", "mean"])
    exact = sum(map(Fraction, values.tolist()))
    assert made["sum"].tolist() == [float(exact)]
    assert made["mean"].tolist() == [float(exact / len(values))]
    assert values.cumsum()[-1] != float(exact)


def test_infinity_stays():
    frame = pd.DataFrame({"k": [0, 0, 1, 1], "v": [np.inf, 1.0, np.inf, -np.inf]})
    made = dgpuhash.groupby(frame, "k")["v"].agg(["sum", "mean", "var"])
    assert made["sum"][0] == np.inf
    assert np.isnan(made["sum"][1])
    assert made["var"].isna().all()


def test_integers_wrap_as_those_of_pandas():
    values = np.array([2**62, 2**62, 2**62, -1])
    frame = pd.DataFrame({"k": [0, 0, 0, 1], "v": values, "u": values.view(np.uint64)})
    made = dgpuhash.groupby(frame, "k")[["v", "u"]].sum()
    pd.testing.assert_frame_equal(made, frame.groupby("k")[["v", "u"]].sum())


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_values_between_the_least_and_the_greatest_integer(dtype):
    limits = np.iinfo(dtype)
    frame = pd.DataFrame({"k": 1, "v": np.array([limits.max, limits.min], dtype)})
    groups = dgpuhash.groupby(frame, "k")["v"]
    exact = Fraction(limits.min), Fraction(limits.max)
    # Half of 2^64 has its last bit beyond float64.
    assert groups.median()[1] == pytest.approx(float(sum(exact) / 2), rel=1e-15, abs=0.5)
    wanted = float(exact[0] + (exact[1] - exact[0]) / 8)
    assert groups.quantile(0.125)[1] == pytest.approx(wanted, rel=1e-15)


def test_a_median_beside_an_infinity():
    frame = pd.DataFrame({"k": [1, 1, 2, 2, 3, 3], "v": np.array([-np.inf, 1, 2, np.inf] * 2)[:6]})
    wanted = frame.groupby("k")["v"].median()
    pd.testing.assert_series_equal(dgpuhash.groupby(frame, "k")["v"].median(), wanted)


@pytest.mark.parametrize("base", [0, 10**9, -(10**12), 2**52])
@pytest.mark.parametrize("width", [1, 2, 1000, 2**31, 2**40])
@pytest.mark.parametrize("dtype", ["int64", "Int64"])
def test_variances_of_integers(base, width, dtype):
    random = np.random.default_rng(width)
    values = pd.Series(base + random.integers(0, width, 300)).astype(dtype)
    if dtype == "Int64":
        values = values.mask(random.random(300) < 0.2)
    keys = random.integers(0, 40, 300)
    found = dgpuhash.groupby(pd.DataFrame({"k": keys, "v": values}), "k")["v"].var()
    for key, own in values.groupby(keys):
        numbers = list(map(Fraction, own.dropna().tolist()))
        if len(numbers) < 2:
            assert pd.isna(found[key])
            continue
        mean = sum(numbers) / len(numbers)
        exact = sum((each - mean) ** 2 for each in numbers) / (len(numbers) - 1)
        assert abs(Fraction(float(found[key])) - exact) <= exact / 10**6


def objects(values):
    return pd.Series(values, dtype=object)


def test_the_least_and_the_greatest_object_stay_what_they_are():
    frame = pd.DataFrame({"k": list("abb"), "v": objects([2**53 + 1, 0.5, 255])})
    groups = dgpuhash.groupby(frame, "k")["v"]
    assert [*groups.min(), *groups.max()] == [2**53 + 1, 0.5, 2**53 + 1, 255]
    assert [type(each) for each in groups.max()] == [int, int]


def test_sums_of_objects_have_as_many_bits_as_they_need():
    frame = pd.DataFrame({"k": ["a", "a", "b"], "v": objects([2**63 - 1, 2, 3])})
    groups = dgpuhash.groupby(frame, "k")["v"]
    assert groups.sum().tolist() == [2**63 + 1, 3]
    assert groups.prod().tolist() == [2**64 - 2, 3]


OBJECTS = {
    "booleans": [True, True, True, None, True, None, True],
    "mixed": [2**53 + 1, 0.5, -1, None, True, None, 3],
    "numbers": [2**62, 5, 2, None, np.int8(100), None, np.int8(100)],
    "fractions": [Decimal("0.1"), Decimal(2), 3, None, Fraction(1, 3), None, 2],
    "nothing": [None] * 7,
}


def of_python(how, group):
    """Return the sum or product of numbers, in which nulls are 1."""
    there = [each.item() if isinstance(each, np.int8) else each for each in group if each]
    if how == "sum":
        return functools.reduce(operator.add, there) if there else 0
    ones = [1] if len(there) < len(group) or not there else []
    return functools.reduce(operator.mul, [*ones, *there])


@pytest.mark.parametrize("values", OBJECTS.values(), ids=OBJECTS)
@pytest.mark.parametrize("how", ["sum", "prod"])
def test_sums_and_products_of_objects_are_those_of_python(how, values):
    keys = [1, 2, 3, 4, 5, 6, 6]
    frame = pd.DataFrame({"k": keys, "v": objects(values)})
    groups = [[v for k, v in zip(keys, values, strict=True) if k == key] for key in range(1, 7)]
    wanted = [repr(of_python(how, group)) for group in groups]
    found = getattr(dgpuhash.groupby(frame, "k")["v"], how)()
    assert list(map(repr, found)) == wanted
    plan = GroupPlan.of(frame.iloc[:0], "k", how=how, selection="v")
    rows = pd.concat([plan.reduce(frame.iloc[at : at + 1], at) for at in range(len(frame))])
    assert list(map(repr, plan.result(rows))) == wanted


def test_products_of_texts_are_refused():
    frame = pd.DataFrame({"k": ["a", "b"], "v": objects(["x", 2])})
    with pytest.raises(KeyTypeError, match="prod"):
        dgpuhash.groupby(frame, "k")["v"].prod()


def test_rows_without_a_group_beside_objects():
    frame = pd.DataFrame({"k": [None, "a", "a"], "v": objects([3, 1.25, 2]), "w": [3, 2, 3]})
    groups, plain = dgpuhash.groupby(frame, "k"), frame.astype({"v": float}).groupby("k")
    for how in ("corr", "cov"):
        wanted = getattr(plain[["v", "w"]], how)()
        pd.testing.assert_frame_equal(getattr(groups[["v", "w"]], how)(), wanted)
    assert dgpuhash.groupby(frame[:1], "k")["w"].tail(1).empty
