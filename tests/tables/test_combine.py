"""Inserts that combine the values of equal keys, against dictionaries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import random_keys

from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.tables import HashMap
from dgpuhash.tables.open_addressing import batch_insert, cardinality

UFUNCS = {"sum": np.add, "min": np.minimum, "max": np.maximum, "or": np.bitwise_or}
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
CASES = [
    *((value, combine) for value in INTEGERS for combine in UFUNCS),
    *((value, combine) for value in ("float32", "float64") for combine in ("sum", "min", "max")),
    *(("bool", combine) for combine in ("min", "max", "or")),
]
# Keys and values in one word, in two, and in arrays of their own.
KEYS = ["int8", "int32", "uint64", "float32"]


def random_numbers(dtype, rows, seed):
    made = np.random.default_rng(seed).integers(-300, 300, rows)
    return (made % 2 if dtype == "bool" else made).astype(dtype)


class Combined:
    """Dictionary of what a map should hold."""

    def __init__(self, combine):
        self.held, self._ufunc = {}, UFUNCS[combine]

    def insert(self, keys, values):
        """Return the new keys in order of first appearance."""
        new = []
        for key, value in zip(keys.tolist(), values, strict=True):
            if key in self.held:
                with np.errstate(over="ignore", invalid="ignore"):
                    value = self._ufunc(self.held[key], value)
            else:
                new.append(key)
            self.held[key] = value
        return new

    def check(self, device, table):
        keys = np.array(list(self.held), table.key_dtype)
        values = np.array(list(self.held.values()), table.value_dtype)
        got, found = table.find(device.array(keys))
        assert device.backend.to_host(found).all()
        np.testing.assert_array_equal(device.host(got, table.value_dtype), values)
        assert len(table) == len(keys)


@pytest.mark.parametrize(("value", "combine"), CASES)
@pytest.mark.parametrize("key", KEYS)
def test_combine(device, key, value, combine):
    table, model = HashMap(key, value, device=device.name), Combined(combine)
    for seed, rows in enumerate([1, 300, 2, 2000, 500]):
        keys = random_keys(key, rows, seed, distinct=150 * (seed + 1))
        keys = keys[~np.isnan(keys)] if keys.dtype.kind == "f" else keys
        values = random_numbers(value, len(keys), seed)
        fresh = table.insert(device.array(keys), device.array(values), combine=combine)
        fresh = device.backend.to_host(fresh)
        assert fresh.dtype == bool
        assert sorted(keys[fresh].tolist()) == sorted(model.insert(keys, values))
        model.check(device, table)
    table.erase(device.array(keys))
    for each in set(keys.tolist()):
        del model.held[each]
    table.insert(device.array(keys), device.array(values), combine=combine)
    model.insert(keys, values)
    model.check(device, table)


@pytest.mark.parametrize("key", ["uint32", "uint64"])
@pytest.mark.parametrize(("value", "combine"), [("int32", "sum"), ("float64", "min")])
def test_reserved_keys(device, key, value, combine):
    most = np.iinfo(key).max
    keys = np.array([most, 5, most - 1, most, most, most - 1], key)
    values = np.array([-1, -7, -1, 4, -3, 2], value)
    table, model = HashMap(key, value, device=device.name), Combined(combine)
    for _ in range(2):
        table.insert(device.array(keys), device.array(values), combine=combine)
        model.insert(keys, values)
        model.check(device, table)


@settings(max_examples=15)
@given(data=st.data())
@pytest.mark.parametrize(("value", "combine"), [("int64", "sum"), ("uint16", "max")])
def test_sequences(device, value, combine, data):
    """Whatever was stored, combined or replaced before."""
    table, model = HashMap("int32", value, device=device.name), Combined(combine)
    verbs = st.sampled_from(["combine", "combine", "upsert", "insert", "erase", "reserve"])
    keys_of_verb = st.lists(st.integers(-5, 40), max_size=30)
    for verb, keys, seed in data.draw(
        st.lists(st.tuples(verbs, keys_of_verb, st.integers(0, 99)), max_size=8)
    ):
        keys = np.array(keys, "int32")
        values = random_numbers(value, len(keys), seed)
        given = device.array(keys), device.array(values)
        if verb == "combine":
            table.insert(*given, combine=combine)
            model.insert(keys, values)
        elif verb == "upsert":
            table.upsert(*given)
            model.held.update(zip(keys.tolist(), values, strict=True))
        elif verb == "insert":
            table.insert(*given, keep="first")
            for each, number in zip(keys.tolist(), values, strict=True):
                model.held.setdefault(each, number)
        elif verb == "erase":
            table.erase(given[0])
            model.held = {each: held for each, held in model.held.items() if each not in keys}
        else:
            table.reserve(seed * 10)
        model.check(device, table)


@pytest.mark.parametrize("combine", ["min", "max"])
@pytest.mark.parametrize("value", ["float32", "float64"])
def test_nan_stays(device, value, combine):
    table, model = HashMap("int64", value, device=device.name), Combined(combine)
    for values in ([np.nan, 1, 5, np.inf], [2, np.nan, -np.inf, 7], [0, 0, 0, 0]):
        keys, numbers = np.array([1, 2, 3, 3]), np.array(values, value)
        table.insert(device.array(keys), device.array(numbers), combine=combine)
        model.insert(keys, numbers)
    model.check(device, table)


def test_float_sums_agree_to_rounding(device):
    keys = np.random.default_rng(0).integers(0, 50, 20_000)
    values = np.random.default_rng(1).normal(size=len(keys))
    table = HashMap("int64", "float64", device=device.name)
    table.insert(device.array(keys), device.array(values), combine="sum")
    got, _ = table.find(device.array(np.arange(50)))
    np.testing.assert_allclose(
        device.backend.to_host(got), np.bincount(keys, values), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("stored", [0, 40])
@pytest.mark.parametrize(("value", "combine"), [("int32", "sum"), ("int64", "min")])
def test_by_region(device, monkeypatch, value, combine, stored):
    """A large batch is placed region by region, whatever repeats in it."""
    monkeypatch.setattr(batch_insert, "bulk_pays", lambda *batch: True)
    monkeypatch.setattr(cardinality, "all_new", lambda *batch: True)
    monkeypatch.setattr(cardinality, "LEAST_ROWS", 16)
    table, model = HashMap("int32", value, device=device.name), Combined(combine)
    for keys in (np.arange(stored), np.arange(3000) // 2, np.arange(9000) % 5000):
        keys = keys.astype("int32")
        values = random_numbers(value, len(keys), len(keys))
        table.insert(device.array(keys), device.array(values), combine=combine)
        model.insert(keys, values)
        model.check(device, table)


def test_what_is_refused():
    table = HashMap("int64", "int64")
    for keep in ("any", "first"):
        with pytest.raises(SpecError, match="one of the two"):
            table.insert([1], [2], combine="sum", keep=keep)
    with pytest.raises(SpecError, match="use 'sum', 'min', 'max' or 'or'"):
        table.insert([1], [2], combine="mean")
    for value, combine in [("S12", "max"), ("i4,f4", "sum"), ("float16", "sum"), ("M8[s]", "min")]:
        with pytest.raises(UnsupportedError, match="cannot be combined"):
            HashMap("int64", value).insert([1], np.zeros(1, value), combine=combine)
    with pytest.raises(UnsupportedError, match="needs values of integers"):
        HashMap("int64", "float32").insert([1], [2.0], combine="or")
    with pytest.raises(UnsupportedError, match="not a bool"):
        HashMap("int64", "bool").insert([1], [True], combine="sum")
    assert len(table) == 0
