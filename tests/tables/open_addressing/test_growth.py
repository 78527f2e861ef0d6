"""Growth, duplicates, tombstones, adversarial keys, failures midway."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from agreement import agree
from model import MapModel, SetModel
from strategies import random_keys, random_values
from table_methods.contracts import each_method

from dgpuhash.errors import OutOfMemoryError
from dgpuhash.tables import HashMap, HashSet, MultiMap


@each_method("map")
@pytest.mark.parametrize("value", ["int32", "int64", "S20"])
@pytest.mark.parametrize("key", ["int32", "uint64"])
def test_batch_larger_than_capacity(device, key, value, method):
    keys = random_keys(key, 20_000, 1)
    values = random_values(value, len(keys), 2)
    table, model = HashMap(key, value, capacity=3, device=device.name, method=method), MapModel()
    fresh = table.insert(device.array(keys), device.array(values), keep="first")
    assert device.backend.to_host(fresh).tolist() == model.insert(keys, values)
    agree(device, table, model)
    more = random_keys(key, 50_000, 3)
    values = random_values(value, len(more), 4)
    table.upsert(device.array(more), device.array(values))
    model.upsert(more, values)
    agree(device, table, model)


def test_duplicates_do_not_grow_the_table(device):
    table = HashMap("int64", "int32", device=device.name)
    before = table.nbytes
    keys, values = np.full(200_000, -1), np.arange(200_000, dtype="int32")
    fresh = table.insert(device.array(keys), device.array(values))
    assert device.backend.to_host(fresh).sum() == 1
    table.insert(device.array(keys % 7), device.array(values))
    assert len(table) == 2
    assert table.nbytes == before
    few = HashSet("int64", device=device.name)
    few.insert(device.array(np.arange(200_000) % 1000))
    assert len(few) == 1000
    # It grows by the share of new keys among its first rows, which a GPU takes in any order.
    assert few.capacity < 200_000 / 10


@pytest.mark.parametrize(("rows", "distinct"), [(1, 1), (1000, 1000), (1000, 700), (9000, 10)])
def test_a_small_first_batch_makes_room_for_its_keys(device, rows, distinct):
    keys = np.arange(rows) % distinct
    table = HashMap("int64", "int64", device=device.name)
    fresh = table.insert(device.array(keys), device.array(keys + 1))
    assert device.backend.to_host(fresh).sum() == len(table) == distinct
    assert distinct <= table.capacity <= 3 * distinct + 64
    found, there = table.find(device.array(keys))
    assert device.backend.to_host(there).all()
    assert (device.backend.to_host(found) == keys + 1).all()


def test_capacity_is_kept_and_reserve_avoids_growth(device):
    table = HashSet("int64", capacity=10_000, max_load=0.7, device=device.name)
    nbytes = table.nbytes
    assert table.capacity >= 10_000
    assert nbytes < 1.15 * 10_000 * 8 / 0.7
    table.insert(device.array(np.arange(10_000)))
    assert (len(table), table.nbytes) == (10_000, nbytes)
    table.reserve(5)
    assert table.nbytes == nbytes
    table.reserve(50_000)
    grown = table.nbytes
    assert table.capacity >= 50_000
    for start in range(10_000, 50_000, 1000):
        table.insert(device.array(np.arange(start, start + 1000)))
    assert (len(table), table.nbytes) == (50_000, grown)


@pytest.mark.parametrize("make", [HashSet, HashMap, MultiMap])
def test_room_that_cannot_be_made_is_asked_for_once(make):
    dtypes = ["int64"] * (1 if make is HashSet else 2)
    table, columns = make(*dtypes, capacity=7), [np.arange(3)] * len(dtypes)
    table.reserve(2**46)
    with pytest.raises(OutOfMemoryError, match="smaller capacity"):
        table.insert(*columns)
    assert (table.device, table.capacity) == (None, 7)
    table.insert(*columns)
    assert table.contains(columns[0]).all()


@pytest.mark.parametrize("load", [0.05, 0.5, 0.95, 0.999])
def test_loads_up_to_the_limit(device, load):
    table, model = HashSet("uint32", capacity=1000, max_load=load, device=device.name), SetModel()
    for seed in range(4):
        keys = random_keys("uint32", 900, seed)
        table.insert(device.array(keys))
        model.insert(keys)
        agree(device, table, model)
    stats = table.stats()
    assert stats.size / stats.slots <= load


def test_churn_does_not_grow_the_table(device):
    table, model = HashSet("int64", capacity=1000, device=device.name), SetModel()
    nbytes = table.nbytes
    for start in range(0, 30_000, 300):
        keys = np.arange(start, start + 300)
        table.insert(device.array(keys))
        model.insert(keys)
        table.erase(device.array(keys - 300))
        model.erase(keys - 300)
    agree(device, table, model)
    assert table.nbytes == nbytes


def test_keys_of_one_bucket(device):
    """Keys that differ only where a weak hash does not look, all at once."""
    families = [
        np.arange(3000, dtype=np.uint64) << np.uint64(52),
        np.arange(3000, dtype=np.uint64) * np.uint64(2**32),
        np.uint64(2**64 - 1) - np.arange(3000, dtype=np.uint64),
        np.arange(3000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15),
    ]
    for keys in families:
        table, model = HashSet("uint64", device=device.name), SetModel()
        table.insert(device.array(keys))
        model.insert(keys)
        table.erase(device.array(keys[::2]))
        model.erase(keys[::2])
        agree(device, table, model)


def test_keys_that_all_begin_at_one_bucket(device):
    """Chosen by their hashes: each first looks at the same bucket, and a segment overflows."""
    table, model = HashSet("uint64", capacity=3000, device=device.name), SetModel()
    buckets = table.stats().slots // 8
    keys = np.arange(1 << 18, dtype=np.uint64)
    hashes = device.backend.to_host(device.backend.hash_keys(device.array(keys), table.spec.seed))
    first = np.array([int(word) * buckets >> 64 for word in hashes])
    keys = keys[first == 3]
    assert len(keys) > 300
    table.insert(device.array(keys))
    model.insert(keys)
    agree(device, table, model)
    assert table.stats().lines_per_lookup > 1.5
    table.erase(device.array(keys[::3]))
    model.erase(keys[::3])
    found = device.backend.to_host(table.contains(device.array(keys)))
    assert found.tolist() == model.contains(keys)


@each_method("map")
def test_size_is_right_when_insert_is_split_into_many(device, method):
    table = HashMap("int32", "int32", device=device.name, method=method)
    for start in range(0, 3000, 3):
        keys = np.arange(start, start + 3, dtype="int32")
        table.insert(device.array(keys), device.array(keys))
    keys, values = (device.backend.to_host(part) for part in table.items())
    assert sorted(keys.tolist()) == list(range(3000))
    assert (keys == values).all()


@each_method("map")
@pytest.mark.parametrize("verb", ["insert", "upsert"])
@pytest.mark.parametrize("value", ["int64", "S20"])
def test_out_of_memory_leaves_a_map_as_it_was(device, monkeypatch, verb, value, method):
    table, model = (
        HashMap("int64", value, capacity=500, device=device.name, method=method),
        MapModel(),
    )
    keys, values = np.arange(400), random_values(value, 400, 1)
    table.insert(device.array(keys), device.array(values))
    model.insert(keys, values)
    more, others = np.arange(300, 5000), random_values(value, 4700, 2)
    with monkeypatch.context() as scarce:
        _limit_memory(scarce, device.backend, 40_000)
        with pytest.raises(OutOfMemoryError, match="free"):
            getattr(table, verb)(device.array(more), device.array(others))
    agree(device, table, model)
    getattr(table, verb)(device.array(more), device.array(others))
    getattr(model, verb)(more, others)
    agree(device, table, model)


def test_out_of_memory_leaves_a_set_and_a_multimap_as_they_were(device, monkeypatch):
    seen = HashSet("int64", capacity=100, device=device.name)
    lists = MultiMap("int64", "int64", capacity=100, device=device.name)
    keys = np.arange(90)
    seen.insert(device.array(keys))
    lists.insert(device.array(keys), device.array(keys))
    more = device.array(np.arange(80, 8000))
    with monkeypatch.context() as scarce:
        _limit_memory(scarce, device.backend, 20_000)
        with pytest.raises(OutOfMemoryError):
            seen.insert(more)
        with pytest.raises(OutOfMemoryError):
            lists.insert(more, more)
        with pytest.raises(OutOfMemoryError):
            seen.reserve(10**7)
    assert (len(seen), len(lists), lists.n_keys) == (90, 90, 90)
    assert sorted(device.backend.to_host(seen.items()).tolist()) == keys.tolist()
    assert device.backend.to_host(lists.find(device.array(keys))[0]).tolist() == keys.tolist()


def _limit_memory(monkeypatch, backend, largest):
    """Let the backend refuse arrays of more than `largest` bytes."""
    real = type(backend).empty

    def empty(self, shape, dtype):
        nbytes = np.dtype(dtype).itemsize * int(np.prod(shape))
        if nbytes > largest:
            raise OutOfMemoryError(f"{nbytes:,} bytes needed and {largest:,} free; use less")
        return real(self, shape, dtype)

    monkeypatch.setattr(type(backend), "empty", empty)


def test_memory_errors_of_the_array_library_are_ours(device, monkeypatch):
    table = HashMap("int64", "int64", device=device.name)

    def greedy(self, shape, dtype):
        raise MemoryError("Unable to allocate 9 PiB")

    keys = device.array(np.arange(10))
    monkeypatch.setattr(type(device.backend), "zeros", greedy)
    with pytest.raises(OutOfMemoryError, match=r"9 PiB.* bytes are free; use smaller batches"):
        table.upsert(keys, keys)
    assert len(table) == 0


def test_absurd_capacity_is_out_of_memory(device):
    with pytest.raises(OutOfMemoryError, match="free"):
        HashMap("int64", "int64", capacity=2**46, device=device.name)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["int64"])
def test_ten_million(device, key):
    n = 10_000_000
    keys = np.random.default_rng(0).permutation(n).astype(key)
    table = HashMap(key, "int64", device=device.name)
    fresh = table.insert(device.array(keys), device.array(keys * 3))
    assert device.backend.to_host(fresh).all()
    assert len(table) == n
    values, found = table.find(device.array(keys))
    assert device.backend.to_host(found).all()
    assert (device.backend.to_host(values) == keys * 3).all()
    assert not device.backend.to_host(table.contains(device.array(keys + n))).any()
    assert table.nbytes <= 1.15 * n * 16 / 0.9


@pytest.mark.slow
def test_ten_million_duplicates(device):
    keys = np.zeros(10_000_000, np.int64)
    table = HashMap("int64", "int64", device=device.name)
    nbytes = table.nbytes
    table.insert(device.array(keys), device.array(keys), keep="last")
    assert (len(table), table.nbytes) == (1, nbytes)
    keys[1::2] = np.arange(5_000_000)
    lists = MultiMap("int64", "int64", device=device.name)
    lists.insert(device.array(keys), device.array(keys))
    assert (len(lists), lists.n_keys) == (10_000_000, 5_000_000)
    counts = device.backend.to_host(lists.count(device.array(np.array([0, 1, -1]))))
    assert counts.tolist() == [5_000_001, 1, 0]


@pytest.mark.parametrize("threads", [4])
def test_many_threads_look_up_at_once(device, threads):
    keys = device.array(np.arange(50_000))
    table = HashMap.from_arrays(keys, keys * 2)

    def right(_):
        values, found = table.find(keys)
        return bool(found.all()) and bool((values == keys * 2).all())

    with ThreadPoolExecutor(threads) as pool:
        assert all(pool.map(right, range(20)))


@pytest.mark.parametrize("kind", [HashSet, HashMap, MultiMap])
def test_threads_that_change_a_table_take_turns(device, kind):
    table = kind("int64", device=device.name) if kind is HashSet else kind("int64", "int64")

    def work(number):
        for first in range(number * 40_000, (number + 1) * 40_000, 4000):
            keys = device.array(np.arange(first, first + 4000))
            table.insert(keys) if kind is HashSet else table.insert(keys, keys)
            table.erase(keys[:1000])
            table.items()
            if bool(table.contains(keys[:1000]).any()) or not bool(
                table.contains(keys[1000:]).all()
            ):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert len(table) == 4 * 30_000
    assert len(pickle.loads(pickle.dumps(table))) == len(table)


@pytest.mark.parametrize("kind", [HashSet, HashMap, MultiMap])
def test_a_pickled_table_has_memory_of_its_own(device, kind):
    keys = device.array(np.arange(1000))
    table = kind("int64", device=device.name) if kind is HashSet else kind("int64", "int64")
    table.insert(keys) if kind is HashSet else table.insert(keys, keys)
    # Addresses that a call has left with the table.
    assert bool(table.contains(keys).all())
    copied = pickle.loads(pickle.dumps(table))
    table.erase(keys)
    assert bool(copied.contains(keys).all())
    assert not bool(table.contains(keys).any())


@pytest.mark.parametrize("kind", [HashSet, HashMap, MultiMap])
def test_what_is_pickled_is_what_was_stored_when_pickling_began(device, kind):
    keys = device.array(np.arange(1000))
    table = kind("int64", device=device.name) if kind is HashSet else kind("int64", "i8,i8")
    values = np.array([(key, 7) for key in range(1000)], "i8,i8")
    table.insert(keys) if kind is HashSet else table.insert(keys, device.array(values))
    beside: list[pickle.PickleBuffer] = []
    begun = pickle.dumps(table, protocol=5, buffer_callback=beside.append)
    table.erase(keys)
    table.clear()
    copied = pickle.loads(begun, buffers=beside)
    assert bool(copied.contains(keys).all())
    if kind is not HashSet:
        assert device.host(copied.find(keys)[0], values.dtype).tolist() == values.tolist()
