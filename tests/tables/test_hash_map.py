"""Every verb of HashMap for all key and value dtypes, against dictionaries."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from agreement import agree, fresh_once, pairs_of
from model import MapModel, keys_of, rows_of
from strategies import KEY_DTYPES, VALUE_DTYPES, random_keys, random_values
from table_methods.contracts import each_method

from dgpuhash.tables import HashMap, HashSet, join_indices

ROWS = 200


@each_method("map", "erase")
@pytest.mark.parametrize("value", VALUE_DTYPES)
@pytest.mark.parametrize("key", KEY_DTYPES)
def test_verbs(device, key, value, method):
    table, model = HashMap(key, value, device=device.name, method=method), MapModel()
    for seed, keep in enumerate(["first", "last", "first"]):
        keys = random_keys(key, ROWS, seed, distinct=80)
        values = random_values(value, ROWS, seed)
        fresh = table.insert(device.array(keys), device.array(values), keep=keep)
        assert device.backend.to_host(fresh).tolist() == model.insert(keys, values, keep)
        agree(device, table, model)

        keys = random_keys(key, ROWS, seed + 10, distinct=80)
        values = random_values(value, ROWS, seed + 10)
        table.upsert(device.array(keys), device.array(values))
        model.upsert(keys, values)
        agree(device, table, model)

        asked = random_keys(key, ROWS, seed + 20)
        found_values, found = table.find(device.array(asked))
        blank = np.zeros(1, value).tobytes()
        assert rows_of(device.host(found_values, value)) == model.find(asked, blank)
        assert device.backend.to_host(found).tolist() == model.contains(asked)
        rows, matched = table.match(device.array(asked))
        present = np.flatnonzero(model.contains(asked))
        assert device.backend.to_host(rows).tolist() == present.tolist()
        assert rows_of(device.host(matched, value)) == model.find(asked[present], blank)
        assert device.backend.to_host(table.contains(device.array(asked))).tolist() == (
            model.contains(asked)
        )
        assert device.backend.to_host(table.count(device.array(asked))).tolist() == (
            model.contains(asked)
        )

        gone = np.concatenate([keys[: ROWS // 4], random_keys(key, 20, seed + 30)])
        erased = table.erase(device.array(gone))
        fresh_once(gone, device.backend.to_host(erased), model.erase(gone))
        agree(device, table, model)
    copied = table.copy()
    table.clear()
    agree(device, table, MapModel())
    agree(device, copied, model)


@each_method("map")
@pytest.mark.parametrize("value", ["uint16", "int32", "int64", "complex128"])
@pytest.mark.parametrize("key", ["int8", "int32", "float64"])
def test_keep_any_keeps_one_whole_pair(device, key, value, method):
    table, model = HashMap(key, value, device=device.name, method=method), MapModel()
    for seed in range(3):
        keys = random_keys(key, 2000, seed, distinct=100)
        values = random_values(value, 2000, seed)
        candidates = model.candidates(keys, values)
        old = dict(model.pairs)
        fresh = device.backend.to_host(table.insert(device.array(keys), device.array(values)))
        fresh_once(keys, fresh, model.insert(keys, values))
        stored = dict(pairs_of(device, table))
        assert stored.keys() == model.pairs.keys()
        for name, value_bytes in stored.items():
            assert value_bytes == old[name] if name in old else value_bytes in candidates[name]
        chosen = {name: row for name, row, mark in _rows(keys, values, fresh) if mark}
        assert all(stored[name] == row for name, row in chosen.items())
        model.pairs = stored


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 1])
def test_a_join_with_a_table_that_stands(device, share):
    random = np.random.default_rng(7)
    keys = random.permutation(20_000)
    asked = random.integers(0, 20_000, 30_000)
    asked[random.random(30_000) >= share] += 20_000
    table = HashMap.from_arrays(device.array(keys), device.array(np.arange(20_000)))
    for found, wanted in zip(
        table.match(device.array(asked)),
        join_indices(device.array(asked), device.array(keys)),
        strict=True,
    ):
        np.testing.assert_array_equal(device.backend.to_host(found), device.backend.to_host(wanted))


def _rows(keys, values, fresh):
    return zip(keys_of(keys), rows_of(values), fresh, strict=True)


@each_method("map")
@pytest.mark.parametrize("value", VALUE_DTYPES)
def test_default_stands_where_keys_are_absent(device, value, method):
    values = random_values(value, 5, 1)
    table = HashMap("int64", value, device=device.name, method=method)
    default, blank = values[4], values[4:].tobytes()
    asked = device.array(np.array([10, 11, 0, 1]))
    before, found = table.find(asked, default=default)
    assert not device.backend.to_host(found).any()
    assert rows_of(device.host(before, value)) == [blank] * 4
    table.insert(device.array(np.array([0, 1])), device.array(values[:2]))
    after, found = table.find(asked, default=default)
    assert device.backend.to_host(found).tolist() == [False, False, True, True]
    assert rows_of(device.host(after, value)) == rows_of(values[[4, 4, 0, 1]])


@each_method("map")
@pytest.mark.parametrize("value", ["int32", "int64", "S20"])
def test_stored_keys_keep_their_value(device, value, method):
    keys = device.array(np.arange(100))
    first, second = random_values(value, 100, 1), random_values(value, 100, 2)
    table = HashMap("int64", value, device=device.name, method=method)
    assert device.backend.to_host(table.insert(keys, device.array(first))).all()
    for keep in ("any", "first", "last"):
        assert not device.backend.to_host(table.insert(keys, device.array(second), keep=keep)).any()
    assert rows_of(device.host(table.find(keys)[0], value)) == rows_of(first)


@each_method("map", "erase")
def test_rows_of_erased_wide_values_are_reused(device, method):
    table = HashMap("int64", "V40", device=device.name, method=method)
    keys = np.arange(4000)
    for round_ in range(12):
        values = random_values("V40", len(keys), round_)
        table.insert(device.array(keys), device.array(values))
        if round_ < 11:
            table.erase(device.array(keys))
    assert rows_of(device.host(table.find(device.array(keys))[0], "V40")) == rows_of(values)
    assert table.nbytes < 6 * 4000 * 48


def test_wide_values_take_room_for_keys_not_for_rows(device):
    keys = np.tile(np.arange(500), 200)
    values = random_values("V40", len(keys), 1)
    table = HashMap("int64", "V40", device=device.name)
    table.insert(device.array(keys), device.array(values))
    table.upsert(device.array(keys), device.array(values))
    assert rows_of(device.host(table.find(device.array(keys[:500]))[0], "V40")) == rows_of(
        values[-500:]
    )
    assert table.nbytes < 20 * table.capacity + 2 * 500 * 40


def test_copies_are_independent(device):
    table = HashMap.from_arrays([1], [2], device=device.name)
    for twin in (table.copy(), copy.copy(table), copy.deepcopy(table)):
        twin.insert([5], [6])
        twin.upsert([1], [9])
        assert (len(twin), len(table)) == (2, 1)
        assert table.find([1])[0].tolist() == [2]


def test_from_arrays(device):
    table = HashMap.from_arrays(
        device.array(np.array([1, 1], "uint16")),
        device.array(np.array([1.5, 2.5], "float32")),
        keep="last",
    )
    assert (table.key_dtype, table.value_dtype) == (np.uint16, np.float32)
    assert device.backend.to_host(table.items()[1]).tolist() == [2.5]


@each_method("map")
def test_empty_batches(device, method):
    for value in ("int32", "S20"):
        table = HashMap("int32", value, device=device.name, method=method)
        keys = device.array(np.empty(0, "int32"))
        values = device.array(np.empty(0, value))
        for keep in ("any", "first", "last"):
            assert len(table.insert(keys, values, keep=keep)) == 0
        table.upsert(keys, values)
        found_values, found = table.find(keys)
        assert (len(found_values), len(found), len(table)) == (0, 0, 0)
        assert [len(part) for part in table.items()] == [0, 0]


@pytest.mark.parametrize(
    ("value", "first", "written"),
    [("int64", 0, True), ("uint32", 64, True), ("int64", 1, False), ("uint32", 3, False),
     ("int16", 0, False), ("complex128", 0, False)],
)  # fmt: skip
def test_answers_to_given_arrays(device, value, first, written):
    """Where they begin at a multiple of 16 bytes, and values are words of the table."""
    keys = random_keys("int64", ROWS, 3)
    values = random_values(value, ROWS, 3)
    table = HashMap.from_arrays(device.array(keys), device.array(values))
    asked = device.array(random_keys("int64", ROWS, 4))
    wanted, there = table.find(asked, default=values[0])
    raw = device.backend.zeros((first + ROWS) * wanted.dtype.itemsize, np.uint8)
    row = wanted.reshape(ROWS, -1)
    to = raw.view(wanted.dtype).reshape(first + ROWS, -1)[first:].reshape(row.shape)
    to = to[:, 0] if wanted.ndim == 1 else to
    flags = device.backend.zeros(first + ROWS, np.uint8)[first:]
    assert table._find_to(asked, values[0], to, flags) == written
    if written:
        assert (to == wanted).all()
        assert (flags.view(bool) == there).all()
    else:
        assert not raw.any() and not flags.any()


def test_one_key(device):
    table = HashMap("int64", "float64", device=device.name)
    table.insert(device.array([5, 9]), device.array([0.5, 0.25]))
    assert 5 in table
    assert 6 not in table
    assert float(table[9]) == 0.25
    with pytest.raises(KeyError, match="6"):
        table[6]
    with pytest.raises(TypeError, match="not iterable"):
        iter(table)
    keys = HashSet("int64", device=device.name)
    keys.insert(device.array([5]))
    assert 5 in keys
    assert 6 not in keys
