"""Counts of keys, against dictionaries."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interrupting import events, raise_at
from strategies import KEY_DTYPES, keys_from, random_keys

import dgpuhash
from dgpuhash.errors import CountOverflowError, FormatError, KeyTypeError, ShapeError, SpecError
from dgpuhash.tables import CountMap, HashMap
from dgpuhash.tables.columns import block_counts
from dgpuhash.tables.open_addressing import batch_insert, cardinality

MOST = 2**64 - 1


class Counted:
    """Dictionary of what a table should hold; keys as their bytes, since NaN equals no key."""

    def __init__(self):
        self.held = {}

    def insert(self, keys, counts=1):
        for key, count in zip(keys, np.broadcast_to(counts, len(keys)).tolist(), strict=True):
            name = _name(key)
            self.held[name] = self.held.get(name, 0) + count

    def erase(self, keys):
        for key in keys:
            self.held.pop(_name(key), None)

    def check(self, device, table):
        keys, counts = (device.backend.to_host(each) for each in table.items())
        assert counts.dtype == np.uint64
        assert len(keys) == len(self.held) == len(table)
        names = map(_name, keys.astype(table.key_dtype, copy=False))
        assert dict(zip(names, counts.tolist(), strict=True)) == self.held
        got, found = table.find(device.array(keys))
        assert device.backend.to_host(found).all()
        assert device.backend.to_host(got).tolist() == counts.tolist()
        assert table.total == sum(self.held.values())


def _name(key):
    if key != key:
        return "nan"
    return np.asarray(key + 0 if key.dtype.kind == "f" else key).tobytes()


@pytest.mark.parametrize("key", [each for each in KEY_DTYPES if np.dtype(each).kind not in "mM"])
def test_verbs(device, key):
    table, model = CountMap(key, device=device.name), Counted()
    for seed, rows in enumerate([1, 200, 900]):
        keys = random_keys(key, rows, seed, distinct=100 * (seed + 1))
        counts = np.random.default_rng(seed).integers(0, 50, rows)
        table.insert(device.array(keys))
        model.insert(keys)
        table.insert(device.array(keys), device.array(counts))
        model.insert(keys, counts)
        model.check(device, table)
        asked = random_keys(key, 50, seed + 10)
        expected = [model.held.get(_name(each), 0) for each in asked]
        assert device.backend.to_host(table.count(device.array(asked))).tolist() == expected
        present = [_name(each) in model.held for each in asked]
        assert device.backend.to_host(table.contains(device.array(asked))).tolist() == present
        table.erase(device.array(keys[: rows // 3]))
        model.erase(keys[: rows // 3])
        model.check(device, table)
    copied = table.copy()
    table.merge(copied)
    for name in model.held:
        model.held[name] *= 2
    model.check(device, table)
    table.clear()
    Counted().check(device, table)
    assert copied.total * 2 == sum(model.held.values())


@settings(max_examples=15)
@given(data=st.data())
@pytest.mark.parametrize("key", ["int8", "uint32", "int64"])
def test_sequences(device, key, data):
    verbs = st.sampled_from(["insert", "insert", "erase", "merge", "large", "reserve", "clear"])
    table, model = CountMap(key, device=device.name), Counted()
    for verb, keys, number in data.draw(
        st.lists(st.tuples(verbs, keys_from(key), st.integers(0, 2**33)), max_size=8)
    ):
        given_keys = device.array(keys)
        if verb == "insert":
            table.insert(given_keys, number % 7)
            model.insert(keys, number % 7)
        elif verb == "large":
            table.insert(given_keys, number)
            model.insert(keys, number)
        elif verb == "erase":
            table.erase(given_keys)
            model.erase(keys)
        elif verb == "merge":
            other = CountMap(key, device=device.name)
            other.insert(given_keys, 3)
            table.merge(other)
            model.insert(keys, 3)
        elif verb == "reserve":
            table.reserve(number % 3000)
        else:
            table.clear()
            model.held.clear()
        model.check(device, table)


@pytest.mark.parametrize("key", ["int32", "uint64"])
@pytest.mark.parametrize("shape", ["frequent", "one", "distinct"])
def test_large_batches(device, monkeypatch, key, shape):
    """Blocks count frequent keys; others go to the table as they are."""
    monkeypatch.setattr(block_counts, "LEAST_ROWS", 1000)
    random = np.random.default_rng(0)
    rows = 40_000
    keys = {
        "frequent": random.zipf(1.2, rows) % 2**20,
        "one": np.full(rows, -1),
        "distinct": random.permutation(rows),
    }[shape].astype(key)
    counts = random.integers(0, 5, rows).astype("uint16")
    expected, inverse = np.unique(keys, return_inverse=True)
    for given_counts in (3, counts, counts.astype("int64") * 2**30):
        table = CountMap(key, device=device.name)
        sums = np.zeros(len(expected), np.uint64)
        np.add.at(sums, inverse, np.broadcast_to(given_counts, rows).astype(np.uint64))
        arrayed = given_counts if np.ndim(given_counts) == 0 else device.array(given_counts)
        table.insert(device.array(keys), arrayed)
        table.insert(device.array(keys), arrayed)
        got, found = table.find(device.array(expected))
        assert device.backend.to_host(found).all()
        assert (device.backend.to_host(got) == 2 * sums).all()
        assert len(table) == len(expected)


@pytest.mark.parametrize("stored", [0, 50])
def test_by_region(device, monkeypatch, stored):
    monkeypatch.setattr(batch_insert, "bulk_pays", lambda *batch: True)
    monkeypatch.setattr(cardinality, "all_new", lambda *batch: True)
    monkeypatch.setattr(cardinality, "LEAST_ROWS", 16)
    table, model = CountMap("int32", device=device.name), Counted()
    for keys in (np.arange(stored), np.arange(3000) // 2, np.arange(9000) % 5000):
        keys = keys.astype("int32")
        table.insert(device.array(keys), 2)
        model.insert(keys, 2)
        model.check(device, table)


@pytest.mark.parametrize("stored", [0, 200])
@pytest.mark.parametrize("keys", [40, 4000])
def test_estimated_batches(device, monkeypatch, keys, stored):
    """The estimate of the keys of a batch is right, or so low that rows are refused."""
    monkeypatch.setattr(cardinality, "LEAST_ROWS", 16)
    seen = np.random.default_rng(1).integers(0, keys, 10_000)
    before = np.arange(-stored // 2, stored // 2)
    for new in (None, cardinality.NewKeys(8, all=False)):
        if new is not None:
            monkeypatch.setattr(cardinality, "new_keys", lambda *batch: new)  # noqa: B023
        table, model = CountMap("int64", 2 * stored, device=device.name), Counted()
        for batch in (before, seen, seen):
            table.insert(device.array(batch), 3)
            model.insert(batch, 3)
            model.check(device, table)


@pytest.mark.parametrize("key", ["int16", "int64"])
def test_counts_are_exact(device, key):
    """Beyond what four bytes hold, and what doubles do."""
    table, model = CountMap(key, device=device.name), Counted()
    keys = np.array([5, 7, -1, 5], key)
    for counts in (2**31, 2**32 - 3, 2**53, np.array([1, 2**62 + 1, 1, 2**61], np.uint64)):
        arrayed = counts if np.ndim(counts) == 0 else device.array(counts)
        table.insert(device.array(keys), arrayed)
        model.insert(keys, counts)
        model.check(device, table)


@pytest.mark.parametrize("key", ["int32", "int64"])
def test_no_count_wraps(device, key):
    table = CountMap(key, device=device.name)
    keys = device.array(np.array([5, 7, 5], key))
    table.insert(keys, 2**62)
    for counts in (2**63, np.array([2**63, 9, 2**63], np.uint64)):
        arrayed = counts if np.ndim(counts) == 0 else device.array(counts)
        with pytest.raises(CountOverflowError, match=r"of 1 keys.*nothing was counted"):
            table.insert(keys, arrayed)
        assert table.count(keys).tolist() == [2**63, 2**62, 2**63]
    table.insert(keys[:1], 2**63 - 1)
    assert table.count(keys).tolist() == [MOST, 2**62, MOST]
    with pytest.raises(OverflowError):
        table.insert(keys[:1])
    # Others go on counting, and so does the key once it is erased.
    table.insert(keys[1:2], 5)
    table.erase(keys[:1])
    table.insert(keys)
    assert table.count(keys).tolist() == [2, 2**62 + 6, 2]
    other = CountMap(key, device=device.name)
    other.insert(keys, MOST // 2)
    with pytest.raises(CountOverflowError):
        table.merge(other)
    table.clear()
    table.insert(keys)
    assert table.total == 3


def test_save_load_copy_pickle(device, tmp_path):
    for counts in (1, 2**40):
        table = CountMap("int32", device=device.name)
        table.insert(device.array(np.array([1, 2, 1, -1], "int32")), counts)
        table.save(tmp_path / "counts", overwrite=True)
        for made in (
            dgpuhash.load(tmp_path / "counts", device.name),
            CountMap.load(tmp_path / "counts", device.name),
            pickle.loads(pickle.dumps(table)),
            copy.deepcopy(table),
        ):
            assert isinstance(made, CountMap)
            assert made.key_dtype == np.int32
            made.insert(device.array(np.array([2], "int32")))
            asked = device.array(np.array([1, 2, -1], "int32"))
            assert made.count(asked).tolist() == [2 * counts, counts + 1, counts]
        assert table.total == 4 * counts
    with pytest.raises(FormatError, match="holds a count and not a map"):
        HashMap.load(tmp_path / "counts")


@pytest.mark.parametrize("counts", [3, 2**40])
@pytest.mark.parametrize("capacity", [0, 400])
def test_an_insert_is_whole_or_absent(capacity, counts):
    base = CountMap("int32", capacity, device="cpu")
    base.insert(np.arange(20, dtype="int32"))
    added = (np.arange(150) % 60 + 10).astype("int32")
    before = np.zeros(70, np.uint64)
    before[:20] = 1
    after = before.copy()
    np.add.at(after, added, counts)
    seen = set()
    for event in events("line", lambda: base.copy().insert(added, counts), 25):
        table = base.copy()
        raise_at(event, "line", functools.partial(table.insert, added, counts))
        held = table.count(np.arange(70)).tolist()
        assert held in (before.tolist(), after.tolist())
        seen.add(held == after.tolist())
        table.insert(added, counts)
        assert len(table) == 70
    assert seen


def test_stats_and_display(device):
    table = CountMap("int64", 100, device=device.name)
    table.insert(device.array(np.arange(50)), 2)
    stats = table.stats()
    assert stats.size == 50
    assert stats.capacity >= 100
    assert "CountMap int64 -> uint64: 50 of" in repr(table)
    assert table.spec.kind == "count"


def test_what_is_refused():
    table = CountMap("int64")
    with pytest.raises(SpecError, match="use 0 to"):
        table.insert([1], -1)
    with pytest.raises(SpecError, match="use 0 to"):
        table.insert([1], 2**64)
    with pytest.raises(SpecError, match="negative"):
        table.insert([1, 2], np.array([1, -1]))
    with pytest.raises(KeyTypeError, match="not an integer"):
        table.insert([1], 1.5)
    with pytest.raises(KeyTypeError, match="not integers"):
        table.insert([1], np.array([1.0]))
    with pytest.raises(ShapeError, match="one value for each key"):
        table.insert([1, 2], np.array([1]))
    with pytest.raises(ShapeError, match="one dimension"):
        table.insert([1, 2], np.ones((2, 1), int))
    assert len(table) == 0
    table.insert([])
    table.insert(np.array([4, 4]), [1, 2])
    assert table.count([4, 5]).tolist() == [3, 0]
