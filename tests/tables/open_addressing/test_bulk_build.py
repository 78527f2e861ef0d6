"""Bulk builds by region: tables and masks equal those without regions."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import agree, fresh_once
from hypothesis import given
from hypothesis import strategies as st
from model import MapModel, SetModel
from strategies import random_keys, random_values

from dgpuhash import backend
from dgpuhash.backend.batch import bucket_order
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.tables import HashMap, HashSet
from dgpuhash.tables.open_addressing import batch_insert, bulk_build, cardinality, slots

WORDS = [("u4", None), ("u8", None), ("u4", "u4"), ("u4", "u8"), ("u8", "u4"), ("u8", "u8")]


@pytest.fixture(autouse=True)
def placed(monkeypatch):
    """Place all batches by region, and record their rows."""
    batches = []
    real = bulk_build.RegionBatch.insert

    def insert(self, slots):
        batches.append(len(self.keys))
        return real(self, slots)

    monkeypatch.setattr(bulk_build.RegionBatch, "insert", insert)
    monkeypatch.setattr(batch_insert, "bulk_pays", lambda *batch: True)
    monkeypatch.setattr(cardinality, "all_new", lambda *batch: True)
    return batches


def made(device, key, value, **settings):
    """Return an empty table and its model."""
    if value is None:
        return HashSet(key, device=device.name, **settings), SetModel()
    return HashMap(key, value, device=device.name, **settings), MapModel()


def insert(device, table, model, keys):
    """Insert one batch and check its mask against the model.

    The model gets the values that the table has chosen.
    """
    if isinstance(model, SetModel):
        mask = table.insert(device.array(keys))
        fresh_once(keys, device.backend.to_host(mask), model.insert(keys))
        return
    values = random_values(table.value_dtype, len(keys), len(keys))
    mask = device.backend.to_host(table.insert(device.array(keys), device.array(values)))
    expected = MapModel()
    expected.pairs = dict(model.pairs)
    fresh_once(keys, mask, expected.insert(keys, values))
    model.upsert(keys[mask], values[mask])


@pytest.mark.parametrize(("key", "value"), WORDS)
@pytest.mark.parametrize("max_load", [0.5, 0.9, 0.99])
def test_stored_keys_duplicates_and_marks(device, placed, key, value, max_load):
    table, model = made(device, key, value, capacity=30_000, max_load=max_load)
    keys = random_keys(key, 12_000, 1)
    insert(device, table, model, keys)
    insert(device, table, model, np.concatenate([keys[:3000], random_keys(key, 9000, 2)]))
    table.erase(device.array(keys[::3]))
    model.erase(keys[::3])
    insert(device, table, model, random_keys(key, 6000, 1))
    assert len(placed) == 3
    agree(device, table, model)


@pytest.mark.parametrize(("key", "value"), WORDS)
def test_all_new_and_none_new(device, placed, key, value):
    table, model = made(device, key, value, capacity=40_000)
    keys = np.unique(random_keys(key, 20_000, 5))
    insert(device, table, model, keys)
    insert(device, table, model, keys[::-1])
    assert len(placed) == 2
    agree(device, table, model)


@pytest.mark.parametrize("value", [None, "u8"])
def test_builds_that_tell_nothing(device, placed, monkeypatch, value):
    monkeypatch.setattr(cardinality, "LEAST_ROWS", 1000)
    keys = device.array(random_keys("u8", 20_000, 3))
    if value is None:
        table = HashSet.from_keys(keys)
    else:
        table = HashMap.from_arrays(keys, keys ^ 1)
        values, found = table.find(keys)
        assert bool(found.all()) and bool((values == keys ^ 1).all())
    assert len(placed) == 1
    assert sorted(set(keys.tolist())) == sorted(
        (table.items() if value is None else table.items()[0]).tolist()
    )


def test_only_batches_of_new_keys_are_told_to_be_all_new(device, monkeypatch):
    monkeypatch.undo()
    slots = HashSet("u8", device=device.name)._opened().slots
    keys = device.array(np.arange(300_000, dtype="u8"))
    assert cardinality.all_new(device.backend, slots, keys)
    assert not cardinality.all_new(device.backend, slots, keys // np.uint64(2))
    many = np.arange(900_000, dtype="u8")
    assert cardinality.all_new(device.backend, slots, device.array(many))
    assert not cardinality.all_new(device.backend, slots, device.array(many // 2))
    assert not cardinality.all_new(device.backend, slots, device.array(many % 300_000))
    for distance in (2, 9, 100, 3000):
        pairs = many // (2 * distance) * distance + many % distance
        assert not cardinality.all_new(device.backend, slots, device.array(pairs))
    some = np.random.default_rng(1).integers(0, 2_000_000, 900_000).astype("u8")
    assert not cardinality.all_new(device.backend, slots, device.array(some))
    filled = HashSet.from_keys(keys)._opened().slots
    assert not cardinality.all_new(device.backend, filled, keys)
    assert not cardinality.all_new(device.backend, filled, keys + np.uint64(200_000))
    assert cardinality.all_new(device.backend, filled, keys + np.uint64(300_000))


def test_what_looks_for_new_keys_is_kept(device, monkeypatch):
    monkeypatch.undo()
    store = HashSet("u8", device=device.name)._opened()
    many = np.arange(cardinality.LEAST_SAMPLED_ROWS + 7, dtype="u8")

    def new(table, keys):
        given = device.array(keys)
        return bool(table.witnesses.new_key_flags(table.backend, table.slots, given).all())

    assert new(store, many)
    kept = store.witnesses._seen
    # Of the batch before nothing is known, whether or not it was forgotten meanwhile.
    assert new(store, many)
    assert not new(store, many // 2)
    store.witnesses.ready(store.backend, store.slots)
    assert new(store, many + 5)
    assert new(store, many[:100]) and not new(store, many[:100] // 3)
    assert store.witnesses._seen is kept
    store.insert(device.array(many), None)
    assert not new(store, many)
    copied = store.copy()
    assert new(copied, many + len(many)) and copied.witnesses._seen is not kept


@pytest.mark.parametrize("rows", [1 << 17, 1 << 19])
@pytest.mark.parametrize("distinct", [100, 40_000, 1 << 17])
def test_how_many_new_keys_are_expected(device, monkeypatch, rows, distinct):
    monkeypatch.undo()
    filled = HashSet.from_keys(device.array(np.arange(0, distinct, 2)))._opened().slots
    keys = device.array(np.random.default_rng(1).integers(0, distinct, rows).view("u8"))
    new = cardinality.new_keys(device.backend, filled, keys)
    there = len(np.unique(device.backend.to_host(keys)))
    assert not new.all
    if distinct > 100:
        assert distinct // 2 * min(1, there / distinct) * 0.9 <= new.most <= 0.8 * distinct


@pytest.mark.parametrize("wrong", [1, 7])
@pytest.mark.parametrize(("key", "value"), [("u4", None), ("u8", "u8"), ("u4", "u8")])
def test_growth_before_and_in_the_middle_of_a_batch(device, placed, monkeypatch, key, value, wrong):
    real = cardinality.new_keys

    def misjudged(*batch):
        return cardinality.NewKeys(real(*batch).most // wrong, all=True)

    monkeypatch.setattr(cardinality, "new_keys", misjudged)
    monkeypatch.setattr(cardinality, "LEAST_ROWS", 1000)
    table, model = made(device, key, value, max_load=0.97)
    for rows, seed in ((9000, 1), (16_000, 2)):
        keys = random_keys(key, rows, seed)
        insert(device, table, model, np.concatenate([keys, keys[: rows // 4]]))
        assert table.stats().load <= 0.97
    assert len(placed) == 2
    agree(device, table, model)


@pytest.mark.slow
def test_one_key_ten_million_times(device, placed):
    table = HashMap("int64", "int64", capacity=10**7, device=device.name)
    rows = device.backend.xp.arange(10**7)
    mask = table.insert(rows * 0 + 5, rows)
    assert int(mask.sum()) == len(table) == 1
    assert int(table.find(device.array([5]))[0][0]) == int(mask.argmax())
    assert placed == []


def test_one_key_in_one_block(device, placed, monkeypatch):
    monkeypatch.setattr(bucket_order, "_CROWDED", 2**40)
    table = HashMap("int64", "int64", capacity=10**6, device=device.name)
    rows = device.backend.xp.arange(10**6)
    mask = table.insert(rows * 0 + 5, rows)
    assert int(mask.sum()) == len(table) == 1
    assert int(table.find(device.array([5]))[0][0]) == int(mask.argmax())
    assert placed == [10**6]


@pytest.mark.parametrize("crowded", [2, 2**40])
def test_zipf(device, monkeypatch, crowded):
    monkeypatch.setattr(bucket_order, "_CROWDED", crowded)
    table, model = made(device, "u8", "u8", capacity=40_000)
    keys = np.random.default_rng(3).zipf(1.5, 40_000).astype("u8")
    insert(device, table, model, keys)
    agree(device, table, model)


@pytest.mark.parametrize("crowded", [2, 2**40])
def test_keys_that_all_begin_in_one_region(device, placed, monkeypatch, crowded):
    """Twice as many as it has slots: the others go elsewhere, or all do by another seed."""
    monkeypatch.setattr(bucket_order, "_CROWDED", crowded)
    table, model = made(device, "u8", None, capacity=60_000)
    slots = table._opened().slots
    keys = np.arange(1 << 19, dtype=np.uint64)
    hashes = device.backend.to_host(device.backend.hash_keys(device.array(keys), table.spec.seed))
    start = (hashes >> np.uint64(32)) * np.uint64(slots.buckets) >> np.uint64(32)
    keys = keys[start >> np.uint64(device.backend.region_shift) == 4]
    keys = keys[: 2 * 8 * 2**device.backend.region_shift]
    assert len(keys) == 2 * 8 * 2**device.backend.region_shift
    insert(device, table, model, keys)
    assert len(placed) == 1
    assert table.stats().reseeds == (crowded == 2)
    agree(device, table, model)
    insert(device, table, model, keys + np.uint64(1 << 40))
    agree(device, table, model)
    table.clear()
    assert table.stats().reseeds == 0
    assert table.stats().seed == table.spec.seed


def test_without_memory_for_the_order_of_regions(device, placed, monkeypatch):
    table, model = made(device, "u8", "u8", capacity=20_000)

    def refused(*batch, **settings):
        raise OutOfMemoryError("no room")

    monkeypatch.setattr(bulk_build, "order_by_bucket", refused)
    insert(device, table, model, random_keys("u8", 15_000, 1))
    assert placed == []
    agree(device, table, model)


@pytest.mark.parametrize("value", [None, "int64", "S20"])
def test_memory_that_runs_out_between_regions_and_the_rest(device, placed, monkeypatch, value):
    table, model = made(device, "int64", value, capacity=4000)
    insert(device, table, model, random_keys("int64", 3000, 1))
    with monkeypatch.context() as scarce:

        def refused(self, slots, left, *, told):
            raise OutOfMemoryError("no room for them")

        scarce.setattr(bulk_build.RegionBatch, "insert_leftovers", refused)
        scarce.setattr(cardinality, "LEAST_ROWS", 1000)
        scarce.setattr(cardinality, "new_keys", lambda *batch: cardinality.NewKeys(0, all=True))
        keys = device.array(random_keys("int64", 30_000, 2))
        with pytest.raises(OutOfMemoryError):
            if value is None:
                table.insert(keys)
            else:
                table.insert(keys, device.array(random_values(value, 30_000, 1)))
    assert len(placed) == 2
    agree(device, table, model)


@pytest.mark.parametrize("value", [None, "int64"])
@pytest.mark.parametrize("stored", [0, 3])
@pytest.mark.parametrize("launched", [False, True])
def test_a_kernel_that_cannot_be_loaded(device, placed, monkeypatch, value, stored, launched):
    """Or an interrupt before, or after, it has begun."""
    table, model = made(device, "int64", value, capacity=40_000)
    keys = random_keys("int64", 30_000, 1)
    if stored:
        insert(device, table, model, keys[:stored])
    real = slots.Slots.insert_in_regions

    def refused(self, *args, **batch):
        if launched:
            real(self, *args, **batch)
        raise KeyboardInterrupt

    with monkeypatch.context() as failing:
        failing.setattr(slots.Slots, "insert_in_regions", refused)
        with pytest.raises(KeyboardInterrupt):
            if value is None:
                table.insert(device.array(keys))
            else:
                table.insert(device.array(keys), device.array(random_values(value, 30_000, 2)))
    assert len(table) == stored
    agree(device, table, model)
    insert(device, table, model, keys)
    agree(device, table, model)


def test_memory_that_runs_out_for_the_bits_of_a_larger_table(device, monkeypatch):
    table, model = made(device, "int64", "int64", capacity=4000)
    insert(device, table, model, random_keys("int64", 3000, 1))
    real = bulk_build.slot_bitmap

    def refused(backend, extent):
        if extent.slots > 20_000:
            raise OutOfMemoryError("no room for them")
        return real(backend, extent)

    with monkeypatch.context() as scarce:
        scarce.setattr(bulk_build, "slot_bitmap", refused)
        scarce.setattr(cardinality, "LEAST_ROWS", 1000)
        scarce.setattr(cardinality, "new_keys", lambda *batch: cardinality.NewKeys(0, all=True))
        keys = device.array(random_keys("int64", 30_000, 2))
        with pytest.raises(OutOfMemoryError):
            table.insert(keys, device.array(random_values("int64", 30_000, 1)))
    agree(device, table, model)


@pytest.mark.gpu
@pytest.mark.slow
def test_more_than_two_to_the_31_pairs(placed):
    gpu = backend.get("cuda")
    rows, piece = 2**31 + 1, 2**28
    if gpu.memory()[1] < 100 * 2**30:
        pytest.skip("100 GiB of device memory are needed, for the table and twice its pairs")
    keys = gpu.xp.arange(rows, dtype=np.uint32)
    keys *= np.uint32(2654435761)
    table = HashMap.from_arrays(keys, keys ^ 5)
    assert (len(table), placed) == (rows, [rows])
    for start in range(0, rows, piece):
        asked = keys[start : start + piece]
        values, found = table.find(asked)
        assert bool(found.all())
        assert bool((values == asked ^ 5).all())
    absent = gpu.xp.arange(rows, rows + piece).astype(np.uint32) * np.uint32(2654435761)
    assert not bool(table.contains(absent).any())
    del table, keys, asked, values, found, absent
    gpu.xp.get_default_memory_pool().free_all_blocks()


def test_sequences(device):
    @given(
        st.sampled_from(WORDS),
        st.sampled_from([0.3, 0.9, 0.99]),
        st.lists(st.tuples(st.integers(1, 900), st.sampled_from([3, 1000, 2**32 - 1])), max_size=4),
    )
    def run(words, max_load, batches):
        key, value = words
        table, model = made(device, key, value, capacity=3000, max_load=max_load)
        for seed, (rows, most) in enumerate(batches):
            keys = random_keys(key, rows, seed) % np.dtype(key).type(most)
            insert(device, table, model, keys.astype(key))
        agree(device, table, model)

    run()
