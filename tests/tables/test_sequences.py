"""Random sequences of verbs from hypothesis, against the dictionaries."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import agree, fresh_once
from hypothesis import given, settings
from hypothesis import strategies as st
from model import MapModel, MultiMapModel, SetModel, rows_of
from strategies import RECORD, key_pool, keys_from
from table_methods.contracts import agree_lists, check_lists

from dgpuhash import methods
from dgpuhash.tables import HashMap, HashSet, MultiMap

DTYPES = [("int8", "float32"), ("uint32", "int64"), ("int64", "int16"), ("float64", "complex128")]
# The pair with which each method is tested in every run; `make methods` takes the others.
QUICK = ("uint32", "int64")
RECORDS = (RECORD, "int32")
FEW = settings(max_examples=12)
VERBS = st.sampled_from(["insert", "insert", "upsert", "erase", "grow", "clear", "copy"])


def steps(key, method):
    chosen = VERBS.filter(lambda verb: verb != "erase" or verb in methods()[method].verbs)
    return st.lists(st.tuples(chosen, keys_from(key), st.integers(0, 2**16)), max_size=12)


def sequences(kind):
    """Run a test for each method and pair of dtypes on sequences for its key dtype."""

    cases = [
        pytest.param(name, *pair, marks=() if quick else pytest.mark.methods)
        for name, each in methods().items()
        if kind in each.nouns
        for pair in [*DTYPES, RECORDS]
        if pair is not RECORDS or (each.records and kind != "multimap")
        for quick in [name == "auto" or pair == QUICK]
    ]

    def run(test):
        drawn = FEW(given(data=st.data())(test))
        return pytest.mark.parametrize(("method", "key", "value"), cases)(drawn)

    return run


def numbered(value, n, seed):
    return (np.arange(n) + seed).astype(np.int32).astype(value)


@sequences("set")
def test_set(device, key, value, data, method):
    table, model = HashSet(key, device=device.name, method=method), SetModel()
    for verb, keys, seed in data.draw(steps(key, method)):
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


@sequences("map")
def test_map(device, key, value, data, method):
    table, model = HashMap(key, value, device=device.name, method=method), MapModel()
    pool = key_pool(key)
    for verb, keys, seed in data.draw(steps(key, method)):
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


@sequences("multimap")
def test_multi_map(device, key, value, data, method):
    table, model = MultiMap(key, value, device=device.name, method=method), MultiMapModel()
    pool = key_pool(key)
    for verb, keys, seed in data.draw(steps(key, method)):
        given_keys, values = device.array(keys), numbered(value, len(keys), seed)
        if verb in ("insert", "upsert"):
            table.insert(given_keys, device.array(values))
            model.insert(keys, values)
        elif verb == "erase":
            gone = device.backend.to_host(table.erase(given_keys))
            fresh_once(keys, gone, model.erase(keys))
        else:
            table, model = _other(verb, table, model, seed)
        agree_lists(device, table, model)
    check_lists(device, table, model, pool)


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
