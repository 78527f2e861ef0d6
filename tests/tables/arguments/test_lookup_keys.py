"""Lookups of keys of another dtype, against exact Python values."""

from __future__ import annotations

import datetime
import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import key_pool
from verbs import KINDS, questions, stored_keys, stores, table_of

import dgpuhash
from dgpuhash.errors import KeyTypeError
from dgpuhash.tables import HashMap, HashSet, MultiMap

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMBERS = ["bool", *INTEGERS, "float16", "float32", "float64"]
DATES = [
    f"M8[{unit}]" for unit in ("Y", "3M", "M", "W", "D", "h", "s", "ms", "us", "10us", "ns", "as")
]
DURATIONS = ["m8[W]", "m8[7s]", "m8[s]", "m8[ns]", "m8[as]"]
NUMBER_PAIRS = list(itertools.product(NUMBERS, repeat=2))
TIME_PAIRS = [pair for like in (DATES, DURATIONS) for pair in itertools.product(like, repeat=2)]
ATTOSECONDS = {
    "W": 604_800 * 10**18, "D": 86_400 * 10**18, "h": 3_600 * 10**18, "m": 60 * 10**18,
    "s": 10**18, "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1,
}  # fmt: skip
HOWS = ("inner", "left", "semi", "anti", "outer")


def day_of(months: int) -> int:
    """Return the first day of a month, from 1970 on, by the calendar."""
    year, month = 1970 + months // 12, months % 12
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = [31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    before = year - 1
    # 719162 days are from year 1 to 1970.
    years = 365 * before + before // 4 - before // 100 + before // 400
    return years + sum(lengths[:month]) - 719_162


def value_of(key: Any) -> Any:
    """Return the value of a key of any dtype: a number, or attoseconds."""
    scalar = np.asarray(key)
    kind = scalar.dtype.kind
    if kind in "mM":
        ticks = int(scalar.view(np.int64))
        if ticks == -(2**63):
            return "NaT"
        unit, multiple = np.datetime_data(scalar.dtype)
        if unit in "YM":
            return day_of(ticks * multiple * (12 if unit == "Y" else 1)) * ATTOSECONDS["D"]
        return ticks * multiple * ATTOSECONDS[unit]
    if kind != "f":
        return int(scalar)
    real = float(scalar)
    return "NaN" if np.isnan(real) else real if np.isinf(real) else Fraction(real)


def edges(dtype: str) -> np.ndarray:
    """Return keys at the edges of other dtypes."""
    made = np.dtype(dtype)
    powers = (0, 1, 7, 8, 11, 15, 16, 24, 31, 32, 53, 54, 62, 63, 64)
    near = [sign * 2**power + more for power in powers for more in (-1, 0, 1) for sign in (1, -1)]
    if made.kind in "iu":
        info = np.iinfo(made)
        near = [one for one in near if info.min <= one <= info.max]
    elif made.kind == "f":
        near += [0.5, 2.5, -0.1, 1e300, 65504, 65520]
    elif made.kind in "mM":
        day = 86_400
        near = [0, 1, -1, 12, -12, 31, 59, 2**31, 2**62, 2**63 - 1, 1 - 2**63, day, -day, 31 * day]
        near += [31 * day * 10**power for power in (3, 6, 9)] + [7, 10**9, 10**15, -(10**18)]
        return np.concatenate([np.array(near).view(made), np.array(["NaT"], made)])
    with np.errstate(over="ignore"):
        return np.concatenate([np.array(near, made), key_pool(made)])


def agree(device, query: np.ndarray, keys: np.ndarray) -> None:
    """Assert that every lookup of `query` agrees with Python's values.

    The lookups are those of a table of `keys`, and of column functions.
    """
    back = device.backend.to_host
    first_rows: dict[Any, int] = {}
    for row, key in enumerate(keys):
        first_rows.setdefault(value_of(key), row)
    rows = [first_rows.get(value_of(key), -1) for key in query]
    expected = [row >= 0 for row in rows]
    given, asked = device.array(keys), device.array(query)
    assert back(dgpuhash.isin(asked, given)).tolist() == expected
    table = HashMap(keys.dtype, "int64", device=device.name)
    table.insert(given, device.array(np.arange(len(keys))), keep="first")
    assert back(table.contains(asked)).tolist() == expected
    assert back(table.count(asked)).tolist() == [int(one) for one in expected]
    values, found = table.find(asked, default=-1)
    assert back(found).tolist() == expected
    assert back(values).tolist() == rows
    assert [back(one).tolist() for one in table.match(asked)] == [
        np.flatnonzero(expected).tolist(),
        [row for row in rows if row >= 0],
    ]
    lists = MultiMap.from_arrays(given, device.array(np.arange(len(keys))))
    values, offsets = lists.find(asked)
    counts = back(lists.count(asked))
    assert (counts > 0).tolist() == expected
    np.testing.assert_array_equal(np.diff(back(offsets)), counts)
    firsts = back(values)[back(offsets)[:-1][counts > 0]]
    assert firsts.tolist() == [row for row in rows if row >= 0]
    for one in (table, lists):
        erased = back(one.erase(asked))
        assert erased.sum() == len({row for row in rows if row >= 0})
        assert not (erased & ~np.array(expected, bool)).any()
        assert not back(one.contains(asked)).any()


@pytest.mark.parametrize(("asked", "stored"), NUMBER_PAIRS)
def test_every_two_dtypes_of_numbers(device, asked, stored):
    agree(device, edges(asked), edges(stored))


@pytest.mark.parametrize(("asked", "stored"), TIME_PAIRS)
def test_every_two_units_of_times(host, asked, stored):
    agree(host, edges(asked), edges(stored))


def joined_by_hand(left: Any, right: Any, how: str) -> list[tuple[int, int]]:
    """Return the pairs as `join_indices` documents them."""
    ours, theirs = [value_of(key) for key in left], [value_of(key) for key in right]
    partners = [[at for at, key in enumerate(theirs) if key == mine] for mine in ours]
    if how == "semi":
        return [(row, found[0]) for row, found in enumerate(partners) if found]
    if how == "anti":
        return [(row, -1) for row, found in enumerate(partners) if not found]
    pairs = [(row, at) for row, found in enumerate(partners) for at in found]
    if how != "inner":
        pairs += [(row, -1) for row, found in enumerate(partners) if not found]
        pairs.sort()
    if how == "outer":
        pairs += [(-1, at) for at, key in enumerate(theirs) if key not in set(ours)]
    return pairs


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("int64", "uint64"),
        ("uint64", "int64"),
        ("int64", "float64"),
        ("float64", "int8"),
        ("float16", "uint64"),
        ("float64", "float16"),
        ("bool", "float32"),
    ],
)
def test_joins_of_two_dtypes(device, left, right, how):
    ours, theirs = edges(left), np.repeat(edges(right), 2)
    for distinct in (theirs, np.unique(theirs)):
        found = dgpuhash.join_indices(device.array(ours), device.array(distinct), how)
        pairs = zip(*(device.backend.to_host(rows).tolist() for rows in found), strict=True)
        assert list(pairs) == joined_by_hand(ours, distinct, how)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("turned", [False, True])
