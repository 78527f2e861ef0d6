"""Arrays of rows by key, and the order of rows by keys, beside NumPy."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from dgpuhash.frames import FrameIndex
from dgpuhash.frames.keys.direct import CloseKeys, DirectTable
from dgpuhash.frames.keys.order import sorted_rows, values_in_order

RANDOM = np.random.default_rng(7)


def codes(values, dtype):
    return np.array(values, dtype).view(f"u{np.dtype(dtype).itemsize}")


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("base", [0, -5, "least", "most"])
def test_rows_of_codes(dtype, base):
    bounds = np.iinfo(dtype)
    base = {"least": bounds.min, "most": bounds.max - 8}.get(base, base)
    keys = [base + 8, base, base + 3]
    asked = [bounds.min, bounds.max, -1, 0, *range(base, base + 9)]
    table = DirectTable.rows_of(codes(keys, dtype), asked=0)
    wanted = [keys.index(key) if key in keys else -1 for key in asked]
    assert table.find(codes(asked, dtype)).tolist() == wanted
    assert table.find(codes([], dtype)).tolist() == []
    assert table.rows.tolist() == [1, 2, 0]
    there = DirectTable.set_of(codes(keys * 2, dtype), asked=0)
    assert there.find(codes(asked, dtype)).tolist() == [row >= 0 for row in wanted]


def test_codes_that_have_no_array():
    far = codes([0, 2**40], "int64")
    assert DirectTable.rows_of(far, asked=10**9) is None
    assert DirectTable.set_of(far, asked=10**9) is None
    assert DirectTable.rows_of(codes([1, 2, 1], "int64"), asked=3) is None
    assert DirectTable.rows_of(codes([], "int64"), asked=3) is None
    # Few places are few, if many codes are asked for.
    apart = codes([0, 10**4], "int64")
    assert DirectTable.rows_of(apart, asked=10) is None
    assert DirectTable.rows_of(apart, asked=10**5).find(apart).tolist() == [0, 1]


def test_a_batch_larger_than_the_cache():
    keys = RANDOM.permutation(60_000)[:50_000]
    asked = RANDOM.integers(-10, 70_000, 100_000)
    row_of = dict(zip(keys.tolist(), range(len(keys)), strict=True))
    found = DirectTable.rows_of(codes(keys, "int64"), asked=0).find(codes(asked, "int64"))
    assert found.tolist() == [row_of.get(key, -1) for key in asked.tolist()]


COLUMNS = {
    "different": RANDOM.permutation(9000) - 5,
    "repeated": RANDOM.integers(0, 50, 9000),
    "wide": RANDOM.integers(0, 2**40, 9000),
    "widest": np.where(np.arange(9000) % 2, np.iinfo("int64").min, np.iinfo("int64").max),
    "unsigned": np.array([*range(8998), 2**64 - 1, 2**64 - 2], "uint64"),
    "small": RANDOM.integers(-100, 100, 9000).astype("int8"),
    "bool": RANDOM.random(9000) < 0.5,
    "float": np.round(RANDOM.random(9000), 2),
    "nan": np.where(RANDOM.random(9000) < 0.1, np.nan, RANDOM.random(9000)),
    "zeros": RANDOM.choice([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, -2.5], 9000),
    "float32": RANDOM.normal(size=9000).astype("float32"),
    "moments": RANDOM.integers(0, 9, 9000).astype("M8[s]"),
    "one": np.ones(9000, "int32"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_order_of_rows(name):
    column = COLUMNS[name]
    for columns in ([column], [column, COLUMNS["repeated"]], [COLUMNS["bool"], column]):
        np.testing.assert_array_equal(sorted_rows(columns), np.lexsort(columns[::-1]))
        few = [each[:100] for each in columns]
        np.testing.assert_array_equal(sorted_rows(few), np.lexsort(few[::-1]))


@pytest.mark.parametrize("groups", [1, 7, 5000])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int16"])
def test_values_in_the_order_of_codes(groups, dtype):
    for rows in (0, 100, 9000):
        held = RANDOM.integers(0, groups, rows)
        values = RANDOM.integers(-99, 99, rows).astype(dtype)
        made = values_in_order(held, values)
        np.testing.assert_array_equal(made, values[np.argsort(held, kind="stable")])
        assert made.dtype == values.dtype
        assert not np.shares_memory(made, values)


@pytest.mark.parametrize(
    "columns",
    [
        [RANDOM.integers(-128, 127, 40_000).astype("int8")],
        [RANDOM.integers(0, 150, 40_000), RANDOM.integers(-90, 90, 40_000).astype("int16")],
        [RANDOM.random(40_000) < 0.1, RANDOM.integers(0, 300, 40_000).astype("uint16")],
        [np.iinfo("int64").max - RANDOM.integers(0, 3, 40_000)],
        [np.iinfo("uint64").max - RANDOM.integers(0, 3, 40_000).astype("uint64")],
        [np.arange(40_000)[::-1]],
        [np.zeros(40_000, "int64")],
    ],
)
def test_keys_that_lie_close_together(columns):
    keys = CloseKeys.of(columns)
    places: dict[tuple[int, ...], int] = {}
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    wanted = [places.setdefault(row, len(places)) for row in rows]
    numbers, first = keys.numbered()
    assert numbers.tolist() == wanted
    assert [rows[row] for row in first] == list(places)
    without, again = keys.numbered(of_rows=False)
    assert without is None
    np.testing.assert_array_equal(again, first)
    held = Counter(int(key[0]) for key in places)
    assert keys.counts().tolist() == [held[value] for value in range(min(held), max(held) + 1)]


def test_keys_that_lie_far_apart():
    assert CloseKeys.of([np.array([0, 2**40])]) is None
    assert CloseKeys.of([np.array([np.iinfo("int64").min, np.iinfo("int64").max])]) is None
    assert CloseKeys.of([np.arange(9), np.arange(9)]) is None
    assert CloseKeys.of([np.arange(9), np.arange(9)], places=9) is not None
    assert CloseKeys.of([np.array([0.5])]) is None
    assert CloseKeys.of([np.array([], "int64")]) is None


@pytest.mark.parametrize("dtype", ["int64", "Int64", "float64", "str"])
def test_an_index_that_changes_between_many_lookups(dtype):
    """The array that lookups make is forgotten when rows are added, replaced or erased."""

    def frame(keys, values):
        return pd.DataFrame({"k": pd.Series(keys).astype(dtype), "v": values})

    rows = dict(zip(range(0, 40, 2), range(20), strict=True))
    index = FrameIndex.build(frame(list(rows), list(rows.values())), on="k")
    asked = frame(range(-3, 60), 0)[["k"]]

    def check():
        for _ in range(2):
            wanted = asked[[key in rows for key in range(-3, 60)]]
            assert index.merge(asked, how="semi")["k"].tolist() == wanted["k"].tolist()
            inner = index.merge(asked)
            assert inner["k"].tolist() == wanted["k"].tolist()
            assert inner["v"].tolist() == [rows[key] for key in range(-3, 60) if key in rows]
            assert index.merge(asked, how="left")["v"].notna().sum() == len(rows)

    check()
    index.insert(frame([1, 3], [100, 101]))
    rows |= {1: 100, 3: 101}
    check()
    assert index.nbytes > 0
    index.upsert(frame([2, 50], [7, 8]))
    rows |= {2: 7, 50: 8}
    check()
    index.erase(frame([0, 50, 59], 0)[["k"]])
    del rows[0], rows[50]
    check()
    index.insert(frame([1], [102]))
    assert index.merge(frame([1], 0)[["k"]])["v"].tolist() == [100, 102]
