"""Every verb of MultiMap for all key and value dtypes, against lists."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import fresh_once
from model import MultiMapModel
from strategies import KEY_DTYPES, VALUE_DTYPES, random_keys, random_values
from table_methods.contracts import agree_lists, check_lists, each_method

from dgpuhash import methods
from dgpuhash.errors import CapacityError
from dgpuhash.tables import MultiMap
from dgpuhash.tables.bucket_list import grouping, pool
from dgpuhash.tables.bucket_list import table as keyed_lists
from dgpuhash.tables.open_addressing import cardinality

ROWS = 200


@each_method("multimap", "erase")
@pytest.mark.parametrize("value", VALUE_DTYPES)
@pytest.mark.parametrize("key", KEY_DTYPES)
def test_verbs(device, key, value, method):
    table, model = MultiMap(key, value, device=device.name, method=method), MultiMapModel()
    for seed in range(3):
        keys = random_keys(key, ROWS, seed, distinct=40)
        values = random_values(value, ROWS, seed)
        table.insert(device.array(keys), device.array(values))
        model.insert(keys, values)
        agree_lists(device, table, model)
        asked = random_keys(key, ROWS, seed + 20, distinct=60)
        _same_lists(device, table, model, asked)
        gone = np.concatenate([keys[: ROWS // 8], random_keys(key, 20, seed + 30)])
        erased = table.erase(device.array(gone))
        fresh_once(gone, device.backend.to_host(erased), model.erase(gone))
        agree_lists(device, table, model)
    copied = table.copy()
    table.clear()
    agree_lists(device, table, MultiMapModel())
    agree_lists(device, copied, model)


def _same_lists(device, table, model, asked):
    check_lists(device, table, model, asked)
    contained = device.backend.to_host(table.contains(device.array(asked)))
    assert contained.tolist() == model.contains(asked)


@pytest.mark.parametrize(("first", "growth"), [(1, 1.0), (1, 1.1), (3, 1.5), (16, 2.0), (1, 16.0)])
@pytest.mark.parametrize("value", ["int32", "float64", "S20"])
def test_bucket_growth(device, first, growth, value):
    table = MultiMap("int64", value, device=device.name, initial_bucket=first, growth=growth)
    model = MultiMapModel()
    sizes = [1, 500, 3, 40, 700]
    for seed, size in enumerate(sizes):
        keys = random_keys("int64", size, 1, distinct=7)
        values = random_values(value, size, seed)
        table.insert(device.array(keys), device.array(values))
        model.insert(keys, values)
    agree_lists(device, table, model)
    _same_lists(device, table, model, random_keys("int64", 50, 2))


@each_method("multimap")
def test_one_key_holds_everything(device, method):
    table = MultiMap("int32", "int64", device=device.name, method=method)
    for start in range(0, 50_000, 10_000):
        keys = np.full(10_000, -1, "int32")
        table.insert(device.array(keys), device.array(np.arange(start, start + 10_000)))
    found, offsets = table.find(device.array(np.array([0, -1, -2], "int32")))
    values = device.backend.to_host(found).tolist()
    assert (values if methods()[method].ordered else sorted(values)) == list(range(50_000))
    assert device.backend.to_host(offsets).tolist() == [0, 0, 50_000, 50_000]
    assert (len(table), table.n_keys) == (50_000, 1)


@each_method("multimap", "erase")
def test_erased_lists_are_reused(device, method):
    for value in ("int64", "V24"):
        table = MultiMap("int64", value, device=device.name, method=method)
        keys = np.repeat(np.arange(400), 10)
        for round_ in range(12):
            values = random_values(value, len(keys), round_)
            table.insert(device.array(keys), device.array(values))
            if round_ < 11:
                table.erase(device.array(keys))
        model = MultiMapModel()
        model.insert(keys, values)
        check_lists(device, table, model, np.arange(400))
        assert table.nbytes < 8 * len(keys) * (np.dtype(value).itemsize + 16)


@each_method("multimap")
def test_empty_batches(device, method):
    for value in ("int32", "S20"):
        table = MultiMap("int32", value, device=device.name, method=method)
        keys = device.array(np.empty(0, "int32"))
        table.insert(keys, device.array(np.empty(0, value)))
        found, offsets = table.find(keys)
        assert (len(found), len(table)) == (0, 0)
        assert device.backend.to_host(offsets).tolist() == [0]
        assert [len(part) for part in table.items()] == [0, 0]
        found, offsets = table.find(device.array(np.array([1, 2], "int32")))
        assert device.backend.to_host(offsets).tolist() == [0, 0, 0]


@pytest.mark.parametrize("value", ["int32", "int64", "S20"])
def test_compact(device, value):
    table, model = MultiMap("int64", value, device=device.name), MultiMapModel()
    table.compact()
    for seed in range(6):
        keys = random_keys("int64", 300, seed, distinct=40)
        values = random_values(value, len(keys), seed)
        table.insert(device.array(keys), device.array(values))
        model.insert(keys, values)
    for gone in (keys[:5], np.zeros(0, "int64")):
        table.erase(device.array(gone))
        model.erase(gone)
        before = table.nbytes
        table.compact()
        assert table.nbytes <= before
        agree_lists(device, table, model)
        _same_lists(device, table, model, random_keys("int64", 90, 50, distinct=60))
    compacted = table.nbytes
    table.compact()
    assert table.nbytes == compacted
    table.insert(device.array(keys), device.array(values))
    model.insert(keys, values)
    agree_lists(device, table, model)


def test_a_table_built_at_once_is_compact(device):
    table = MultiMap("int64", "int64", device=device.name, max_load=0.8)
    keys = np.random.default_rng(0).integers(0, 1000, 80_000)
    table.insert(device.array(keys), device.array(keys))
    nbytes = table.nbytes
    assert nbytes <= 1.15 * (8 * len(keys) + 16 * table.n_keys) / 0.9
    table.compact()
    assert table.nbytes == nbytes


@pytest.mark.parametrize("max_load", [0.3, 0.8, 0.99])
@pytest.mark.parametrize(("key", "value"), [("uint32", "int64"), ("uint64", "int32")])
def test_build_by_hash(device, monkeypatch, key, value, max_load):
    """Full buckets, and keys with the bits that mark free slots."""
    monkeypatch.setattr(grouping, "_FEW_ROWS", {"cpu": 10, "cuda": 10})
    keys = np.random.default_rng(2).integers(0, 3000, 6000).astype(key)
    keys[[5, 700, 701]] = np.array([-1, -2, -1]).astype(key)
    values = random_values(value, len(keys), 3)
    for _ in range(2):
        table = MultiMap(key, value, device=device.name, max_load=max_load)
        model = MultiMapModel()
        table.insert(device.array(keys), device.array(values))
        model.insert(keys, values)
        agree_lists(device, table, model)
        asked = np.concatenate([keys[:800], np.arange(2900, 3300).astype(key)])
        _same_lists(device, table, model, asked)
        table.erase(device.array(keys[:3000]))
        model.erase(keys[:3000])
        table.insert(device.array(keys), device.array(values))
        model.insert(keys, values)
        agree_lists(device, table, model)
        table.erase(device.array(keys))
        assert (len(table), table.n_keys) == (0, 0)
        table.insert(device.array(keys), device.array(values))
        assert (len(table), table.n_keys) == (6000, len(np.unique(keys)))
        keys = np.random.default_rng(4).permutation(6000).astype(key)


@each_method("multimap")
@pytest.mark.parametrize("value", ["int32", "float64"])
@pytest.mark.parametrize("share", ["half", "zipf"])
def test_heavy_keys(device, value, share, method):
    """Half of all pairs on one key, and Zipf's law, in a build and in appends."""
    random = np.random.default_rng(1)
    table, model = MultiMap("int32", value, device=device.name, method=method), MultiMapModel()
    for rows in (30_000, 3, 20_000):
        keys = random.zipf(1.5, rows) % 2**31
        if share == "half":
            keys = np.where(random.random(rows) < 0.5, 7, random.integers(0, 1000, rows))
        keys, values = keys.astype("int32"), random_values(value, rows, rows)
        table.insert(device.array(keys), device.array(values))
        model.insert(keys, values)
        asked = np.concatenate([keys[:40], random.integers(0, 2000, 20).astype("int32")])
        _same_lists(device, table, model, asked)
    agree_lists(device, table, model)