def test_joins_with_lists(device, how, turned):
    array, values = np.array([1, -1, 5, 127, 1], "int8"), [300, 1, 2**64, 1.5, 5.0, 1, -129]
    sides = (values, device.array(array)) if turned else (device.array(array), values)
    pairs = dgpuhash.join_indices(*sides, how)
    found = zip(*(device.backend.to_host(rows).tolist() for rows in pairs), strict=True)
    plain = [np.array([299, 1, 298, 297, 5, 1, 296]), array.astype(int)]
    assert list(found) == joined_by_hand(*(plain if turned else plain[::-1]), how)


def test_dates_of_many_units_are_joined():
    days = np.array(["2026-03-01", "1970-01-01", "NaT", "2026-03-02"], "M8[D]")
    for unit in ("M", "s", "ns"):
        others = np.array(["2026-03", "NaT", "1969-12"], "M8[M]").astype(f"M8[{unit}]")
        rows, partners = dgpuhash.join_indices(days, others)
        assert list(zip(rows.tolist(), partners.tolist(), strict=True)) == [(0, 0), (2, 1)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "nothing",
    [
        [],
        (),
        np.array([]),
        np.array([], "float32"),
        np.array([], "U3"),
        np.array([], object),
        np.array([], "M8[s]"),
        np.array([], complex),
        pd.Series([], dtype=object),
        pd.Series([], dtype="float64"),
    ],
)
def test_nothing_of_any_dtype(kind, nothing):
    for keys in (np.array([1, 2]), np.array(["2020"], "M8[D]"), np.array([1.5, np.nan])):
        table = table_of(kind, keys)
        for verb in questions(table):
            answer = verb(nothing)
            assert all(len(each) <= 1 for each in (answer if type(answer) is tuple else [answer]))
        none = keys[:0]
        for verb in stores(table, none):
            verb(nothing)
        assert len(table) == len(keys)
        assert len(dgpuhash.isin(nothing, keys)) == 0
        assert dgpuhash.isin(keys, nothing).tolist() == [False] * len(keys)
        assert [len(rows) for rows in dgpuhash.join_indices(nothing, keys, "outer")] == [
            len(keys)
        ] * 2


