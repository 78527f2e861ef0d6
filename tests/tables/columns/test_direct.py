"""Direct-address tables, and the column functions with dense keys, beside NumPy and hash tables."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgpuhash
from dgpuhash import backend
from dgpuhash.tables.columns import direct, distinct, isin
from dgpuhash.tables.columns.direct import DenseKeys, DirectTable, addresses_directly
from dgpuhash.typing import Array

RANDOM = np.random.default_rng(7)
ROWS = 5000
HOWS = ["inner", "left", "semi", "anti", "outer"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FIXED = ["bool", "datetime64[ns]", "datetime64[D]", "timedelta64[s]"]


def codes(values, dtype):
    return np.array(values, dtype).view(f"u{np.dtype(dtype).itemsize}")


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("base", [0, -5, "least", "most"])
def test_rows_of_codes(dtype, base):
    bounds = np.iinfo(dtype)
    base = {"least": bounds.min, "most": bounds.max - 8}.get(base, base)
    keys = [base + 8, base, base + 3]
    asked = [bounds.min, bounds.max, -1, 0, *range(base, base + 9)]
    table = DirectTable.rows_of(codes(keys, dtype), probes=0)
    wanted = [keys.index(key) if key in keys else -1 for key in asked]
    assert table.find(codes(asked, dtype)).tolist() == wanted
    assert table.find(codes([], dtype)).tolist() == []
    assert table.rows.tolist() == [1, 2, 0]
    there = DirectTable.set_of(codes(keys * 2, dtype), probes=0)
    assert there.find(codes(asked, dtype)).tolist() == [row >= 0 for row in wanted]


def test_codes_that_have_no_direct_table():
    far = codes([0, 2**40], "int64")
    assert DirectTable.rows_of(far, probes=10**9) is None
    assert DirectTable.set_of(far, probes=10**9) is None
    assert DirectTable.rows_of(codes([1, 2, 1], "int64"), probes=3) is None
    assert DirectTable.rows_of(codes([], "int64"), probes=3) is None
    # Few slots are few, if many codes are asked for.
    apart = codes([0, 10**4], "int64")
    assert DirectTable.rows_of(apart, probes=10) is None
    assert DirectTable.rows_of(apart, probes=10**5).find(apart).tolist() == [0, 1]


def test_a_batch_larger_than_the_cache():
    keys = RANDOM.permutation(60_000)[:50_000]
    asked = RANDOM.integers(-10, 70_000, 100_000)
    row_of = dict(zip(keys.tolist(), range(len(keys)), strict=True))
    found = DirectTable.rows_of(codes(keys, "int64"), probes=0).find(codes(asked, "int64"))
    assert found.tolist() == [row_of.get(key, -1) for key in asked.tolist()]


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
def test_dense_keys(columns):
    keys = DenseKeys.of(columns)
    numbers_of: dict[tuple[int, ...], int] = {}
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    wanted = [numbers_of.setdefault(row, len(numbers_of)) for row in rows]
    numbers, first = keys.numbers()
    assert numbers.tolist() == wanted
    assert [rows[row] for row in first] == list(numbers_of)
    without, again = keys.numbers(of_rows=False)
    assert without is None
    np.testing.assert_array_equal(again, first)
    held = Counter(int(key[0]) for key in numbers_of)
    assert keys.counts().tolist() == [held[value] for value in range(min(held), max(held) + 1)]


def test_sparse_keys():
    assert DenseKeys.of([np.array([0, 2**40])]) is None
    assert DenseKeys.of([np.array([np.iinfo("int64").min, np.iinfo("int64").max])]) is None
    assert DenseKeys.of([np.arange(9), np.arange(9)]) is None
    assert DenseKeys.of([np.arange(9), np.arange(9)], slots=9) is not None
    assert DenseKeys.of([np.array([0.5])]) is None
    assert DenseKeys.of([np.array([], "int64")]) is None


def test_first_rows_of_repeated_codes():
    keys = RANDOM.integers(-20, 20, 40_000)
    first = {key: row for row, key in reversed(list(enumerate(keys.tolist())))}
    table = DirectTable.first_rows_of(codes(keys, "int64"), probes=0)
    assert len(table) == len(first)
    asked = np.arange(-30, 30)
    found, counts, segment_rows = table.find_counted(codes(asked, "int64"))
    assert found.tolist() == [first.get(key, -1) for key in asked.tolist()]
    assert (counts.tolist(), segment_rows >= len(asked)) == ([len(first)], True)


def hashed(monkeypatch):
    """Let no column function address keys directly."""
    for module in (distinct, isin):
        monkeypatch.setattr(module, "addresses_directly", lambda backend, rows: False)


def never(*args, **kwargs):
    raise AssertionError("a hash table was made")


def columns_of(dtype: str, base: str) -> tuple[Array, Array]:
    """Return two columns of dense keys, some of which have no partner; few of the second repeat."""
    if dtype == "bool":
        return RANDOM.random(ROWS) < 0.5, np.arange(8) < 8
    whole = np.dtype("int64" if dtype[0] in "dt" else dtype)
    bounds = np.iinfo(whole)
    span = min(2 * ROWS, 2 ** (8 * whole.itemsize) - 1)
    first = {
        "least": bounds.min,
        "most": bounds.max - span,
        "zero": max(-span // 2, bounds.min),
        "middle": (bounds.min + bounds.max + 1 - span) // 2,
    }[base]
    if dtype[0] in "dt" and base == "least":
        # The least number is NaT.
        first += 1
    numbers = [first + int(each) for each in RANDOM.permutation(span)]
    left = np.array(RANDOM.choice(np.array(numbers, object), ROWS), whole)
    right = np.array(numbers[: 3 * ROWS // 2], whole)
    return left.view(dtype), np.concatenate([right, right[:7]]).view(dtype)


def answers(left, right):
    """Return what all functions return of two columns."""
    made = [dgpuhash.isin(left, right), dgpuhash.isin(right, left)]
    for keys in (left, right[:-7], right[:0]):
        made += [dgpuhash.unique(keys), *dgpuhash.factorize(keys), *dgpuhash.value_counts(keys)]
        made += dgpuhash.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    for how in HOWS:
        for build in (right, right[:-7]):
            made += dgpuhash.join_indices(left, build, how)
            made += dgpuhash.join_indices(build, left, how)
    return made


@pytest.mark.parametrize("base", ["least", "most", "zero", "middle"])
@pytest.mark.parametrize("dtype", INTEGERS + FIXED)
def test_dense_columns_have_the_answers_of_hash_tables(dtype, base, monkeypatch):
    left, right = columns_of(dtype, base)
    dense = answers(left, right)
    hashed(monkeypatch)
    for one, other in zip(dense, answers(left, right), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_dense_columns_have_the_answers_of_pandas(dtype):
    left, right = columns_of(dtype, "zero")
    np.testing.assert_array_equal(dgpuhash.isin(left, right), np.isin(left, right))
    for keys in (left, right):
        np.testing.assert_array_equal(dgpuhash.unique(keys), pd.unique(keys))
        for one, other in zip(dgpuhash.factorize(keys), pd.factorize(keys), strict=True):
            np.testing.assert_array_equal(one, other)
    sides = (pd.DataFrame({"key": keys, "row": np.arange(len(keys))}) for keys in (left, right))
    merged = pd.merge(*sides, on="key", how="left")
    rows, partners = dgpuhash.join_indices(left, right, "left")
    np.testing.assert_array_equal(rows, merged["row_x"])
    np.testing.assert_array_equal(partners, merged["row_y"].fillna(-1))


@pytest.mark.parametrize("dtype", INTEGERS + FIXED)
def test_dense_columns_need_no_hash_table(dtype, monkeypatch):
    left, right = columns_of(dtype, "most")
    monkeypatch.setattr(isin, "Storage", never)
    monkeypatch.setattr(distinct, "GroupTable", never)
    dgpuhash.isin(left, right)
    dgpuhash.unique(left)
    dgpuhash.factorize(left)
    for how in HOWS:
        dgpuhash.join_indices(right, left, how)


def test_a_key_far_from_all_others():
    keys = np.concatenate([RANDOM.permutation(9000), [2**40], RANDOM.permutation(9000)])
    np.testing.assert_array_equal(dgpuhash.isin(keys, keys[:9001]), keys >= 0)
    np.testing.assert_array_equal(dgpuhash.unique(keys), pd.unique(keys))
    assert dgpuhash.join_indices(keys[9000:9001], keys)[1].tolist() == [9000]


def test_columns_that_are_not_contiguous():
    wide = RANDOM.permutation(3 * ROWS).reshape(-1, 3)
    left, right = wide[:, 1], wide[::-1, 1][:1000]
    np.testing.assert_array_equal(dgpuhash.isin(left, right), np.isin(left, right))
    np.testing.assert_array_equal(dgpuhash.factorize(left)[0], np.arange(ROWS))
    assert dgpuhash.join_indices(right, left)[1].tolist() == list(range(ROWS - 1, ROWS - 1001, -1))


def test_columns_of_one_key():
    one = np.full(ROWS, -5)
    assert dgpuhash.isin(one, one).all()
    assert dgpuhash.unique(one).tolist() == [-5]
    assert not dgpuhash.factorize(one)[0].any()
    assert dgpuhash.join_indices(one[:2], one, "semi")[1].tolist() == [0, 0]
    assert len(dgpuhash.join_indices(one[:2], one)[0]) == 2 * ROWS


@given(
    st.lists(st.integers(-40, 40), max_size=60),
    st.lists(st.integers(-60, 60), max_size=60),
    st.sampled_from([0, -(2**63) + 60, 2**63 - 61, 2**40]),
)
def test_any_two_columns(left, right, base):
    left, right = np.array(left, np.int64) + base, np.array(right, np.int64) + base
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct, "_BATCH", 7)
        patch.setattr(distinct, "_FEWEST_DIRECT", 1)
        patch.setattr(direct, "_SLOTS_OF_A_KEY", 200)
        dense = answers(left, right)
        hashed(patch)
        for one, other in zip(dense, answers(left, right), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_many_threads_share_a_hash_table_of_many_keys(monkeypatch):
    class Threads:
        def __init__(self, number):
            self.threads = lambda: number

    cpu = backend.get("cpu")
    for threads, rows, direct_address in [(2, 10**8, True), (64, 10**8, False), (64, 10**4, True)]:
        monkeypatch.setattr(direct, "native", lambda threads=threads: Threads(threads))
        assert addresses_directly(cpu, rows) == direct_address
