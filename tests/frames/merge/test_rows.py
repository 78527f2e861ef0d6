"""Rows of merges by arrays, hash tables and lists of rows, which all agree with pandas."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from suites.raising import no_other_engine

import dgpuhash

RANDOM = np.random.default_rng(11)
DTYPES = ["int64", "int8", "uint32", "Int64", "float64", "Float64", "str", "category", "M8[s]"]


def keys(dtype: str, kinds: int, rows: int, *, unique: bool, nulls: bool) -> pd.Series:
    """Return keys that lie close together for few kinds, and far apart for many."""
    if dtype == "int8":
        kinds = min(kinds, 100)
    picked = RANDOM.permutation(kinds)[:rows] if unique else RANDOM.integers(0, kinds, rows)
    values = pd.Series(picked * (1 if kinds < 10**4 else 10**6))
    if dtype not in ("int64", "int8", "uint32", "M8[s]"):
        values = values.astype("Int64").mask(pd.Series(RANDOM.random(len(values)) < 0.1 * nulls))
    return values.astype("str").astype(dtype) if dtype == "category" else values.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kinds", [60, 10**4])
@pytest.mark.parametrize("unique", [(True, True), (False, True), (False, False)])
def test_rows(dtype, kinds, unique):
    hows = ["inner", "left", "right", "outer"]
    for how, (n, m, nulls) in itertools.product(hows, [(30, 50, True), (55, 20, False)]):
        left = pd.DataFrame({"k": keys(dtype, kinds, n, unique=unique[0], nulls=nulls)})
        right = pd.DataFrame({"k": keys(dtype, kinds, m, unique=unique[1], nulls=nulls)})
        left["a"], right["b"] = np.arange(len(left)), np.arange(len(right))
        wanted = left.merge(right, how=how, on="k")
        with no_other_engine():
            found = dgpuhash.merge(left, right, how=how, on="k")
        pd.testing.assert_frame_equal(found, wanted)
        there = left["a"].isin(left.merge(right, on="k")["a"])
        with no_other_engine():
            semi = dgpuhash.merge(left, right, how="semi", on="k")
        pd.testing.assert_frame_equal(semi, left[there])


def test_nulls_that_meet_no_others():
    left = pd.DataFrame({"k": pd.Series([1, None, 3], dtype="Int64"), "a": [0, 1, 2]})
    right = pd.DataFrame({"k": pd.Series([3, None, 1, None], dtype="Int64"), "b": [0, 1, 2, 3]})
    found = dgpuhash.merge(left, right, on="k", how="outer", nulls_equal=False)
    assert found["a"].fillna(-1).tolist() == [0, 2, 1, -1, -1]
    assert found["b"].fillna(-1).tolist() == [2, 0, -1, 1, 3]
    # The code of a null is one that a number may have.
    wide = pd.DataFrame({"k": pd.Series([0x9E3779B97F4A7C15 - 2**64, 5], dtype="Int64")})
    none = pd.DataFrame({"k": pd.Series([None, 5], dtype="Int64"), "a": [0, 1]})
    assert dgpuhash.merge(none, wide, on="k")["a"].tolist() == [1]
    assert dgpuhash.merge(none, wide[:1], on="k")["a"].tolist() == []


def test_shared_columns_are_copied_when_written():
    left = pd.DataFrame({"k": [1, 2, 3], "a": [0.5, 1.5, 2.5], "t": ["x", "y", "z"]})
    right = pd.DataFrame({"k": [3, 2, 1], "b": [1, 2, 3]})
    made = dgpuhash.merge(left, right, how="left", on="k")
    made.loc[0, ["k", "a", "t"]] = [9, 9.5, "w"]
    assert left.iloc[0].tolist() == [1, 0.5, "x"]
    left.loc[1, "a"] = 7.5
    assert made["a"].tolist() == [9.5, 1.5, 2.5]


def test_shared_keys_of_both_sides_are_copied_when_written():
    left = pd.DataFrame({"k": [1.0, 2.0], "j": [0, 1], "a": [1, 2]})
    right = pd.DataFrame({"k": [3.0, 4.0, 5.0], "j": [0, 1, 2]})
    made = dgpuhash.merge(left, right, "right", on=["k", "j"])
    made.iloc[0] = [9.0, 9, 9]
    assert right.iloc[0].tolist() == [3, 0]
    right.iloc[1] = [7.0, 7]
    assert made.iloc[1, :2].tolist() == [4, 1]


NUMBERS = [3, -1, 0, 10, 2, None, 7]
DAYS = [None if each is None else pd.Timestamp(2020, 1, 15) + pd.Timedelta(days=each)
        for each in NUMBERS]  # fmt: skip
# Values of which keys are drawn.
ORDERED = {
    "decimal128": pd.Series([Decimal("9.5"), Decimal(-3), Decimal(10), None, Decimal("-10.25")],
                            dtype=pd.ArrowDtype(pa.decimal128(8, 2))),
    "scaled": pd.Series([Decimal("9.5"), Decimal(-3), None],
                        dtype=pd.ArrowDtype(pa.decimal128(8, 3))),
    "decimals": pd.Series([Decimal("9.5"), Decimal(-3), Decimal(10), None, Decimal("9.50")],
                          dtype=object),
    "numbers": pd.Series([Decimal("9.5"), -3, 10.5, None, True, 2**53 + 1, 2.0**53], dtype=object),
    "bytes": pd.Series([b"b", b"ab", b"", None, b"\xff"], dtype=object),
    "binary": pd.Series([b"b", b"ab", b"", None], dtype=pd.ArrowDtype(pa.binary())),
    "texts": pd.Series(["b", "ab", "", None, "\0"], dtype=object),
    "mixed": pd.Series(["b", 10, 9, None, "10", 2.5], dtype=object),
    "dates": pd.Series([dt.date(2020, 1, 2), None, dt.date(2019, 1, 5)], dtype=object),
    "moments": pd.Series(DAYS, dtype=object),
    "M8[us]": pd.Series(DAYS, dtype="M8[us]"),
    "M8[s]": pd.Series(DAYS, dtype="M8[s]"),
    "zoned": pd.Series(DAYS, dtype="M8[us]").dt.tz_localize("Europe/Berlin"),
    "m8[ns]": pd.Series(NUMBERS, dtype="m8[ns]"),
    "period[D]": pd.Series([DAYS[0], None, DAYS[1]], dtype="M8[us]").dt.to_period("D"),
    "timestamp": pd.Series(DAYS, dtype=pd.ArrowDtype(pa.timestamp("us"))),
    "category": pd.Series(NUMBERS, dtype=pd.CategoricalDtype([7, 0, 3, 10, -1, 2])),
}  # fmt: skip
# Keys of these are merged, and never or seldom equal.
TOGETHER = [
    ("decimals", "numbers"), ("decimal128", "scaled"), ("bytes", "binary"), ("mixed", "texts"),
    ("mixed", "numbers"), ("M8[us]", "M8[s]"),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs"), [*((each, each) for each in ORDERED), *TOGETHER])
def test_rows_are_in_the_order_of_their_values(ours, theirs):
    for unique in (True, False):
        frames = []
        for name, column in ((ours, "x"), (theirs, "y")):
            values = ORDERED[name].drop_duplicates() if unique else ORDERED[name]
            picked = RANDOM.permutation(len(values))[: len(values) - 1] if unique else (
                RANDOM.integers(0, len(values), len(values))
            )  # fmt: skip
            keys = values.iloc[picked].reset_index(drop=True)
            frames.append(pd.DataFrame({"k": keys, column: range(len(keys))}))
        left, right = frames
        labelled = left.set_index("k"), right.set_index("k")
        by_index = {"left_index": True, "right_index": True}
        for how, sort in (("outer", False), ("inner", True), ("left", True)):
            assert_same_rows(left, right, how=how, sort=sort, on="k")
            # pandas has no order of labels of several types, and none of these with nulls.
            if ours == theirs and ours != "mixed" and (unique or ours != "moments"):
                assert_same_rows(*labelled, how=how, sort=sort, **by_index)


@pytest.mark.parametrize("units", [("s", "s"), ("s", "ns")])
@pytest.mark.parametrize("kind", ["m8", "M8"])
def test_nulls_of_objects_are_where_pandas_has_them(kind, units):
    values = [[3, 1, None], [1, 2, None, 1], [2, 3], []]
    by_index = {"left_index": True, "right_index": True}
    for ours, theirs, objects in itertools.product(
        values, values, itertools.product([0, 1], [0, 1])
    ):
        left, right = (
            pd.DataFrame({"k": pd.Series(each, dtype=f"{kind}[{unit}]"), column: range(len(each))})
            for each, unit, column in zip((ours, theirs), units, "xy", strict=True)
        )
        left, right = (
            each.astype({"k": object}) if one else each
            for each, one in zip((left, right), objects, strict=True)
        )
        same = objects[0] == objects[1]
        if same or bool(ours) != bool(theirs):
            assert_same_rows(left, right, how="outer", on="k")
        if same:
            assert_same_rows(left.assign(j=1), right.assign(j=1), how="outer", on=["k", "j"])
        # pandas does not sort labels of objects, and has no match for null datetimes beside them.
        if not any(objects) or (kind == "m8" and not same and ours and theirs):
            assert_same_rows(left.set_index("k"), right.set_index("k"), how="outer", **by_index)


@pytest.mark.parametrize("other", ["M8[us]", "m8[ns]", "period[Y]"])
def test_periods_equal_nothing_of_another_dtype_but_its_nulls(other):
    periods = pd.Series(["2020-01", None], dtype="period[M]")
    others = pd.Series([None, 1], dtype="M8[us]" if other.startswith("p") else other)
    others = others.dt.to_period("Y") if other.startswith("p") else others
    for left, right in ((periods, others), (others, periods), (periods, others[:1])):
        frames = pd.DataFrame({"k": left, "x": 0}), pd.DataFrame({"k": right, "y": 1})
        for how in ("inner", "left", "right", "left_anti", "right_anti"):
            with no_other_engine():
                found = dgpuhash.merge(*frames, how, on="k")
            pd.testing.assert_frame_equal(found, frames[0].merge(frames[1], how, on="k"))
    assert_same_rows(*frames, how="outer", on="k")
    found = dgpuhash.merge(
        pd.DataFrame({"k": periods}), pd.DataFrame({"k": others}), "outer", on="k"
    )
    assert len(found) == 3


def assert_same_rows(left: pd.DataFrame, right: pd.DataFrame, **arguments) -> None:
    with no_other_engine():
        found = dgpuhash.merge(left, right, **arguments)
    wanted = left.merge(right, **arguments)
    rows = [
        each[["x", "y"]].astype("float64").fillna(-1).to_numpy().tolist()
        for each in (found, wanted)
    ]
    assert rows[0] == rows[1]


def test_keys_that_are_never_equal_are_sorted_domain_by_domain():
    left = pd.DataFrame({"k": pd.Series([True, False, None], dtype="boolean")})
    for keys in (["b", None, "a"], pd.Categorical(["b", "a", None])):
        found = dgpuhash.merge(left, pd.DataFrame({"k": keys}), "outer", on="k")
        assert [each for each in found["k"] if pd.notna(each)] == [False, True, "a", "b"]


def test_orders_are_exact():
    for keys in ([2.0**53], pd.Series([Decimal(2**53)], dtype=object)):
        left, right = pd.DataFrame({"k": [2**53 + 1, 2**53 - 1]}), pd.DataFrame({"k": keys})
        found = dgpuhash.merge(left.astype(object), right.astype(object), "outer", on="k")
        assert found["k"].tolist() == [2**53 - 1, 2**53, 2**53 + 1]


WORDS = ["", "a", "a\0", "\0", "ä€", "seven77", "b", None, "a"]


@pytest.mark.parametrize("longer", [[], ["eightlet"], ["more than eight bytes"]])
@pytest.mark.parametrize("on", [["t"], ["t", "n"]])
@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
@pytest.mark.parametrize("nulls", [False, True])
def test_short_strings_are_compared_as_pandas_does(how, on, longer, nulls):
    words = [each for each in WORDS if nulls or each is not None]
    left = pd.DataFrame({"t": words * 3 + longer, "n": 1, "v": 0})
    right = pd.DataFrame({"t": [*words[2:], "seven78", *longer, *longer], "n": 1, "w": 1})
    left["v"], right["w"] = range(len(left)), range(len(right))
    found = dgpuhash.merge(left, right, how, on=on)
    pd.testing.assert_frame_equal(found, left.merge(right, how, on=on))
    kept = dgpuhash.merge(left, right, "semi", on=on)
    pd.testing.assert_frame_equal(kept, left[left["t"].isin(right["t"])])


@pytest.mark.parametrize("share", [0.5, 0.9, 1])
def test_texts_of_most_rows_are_those_of_pandas(share):
    rng = np.random.default_rng(3)
    left = pd.DataFrame({"k": rng.permutation(9000), "t": "text"})
    left["t"] = left["k"].astype(str).where(left["k"] % 5 > 0)
    left["a"] = left["t"].astype(pd.ArrowDtype(pa.string()))
    right = pd.DataFrame({"k": np.arange(int(9000 * share)), "w": 1})
    expected = left.merge(right, on="k")
    pd.testing.assert_frame_equal(dgpuhash.merge(left, right, on="k"), expected)