def test_integers_of_any_size():
    assert HashSet("int8").contains([1, 300]).tolist() == [False, False]
    assert dgpuhash.isin(np.array([1, 2**62]), [2**63]).tolist() == [False, False]
    assert dgpuhash.isin(np.array([2**63], "u8"), [2**63, -1, 2**70]).tolist() == [True]
    assert dgpuhash.isin([2**63, -1], [2**63, 5]).tolist() == [True, False]
    assert dgpuhash.isin([2**63], [2**63, -1]).tolist() == [True]
    assert dgpuhash.isin([2**53 + 1, 1], [2.0**53, 1.0]).tolist() == [False, True]
    reals = HashSet.from_keys(np.array([2.0**70, 2.0**53]))
    asked = [2**70, 2**70 + 1, 2**53, 2**53 + 1, 10**400, -(10**400)]
    assert reals.contains(asked).tolist() == [True, False, True, False, False, False]


PLAIN = st.one_of(
    st.booleans(),
    st.integers(-300, 300),
    st.integers(-(2**65), 2**65),
    st.sampled_from([2**53 + 1, 2**63, 2**64 - 1, 2**64, 2**70]),
    st.floats(-300, 300).map(round).map(float),
    st.floats(),
)


@given(st.lists(PLAIN, max_size=20), st.sampled_from(NUMBERS))
def test_lists_of_any_numbers(values, stored):
    keys = edges(stored)
    there = {value_of(key) for key in keys}
    table = HashSet.from_keys(keys)

    def is_there(one: Any) -> bool:
        if isinstance(one, float):
            if keys.dtype.kind == "f" and np.isfinite(one):
                # A float of Python's has no width.
                with np.errstate(over="ignore"):
                    rounded = keys.dtype.type(one)
                return bool(np.isfinite(rounded)) and value_of(rounded) in there
            return value_of(one) in there
        return int(one) in there

    expected = [is_there(one) for one in values]
    assert table.contains(values).tolist() == expected
    assert table.contains(np.array(values, object)).tolist() == expected
    assert dgpuhash.isin(values, keys).tolist() == expected


def test_writing_a_float_asks_for_the_nearest():
    table = HashSet("float32")
    table.insert([0.1, 1e10])
    assert table.contains([0.1, 1e300, 1]).tolist() == [True, False, False]
    assert table.contains(np.array([0.1, 1e10])).tolist() == [False, True]
    assert dgpuhash.isin(np.array([0.1], "f4"), [0.1]).tolist() == [True]


DAY = datetime.date(2026, 3, 1)
MOMENTS = [
    DAY,
    datetime.datetime(2026, 3, 1),
    pd.Timestamp("2026-03-01"),
    np.datetime64("2026-03-01T00:00:00", "s"),
    np.datetime64("2026-03", "M"),
]


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us", "ns", "M"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_lists_of_moments(unit, moment):
    dates = np.array(["2026-03", "NaT"], "M8[M]").astype(f"M8[{unit}]")
    table = HashMap.from_arrays(dates, np.array([7, 8]))
    asked = [moment, pd.NaT, DAY + datetime.timedelta(1), pd.Timestamp("2026-03-01T00:00:00.5")]
    for keys in (asked, np.array(asked, object), pd.Series(asked, dtype=object)):
        values, found = table.find(keys)
        assert np.asarray(values).tolist() == [7, 8, 0, 0]
        assert np.asarray(found).tolist() == [True, True, False, False]
    assert table.contains([moment] * 2).tolist() == [True, True]
    # Out of the range of nanoseconds, beside some of them.
    far = [datetime.date(9999, 1, 1), pd.Timestamp(1, unit="ns"), moment]
    assert table.contains(far).tolist() == [False, False, True]
    assert dgpuhash.isin([moment], dates).tolist() == [True]
    assert dgpuhash.isin(dates, [moment]).tolist() == [True, False]


