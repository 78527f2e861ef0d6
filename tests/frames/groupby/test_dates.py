"""Means, deviations and medians of dates and spans: exact, whatever lies beside them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dgpuhash
from dgpuhash import FrameGroupBy
from dgpuhash.frames.groupby.aggregates.numbers import whole_means
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.frames.groupby.partial.fold import folding

MOST = 2**63 - 1
DTYPES: list[Any] = [
    "M8[ns]", "m8[ns]", "M8[us]", "datetime64[ns, Asia/Tokyo]", "timestamp[ns][pyarrow]",
    "duration[us][pyarrow]",
]  # fmt: skip
COUNTS = st.one_of(
    st.integers(-5, 5), st.integers(-MOST, MOST), st.integers(2**62, 2**62 + 9),
    st.integers(-(2**62) - 9, -(2**62)), st.sampled_from([MOST, -MOST]),
)  # fmt: skip


def column(counts: list[int], dtype: str) -> pd.Series:
    """Return counts of units as dates or spans."""
    array = np.array(counts, np.int64)
    if dtype.endswith("[pyarrow]"):
        made = pa.array(array).cast(pd.ArrowDtype.construct_from_string(dtype).pyarrow_dtype)
        return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([made])))
    if "Tokyo" in dtype:
        utc = pd.Series(array.view("M8[ns]")).dt.tz_localize("UTC")
        return utc.dt.tz_convert("Asia/Tokyo")
    return pd.Series(array.view(dtype))


def counts(result: pd.Series) -> list[int]:
    """Return the counts of units that dates or spans are."""
    if isinstance(result.dtype, pd.ArrowDtype):
        return pa.chunked_array(pa.array(result)).cast(pa.int64()).to_pylist()
    zoned = isinstance(result.dtype, pd.DatetimeTZDtype)
    plain = result.dt.tz_convert("UTC").dt.tz_localize(None) if zoned else result
    return plain.to_numpy().view(np.int64).tolist()


def of_parts(frame: pd.DataFrame, how: str, cut: int, again: pd.DataFrame | None = None) -> Any:
    """Return an aggregate of two parts, and of rows that came and went."""
    if again is not None:
        groups = FrameGroupBy.build(frame.iloc[:cut], "k", x=("x", how))
        for part in (frame.iloc[cut:], again):
            groups.update(part)
        groups.retract(again)
        return groups.result()["x"]
    plan = GroupPlan.of(frame.iloc[:0], "k", how=how, selection="x")
    states = folding(plan)
    for number, part in enumerate((frame.iloc[:cut], frame.iloc[cut:])):
        states.fold(plan.reduce(part, number))
    return states.result()


def cut_off(total: int, n: int) -> int:
    return total // n if total >= 0 else -(-total // n)


def deviation(values: list[int]) -> float:
    mean = Fraction(sum(values), len(values))
    return math.sqrt(sum((each - mean) ** 2 for each in values) / (len(values) - 1))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(COUNTS, min_size=1, max_size=5), min_size=1, max_size=3),
    st.sampled_from(DTYPES), st.integers(0, 9), st.lists(COUNTS, min_size=1, max_size=3),
)  # fmt: skip
def test_any_dates_of_any_groups(groups, dtype, cut, others):
    pairs = [(key, each) for key, group in enumerate(groups) for each in group]
    frame = pd.DataFrame({"k": [key for key, _ in pairs]})
    frame["x"] = column([each for _, each in pairs], dtype)
    again = pd.DataFrame({"k": 0, "x": column(others, dtype)})
    means = [cut_off(sum(group), len(group)) for group in groups]
    ours = dgpuhash.groupby(frame, "k")["x"]
    assert counts(ours.mean()) == means
    assert counts(of_parts(frame, "mean", cut, again)) == means
    assert counts(ours.transform("mean")) == [means[key] for key in frame["k"]]
    middles = [sorted(group)[(len(group) - 1) // 2 : len(group) // 2 + 1] for group in groups]
    assert counts(ours.median()) == [cut_off(sum(each), len(each)) for each in middles]
    wanted = [deviation(group) if len(group) > 1 else None for group in groups]
    if any(each is not None and each > MOST * (1 - 1e-12) for each in wanted):
        return
    for found in (ours.std(), of_parts(frame, "std", cut)):
        for made, exact in zip(counts(found), wanted, strict=True):
            assert exact is None or abs(made - exact) <= 1 + 1e-12 * exact


def test_dates_far_apart():
    dates = pd.to_datetime(["2262-04-11", "2262-04-11", "1900-01-01"]).as_unit("ns")
    frame = pd.DataFrame({"k": [1, 1, 2], "x": dates})
    for found in (dgpuhash.groupby(frame, "k")["x"].mean(), of_parts(frame, "mean", 2)):
        assert found.tolist() == [pd.Timestamp("2262-04-11"), pd.Timestamp("1900-01-01")]
    near = frame.assign(x=[dates[0], dates[0] + pd.Timedelta(100), dates[2]])
    assert dgpuhash.groupby(near, "k")["x"].std()[1] == pd.Timedelta(70)


def test_deviations_that_are_no_spans_are_refused():
    frame = pd.DataFrame({"k": [1, 1], "x": column([-MOST, MOST], "M8[ns]")})
    for call in (dgpuhash.groupby(frame, "k")["x"].std, lambda: of_parts(frame, "std", 1)):
        with pytest.raises(pd.errors.OutOfBoundsTimedelta, match="to a coarser unit"):
            call()


def test_words_of_differences_of_sums():
    assert whole_means(np.array([1]), np.array([-1]), np.array([2])).tolist() == [2**31 - 1]
    assert whole_means(np.array([0, 0]), np.array([-3, 0]), np.array([2, 0])).tolist() == [-1, 0]


def test_deviations_of_dates_that_are_whole():
    """The error of the mean is a third of the distance, to the second."""
    when = pd.Series(np.array([-2208988800, -62135596800, -62135596800], "M8[s]"))
    found = dgpuhash.groupby(pd.DataFrame({"k": 1, "v": when}), "k")["v"].sem()
    assert found[1] == pd.Timedelta(59926608000 // 3, "s")
