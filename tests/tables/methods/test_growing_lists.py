"""WarpCore's bucket lists: the paper's figures, pools that run dry, hot keys and long lists."""

from __future__ import annotations

import functools
from collections import Counter

import numpy as np
import pytest
from table_methods.contracts import check_multi_map

from dgpuhash import MultiMap
from dgpuhash.errors import CapacityError, SpecError
from dgpuhash.tables.methods import bucket_list
from dgpuhash.tables.methods.bucket_list import BucketListStore
from dgpuhash.tables.methods.growing_lists import GrowingLists
from dgpuhash.tables.stores.recipe import Recipe

WORDS = [("uint32", "uint32"), ("uint32", "int64"), ("int64", "int32"), ("int64", "float64")]


def table_of(device, key="uint32", value="uint32", **settings):
    return MultiMap(key, value, device=device.name, method="bucket_list", **settings)


def many(multiplicity, keys=3000, seed=1):
    """Return distinct keys, and rows that have each so often."""
    random = np.random.default_rng(seed)
    distinct = np.unique(random.integers(0, 2**32 - 2, keys, np.uint32))
    rows = np.repeat(distinct, multiplicity)
    random.shuffle(rows)
    return distinct, rows


def agrees(device, table, keys, values):
    asked = np.unique(keys)
    found, offsets = (device.backend.to_host(each) for each in table.find(device.array(asked)))
    owners = np.repeat(asked, np.diff(offsets))
    assert Counter(zip(owners.tolist(), found.tolist(), strict=True)) == Counter(
        zip(keys.tolist(), values.tolist(), strict=True)
    )
    assert len(table) == len(keys) and table.n_keys == len(asked)


@pytest.mark.parametrize(("key", "value"), WORDS)
@pytest.mark.parametrize("width", [1, 4, 32])
def test_every_verb(device, key, value, width, tmp_path):
    make = functools.partial(
        MultiMap, device=device.name, method="bucket_list", width=width, load=0.95
    )
    check_multi_map(device, make, key, value, tmp_path)


@pytest.mark.parametrize(
    ("multiplicity", "buckets", "slots"),
    [(1, 1, 1), (2, 2, 3), (8, 4, 10), (64, 11, 66), (512, 26, 560)],
)
@pytest.mark.parametrize("width", [1, 16])
def test_buckets_grow_by_a_tenth(device, multiplicity, buckets, slots, width):
    distinct, rows = many(multiplicity, keys=60)
    table = table_of(device, width=width)
    for part in np.array_split(rows, 3):
        table.insert(device.array(part), device.array(np.arange(len(part), dtype=np.uint32)))
    details = table.stats().details
    n = len(distinct)
    assert (details["buckets"], details["slots"]) == (n * buckets, n * slots)
    assert details["links"] == n * (buckets - 1)


def test_buckets_of_chosen_sizes(device):
    distinct, rows = many(30, keys=50)
    table = table_of(device, initial_bucket=10, growth=1.0)
    table.insert(device.array(rows), device.array(rows))
    details = table.stats().details
    assert details["buckets"] == 3 * len(distinct) == details["slots"] / 10
    doubled = table_of(device, growth=2.0)
    doubled.insert(device.array(rows), device.array(rows))
    assert doubled.stats().details["slots"] == 31 * len(distinct)


def test_the_first_batch_sizes_the_table(device):
    distinct, rows = many(8, keys=20_000)
    table = table_of(device)
    table.insert(device.array(rows), device.array(np.arange(len(rows), dtype=np.uint32)))
    stats = table.stats()
    assert 0.72 < stats.load <= 0.8
    assert stats.details["attempts"] == stats.details["rebuilds"] == 0
    # Links of 8 bytes, and 5 % to spare.
    taken = (10 + 3 * 2) * len(distinct)
    assert stats.details["pool_taken"] == taken
    assert taken <= stats.details["pool_slots"] <= 1.06 * taken
    agrees(device, table, rows, np.arange(len(rows), dtype=np.uint32))


def test_probes_are_walked(device):
    distinct, _ = many(1, keys=20_000)
    table = table_of(device)
    table.insert(device.array(distinct), device.array(distinct))
    details = table.stats().details
    assert 1 < details["lines_found"] < 1.4
    assert 1.3 < details["lines_absent"] < 2.4


@pytest.mark.parametrize("width", [1, 8])
def test_a_pool_that_runs_dry_inside_a_launch(device, width, monkeypatch):
    """Rows that find no slots are refused, and launched again when there is room."""
    grown = []
    add_room = GrowingLists.add_room

    def scant(table, wanted):
        grown.append(wanted)
        add_room(table, 1 if len(grown) == 1 else wanted)

    monkeypatch.setattr(GrowingLists, "add_room", scant)
    _, rows = many(20, keys=100)
    values = np.arange(len(rows), dtype=np.uint32)
    table = table_of(device, width=width)
    table.insert(device.array(rows), device.array(values))
    assert len(grown) > 1 and table.stats().details["attempts"] == len(grown) - 1
    agrees(device, table, rows, values)


