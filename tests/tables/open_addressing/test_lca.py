"""Inserts that keep the lowest common ancestor of equal keys' values, against dictionaries."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import random_keys

import dgpuhash
from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.tables import HashMap, lca
from dgpuhash.tables.open_addressing import batch_insert, cardinality


def random_parents(nodes, seed):
    """Return a tree of so many nodes, half of them in long lines."""
    drawn = np.random.default_rng(seed)
    below = np.arange(2, nodes + 1)
    far = 1 + drawn.integers(0, 2**31, len(below)) % (below - 1)
    parents = np.where(drawn.random(len(below)) < 0.5, below - 1, far)
    return np.concatenate([[0, 0], parents])


class Folded:
    """Dictionary of what a map should hold."""

    def __init__(self, parents):
        self.held, self._parents = {}, parents.tolist()

    def _line(self, node):
        found = []
        while node:
            found.append(node)
            node = self._parents[node]
        return found

    def insert(self, keys, values):
        """Return the new keys in order of first appearance."""
        new = []
        for key, value in zip(keys.tolist(), values.tolist(), strict=True):
            if key not in self.held:
                new.append(key)
                self.held[key] = value
            elif self.held[key] == 0 or value == 0:
                self.held[key] += value
            else:
                above = set(self._line(self.held[key]))
                self.held[key] = next(node for node in self._line(value) if node in above)
        return new

    def check(self, device, table):
        keys = np.array(list(self.held), table.key_dtype)
        values = np.array(list(self.held.values()), table.value_dtype)
        got, found = table.find(device.array(keys))
        assert device.backend.to_host(found).all()
        np.testing.assert_array_equal(device.host(got, table.value_dtype), values)
        assert len(table) == len(keys)


@pytest.mark.parametrize("value", ["uint8", "int16", "uint32", "int64"])
@pytest.mark.parametrize("key", ["int8", "uint32", "uint64", "float32"])
def test_lca(device, key, value):
    parents = random_parents(100, 5)
    table, model = HashMap(key, value, device=device.name), Folded(parents)
    for seed, rows in enumerate([1, 300, 2, 2000, 500]):
        keys = random_keys(key, rows, seed, distinct=150 * (seed + 1))
        keys = keys[~np.isnan(keys)] if keys.dtype.kind == "f" else keys
        values = np.random.default_rng(seed).integers(0, 101, len(keys)).astype(value)
        fresh = table.insert(device.array(keys), device.array(values), combine=lca(parents))
        fresh = device.backend.to_host(fresh)
        assert fresh.dtype == bool
        assert sorted(keys[fresh].tolist()) == sorted(model.insert(keys, values))
        model.check(device, table)
    table.erase(device.array(keys))
    for each in set(keys.tolist()):
        del model.held[each]
    table.insert(device.array(keys), device.array(values), combine=lca(parents))
    model.insert(keys, values)
    model.check(device, table)


@pytest.mark.parametrize("key", ["uint32", "uint64"])
@pytest.mark.parametrize("value", ["int32", "uint64"])
def test_reserved_keys(device, key, value):
    most = np.iinfo(key).max
    keys = np.array([most, 5, most - 1, most, most, most - 1], key)
    values = np.array([3, 4, 0, 4, 3, 2], value)
    table, model = HashMap(key, value, device=device.name), Folded(np.array([0, 0, 1, 2, 2]))
    for _ in range(2):
        table.insert(device.array(keys), device.array(values), combine=lca([0, 0, 1, 2, 2]))
        model.insert(keys, values)
        model.check(device, table)


@settings(max_examples=15)
@given(data=st.data())
def test_sequences(device, data):
    """Whatever was stored, folded or replaced before."""
    parents = random_parents(40, 1)
    table, model = HashMap("int32", "uint16", device=device.name), Folded(parents)
    verbs = st.sampled_from(["fold", "fold", "upsert", "insert", "erase", "reserve"])
    keys_of_verb = st.lists(st.integers(-5, 40), max_size=30)
    for verb, keys, seed in data.draw(
        st.lists(st.tuples(verbs, keys_of_verb, st.integers(0, 99)), max_size=8)
    ):
        keys = np.array(keys, "int32")
        values = np.random.default_rng(seed).integers(0, 41, len(keys)).astype("uint16")
        rows = device.array(keys), device.array(values)
        if verb == "fold":
            table.insert(*rows, combine=lca(parents))
            model.insert(keys, values)
        elif verb == "upsert":
            table.upsert(*rows)
            model.held.update(zip(keys.tolist(), values.tolist(), strict=True))
        elif verb == "insert":
            table.insert(*rows, keep="first")
            for each, number in zip(keys.tolist(), values.tolist(), strict=True):
                model.held.setdefault(each, number)
        elif verb == "erase":
            table.erase(rows[0])
            model.held = {each: held for each, held in model.held.items() if each not in keys}
        else:
            table.reserve(seed * 10)
        model.check(device, table)


@pytest.mark.parametrize("stored", [0, 40])
@pytest.mark.parametrize("by_region", [False, True])
@pytest.mark.parametrize("value", ["uint32", "uint64"])
def test_growth(device, monkeypatch, value, stored, by_region):
    """A batch that the table has no room for, whatever repeats in it."""
    monkeypatch.setattr(cardinality, "LEAST_ROWS", 16)
    if by_region:
        monkeypatch.setattr(batch_insert, "bulk_pays", lambda *batch: True)
        monkeypatch.setattr(cardinality, "all_new", lambda *batch: True)
    parents = random_parents(2000, 3)
    table, model = HashMap("uint32", value, device=device.name), Folded(parents)
    for keys in (np.arange(stored), np.arange(3000) // 2, np.arange(9000) % 5000):
        keys = keys.astype("uint32")
        values = np.random.default_rng(len(keys)).integers(0, 2001, len(keys)).astype(value)
        table.insert(device.array(keys), device.array(values), combine=lca(parents))
        model.insert(keys, values)
        model.check(device, table)


def test_order_does_not_matter(device):
    """Few keys that all threads fold into at once."""
    parents = random_parents(5000, 8)
    keys = np.random.default_rng(0).integers(0, 20, 200_000).astype("uint64")
    # Of each key nodes of one clade.
    values = np.minimum(4900 - keys * 7, 100 + np.random.default_rng(1).integers(0, 4900, 200_000))
    values = values.astype("uint32")
    model = Folded(parents)
    pairs = np.unique(np.stack([keys, values.astype("uint64")], 1), axis=0)
    model.insert(pairs[:, 0], pairs[:, 1])
    for seed in range(4):
        table = HashMap("uint64", "uint32", device=device.name)
        order = np.random.default_rng(seed).permutation(len(keys))
        for rows in np.array_split(order, 1 + 2 * seed):
            table.insert(device.array(keys[rows]), device.array(values[rows]), combine=lca(parents))
        model.check(device, table)


def test_stored_values_that_are_no_nodes_are_replaced(device):
    table = HashMap.from_arrays(
        device.array(np.array([1, 2])), device.array(np.array([700, -1])), device=device.name
    )
    keys, nodes = device.array(np.array([1, 1, 2])), device.array(np.array([2, 3, 3]))
    table.insert(keys, nodes, combine=lca([0, 0, 1, 1]))
    found, _ = table.find(device.array(np.array([1, 2])))
    assert device.backend.to_host(found).tolist() == [1, 3]


def test_one_rule_for_several_tables(device):
    rule = pickle.loads(pickle.dumps(dgpuhash.lca(device.array(np.array([0, 0, 1, 1])))))
    assert (repr(rule), len(rule), rule.parents.tolist()) == ("<lca of 3 nodes>", 3, [0, 0, 1, 1])
    for value in ("uint8", "int64"):
        table = HashMap("int64", value, device=device.name)
        table.insert([5, 5, 6], [2, 3, 3], combine=rule)
        assert device.host(table.find([5, 6])[0], table.value_dtype).tolist() == [1, 3]


def test_what_is_refused(host):
    for parents in (
        [],
        [0],
        [[0, 0]],
        [0.0, 0.0],
        [0, 1],
        [1, 0],
        [0, 0, 0],
        [0, 0, 2],
        [0, 0, -1],
    ):
        with pytest.raises(SpecError, match=r"root 1|of a lower number"):
            lca(parents)
    tree = lca([0, 0, 1])
    table = HashMap("int64", "int32", device=host.name)
    with pytest.raises(SpecError, match="one of the two"):
        table.insert([1], [2], combine=tree, keep="first")
    for value in (3, -1):
        with pytest.raises(SpecError, match=f"value {value} is no node of a tree of 2"):
            table.insert([1], [value], combine=tree)
    for value in ("float32", "bool", "S12"):
        with pytest.raises(UnsupportedError, match="cannot be nodes"):
            HashMap("int64", value).insert([1], np.zeros(1, value), combine=tree)
    with pytest.raises(UnsupportedError, match="methods that can: auto"):
        HashMap("int64", "int32", method="slab").insert([1], [1], combine=tree)
    assert len(table) == 0
    table.insert(np.empty(0, "int64"), np.empty(0, "int32"), combine=tree)
    assert len(table) == 0
