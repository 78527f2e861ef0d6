"""Reductions by key, against NumPy group by group and pandas."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model import keys_of
from strategies import random_keys, random_values

import dgpuhash
from dgpuhash.backend.native import native
from dgpuhash.errors import ColumnError, DgpuhashError, KeyTypeError, ShapeError, SpecError
from dgpuhash.tables.columns import aggregates, factorize, group_table
from dgpuhash.tables.columns import distinct as compacting

NUMBERS = ["bool", "int8", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "float32", "float64"]
DATES = ["datetime64[s]", "timedelta64[ns]"]
HOWS = ["sum", "count", "min", "max", "mean", "first", "last", "any", "all"]


PLANNED = aggregates._plan


@pytest.fixture(
    params=[
        "as planned", "small segments", "as on a GPU", "one total for all tiles",
        "with the keys", "with the keys, in blocks", "with the keys, by region",
        "with the keys, refused",
    ]
)  # fmt: skip
def plan(request, monkeypatch):
    """Cut rows into segments in several ways; results must be the same."""
    if request.param == "small segments":
        monkeypatch.setattr(aggregates, "_REGION_BITS", 2)
        monkeypatch.setattr(aggregates, "_GPU_ROWS", 32)
        monkeypatch.setattr(aggregates, "_GPU_OWN_GROUPS", 5)
    elif request.param == "as on a GPU":
        monkeypatch.setattr(
            aggregates, "_plan", lambda _, rows, groups: PLANNED("cuda", rows, groups)
        )
    elif request.param == "one total for all tiles":

        def shared(device, rows, groups):
            return aggregates._SegmentPlan(40, -(-rows // 40), copies=1, alone=False)

        monkeypatch.setattr(aggregates, "_plan", shared)
    elif request.param.startswith("with the keys"):
        # On the CPU, too.
        monkeypatch.setattr(factorize, "one_pass_pays", lambda *_: True)
        monkeypatch.setattr(aggregates, "_FEW_GROUPS", 2**62 if "blocks" in request.param else 0)
        monkeypatch.setattr(group_table, "_BLOCK_ROWS", 100)
        if "refused" in request.param:
            monkeypatch.setattr(compacting, "_CLOSE_LINES", 1)
        if "region" in request.param:
            monkeypatch.setattr(aggregates, "_SCATTERED_GROUPS", 0)
            monkeypatch.setattr(aggregates, "_SCATTERED_ROWS", 0)


def by_hand(values, how):
    """Return the expected result of one group."""
    kind = values.dtype.kind
    valid = values[~np.isnan(values)] if kind == "f" else values
    valid = values[~np.isnat(values)] if kind in "mM" else valid
    nothing = np.nan if kind == "f" else "NaT"
    if how == "count":
        return len(valid)
    if how == "sum":
        return valid.astype(np.float64).sum() if kind == "f" else valid.sum()
    if how == "mean":
        return valid.astype(np.float64).mean() if len(valid) else np.nan
    if how in ("any", "all"):
        return getattr(valid, how)()
    if not len(valid):
        return np.array(nothing, values.dtype)
    return {
        "min": valid.min,
        "max": valid.max,
        "first": lambda: valid[0],
        "last": lambda: valid[-1],
    }[how]()


def result_dtype(dtype, how):
    """Return the documented dtype of a result."""
    made = np.dtype(dtype)
    if how == "count":
        return np.dtype("int64")
    if how in ("any", "all"):
        return np.dtype(bool)
    if how == "sum" and made.kind != "f":
        return np.dtype("uint64" if made.kind == "u" else "int64")
    return np.dtype("float64") if how == "mean" and made.kind != "f" else made


def groups_of(keys):
    """Return the rows of each key, keys in order of first appearance."""
    rows = {}
    for row, name in enumerate(keys_of(keys)):
        rows.setdefault(name, []).append(row)
    return list(rows.values())


def agree(device, keys, values, how):
    uniques, result = dgpuhash.group_reduce(device.array(keys), device.array(values), how)
    rows = groups_of(keys)
    first = [each[0] for each in rows]
    assert keys_of(device.host(uniques, keys.dtype)) == keys_of(keys[first])
    made = result_dtype(values.dtype, how)
    found = device.host(result, made)
    assert found.dtype == made
    with np.errstate(all="ignore"):
        expected = np.array([by_hand(values[each], how) for each in rows]).astype(made)
    if made.kind == "f" and how in ("sum", "mean"):
        tolerance = 1e-12 if made.itemsize == 8 else 2 * np.finfo(made).eps
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-12)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("value", NUMBERS + FLOATS)
def test_numbers(device, value, how, plan):
    for seed, distinct in enumerate([1, 6, 120]):
        keys = random_keys("int64", 400, seed, distinct=distinct)
        values = random_values(value, 400, seed)
        if np.dtype(value).kind == "f":
            values = np.random.default_rng(seed).standard_normal(400).astype(value)
            values[::7] = np.nan
            values[keys == keys[3]] = np.nan
            values[1::11] = 0
        agree(device, keys, values, how)


@pytest.mark.parametrize("how", ["count", "min", "max", "first", "last"])
@pytest.mark.parametrize("value", DATES)
def test_dates(host, value, how, plan):
    keys = random_keys("int32", 400, 1, distinct=40)
    values = random_values(value, 400, 2)
    extremes = np.array([0, 1, -1, 2**63 - 1, -(2**63) + 1]).view(value)
    values[:5] = extremes
    values[10::3] = "NaT"
    values[keys == keys[20]] = "NaT"
    agree(host, keys, values, how)


@pytest.mark.parametrize("how", ["count", "first", "last"])
@pytest.mark.parametrize("value", ["S3", "U5", "V17", "complex64"])
def test_other_values(host, value, how):
    agree(host, random_keys("int8", 300, 1), random_values(value, 300, 2), how)


@pytest.mark.parametrize("extreme", [-np.inf, np.inf, -0.0, 5e-324])
@pytest.mark.parametrize("how", ["sum", "min", "max", "mean"])
def test_odd_floats(device, extreme, how, plan):
    keys = np.array([1, 2, 1, 3] * 20)
    values = np.array([extreme, np.nan, extreme, 1.5] * 20)
    agree(device, keys, values, how)


def test_integer_sums_wrap_around(device, plan):
    values = np.full(1000, 2**62 + 1)
    _, sums = dgpuhash.group_reduce(device.array(np.zeros(1000, "u1")), device.array(values), "sum")
    assert device.backend.to_host(sums).tolist() == [values.sum()]


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(device, rows, plan):
    keys, values = np.arange(rows), np.arange(rows) + 7.5
    uniques, results = dgpuhash.group_reduce(device.array(keys), device.array(values), HOWS)
    assert len(uniques) == rows
    assert list(results) == HOWS
    for how, result in results.items():
        expected = [{"count": 1, "any": True, "all": True}.get(how, 7.5)] * rows
        assert device.backend.to_host(result).tolist() == expected


@pytest.mark.parametrize("distinct", [1, 100, 5000, 200_000])
def test_many_rows_and_columns(device, distinct, plan):
    random = np.random.default_rng(distinct)
    keys = random.integers(0, distinct, 300_000)
    keys[::2] = 3  # half of all rows in one group
    columns = {
        "cents": random.integers(-(10**12), 10**12, len(keys)),
        "share": random.standard_normal(len(keys)),
    }
    how = {"cents": ["sum", "min", "max", "count"], "share": ["sum", "mean", "last"]}
    given = {name: device.array(values) for name, values in columns.items()}
    uniques, results = dgpuhash.group_reduce(device.array(keys), given, how)
    expected = pd.DataFrame(columns).groupby(keys, sort=False).agg(how)
    np.testing.assert_array_equal(device.backend.to_host(uniques), expected.index)
    for name, one in expected:
        found = device.backend.to_host(results[name][one])
        if name == "share" and one != "last":
            np.testing.assert_allclose(found, expected[name, one], rtol=1e-9, atol=1e-9)
        else:
            np.testing.assert_array_equal(found, expected[name, one])


def test_ten_million_rows_of_one_key(device):
    keys, values = device.array(np.zeros(10**7, "u4")), device.array(np.arange(10**7))
    _, results = dgpuhash.group_reduce(keys, values, ["sum", "min", "last", "count"])
    found = [int(result[0]) for result in results.values()]
    assert found == [10**7 * (10**7 - 1) // 2, 0, 10**7 - 1, 10**7]


def test_zipf(device, plan):
    random = np.random.default_rng(2)
    keys, values = random.zipf(1.3, 200_000), random.integers(-(2**40), 2**40, 200_000)
    hows = ["sum", "count", "max", "first"]
    uniques, results = dgpuhash.group_reduce(device.array(keys), device.array(values), hows)
    expected = pd.Series(values).groupby(keys, sort=False).agg(hows)
    np.testing.assert_array_equal(device.backend.to_host(uniques), expected.index)
    for how, found in results.items():
        np.testing.assert_array_equal(device.backend.to_host(found), expected[how])


def test_no_room_to_put_rows_in_order(device, monkeypatch):
    def no_room(*_, **__):
        raise MemoryError("Unable to allocate 8 TiB")

    monkeypatch.setattr(factorize, "one_pass_pays", lambda *_: True)
    monkeypatch.setattr(aggregates, "_SCATTERED_GROUPS", 0)
    monkeypatch.setattr(aggregates, "_SCATTERED_ROWS", 0)
    monkeypatch.setattr(type(device.backend), "partition", no_room)
    agree(device, random_keys("int64", 400, 1), np.arange(400), "sum")


@pytest.mark.parametrize("distinct", [40_000, 10**6])
def test_many_groups(device, distinct):
    random = np.random.default_rng(0)
    # -1 is the key that has no record of its own kind.
    frame = pd.DataFrame(random.integers(-1, [distinct, 1000], (300_000, 2)), columns=["k", "v"])
    keys, values = device.array(frame["k"].to_numpy()), device.array(frame["v"].to_numpy())
    hows = ["sum", "count", "min", "max", "first", "last"]
    groups, results = dgpuhash.group_reduce(keys, values, hows)
    expected = frame.groupby("k", sort=False)["v"].agg(hows)
    assert device.backend.to_host(groups).tolist() == expected.index.tolist()
    for how in hows:
        assert device.backend.to_host(results[how]).tolist() == expected[how].tolist()


@pytest.mark.parametrize("distinct", [50, 40_000])
def test_sums_do_not_depend_on_threads(distinct):
    random = np.random.default_rng(0)
    keys, values = random.integers(0, distinct, 100_000), random.standard_normal(100_000)
    found = set()
    try:
        for threads in (1, 2, 5):
            native().set_threads(threads)
            found.add(dgpuhash.group_reduce(keys, values, "sum")[1].tobytes())
    finally:
        native().set_threads(0)
    assert len(found) == 1


def test_sums_of_few_groups_are_the_same_in_every_run(device):
    random = np.random.default_rng(0)
    keys = device.array(random.integers(0, 2000, 200_000))
    values = device.array(random.standard_normal(200_000))
    sums = [dgpuhash.group_reduce(keys, values, "sum")[1] for _ in range(3)]
    assert len({device.backend.to_host(each).tobytes() for each in sums}) == 1


def test_nothing_to_reduce_names_the_remedy():
    with pytest.raises(SpecError, match=r"nothing to reduce: values names no columns.*unique"):
        dgpuhash.group_reduce([1], {}, "sum")
    with pytest.raises(SpecError, match="nothing to reduce: how names no columns"):
        dgpuhash.group_reduce([1], {"a": [1]}, {})
    with pytest.raises(SpecError, match="no reductions of values 'a'; use one or more of sum"):
        dgpuhash.group_reduce([1], {"a": [1]}, [])


@pytest.mark.parametrize("how", ["sum", "mean"])
@pytest.mark.parametrize(("rows", "distinct"), [(4000, 3), (30_000, 5000), (300_000, 100_000)])
def test_sums_of_floats_are_those_of_pandas(rows, distinct, how):
    random = np.random.default_rng(rows)
    keys = random.integers(0, distinct, rows)
    values = random.standard_normal(rows) * 10.0 ** random.integers(-12, 12, rows)
    values[random.integers(0, rows, rows // 10)] = np.nan
    expected = getattr(pd.Series(values).groupby(keys, sort=False), how)()
    np.testing.assert_array_equal(
        dgpuhash.group_reduce(keys, values, how)[1], expected.to_numpy(), strict=True
    )


@pytest.mark.parametrize("distinct", [1, 7, 1000, 50_000])
def test_sums_of_floats_are_compensated(distinct):
    random = np.random.default_rng(distinct)
    keys = random.integers(0, distinct, 200_000)
    values = random.random(len(keys)) * 10.0 ** random.integers(-6, 6, len(keys)) + 0.1
    uniques, sums = dgpuhash.group_reduce(keys, values, "sum")
    for key, found in zip(uniques[:50].tolist(), sums[:50].tolist(), strict=True):
        real = math.fsum(values[keys == key])
        assert abs(found - real) <= 2 * math.ulp(real)


def test_a_million_tenths():
    _, tenths = dgpuhash.group_reduce(np.zeros(10**6, "u1"), np.full(10**6, 0.1), ["sum", "mean"])
    assert (tenths["sum"][0], tenths["mean"][0]) == (100_000.0, 0.1)


@pytest.mark.parametrize("times", [1, 3000])
def test_sums_that_are_no_finite_floats(times):
    largest = np.finfo(float).max
    for values, expected in (
        ([np.inf, 1.0, 2.0], np.inf),
        ([1.0, -np.inf, 1e300, 0.5], -np.inf),
        ([np.inf, 1.0, -np.inf, 1.0], np.nan),
        ([largest, largest, -1.0, 1.0], np.inf),
        ([np.nan, np.nan], 0.0),
        ([-largest, -largest, 1.0], -np.inf),
    ):
        batch = np.array(values * times)
        (found,) = dgpuhash.group_reduce(np.zeros(len(batch), np.int64), batch, "sum")[1]
        np.testing.assert_equal(found, expected)
    keys, batch = np.array([0, 1] * 2 * times), np.array([largest, 0.5, largest, 0.25] * times)
    assert dgpuhash.group_reduce(keys, batch, "sum")[1].tolist() == [np.inf, 0.75 * times]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(width=32) | st.just(np.nan)), max_size=40),
    st.sampled_from(["count", "min", "max", "first", "last", "any", "all"]),
)
def test_like_pandas(rows, how):
    keys = np.array([key for key, _ in rows], np.int16)
    values = np.array([value for _, value in rows], np.float32)
    uniques, result = dgpuhash.group_reduce(keys, values, how)
    expected = getattr(pd.Series(values).groupby(keys, sort=False), how)()
    np.testing.assert_array_equal(uniques, expected.index)
    np.testing.assert_array_equal(result, expected.to_numpy())


def test_forms_of_values_and_how(device):
    keys, values = device.array(np.array([4, 4, 9])), device.array(np.array([1, 2, 3]))
    plain = dgpuhash.group_reduce(keys, values, "sum")[1]
    assert device.backend.to_host(plain).tolist() == [3, 3]
    both = dgpuhash.group_reduce(keys, {"a": values, "b": values}, "max")[1]
    assert sorted(both) == ["a", "b"]
    one = dgpuhash.group_reduce(keys, {"a": values, "b": values}, {"b": ("min",)})[1]
    assert {name: list(made) for name, made in one.items()} == {"b": ["min"]}


def test_series():
    keys, values = pd.Series([1, 1, 2], index=list("abc")), pd.Series([1.5, 2.5, np.nan])
    uniques, result = dgpuhash.group_reduce(keys, values, "mean")
    pd.testing.assert_series_equal(uniques, pd.Series([1, 2]))
    pd.testing.assert_series_equal(result, pd.Series([2.0, np.nan]))


@pytest.mark.parametrize(
    ("values", "how", "error"),
    [
        (np.arange(3), "median", SpecError),
        (np.arange(3), None, SpecError),
        (np.arange(3), np.sum, SpecError),
        ({"a": np.arange(3)}, {"a": None}, SpecError),
        ({}, "sum", SpecError),
        ({}, ["sum", "max"], SpecError),
        ({}, [], SpecError),
        ({}, {}, SpecError),
        ({"a": np.arange(3)}, {}, SpecError),
        ({"a": np.arange(3)}, [], SpecError),
        ({"a": np.arange(3), "b": np.arange(3)}, {"a": "sum", "b": []}, SpecError),
        (np.arange(3), [], SpecError),
        (np.arange(3), (), SpecError),
        (np.arange(3), {"a": "sum"}, ColumnError),
        ({"a": np.arange(3)}, {"b": "sum"}, ColumnError),
        (np.arange(4), "sum", ShapeError),
        (np.array(["a", "b", "c"]), "max", KeyTypeError),
        (np.array(["a", "b", "c"], np.dtypes.StringDType()), "max", KeyTypeError),
        (np.array([1, 2, 3], "M8[s]"), "mean", KeyTypeError),
    ],
)
def test_what_cannot_be_reduced(values, how, error):
    with pytest.raises(error) as raised:
        dgpuhash.group_reduce(np.arange(3), values, how)
    assert isinstance(raised.value, DgpuhashError)


def test_values_in_the_other_byte_order():
    values = np.array([1, 2, 300], ">i4")
    for how, wanted in {"sum": [3, 300], "max": [2, 300], "last": [2, 300]}.items():
        _, reduced = dgpuhash.group_reduce(np.array([7, 7, 8]), values, how)
        assert reduced.tolist() == wanted
        assert reduced.dtype.isnative


def test_names_of_reductions_that_can_be_read_once():
    _, reduced = dgpuhash.group_reduce([1, 1, 2], {"a": [1, 2, 3]}, iter(["sum", "min"]))
    assert {how: found.tolist() for how, found in reduced["a"].items()} == {
        "sum": [3, 3],
        "min": [1, 3],
    }


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="long double is float64 here")
@pytest.mark.parametrize("how", ["sum", "first", "count"])
def test_numbers_that_are_too_wide(how):
    values = np.array([1, 2, 3], np.longdouble)
    with pytest.raises(KeyTypeError, match=r"astype\('float64'\)"):
        dgpuhash.group_reduce(np.array([1, 1, 2]), values, how)
