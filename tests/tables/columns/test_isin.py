"""isin, against Python's sets and NumPy."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from model import keys_of
from strategies import KEY_DTYPES, keys_from, random_keys

import dgpuhash
from dgpuhash.errors import DeviceError, KeyTypeError, ShapeError


@pytest.mark.parametrize("dtype", KEY_DTYPES)
def test_every_dtype(device, dtype):
    values = random_keys(dtype, 500, 1, distinct=50)
    for keys in (random_keys(dtype, 200, 2), values[:40], values[:0]):
        found = dgpuhash.isin(device.array(values), device.array(keys))
        stored = set(keys_of(keys))
        assert found.dtype == bool
        assert device.backend.to_host(found).tolist() == [key in stored for key in keys_of(values)]
    assert len(dgpuhash.isin(device.array(values[:0]), device.array(values))) == 0


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("int32", "int64"),
        ("int64", "int8"),
        ("uint32", "int32"),
        ("float32", "float64"),
        ("float16", "int8"),
        ("bool", "uint8"),
    ],
)
def test_dtypes_that_hold_each_other(device, left, right):
    values, keys = np.arange(100).astype(left), np.arange(50, 200, 3).astype(right)
    found = dgpuhash.isin(device.array(values), device.array(keys))
    np.testing.assert_array_equal(device.backend.to_host(found), np.isin(values, keys))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("datetime64[s]", "int64"),
        ("bool", "timedelta64[s]"),
        ("timedelta64[M]", "timedelta64[D]"),
    ],
)
def test_dtypes_that_do_not(left, right):
    with pytest.raises(KeyTypeError, match="without changing values"):
        dgpuhash.isin(np.zeros(3, left), np.zeros(3, right))


def test_dates_of_different_units():
    days = np.array(["2026-11-20", "NaT", "2026-11-21"], "M8[D]")
    seconds = np.array(["2026-11-21T00:00:00", "NaT", "2026-11-20T00:00:01"], "M8[s]")
    assert dgpuhash.isin(days, seconds).tolist() == [False, True, True]


def test_lists(device):
    values = device.array(np.array([3, 4, 5], "uint8"))
    assert device.backend.to_host(dgpuhash.isin(values, [5, 3, 3])).tolist() == [True, False, True]
    assert dgpuhash.isin([1, 2.5], [1]).tolist() == [True, False]
    assert dgpuhash.isin([2**60 + 1], []).tolist() == [False]
    assert dgpuhash.isin([], [2**60 + 1]).tolist() == []
    found = dgpuhash.isin(values, [-1, 2**64, 2.5, 5.0])
    assert device.backend.to_host(found).tolist() == [False, False, True]


def test_series_keep_their_labels():
    found = dgpuhash.isin(pd.Series([1, 2], index=["a", "b"]), np.array([2]))
    pd.testing.assert_series_equal(found, pd.Series([False, True], index=["a", "b"]))


def test_many_rows(device):
    random = np.random.default_rng(0)
    values, keys = random.integers(0, 300_000, 200_000), random.integers(0, 300_000, 100_000)
    found = dgpuhash.isin(device.array(values), device.array(keys))
    np.testing.assert_array_equal(device.backend.to_host(found), np.isin(values, keys))


@pytest.mark.gpu
def test_arrays_on_two_devices():
    from dgpuhash import backend

    with pytest.raises(DeviceError):
        dgpuhash.isin(np.arange(3), backend.get("cuda").from_host(np.arange(3)))


@given(keys_from("float64"), keys_from("float64"))
def test_odd_floats(values, keys):
    stored = set(keys_of(keys))
    assert dgpuhash.isin(values, keys).tolist() == [key in stored for key in keys_of(values)]


@pytest.mark.parametrize(
    "nulls",
    [
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1.0, None], dtype="double[pyarrow]"),
        pa.array([1, None]),
        np.ma.masked_array([1, 2], [False, True]),
        [1, None],
    ],
    ids=["masked Series", "Arrow Series", "Arrow", "masked array", "list"],
)
def test_nulls_are_refused_as_by_a_set(nulls):
    plain, seen = np.array([1, 2]), dgpuhash.HashSet.from_keys([1, 2])
    asks = (
        seen.contains,
        lambda nulls: dgpuhash.isin(nulls, plain),
        lambda nulls: dgpuhash.isin(plain, nulls),
    )
    refused = KeyTypeError if isinstance(nulls, list) else ShapeError
    for ask, name in zip(asks, ("keys", "values", "keys"), strict=True):
        with pytest.raises(refused, match=rf"^{name} hold .*(drop them|leave it out).*FrameIndex"):
            ask(nulls)