def test_lists_of_durations():
    spans = np.array([60, 1], "m8[s]")
    asked = [datetime.timedelta(minutes=1), pd.Timedelta("1min"), np.timedelta64(1, "m"), pd.NaT]
    assert HashSet.from_keys(spans).contains(asked).tolist() == [True, True, True, False]
    with pytest.raises(KeyTypeError, match="timedelta64"):
        HashSet.from_keys(spans).contains([DAY])


def test_tables_of_moments():
    assert HashSet.from_keys([DAY, DAY]).key_dtype == "M8[D]"
    assert HashSet.from_keys([DAY, datetime.datetime(2026, 3, 1, 1)]).key_dtype == "M8[us]"
    assert HashSet.from_keys([pd.Timedelta("1s")]).key_dtype.kind == "m"
    table = HashSet("M8[D]")
    assert table.insert([DAY, pd.Timestamp("2026-03-01"), pd.NaT]).sum() == 2
    with pytest.raises(KeyTypeError, match=r"position 1, which datetime64\[D\] cannot represent"):
        table.insert([DAY, datetime.datetime(2026, 3, 1, 1)])
    zoned = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
    for verb in (table.insert, table.contains):
        with pytest.raises(KeyTypeError, match=r"position 1.*zone"):
            verb([DAY, zoned])
    uniques, counts = dgpuhash.value_counts([DAY, DAY, datetime.date(2026, 3, 2)])
    assert uniques.tolist() == [DAY, datetime.date(2026, 3, 2)]
    assert counts.tolist() == [2, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("null", [None, pd.NA])
@pytest.mark.parametrize("others", [[1, 2], [1.5, 2.5], [DAY, DAY], [2**70, -1]])
def test_a_null_in_a_list_names_itself(kind, null, others):
    keys = [others[0], null, others[1]]
    table = table_of(kind, np.arange(3))
    for verb in [*questions(table), *stores(table, np.arange(3))]:
        for one in (keys, np.array(keys, object)):
            with pytest.raises(KeyTypeError, match=f"hold {null} at position 1.*leave it out"):
                verb(one)
    for call in (HashSet.from_keys, dgpuhash.unique, lambda keys: dgpuhash.isin([1], keys)):
        with pytest.raises(KeyTypeError, match=f"hold {null} at position 1.*FrameIndex"):
            call(keys)
    assert stored_keys(table) == [0, 1, 2]


def test_defaults_and_wide_values_of_absent_rows():
    table = HashMap.from_arrays([1, 2], np.array([("a", 1.5), ("b", 2.5)], "U3,f8"))
    values, found = table.find([2.0, 2.5, 1.0], default=("no", -1.0))
    assert values.tolist() == [("b", 2.5), ("no", -1.0), ("a", 1.5)]
    assert found.tolist() == [True, False, True]


def test_numbers_in_another_byte_order():
    table = HashSet.from_keys(np.array([1, 2], "int8"))
    assert table.contains(np.array([1, 257, 3], ">i4")).tolist() == [True, False, False]
    assert table.contains(np.array([1, 1.5], ">f8")).tolist() == [True, False]


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="long double is float64 here")
def test_long_doubles():
    table = HashSet.from_keys(np.array([2**62, 2**53 + 1], "u8"))
    exact = np.array([2**53, 2**62], np.longdouble) + np.array([1, 0.5], np.longdouble)
    assert table.contains(exact).tolist() == [True, False]


@pytest.mark.gpu
@pytest.mark.cudf
def test_dates_of_cudf():
    import cudf

    days = pd.Series(pd.date_range("2020-01-01", periods=3, unit="s"))
    table = HashSet.from_keys(cudf.Series(days))
    shifted = pd.concat([days, days + pd.Timedelta("1ns")])
    found = table.contains(cudf.Series(shifted.astype("M8[ns]")))
    assert found.to_pandas().tolist() == [True] * 3 + [False] * 3
