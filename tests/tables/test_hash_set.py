"""Every verb of HashSet for every key dtype, against a set."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import agree, fresh_once
from model import SetModel
from strategies import KEY_DTYPES, key_pool, random_keys
from table_methods.contracts import each_method

from dgpuhash.tables import HashSet


@each_method("set", "erase")
@pytest.mark.parametrize("key", KEY_DTYPES)
def test_verbs(device, key, method):
    table, model = HashSet(key, device=device.name, method=method), SetModel()
    for seed in range(3):
        keys = random_keys(key, 400, seed, distinct=150)
        fresh = device.backend.to_host(table.insert(device.array(keys)))
        assert fresh.dtype == bool
        fresh_once(keys, fresh, model.insert(keys))
        agree(device, table, model)
        asked = random_keys(key, 300, seed + 50)
        found = table.contains(device.array(asked))
        assert device.backend.to_host(found).tolist() == model.contains(asked)
        counts = table.count(device.array(asked))
        assert counts.dtype == np.int64
        assert device.backend.to_host(counts).tolist() == model.contains(asked)
        gone = random_keys(key, 60, seed + 90, distinct=50)
        gone = np.concatenate([gone, keys[:30]])
        erased = table.erase(device.array(gone))
        fresh_once(gone, device.backend.to_host(erased), model.erase(gone))
        agree(device, table, model)
    table.clear()
    agree(device, table, SetModel())


@each_method("set", "erase")
@pytest.mark.parametrize("key", KEY_DTYPES)
def test_internal_patterns_zero_and_extremes_are_ordinary_keys(device, key, method):
    pool = key_pool(key)
    for one in pool:
        table, model = HashSet(key, device=device.name, method=method), SetModel()
        keys = np.array([one, one], dtype=pool.dtype)
        assert not device.backend.to_host(table.contains(device.array(pool))).any()
        model.insert(keys)
        table.insert(device.array(keys))
        agree(device, table, model)
        assert device.backend.to_host(table.contains(device.array(pool))).tolist() == (
            model.contains(pool)
        )
        table.erase(device.array(keys))
        agree(device, table, SetModel())
        assert device.backend.to_host(table.insert(device.array(keys))).sum() == 1


@each_method("set")
@pytest.mark.parametrize("key", ["float16", "float32", "float64"])
def test_nan_and_negative_zero(device, key, method):
    nans = np.array([np.nan, -np.nan, np.nan], key)
    nans[2:].view(f"u{nans.itemsize}")[:] ^= 1
    table = HashSet(key, device=device.name, method=method)
    table.insert(device.array(nans))
    table.insert(device.array(np.array([0.0, -0.0], key)))
    assert len(table) == 2
    stored = device.backend.to_host(table.items())
    assert np.isnan(stored).sum() == 1
    assert not np.signbit(stored[stored == 0]).any()


@each_method("set")
def test_nat_is_a_key(device, method):
    table = HashSet("datetime64[ns]", device=device.name, method=method)
    table.insert(device.array(np.array(["NaT", "NaT", "2020-01-01"], "M8[ns]")))
    assert len(table) == 2


@each_method("set", "erase")
def test_insert_and_erase_in_turn(device, method):
    table, model = HashSet("int64", device=device.name, method=method), SetModel()
    for seed in range(2):
        keys = random_keys("int64", 3000, seed)
        model.insert(keys)
        table.insert(device.array(keys))
        model.erase(keys[::3])
        table.erase(device.array(keys[::3]))
    agree(device, table, model)


def test_from_keys_takes_dtype_and_device(device):
    table = HashSet.from_keys(device.array(np.array([3, 1, 3], "int16")), seed=5)
    assert table.key_dtype == np.int16
    assert table.device == device.name
    assert table.spec.seed == 5
    assert len(table) == 2


@each_method("set", "erase")
def test_empty_batches(device, method):
    table = HashSet("int32", device=device.name, method=method)
    empty = device.array(np.empty(0, "int32"))
    for verb in (table.insert, table.contains, table.erase, table.count):
        assert len(verb(empty)) == 0
    assert len(table.items()) == 0
    assert len(table) == 0
