"""Multimaps that keep the smallest values of each key, and those made of batches or lists."""

from __future__ import annotations

import copy
import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from strategies import random_keys

from dgpuhash import load, methods
from dgpuhash.backend import unnamed_file
from dgpuhash.errors import KeyTypeError, OutOfMemoryError, ShapeError, SpecError, UnsupportedError
from dgpuhash.tables import HashMap, MultiMap
from dgpuhash.tables.bucket_list import part_lists, streaming


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
    with pytest.raises(SpecError, match="not an integer"):
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
    monkeypatch.setitem(streaming._PART_ROWS, "cpu", 2**13)
    rng = np.random.default_rng(2)
    for distinct in (3, 400, 60_000):
        keys = rng.integers(0, distinct, 60_000).astype("uint32")
        keys[: 60_000 // 3] = 7
        made = MultiMap.from_batches([(keys, np.arange(60_000))], "uint32", "int64")
        assert made.find(np.unique(keys))[0].tolist() == np.argsort(keys, kind="stable").tolist()


@pytest.mark.parametrize("cap", [None, 1, 3])
@pytest.mark.parametrize(("key", "value"), [("uint32", "uint64"), ("int64", "int32")])
@pytest.mark.parametrize("distinct", [40, 30_000])
def test_more_than_memory_has_goes_to_a_file(device, monkeypatch, cap, key, value, distinct):
    """Whatever is there at once: rows of a part, of a key, or the keys by which others are told."""
    for name, n in (("_PARTS_BITS", 5), ("_PART_ROWS", 2000), ("_MOST_ROWS", 400)):
        monkeypatch.setitem(getattr(streaming, name), device.name, n)
    monkeypatch.setitem(part_lists._SAMPLED_VALUES, device.name, 1000)
    written = []
    monkeypatch.setattr(
        streaming.UnnamedFile, "append",
        lambda self, array, append=streaming.UnnamedFile.append: (
            written.append(array.nbytes) or append(self, array)
        ),
    )  # fmt: skip
    keys = random_keys(key, 15_000, 5, distinct=distinct)
    values = np.random.default_rng(3).integers(0, 2**31, len(keys)).astype(value)
    batches = [
        (device.array(keys[at : at + 1000]), device.array(values[at : at + 1000]))
        for at in range(0, len(keys), 1000)
    ]
    settings = {"cap": cap, "device": device.name}
    one = MultiMap(key, value, **settings)
    one.insert(device.array(keys), device.array(values))
    expected = lists_of(device, one)
    made = MultiMap.from_batches(batches, key, value, memory=40_000, **settings)
    assert sum(written) > 100_000
    found = lists_of(device, made)
    assert (found if cap is None else as_sets(found)) == (
        expected if cap is None else as_sets(expected)
    )
    assert len(made) == sum(map(len, expected.values()))
    # The lists go on like others.
    for table in (made, one):
        table.insert(*batches[1])
        table.erase(batches[3][0][:500])
    assert as_sets(lists_of(device, made)) == as_sets(lists_of(device, one))


def test_a_full_disk_is_told(monkeypatch):
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(unnamed_file.tempfile, "TemporaryFile", lambda **_: full)
        monkeypatch.setattr(full, "seek", lambda at: at, raising=False)
        with pytest.raises(OutOfMemoryError, match=r"pairs of keys and values .* TMPDIR"):
            MultiMap.from_batches([([1, 2], [3, 4])], "int64", "int64", memory=8)


@pytest.mark.parametrize("method", ["auto", "bucket_list"])
def test_keys_can_be_left_out(device, monkeypatch, method):
    monkeypatch.setitem(streaming._PART_ROWS, device.name, 5000)
    keys = np.random.default_rng(1).integers(0, 9000, 30_000).astype("int32")
    told = {}

    def keep(distinct, counts):
        arrays = map(device.backend.to_host, (distinct, counts))
        told.update(zip(*(each.tolist() for each in arrays), strict=True))
        return counts < 4

    made = MultiMap.from_batches(
        [(device.array(keys), device.array(np.arange(30_000)))], "int32", "int64",
        keep=keep, method=method, device=device.name,
    )  # fmt: skip
    distinct, counts = np.unique(keys, return_counts=True)
    assert told == dict(zip(distinct.tolist(), counts.tolist(), strict=True))
    few = np.flatnonzero(np.isin(keys, distinct[counts < 4]))
    expected = defaultdict(list)
    for row in few.tolist():
        expected[int(keys[row])].append(row)
    assert as_sets(lists_of(device, made)) == expected
    assert len(made) == len(few)
    nothing = MultiMap.from_batches(
        [(device.array(keys), device.array(keys))], "int32", "int32",
        keep=lambda distinct, counts: counts < 0, method=method, device=device.name,
    )  # fmt: skip
    assert len(nothing) == nothing.n_keys == 0
    nothing.insert(device.array(keys[:3]), device.array(keys[:3]))
    assert len(nothing) == 3


@pytest.mark.parametrize("deviations", [5, -30])
def test_the_number_of_keys_is_estimated(device, monkeypatch, deviations):
    """By the first parts; when it is too low, the table grows."""
    grown = []
    monkeypatch.setattr(
        part_lists.Storage, "make_room",
        lambda self, new, make_room=part_lists.Storage.make_room: (
            grown.append(new) or make_room(self, new)
        ),
    )  # fmt: skip
    monkeypatch.setitem(streaming._PART_ROWS, device.name, 5000)
    monkeypatch.setitem(part_lists._SAMPLED_VALUES, device.name, 3000)
    monkeypatch.setattr(part_lists, "_DEVIATIONS", deviations)
    keys = np.unique(random_keys("uint32", 60_000, 4))
    pairs = device.array(keys), device.array(np.arange(len(keys)))
    made = MultiMap.from_batches([pairs], "uint32", "int64", device=device.name)
    assert (made.n_keys, len(made)) == (len(keys), len(keys))
    assert bool(grown) == (deviations < 0)
    assert made.capacity < 1.3 * len(keys)
    found, offsets = map(device.backend.to_host, made.find(pairs[0]))
    assert found.tolist() == offsets[:-1].tolist() == list(range(len(keys)))
    assert not device.backend.to_host(made.contains(pairs[0] ^ np.uint32(2**31))).all()


def test_lists_longer_than_runs(device, monkeypatch):
    monkeypatch.setattr(part_lists, "LONGEST_RUN", 100)
    keys = np.repeat(np.arange(300, dtype="uint32"), np.arange(300))
    order = np.random.default_rng(1).permutation(len(keys))
    pairs = device.array(keys[order]), device.array(order)
    made = MultiMap.from_batches([pairs], "uint32", "int64", device=device.name)
    one = MultiMap.from_arrays(*pairs, device=device.name)
    assert lists_of(device, made) == lists_of(device, one)
    assert made.nbytes < 1.2 * one.nbytes


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
        ([1, 2], [0, 1, 3], [1, 2], "do not divide"),
        ([1, 2], [1, 2, 3], [1, 2, 3], "do not divide"),
        ([1, 2], [0, 2, 2], [1, 2], "do not divide"),
        ([1, 1], [0, 1, 2], [1, 2], "occur twice"),
        ([1], [0, 3], [1, 2, 3], "longer than cap=2"),
    ],
)
def test_lists_that_are_none(keys, offsets, values, told):
    with pytest.raises(ShapeError, match=told):
        MultiMap.from_lists(keys, offsets, values, cap=2)
    with pytest.raises(KeyTypeError):
        MultiMap.from_batches([(["a"], [1])], "int64", "int64")