def test_slots_that_run_out(device, monkeypatch):
    """An estimate that is far too low costs rebuilds and nothing else."""
    distinct, rows = many(3, keys=30_000)
    values = np.arange(len(rows), dtype=np.uint32)
    table = table_of(device)
    estimate = BucketListStore._estimate
    monkeypatch.setattr(
        BucketListStore,
        "_estimate",
        lambda store, keys: estimate(store, keys)._replace(keys=len(distinct) // 20),
    )
    table.insert(device.array(rows), device.array(values))
    agrees(device, table, rows, values)


@pytest.mark.parametrize("width", [1, 32])
def test_one_hot_key(device, width):
    """All rows one key: appended many at a time, and read in parts."""
    n = 100_000
    values = np.random.default_rng(3).permutation(n).astype(np.uint32)
    table = table_of(device, width=width)
    table.insert(device.array(np.full(n, 7, np.uint32)), device.array(values))
    found, offsets = (
        device.backend.to_host(each)
        for each in table.find(device.array(np.array([8, 7, 9], np.uint32)))
    )
    assert offsets.tolist() == [0, 0, n, n]
    assert np.array_equal(np.sort(found), np.arange(n))


def test_some_hot_keys_among_others(device):
    random = np.random.default_rng(5)
    keys = random.zipf(1.5, 60_000).clip(max=2**31).astype(np.uint32)
    values = np.arange(len(keys), dtype=np.uint32)
    table = table_of(device)
    for part in np.array_split(np.arange(len(keys)), 2):
        table.insert(device.array(keys[part]), device.array(values[part]))
    agrees(device, table, keys, values)


def test_reserved_keys_have_lists_in_the_pool(device):
    keys = np.array([2**32 - 1, 2**32 - 2] * 300, np.uint32)
    table = table_of(device)
    table.insert(device.array(keys), device.array(np.arange(600, dtype=np.uint32)))
    table.insert(device.array(keys[:3]), device.array(np.arange(600, 603, dtype=np.uint32)))
    agrees(device, table, np.concatenate([keys, keys[:3]]), np.arange(603, dtype=np.uint32))
    erased = device.backend.to_host(table.erase(device.array(keys[:4])))
    assert erased.sum() == 2 and len(table) == table.n_keys == 0


def test_erased_values_leave_the_pool(device):
    table = table_of(device)
    keys = np.arange(4000, dtype=np.uint32)
    for _ in range(8):
        table.insert(device.array(keys), device.array(keys))
        table.erase(device.array(keys[100:]))
    assert table.stats().details["pool_slots"] < 30_000
    table.compact()
    details = table.stats().details
    assert details["pool_taken"] == details["pool_slots"] and details["buckets"] == 400


def test_lists_that_would_be_too_long(device, monkeypatch):
    """Such rows are refused as others are, and no room for keys or values helps."""
    table = table_of(device)
    table.insert(device.array(np.full(50, 3, np.uint32)), device.array(np.arange(50, dtype="u4")))
    refused = GrowingLists.refused
    monkeypatch.setattr(bucket_list, "MOST_VALUES", 60)
    monkeypatch.setattr(GrowingLists, "count", lambda self: count(self)._replace(pending=20))
    monkeypatch.setattr(
        GrowingLists, "refused", lambda self, rows: device.backend.xp.arange(20, dtype=np.uint64)
    )
    count = Recipe.count
    with pytest.raises(CapacityError, match="a list can have 60"):
        table.insert(
            device.array(np.full(20, 3, np.uint32)), device.array(np.arange(20, dtype="u4"))
        )
    monkeypatch.setattr(GrowingLists, "count", count)
    monkeypatch.setattr(GrowingLists, "refused", refused)
    agrees(device, table, np.full(50, 3, np.uint32), np.arange(50, dtype=np.uint32))


def test_settings_are_checked():
    with pytest.raises(SpecError, match=r"growth=0\.9; use a number from 1\.0 to 16\.0"):
        MultiMap("i4", "i4", method="bucket_list", growth=0.9)
    with pytest.raises(SpecError, match=r"max_load=0\.9 has no effect with method='bucket_list'"):
        MultiMap("i4", "i4", method="bucket_list", max_load=0.9)


def test_a_cleared_table_is_filled_in_its_memory(device):
    _, rows = many(8, keys=5000)
    values = np.arange(len(rows), dtype=np.uint32)
    table = table_of(device)
    table.insert(device.array(rows), device.array(values))
    held, slots = table.nbytes, table._store.table.fields["slots"]
    table.clear()
    assert len(table) == 0
    table.insert(device.array(rows), device.array(values))
    assert table.nbytes == held and table._store.table.fields["slots"] is slots
    agrees(device, table, rows, values)