def test_values_beyond_what_a_table_can_number_are_refused(device, monkeypatch):
    monkeypatch.setattr(pool, "MOST_SLOTS", 100)
    table = MultiMap("int64", "int64", device=device.name)
    keys = np.zeros(70, np.int64)
    with pytest.raises(CapacityError, match="several tables"):
        table.insert(device.array(np.arange(101)), device.array(np.arange(101)))
    assert (len(table), table.n_keys) == (0, 0)
    table.insert(device.array(keys), device.array(keys))
    with pytest.raises(CapacityError, match="several tables"):
        table.insert(device.array(keys), device.array(keys))
    assert (len(table), table.n_keys) == (70, 1)
    counts = table.count(device.array(np.array([0, 1])))
    assert device.backend.to_host(counts).tolist() == [70, 0]


@pytest.mark.parametrize("value", ["uint32", "int64", "float32", "S20"])
@pytest.mark.parametrize("rows", [20, 5000])
def test_values_that_look_like_numbers_of_lists(device, monkeypatch, rows, value):
    """Only values in whatever range the numbers are, in builds and in appends."""
    monkeypatch.setattr(grouping, "_FEW_ROWS", {"cpu": 100, "cuda": 100})
    monkeypatch.setattr(pool, "_LEAST", 2)
    table, model = MultiMap("int32", value, device=device.name), MultiMapModel()
    every = np.arange(0, rows, dtype="u8") * (2 ** (63 if value == "int64" else 31) // (rows // 2))
    for first in (0, rows // 2, rows):
        keys = np.arange(first, first + rows).astype("int32")
        values = random_values(value, rows, 1) if value == "S20" else every.astype("u8")
        if value != "S20":
            values = values.astype(f"u{np.dtype(value).itemsize}").view(value)
        table.insert(device.array(keys), device.array(values))
        model.insert(keys, values)
        agree_lists(device, table, model)
        _same_lists(device, table, model, np.arange(0, 2 * rows, 7).astype("int32"))
    table.compact()
    agree_lists(device, table, model)


@pytest.mark.parametrize("most", [2**3, 2**7, 2**10])
@pytest.mark.parametrize("value", ["int32", "float64"])
def test_more_lists_than_short_entries_can_number(device, monkeypatch, most, value):
    monkeypatch.setattr(pool, "_MOST_NARROW", most)
    monkeypatch.setattr(pool, "_LEAST", 2)
    table, model = MultiMap("int32", value, device=device.name), MultiMapModel()
    widths = set()
    for seed, (rows, distinct) in enumerate([(3, 9), (30, 9), (300, 200), (50, 40), (2000, 900)]):
        keys = random_keys("int32", rows, seed, distinct=distinct)
        values = random_values(value, rows, seed)
        table.insert(device.array(keys), device.array(values))
        model.insert(keys, values)
        agree_lists(device, table, model)
        widths.add(table._store.value.itemsize)
        if seed == 2:
            gone = keys[:100]
            table.erase(device.array(gone))
            model.erase(gone)
    _same_lists(device, table, model, random_keys("int32", 200, 3, distinct=900))
    assert widths == ({8} if value == "float64" else {4, 8})
    table.clear()
    table.insert(device.array(keys[:2]), device.array(values[:2]))
    assert len(table) == 2


@pytest.mark.parametrize("where", ["nowhere", "first", "last"])
@pytest.mark.parametrize(("key", "value"), [("int64", "int32"), ("int32", "S20")])
def test_batch_of_unique_keys(device, monkeypatch, key, value, where):
    """And such that only seem to be unique."""
    monkeypatch.setattr(keyed_lists, "_SAMPLED_ROWS", 16)
    monkeypatch.setattr(cardinality, "_ROWS", 16)
    keys = np.random.default_rng(0).permutation(3000).astype(key)
    if where != "nowhere":
        keys[[0, 7] if where == "first" else [100, -1]] = 5000
    values = random_values(value, len(keys), 3)
    table, model = MultiMap(key, value, device=device.name, capacity=10), MultiMapModel()
    for _ in range(2):
        table.insert(device.array(keys), device.array(values))
        model.insert(keys, values)
        agree_lists(device, table, model)
    table.clear()
    table.insert(device.array(keys), device.array(values))
    assert len(table) == len(keys)


@pytest.mark.parametrize("load", [0.8, 0.9])
@pytest.mark.parametrize(
    ("multiplicity", "most"), [(1, 1.15), (2, 1.60), (4, 1.32), (8, 1.15), (64, 1.15)]
)
def test_memory_at_rest(device, load, multiplicity, most):
    """The bound is 1.15 times the pairs at the maximum load; two to seven values reach less."""
    rows = 2**18
    keys = np.random.default_rng(3).permutation(rows // multiplicity).astype("uint32")
    keys = np.tile(keys, multiplicity)
    table = MultiMap.from_arrays(
        device.array(keys), device.array(np.arange(rows, dtype="uint32")), max_load=load
    )
    assert len(table) == rows
    assert table.nbytes <= most * (4 * rows // multiplicity + 4 * rows) / load
