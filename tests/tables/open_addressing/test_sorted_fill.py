"""Slots that are filled by keys in the order of their hashes."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import random_keys

from dgpuhash.tables.bucket_list.part_lists import SortedFill
from dgpuhash.tables.open_addressing.growth import Storage

SEED = 11


def by_hash(backend, keys):
    return keys[np.argsort(backend.to_host(backend.hash_keys(backend.from_host(keys), SEED)))]


def filled(backend, keys, value, sizes, *, slots=None, load=0.9):
    """Return a table of keys, in the order of hashes, and their places in that order."""
    store = Storage(
        backend, keys.dtype, np.dtype(value), max_load=load, seed=SEED, capacity=slots or len(keys)
    )
    fill = SortedFill(store.slots)
    start = 0
    for size in (*sizes, len(keys)):
        part = keys[start : start + size]
        values = np.arange(start, start + len(part)).astype(value)
        fill.add(backend.from_host(part), backend.from_host(values))
        start += len(part)
    fill.finish()
    return store


def check(backend, store, keys, absent):
    assert len(store) == len(keys)
    values, found = (backend.to_host(each) for each in store.find(backend.from_host(keys)))
    assert found.all()
    assert values.tolist() == list(range(len(keys)))
    assert not backend.to_host(store.contains(backend.from_host(absent))).any()


@pytest.mark.parametrize("load", [0.5, 0.9, 0.99])
@pytest.mark.parametrize(("key", "value"), [("uint32", "uint64"), ("uint64", "uint64")])
@pytest.mark.parametrize("sizes", [(), (1, 0, 7, 1, 1, 3000), (900,) * 9])
def test_batches_follow_each_other(device, key, value, load, sizes):
    backend, most = device.backend, np.iinfo(key).max
    drawn = np.unique(np.append(random_keys(key, 12_000, 3), [most, most - 1]).astype(key))
    is_absent = np.arange(len(drawn)) % 20 == 5
    keys = by_hash(backend, drawn[~is_absent])
    store = filled(backend, keys, value, sizes, load=load)
    check(backend, store, keys, drawn[is_absent])
    more = drawn[is_absent]
    store.add(backend.from_host(more), backend.from_host(np.arange(len(more)).astype(value)))
    assert len(store) == len(drawn)


def test_many_keys_of_one_bucket(device):
    """More than are looked at, and in the last bucket of each batch."""
    backend, slots = device.backend, 2000
    drawn = np.arange(60_000, dtype="uint32")
    store = Storage(backend, drawn.dtype, drawn.dtype, seed=SEED, capacity=slots)
    hashes = backend.to_host(backend.hash_keys(backend.from_host(drawn), SEED))
    buckets = np.array([each * store.slots.buckets >> 64 for each in hashes.tolist()])
    crowded = np.isin(buckets, [0, 17, store.slots.buckets - 1])
    assert np.bincount(buckets[crowded]).max() > 150
    keys = by_hash(backend, drawn[crowded])
    for sizes in ((), (100,) * 4, (1,) * 40, (len(keys),)):
        made = filled(backend, keys, "uint32", sizes, slots=slots)
        check(backend, made, keys, drawn[~crowded])
