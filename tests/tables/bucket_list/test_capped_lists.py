"""Multimaps that keep the smallest values of each key, and those made of batches or lists."""

from __future__ import annotations

import copy
import pickle
from collections import defaultdict

import numpy as np
import pytest
from strategies import random_keys

from dgpuhash import load, methods
from dgpuhash.errors import KeyTypeError, ShapeError, SpecError, UnsupportedError
from dgpuhash.tables import HashMap, MultiMap
from dgpuhash.tables.bucket_list import streaming


def lists_of(device, table):
    keys, offsets, values = (device.backend.to_host(part).tolist() for part in table.lists())
    return {
        key: values[start:end]
        for key, start, end in zip(keys, offsets[:-1], offsets[1:], strict=True)
    }


def smallest(model, cap):
    return {key: sorted(values)[:cap] for key, values in model.items()}


def as_sets(lists):
    return {key: sorted(values) for key, values in lists.items()}


@pytest.mark.parametrize("value", ["int16", "uint8", "int64", "uint64"])
@pytest.mark.parametrize("cap", [1, 2, 3, 17])
def test_the_smallest_values_stay(device, cap, value):
    """Whatever the order in which they come, in one insert or several."""
    table = MultiMap("int32", value, cap=cap, device=device.name)
    model = defaultdict(list)
    least, most = np.iinfo(value).min, np.iinfo(value).max
    rng = np.random.default_rng(cap)
    for rows, distinct in ((5, 3), (3000, 40), (1, 1), (9000, 3000), (200, 20), (9000, 40)):
        keys = rng.integers(0, distinct, rows).astype("int32")
        values = rng.integers(least, most, rows, value, endpoint=True)
        table.insert(device.array(keys), device.array(values))
        for key, each in zip(keys.tolist(), values.tolist(), strict=True):
            model[key].append(each)
        expected = smallest(model, cap)
        assert as_sets(lists_of(device, table)) == expected
        assert len(table) == sum(map(len, expected.values()))
        assert table.n_keys == len(expected)
    asked = np.arange(-5, 60, dtype="int32")
    counts = device.backend.to_host(table.count(device.array(asked))).tolist()
    assert counts == [len(expected.get(key, ())) for key in asked.tolist()]
    erased = device.array(asked[5:30])
    table.erase(erased)
    for key in asked[5:30].tolist():
        model.pop(key, None)
    table.insert(erased, device.array(np.full(25, 7, value)))
    for key in asked[5:30].tolist():
        model[key].append(7)
    table.compact()
    assert as_sets(lists_of(device, table)) == smallest(model, cap)


def test_equal_values_count_each(device):
    table = MultiMap("int64", "int64", cap=3, device=device.name)
    for values in ([5, 5], [5, 9, 5], [4, 5, 4]):
        table.insert(device.array(np.zeros(len(values), int)), device.array(np.array(values)))
    assert lists_of(device, table) == {0: [4, 4, 5]}


def test_full_lists_are_not_written_again(device, monkeypatch):
    """Values that have no place cost no room."""
    table = MultiMap("int64", "int64", cap=4, device=device.name)
    keys = device.array(np.repeat(np.arange(500), 4))
    table.insert(keys, device.array(np.arange(2000)))
    before = table.nbytes
    for start in range(2000, 20_000, 2000):
        table.insert(keys, device.array(np.arange(start, start + 2000)))
    assert (len(table), table.nbytes) == (2000, before)
    # And what is replaced is dropped some time.
    for start in range(0, -100_000, -2000):
        table.insert(keys, device.array(np.arange(start - 2000, start)))
    assert table.nbytes < 6 * before


