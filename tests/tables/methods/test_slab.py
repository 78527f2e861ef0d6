"""The slab hash: its figures, its pools, flush and growth."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from agreement import agree
from model import MapModel, MultiMapModel
from table_methods.contracts import (
    agree_lists,
    check_combine,
    check_map,
    check_multi_map,
    check_set,
)

import dgpuhash
from dgpuhash import HashMap, HashSet, MultiMap
from dgpuhash.errors import SpecError

ALLOCATORS = ("slab", "light")
TAKEN = np.uint32(0xFFFFFFFF)


def some_keys(n, seed):
    drawn = np.random.default_rng(seed).integers(0, 2**32, n + n // 16, np.uint32)
    return np.unique(drawn)[np.random.default_rng(seed).permutation(n)]


def leave_one_slab(table, monkeypatch):
    """Let a table's pool have one free slab, which it does not count on."""
    recipe = table._store.table
    monkeypatch.setattr(type(recipe), "certain", lambda self, rows: False)
    bitmaps = recipe.fields["pool"]["bitmaps"]
    bitmaps.fill(TAKEN)
    bitmaps[3:4].fill(np.uint32(TAKEN - 4))


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("word", ["uint32", "int64"])
def test_map(device, word, allocator, tmp_path):
    make = functools.partial(
        HashMap, device=device.name, method="slab", chain=2.0, allocator=allocator
    )
    check_map(device, make, word, word, tmp_path)


@pytest.mark.parametrize("word", ["uint32", "int64"])
def test_set(device, word, tmp_path):
    make = functools.partial(HashSet, device=device.name, method="slab", chain=2.0)
    check_set(device, make, word, tmp_path)


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("word", ["uint32", "int64"])
def test_multi_map(device, word, allocator, tmp_path):
    make = functools.partial(MultiMap, device=device.name, method="slab", allocator=allocator)
    check_multi_map(device, make, word, word, tmp_path)


@pytest.mark.parametrize("value", ["int16", "complex128"])
def test_map_of_other_widths(device, value, tmp_path):
    make = functools.partial(HashMap, device=device.name, method="slab")
    check_map(device, make, "uint16", value, tmp_path)


@pytest.mark.parametrize("value", ["uint8", "int32", "float32", "float64", "int64"])
def test_combine(device, value):
    make = functools.partial(HashMap, device=device.name, method="slab")
    for key in ("uint32", "int64"):
        check_combine(device, make, key, value)


