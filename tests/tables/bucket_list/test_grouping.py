"""Batches grouped by key, in orders by hash, with few to very many keys."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dgpuhash.tables.bucket_list import grouping


@pytest.fixture(autouse=True)
def sorted_batches(monkeypatch):
    """Sort batches of any size by hash."""
    monkeypatch.setattr(grouping, "_FEW_ROWS", {"cpu": 10, "cuda": 10})
    monkeypatch.setattr(grouping, "group_parts_by_key", lambda *batch: None)


@pytest.mark.parametrize("bits", [1, 3, 8, 13, 32])
@pytest.mark.parametrize("most_mended", [1, 60, 2**12])
@pytest.mark.parametrize(("key", "value"), [("u4", "u4"), ("u4", "u8"), ("u8", "u4"), ("u8", "u8")])
def test_runs(device, monkeypatch, bits, most_mended, key, value):
    monkeypatch.setattr(grouping, "_HASH_BITS", bits)
    monkeypatch.setattr(grouping, "_MOST_MENDED", most_mended)
    random = np.random.default_rng(bits)
    for rows, distinct in ((1, 1), (11, 3), (3000, 2), (3000, 40), (3000, 700), (3000, 10**9)):
        keys = random.integers(0, distinct, rows).astype(key)
        if key == "u4":
            keys[:2] = 2**32 - 1
        given = device.array(keys), device.array(np.arange(rows, dtype=value))
        found = grouping.group_by_key(device.backend, *given, seed=5)
        starts = found.starts
        if starts is None:
            starts = device.array(np.arange(rows + 1))
        parts = (found.keys, starts, found.values)
        distinct_keys, starts, order = map(device.backend.to_host, parts)
        assert sorted(distinct_keys.tolist()) == np.unique(keys).tolist()
        assert (keys[order] == np.repeat(distinct_keys, np.diff(starts))).all()
        if found.by_hash:
            hashes = device.backend.hash_keys(found.keys, 5)
            assert bool((hashes[1:] > hashes[:-1]).all())
        assert found.by_hash == (rows > 10)
        assert starts[0] == 0
        assert starts[-1] == rows
        for start, end in itertools.pairwise(starts):
            assert (np.diff(order[start:end].astype(np.int64)) > 0).all()
        assert (device.backend.to_host(given[0]) == keys).all()


@pytest.mark.parametrize("length", [64, 65, 300])
def test_runs_of_keys_that_take_turns(device, monkeypatch, length):
    """Many rows of one key, of another, of the first again, none of them told apart by the hash."""
    monkeypatch.setattr(grouping, "_HASH_BITS", 1)
    monkeypatch.setattr(grouping, "_MIXED_PART", 8)
    keys = np.tile(np.repeat(np.arange(20, dtype="u4"), length), 3)
    given = device.array(keys), device.array(np.arange(len(keys), dtype="u8"))
    found = grouping.group_by_key(device.backend, *given, seed=5)
    order = device.backend.to_host(found.values).astype(np.int64)
    lengths = np.diff(device.backend.to_host(found.starts))
    assert (lengths == 3 * length).all()
    assert (keys[order] == np.repeat(device.backend.to_host(found.keys), lengths)).all()
    assert (np.diff(order.reshape(20, -1)) > 0).all()
