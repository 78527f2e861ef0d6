"""Batches grouped by key in parts in a block's memory, or by sorting."""

from __future__ import annotations

import numpy as np
import pytest

from dgpuhash.backend.constants import PART_ROWS, PASS_PARTS
from dgpuhash.tables.bucket_list import grouping
from dgpuhash.tables.bucket_list.grouping import group_parts_by_key
from dgpuhash.tables.open_addressing.cardinality import KeySample

UNIQUE = KeySample(2**16, 0, heavy=False)
"""Of a batch in which every key seems to differ."""


def check_runs(device, keys, starts, values, given, seed):
    """Assert distinct keys by ascending hash, with their rows in order."""
    hashes = device.backend.hash_keys(keys, seed)
    assert bool((hashes[1:] > hashes[:-1]).all())
    keys, starts, rows = map(device.backend.to_host, (keys, starts, values))
    rows = rows.astype(np.int64)
    assert sorted(keys.tolist()) == np.unique(given).tolist()
    assert starts[0] == 0
    assert starts[-1] == len(given)
    runs = np.repeat(np.arange(len(keys)), np.diff(starts))
    assert (given[rows] == keys[runs]).all()
    assert (np.diff(rows)[np.diff(runs) == 0] > 0).all()


@pytest.mark.parametrize(("key", "value"), [("u4", "u4"), ("u4", "u8"), ("u8", "u4"), ("u8", "u8")])
@pytest.mark.parametrize("within", [13, 16])
@pytest.mark.parametrize("pass_parts", [8, 256])
@pytest.mark.parametrize(
    ("rows", "distinct"), [(2, 1), (300, 40), (3000, 700), (3000, 10**9), (90_000, 20_000)]
)
def test_parts(device, monkeypatch, key, value, within, pass_parts, rows, distinct):
    """One pass and two; orders by so few bits that some keys stand mixed."""
    monkeypatch.setattr("dgpuhash.tables.bucket_list.grouping.WITHIN_BITS", within)
    monkeypatch.setitem(PASS_PARTS, device.name, pass_parts)
    keys = np.random.default_rng(rows).integers(0, distinct, rows).astype(key)
    if key == "u4":
        keys[:2] = 2**32 - 1
    given = device.array(keys), device.array(np.arange(rows, dtype=value))
    found = group_parts_by_key(device.backend, *given, 5, UNIQUE)
    assert found is not None
    check_runs(device, *found, keys, 5)
    assert (device.backend.to_host(given[0]) == keys).all()


@pytest.mark.parametrize("heavy", ["one key", "one part"])
def test_parts_that_are_too_large(device, monkeypatch, heavy):
    """A sample that misjudges costs time, no more."""
    rows = 4 * PART_ROWS
    keys = np.arange(rows, dtype="u8")
    if heavy == "one key":
        keys[: rows // 2] = 7
    else:
        keys = np.arange(40 * rows, dtype="u8")
        owners = device.backend.owner_of(device.backend.hash_keys(device.array(keys), 5), 20)
        keys = keys[device.backend.to_host(owners) == 3]
    given = device.array(keys), device.array(np.arange(len(keys), dtype="u4"))
    assert group_parts_by_key(device.backend, *given, 5, UNIQUE) is None
    monkeypatch.setattr(grouping, "_FEW_ROWS", {"cpu": 10, "cuda": 10})
    found = grouping.group_by_key(device.backend, *given, seed=5, sample=UNIQUE)
    starts = found.starts
    if starts is None:
        starts = device.array(np.arange(len(keys) + 1))
    check_runs(device, found.keys, starts, found.values, keys, 5)


def test_heavy_keys_are_not_tried(device):
    keys = device.array(np.arange(3000, dtype="u4"))
    assert (
        group_parts_by_key(device.backend, keys, keys, 5, KeySample(2**16, 30, heavy=True)) is None
    )
    assert group_parts_by_key(device.backend, keys, keys, 5, KeySample(10, 9, heavy=False)) is None
