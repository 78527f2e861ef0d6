"""Order of rows by keys, and direct tables of an index, beside NumPy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dgpuhash.frames import FrameIndex
from dgpuhash.frames.dataframes.order import sorted_rows, values_in_order

RANDOM = np.random.default_rng(7)


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
