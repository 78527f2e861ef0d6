"""Random sequences of verbs from hypothesis, against the dictionaries."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import agree, fresh_once
from hypothesis import given, settings
from hypothesis import strategies as st
from model import MapModel, MultiMapModel, SetModel, rows_of
from strategies import key_pool, keys_from

from dgpuhash.tables import HashMap, HashSet, MultiMap

DTYPES = [("int8", "float32"), ("uint32", "int64"), ("int64", "int16"), ("float64", "complex128")]
FEW = settings(max_examples=12)
VERBS = st.sampled_from(["insert", "insert", "upsert", "erase", "grow", "clear", "copy"])


def steps(key):
    return st.lists(st.tuples(VERBS, keys_from(key), st.integers(0, 2**16)), max_size=12)


def sequences(test):
    """Run `test` for each pair of dtypes on sequences for its key dtype."""
    return pytest.mark.parametrize(("key", "value"), DTYPES)(FEW(given(data=st.data())(test)))


def numbered(value, n, seed):
    return (np.arange(n) + seed).astype(np.int32).astype(value)


@sequences
def test_set(device, key, value, data):
    table, model = HashSet(key, device=device.name), SetModel()
    for verb, keys, seed in data.draw(steps(key)):
        given_keys = device.array(keys)
        if verb in ("insert", "upsert"):
            fresh = device.backend.to_host(table.insert(given_keys))
            fresh_once(keys, fresh, model.insert(keys))
        elif verb == "erase":
            gone = device.backend.to_host(table.erase(given_keys))
            fresh_once(keys, gone, model.erase(keys))
        else:
            table, model = _other(verb, table, model, seed)
        agree(device, table, model)


@sequences
def test_map(device, key, value, data):
    table, model = HashMap(key, value, device=device.name), MapModel()
    pool = key_pool(key)
    for verb, keys, seed in data.draw(steps(key)):
        given_keys, values = device.array(keys), numbered(value, len(keys), seed)
        if verb == "insert":
            keep = ("first", "last")[seed % 2]
            fresh = table.insert(given_keys, device.array(values), keep=keep)
            assert device.backend.to_host(fresh).tolist() == model.insert(keys, values, keep)
        elif verb == "upsert":
            table.upsert(given_keys, device.array(values))
            model.upsert(keys, values)
        elif verb == "erase":
            gone = device.backend.to_host(table.erase(given_keys))
            fresh_once(keys, gone, model.erase(keys))
        else:
            table, model = _other(verb, table, model, seed)
        agree(device, table, model)
    found, _ = table.find(device.array(pool))
    assert rows_of(device.host(found, value)) == model.find(pool, np.zeros(1, value).tobytes())


@sequences
def test_multi_map(device, key, value, data):
    table, model = MultiMap(key, value, device=device.name), MultiMapModel()
    pool = key_pool(key)
    for verb, keys, seed in data.draw(steps(key)):
        given_keys, values = device.array(keys), numbered(value, len(keys), seed)
        if verb in ("insert", "upsert"):
            table.insert(given_keys, device.array(values))
            model.insert(keys, values)
        elif verb == "erase":
            gone = device.backend.to_host(table.erase(given_keys))
            fresh_once(keys, gone, model.erase(keys))
        else:
            table, model = _other(verb, table, model, seed)
        agree(device, table, model)
    found, offsets = table.find(device.array(pool))
    values, expected = model.find(pool)
    assert rows_of(device.host(found, value)) == values
    assert device.backend.to_host(offsets).tolist() == expected


def _other(verb, table, model, seed):
    if verb == "grow":
        table.reserve(seed % 5000)
    elif verb == "clear":
        table.clear()
        model = type(model)()
    else:
        copied = table.copy()
        table.clear()
        table = copied
    return table, model
