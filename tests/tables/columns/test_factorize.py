"""Factorized keys, against a dictionary and pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model import keys_of
from strategies import KEY_DTYPES, keys_from, random_keys

import dgpuhash
from dgpuhash.backend.native import native
from dgpuhash.errors import KeyTypeError, OutOfMemoryError, ShapeError
from dgpuhash.tables.columns import distinct as compacting
from dgpuhash.tables.columns import group_table

# Small samples, so that batches of some thousand rows take every way through the table.
WAYS = ["in order", "growing", "refusing", "whole", "sampled"]


@pytest.fixture(params=WAYS)
def sampled(request, monkeypatch):
    """Number keys in the order of rows, and by all threads after samples of several sizes."""
    if request.param in ("whole", "sampled"):
        monkeypatch.setattr(
            compacting, "_IN_ORDER_ROWS", dict.fromkeys(compacting._SAMPLE_ROWS, -1)
        )
    if request.param in ("growing", "refusing"):
        monkeypatch.setattr(compacting, "_FIRST_KEYS", 4)
    if request.param == "refusing":
        monkeypatch.setattr(compacting, "_CLOSE_LINES", 1)
    if request.param == "sampled":
        sizes = dict.fromkeys(compacting._SAMPLE_ROWS, 64)
        monkeypatch.setattr(compacting, "_SAMPLE_ROWS", sizes)
        monkeypatch.setattr(group_table, "_LEADING_ROWS", 100)


def numbered(keys):
    """Return codes and first rows by a dictionary."""
    numbers, first = {}, []
    codes = []
    for row, name in enumerate(keys_of(keys)):
        if name not in numbers:
            numbers[name] = len(numbers)
            first.append(row)
        codes.append(numbers[name])
    return codes, first


def agree(device, keys):
    codes, uniques = dgpuhash.factorize(device.array(keys))
    expected, first = numbered(keys)
    assert codes.dtype == np.int64
    assert device.backend.to_host(codes).tolist() == expected
    assert keys_of(device.host(uniques, keys.dtype)) == keys_of(keys[first])


@pytest.mark.parametrize("dtype", KEY_DTYPES)
def test_factorize_every_dtype(device, dtype, sampled):
    for seed, distinct in enumerate([3, 80, None]):
        agree(device, random_keys(dtype, 700, seed, distinct=distinct))


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "float64"])
def test_factorize_edges(device, dtype, sampled):
    for keys in ([], [5], [5] * 3000, [0, -1 if dtype[0] != "u" else 2**32 - 1] * 2000):
        agree(device, np.array(keys, dtype))


@given(keys_from("float32"))
def test_factorize_odd_floats(keys):
    codes, uniques = dgpuhash.factorize(keys)
    expected, first = numbered(keys)
    assert codes.tolist() == expected
    assert keys_of(uniques) == keys_of(keys[first])


@given(keys_from("uint64"), st.integers(1, 200))
def test_factorize_patterns_of_the_table(keys, times):
    keys = np.repeat(keys, times)
    codes, _ = dgpuhash.factorize(keys)
    assert codes.tolist() == numbered(keys)[0]


@pytest.mark.parametrize("distinct", [1, 100, 60_000, 10**6])
@pytest.mark.parametrize("order", ["random", "sorted"])
def test_factorize_many_rows(device, distinct, order):
    keys = np.random.default_rng(3).integers(-5, distinct, 200_000)
    if order == "sorted":
        keys.sort()
    codes, uniques = dgpuhash.factorize(device.array(keys))
    expected, names = pd.factorize(keys)
    np.testing.assert_array_equal(device.backend.to_host(codes), expected)
    np.testing.assert_array_equal(device.backend.to_host(uniques), names)


@pytest.mark.parametrize("distinct", [9, 60_000, 10**6])
def test_one_thread_numbers_rows_in_their_order(monkeypatch, distinct):
    keys = np.random.default_rng(5).integers(0, distinct, 200_000)
    threads = native().threads()
    monkeypatch.delattr(compacting.DistinctEstimate, "of")
    native().set_threads(1)
    try:
        codes, uniques = dgpuhash.factorize(keys)
    finally:
        native().set_threads(threads)
    expected, names = pd.factorize(keys)
    np.testing.assert_array_equal(codes, expected)
    np.testing.assert_array_equal(uniques, names)


def test_a_guess_that_was_too_low(device, sampled):
    """The sample sees one key in every row that it looks at."""
    keys = np.arange(6400)
    keys[::50] = -7
    keys[::100] = -7
    agree(device, keys)


@pytest.mark.parametrize("dtype", KEY_DTYPES)
def test_unique(device, dtype, sampled):
    keys = random_keys(dtype, 500, 4, distinct=60)
    codes, first = numbered(keys)
    uniques, index, inverse, counts = dgpuhash.unique(
        device.array(keys), return_index=True, return_inverse=True, return_counts=True
    )
    assert keys_of(device.host(uniques, keys.dtype)) == keys_of(keys[first])
    assert {index.dtype, inverse.dtype, counts.dtype} == {np.dtype(np.int64)}
    assert device.backend.to_host(index).tolist() == first
    assert device.backend.to_host(inverse).tolist() == codes
    assert device.backend.to_host(counts).tolist() == np.bincount(codes).tolist()
    alone = dgpuhash.unique(device.array(keys))
    assert device.backend.to_host(alone).tobytes() == device.backend.to_host(uniques).tobytes()


@pytest.mark.parametrize("asked", ["index", "inverse", "counts"])
def test_unique_gives_what_is_asked(device, asked):
    keys = np.random.default_rng(1).integers(0, 900, 5000)
    uniques, other = dgpuhash.unique(device.array(keys), **{f"return_{asked}": True})
    expected = np.unique(keys, **{f"return_{asked}": True})[1]
    order = np.argsort(device.backend.to_host(uniques))
    found = device.backend.to_host(other)
    found = np.argsort(order)[found] if asked == "inverse" else found[order]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("rows", [0, 1])
def test_unique_of_few_rows(device, rows):
    keys = device.array(np.full(rows, 2.5))
    found = dgpuhash.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    assert [device.backend.to_host(each).tolist() for each in found] == (
        [[2.5], [0], [0], [1]] if rows else [[], [], [], []]
    )
    assert [len(each) for each in dgpuhash.value_counts(keys)] == [rows, rows]


@pytest.mark.parametrize("distinct", [1, 30, 20_000])
def test_value_counts(device, distinct):
    keys = np.random.default_rng(distinct).integers(0, distinct, 50_000)
    uniques, counts = dgpuhash.value_counts(device.array(keys))
    expected = pd.Series(keys).groupby(keys, sort=False).size()
    expected = expected.sort_values(ascending=False, kind="stable")
    np.testing.assert_array_equal(device.backend.to_host(counts), expected)
    np.testing.assert_array_equal(device.backend.to_host(uniques), expected.index)


@pytest.mark.parametrize("dtype", ["float64", "float16", "datetime64[D]", "bool"])
def test_value_counts_of_odd_keys(device, dtype):
    keys = random_keys(dtype, 300, 3, distinct=10)
    uniques, counts = dgpuhash.value_counts(device.array(keys))
    names = keys_of(keys)
    found = dict(zip(keys_of(device.host(uniques, dtype)), counts.tolist(), strict=True))
    assert found == {name: names.count(name) for name in names}
    assert sorted(found.values(), reverse=True) == counts.tolist()


@given(keys_from("int16"))
def test_counts_of_any_batch(keys):
    uniques, index, counts = dgpuhash.unique(keys, return_index=True, return_counts=True)
    expected = np.unique(keys, return_index=True, return_counts=True)
    order = np.argsort(uniques)
    for found, wanted in zip((uniques, index, counts), expected, strict=True):
        np.testing.assert_array_equal(found[order], wanted)


def test_kinds_of_columns():
    series = pd.Series([2.5, 2.5, 1.0], index=list("abc"))
    codes, uniques = dgpuhash.factorize(series)
    assert isinstance(codes, pd.Series)
    assert codes.index.tolist() == list("abc")
    assert isinstance(uniques, pd.Series)
    assert uniques.tolist() == [2.5, 1.0]
    codes, uniques = dgpuhash.factorize([7, 7, 8])
    assert (codes.tolist(), uniques.tolist()) == ([0, 0, 1], [7, 8])


def test_what_are_no_keys():
    with pytest.raises(KeyTypeError):
        dgpuhash.factorize(np.array(["a"]))
    with pytest.raises(ShapeError):
        dgpuhash.factorize(np.zeros((2, 2)))


def test_memory_that_runs_out(monkeypatch):
    def no_room(*_):
        raise MemoryError("Unable to allocate 8 TiB")

    monkeypatch.setattr(compacting, "estimate_distinct", no_room)
    monkeypatch.setattr(compacting, "_SAMPLE_ROWS", {"cpu": 64})
    monkeypatch.setattr(compacting, "_IN_ORDER_ROWS", {"cpu": 0})
    with pytest.raises(OutOfMemoryError, match="factorize ran out of memory: Unable"):
        dgpuhash.factorize(np.arange(100))


@pytest.mark.parametrize("key", [0, -1, 7])
def test_ten_million_rows_of_one_key(device, key):
    keys = device.array(np.full(10**7, key))
    uniques, inverse, counts = dgpuhash.unique(keys, return_inverse=True, return_counts=True)
    assert (uniques.tolist(), counts.tolist()) == ([key], [10**7])
    assert not inverse.any()


def test_zipf(device):
    keys = np.random.default_rng(1).zipf(1.5, 500_000)
    codes, uniques = dgpuhash.factorize(device.array(keys))
    expected, names = pd.factorize(keys)
    np.testing.assert_array_equal(device.backend.to_host(codes), expected)
    np.testing.assert_array_equal(device.backend.to_host(uniques), names)
    counts = device.backend.to_host(dgpuhash.value_counts(device.array(keys))[1])
    np.testing.assert_array_equal(counts, np.sort(np.bincount(expected))[::-1])