def test_a_cap_goes_where_the_table_goes(tmp_path):
    table = MultiMap.from_arrays([1, 1, 1, 2], [7, 5, 6, 9], cap=2)
    table.save(tmp_path / "x")
    for other in (load(tmp_path / "x"), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert other.spec.cap == 2
        other.insert([1, 2, 2], [4, 9, 8])
        assert as_sets(dict(zip([1, 2], map(list, np.split(*_halves(other))), strict=True))) == {
            1: [4, 5],
            2: [8, 9],
        }
    assert len(table) == 3


def _halves(table):
    values, offsets = table.find([1, 2])
    return values, offsets[1:-1]


def test_where_there_is_no_cap():
    with pytest.raises(SpecError, match="cap=0; use 1 to"):
        MultiMap("int64", "int64", cap=0)
    with pytest.raises(SpecError, match="no integer"):
        MultiMap("int64", "int64", cap=1.5)
    for value in ("float64", "S4", "bool", "M8[s]"):
        with pytest.raises(SpecError, match="no order"):
            MultiMap("int64", value, cap=2)
    for method in set(methods()) - {"auto"}:
        if methods()[method].stores("multimap"):
            with pytest.raises(UnsupportedError, match="keeps all values"):
                MultiMap("int64", "int64", cap=2, method=method)
    with pytest.raises(SpecError, match="no setting 'cap'"):
        HashMap("int64", "int64", cap=2)
    with pytest.raises(UnsupportedError, match="keeps no order"):
        MultiMap("int64", "int64", cap=2).find([1], stable=True)


@pytest.mark.parametrize("cap", [None, 2])
@pytest.mark.parametrize(
    ("key", "value", "sizes", "distinct"),
    [
        ("uint32", "uint64", (20_000, 9_000, 0, 1), 9000),
        ("int64", "int32", (5, 3), 4),
        ("uint64", "int64", (40_000,), 20),
        ("int32", "int64", (20_000, 9_000), 10**6),
        ("int8", "uint64", (0,), 1),
    ],
)
def test_batches_are_as_one(device, cap, key, value, sizes, distinct):
    batches = [
        (random_keys(key, rows, 3 + at, distinct=distinct), np.arange(rows, dtype=value) * (at + 1))
        for at, rows in enumerate(sizes)
    ]
    given = ((device.array(keys), device.array(values)) for keys, values in batches)
    made = MultiMap.from_batches(given, key, value, cap=cap, device=device.name)
    one = MultiMap(key, value, cap=cap, device=device.name)
    one.insert(*(device.array(np.concatenate(part)) for part in zip(*batches, strict=True)))
    found, expected = lists_of(device, made), lists_of(device, one)
    assert (found if cap is None else as_sets(found)) == (
        expected if cap is None else as_sets(expected)
    )
    assert (len(made), made.n_keys) == (len(one), one.n_keys)
    asked = device.array(random_keys(key, 300, 7))
    for part, other in zip(made.find(asked), one.find(asked), strict=True):
        if cap is None:
            assert device.backend.to_host(part).tolist() == device.backend.to_host(other).tolist()


def test_batches_of_wide_values_and_other_methods():
    keys = np.repeat(np.arange(50), 3)
    for value, settings in (("S20", {}), ("int64", {"method": "bucket_list"})):
        values = np.arange(150).astype(value)
        batches = [(keys[:70], values[:70]), (keys[70:], values[70:])]
        made = MultiMap.from_batches(batches, "int64", value, **settings)
        found, offsets = made.find(np.arange(50))
        assert offsets.tolist() == list(range(0, 151, 3))
        assert sorted(found.tolist()) == sorted(values.tolist())


def test_parts_follow_each_other(monkeypatch):
    """Parts too small for a sort by hash among larger ones, and keys that fill whole parts."""
    monkeypatch.setitem(streaming._PARTS_BITS, "cpu", 3)
    rng = np.random.default_rng(2)
    for distinct in (3, 400, 60_000):
        keys = rng.integers(0, distinct, 60_000).astype("uint32")
        keys[: 60_000 // 3] = 7
        made = MultiMap.from_batches([(keys, np.arange(60_000))], "uint32", "int64")
        assert made.find(np.unique(keys))[0].tolist() == np.argsort(keys, kind="stable").tolist()


def test_lists_are_stored_as_they_are():
    made = MultiMap.from_lists([7, 5], [0, 1, 4], [1, 4, 2, 3], cap=3)
    assert made.find([5, 7])[0].tolist() == [4, 2, 3, 1]
    keys, offsets, values = made.lists()
    again = MultiMap.from_lists(keys, offsets, values)
    assert again.find([5, 7])[0].tolist() == [4, 2, 3, 1]
    assert len(MultiMap.from_lists(np.zeros(0, int), [0], np.zeros(0, int))) == 0


@pytest.mark.parametrize(
    ("keys", "offsets", "values", "told"),
    [
        ([1, 2], [0, 1], [1], "one more than keys"),
        ([1, 2], [0, 1, 3], [1, 2], "do not part"),
        ([1, 2], [1, 2, 3], [1, 2, 3], "do not part"),
        ([1, 2], [0, 2, 2], [1, 2], "do not part"),
        ([1, 1], [0, 1, 2], [1, 2], "come twice"),
        ([1], [0, 3], [1, 2, 3], "longer than cap=2"),
    ],
)
def test_lists_that_are_none(keys, offsets, values, told):
    with pytest.raises(ShapeError, match=told):
        MultiMap.from_lists(keys, offsets, values, cap=2)
    with pytest.raises(KeyTypeError):
        MultiMap.from_batches([(["a"], [1])], "int64", "int64")