@pytest.mark.parametrize(
    ("word", "chain", "filled"),
    [
        ("u4", 0.2, 0.187),
        ("u4", 0.7, 0.614),
        ("u4", 0.9, 0.658),
        ("u4", 1.1, 0.651),
        ("u8", 0.2, 0.175),
        ("u8", 0.7, 0.545),
        ("u8", 1.0, 0.622),
    ],
)
def test_utilisation(device, word, chain, filled):
    n, seen = 200_000, []
    for seed in range(5):
        table = HashMap(word, word, n, device=device.name, method="slab", chain=chain, seed=seed)
        keys = device.array(some_keys(n, seed).astype(word))
        table.insert(keys, keys)
        details = table.stats().details
        seen.append(details["utilisation"])
        slots = 15 if word == "u4" else 7
        assert details["buckets"] == -(-n // (slots * chain)) and details["rebuilds"] == 0
        # The expected slabs and a tenth, in memory blocks of 1,024 slabs.
        grown = details["slabs"] - details["buckets"]
        pool = details["memory_blocks"] * 1024
        assert grown + details["free"] == pool <= 1.1 * grown + 6 * grown**0.5 + 2048
        slabs = details["buckets"] + pool
        assert 128 * slabs <= table.nbytes <= 128 * slabs + pool // 8 + 4096
    assert np.mean(seen) == pytest.approx(filled, rel=0.05)


def test_a_full_table_of_one_bucket_is_used_to_94_percent():
    """The paper's limit: 120 of 128 bytes."""
    table = HashMap("u4", "u4", 32, device="cpu", method="slab", chain=4.0)
    table._store.table.keys = 10**6
    keys = some_keys(15_000, 1)
    table.insert(keys, keys)
    details = table.stats().details
    assert details["buckets"] == 1 and details["slabs"] == details["longest_chain"] == 1000
    assert details["utilisation"] == 0.9375


def test_slabs_are_walked():
    """Every chain grows by a slab behind the searches' backs."""
    table = HashMap("u4", "u4", 3000, device="cpu", method="slab")
    table.insert(some_keys(2000, 1), some_keys(2000, 1))
    before = table.stats()
    recipe = table._store.table
    slabs = recipe.fields["slabs"].reshape(-1, 32)
    assert (slabs[:, 31] == TAKEN).all()
    pairs = slabs[:, :30].copy().view(np.uint64)
    pairs[pairs == np.uint64(2**64 - 1)] = np.uint64(2**64 - 2)
    slabs[:, :30] = pairs.view(np.uint32)
    slabs[:, 31] = 5
    after = table.stats()
    assert before.details["slabs_absent"] == 1.0
    assert after.details["slabs_absent"] == 2.0
    assert after.details["slabs"] == 2 * before.details["slabs"]


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("word", ["u4", "i8"])
def test_a_pool_of_one_runs_dry(device, word, allocator, monkeypatch):
    """Slabs are taken by the kernel that inserts; what they are short of, super blocks bring."""
    table = HashMap(word, word, 500, device=device.name, method="slab", allocator=allocator)
    few, model = some_keys(10, 1).astype(word), MapModel()
    table.insert(device.array(few), device.array(few))
    model.insert(few, few)
    leave_one_slab(table, monkeypatch)
    keys = some_keys(900, 2).astype(word)
    mask = device.backend.to_host(table.insert(device.array(keys), device.array(keys + 1)))
    model.insert(keys, keys + 1)
    agree(device, table, model)
    assert mask.sum() == len(model) - len(few)
    details = table.stats().details
    assert details["attempts"] >= 1 and details["memory_blocks"] > 1 and details["rebuilds"] == 0
    assert details["super_blocks"] == (1 if allocator == "light" else details["memory_blocks"])
    # The one slab that was free is in a chain.
    assert (
        device.backend.to_host(table._store.table.fields["pool"]["bitmaps"])[:32] == TAKEN
    ).all()


def test_a_pool_of_one_runs_dry_amid_lists(device, monkeypatch):
    table, model = MultiMap("u4", "u4", 500, device=device.name, method="slab"), MultiMapModel()
    few = some_keys(10, 1)
    table.insert(device.array(few), device.array(few))
    model.insert(few, few)
    leave_one_slab(table, monkeypatch)
    keys = np.repeat(some_keys(30, 2), 30)
    table.insert(device.array(keys), device.array(np.arange(900, dtype="u4")))
    model.insert(keys, np.arange(900, dtype="u4"))
    agree_lists(device, table, model)
    assert table.stats().details["attempts"] >= 1


@pytest.mark.parametrize("word", ["u4", "i8"])
def test_flush_gives_slabs_back(device, word):
    table, model = (
        HashMap(word, word, 2000, device=device.name, method="slab", chain=3.0),
        MapModel(),
    )
    keys = some_keys(2000, 4).astype(word)
    table.insert(device.array(keys), device.array(keys))
    model.insert(keys, keys)
    before = table.stats().details
    table.erase(device.array(keys[:1500]))
    model.erase(keys[:1500])
    agree(device, table, model)
    assert table.stats().tombstones == 1500
    assert table.stats().details["slabs"] == before["slabs"]
    # A batch finds that there are many marks, and drops them before.
    table.insert(device.array(keys[:3]), device.array(keys[:3]))
    model.insert(keys[:3], keys[:3])
    agree(device, table, model)
    after = table.stats()
    assert after.tombstones == 0 and after.details["rebuilds"] == 0
    assert after.details["slabs"] < before["slabs"] and after.details["free"] > before["free"]
    table.insert(device.array(keys), device.array(keys))
    model.insert(keys, keys)
    agree(device, table, model)
    assert table.stats().details["memory_blocks"] == before["memory_blocks"]


def test_it_grows(device):
    table, model = HashMap("i8", "i8", 100, device=device.name, method="slab"), MapModel()
    for seed in range(6):
        keys = some_keys(100 << seed, seed).astype("i8")
        table.insert(device.array(keys), device.array(keys))
        model.insert(keys, keys)
        agree(device, table, model)
        # Chains are at most twice as long as was asked for.
        assert len(table) <= 2 * table.capacity
    assert 2 < table.stats().details["rebuilds"] < 6


def test_small_batches_wait_for_nothing(monkeypatch):
    """Where the pool has slabs for the longest chains, no counter is read."""
    table = HashMap("u4", "u4", 5000, device="cpu", method="slab")
    keys = some_keys(3000, 1)
    table.insert(keys[:100], keys[:100])
    recipe = type(table._store.table)
    monkeypatch.setattr(recipe, "count", None)
    for part in np.array_split(keys[100:], 29):
        table.insert(part, part)
    monkeypatch.undo()
    assert len(table) == 3000


def test_launches_are_its_own(monkeypatch):
    seen = []
    backend = dgpuhash.backend.get("cpu")
    real = type(backend).launch

    def launch(self, kernel, args, n):
        seen.append(kernel.expression)
        real(self, kernel, args, n)

    monkeypatch.setattr(type(backend), "launch", launch)
    table = HashMap("u4", "u4", 100, method="slab", device="cpu")
    keys = np.arange(50, dtype="u4")
    table.insert(keys, keys)
    table.find(keys), table.contains(keys), table.erase(keys), table.items(), table.stats()
    assert seen
    own = ("Slab<dg::u32,dg::u32>", "slab_chains")
    assert [each for each in seen if not any(name in each for name in own)] == []


def test_settings():
    with pytest.raises(SpecError, match=r"chain=9; use a number from 0\.05 to 4\.0"):
        HashMap("i4", "i4", method="slab", chain=9)
    with pytest.raises(SpecError, match="allocator='malloc'; use 'slab' or 'light'"):
        HashSet("i4", method="slab", allocator="malloc")
    with pytest.raises(SpecError, match="whose size is set by chain="):
        HashMap("i4", "i4", method="slab", max_load=0.9)
    details = HashSet("i4", 3000, method="slab", chain=1).stats().details
    assert (details["buckets"], details["allocator"]) == (100, "slab")
