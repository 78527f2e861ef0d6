"""The thesis' two-level cuckoo hashing: its figures, hostile keys, and failures of both phases."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from agreement import agree
from model import MapModel, MultiMapModel
from table_methods.contracts import agree_lists, check_map, check_multi_map, check_set

import dgpuhash
from dgpuhash import HashMap, HashSet, MultiMap
from dgpuhash.errors import CapacityError, SpecError, UnsupportedError
from dgpuhash.tables.methods import two_level_cuckoo

PRIME = 1_900_813
METHOD = "two_level_cuckoo"


def some_keys(n, seed, word="u4"):
    top = 2**32 - 2 if word == "u4" else 2**63
    drawn = np.random.default_rng(seed).integers(0, top, n + n // 16, word)
    return np.unique(drawn)[np.random.default_rng(seed).permutation(n)]


def hostile_keys(name, word):
    """Return distinct keys, more than a bucket holds, that the first function deals to one."""
    most = np.iinfo(word).max
    if name == "multiples of p":
        return np.arange(2000, dtype=word) * np.array(PRIME, word)
    if name == "equal modulo p":
        return np.arange(2000, dtype=word) * np.array(PRIME, word) + np.array(77, word)
    return np.concatenate([np.arange(3000, dtype=word), most - np.arange(5, dtype=word)])


@pytest.mark.parametrize("bucket_keys", [512, 1024])
@pytest.mark.parametrize("word", ["uint32", "int64"])
def test_map(device, word, bucket_keys, tmp_path):
    make = functools.partial(HashMap, device=device.name, method=METHOD, bucket_keys=bucket_keys)
    check_map(device, make, word, word, tmp_path)


def test_map_of_other_widths(device, tmp_path):
    make = functools.partial(HashMap, device=device.name, method=METHOD)
    check_map(device, make, "uint16", "complex128", tmp_path)


@pytest.mark.parametrize("word", ["uint32", "int64"])
def test_set(device, word, tmp_path):
    make = functools.partial(HashSet, device=device.name, method=METHOD)
    check_set(device, make, word, tmp_path)


@pytest.mark.parametrize("word", ["uint32", "int64"])
def test_multi_map(device, word, tmp_path):
    make = functools.partial(MultiMap, device=device.name, method=METHOD)
    check_multi_map(device, make, word, word, tmp_path)


@pytest.mark.parametrize(
    ("bucket_keys", "space", "slots", "seeds"), [(512, 1.41, 576, 5), (1024, 1.32, 1152, 1)]
)
def test_figures_of_the_thesis(device, bucket_keys, space, slots, seeds):
    n, iterations, restarts = 200_000, [], 0
    for seed in range(seeds):
        keys = device.array(some_keys(n, seed))
        table = HashMap(
            "u4", "u4", n, device=device.name, method=METHOD, bucket_keys=bucket_keys, seed=seed + 1
        )
        table.insert(keys, keys)
        stats = table.stats()
        details = stats.details
        filled = {512: 0.8, 1024: 0.85}[bucket_keys]
        assert details["buckets"] == -(-n // (bucket_keys * filled))
        assert stats.slots == slots * details["buckets"]
        assert space * 8 * n * 0.99 <= table.nbytes <= space * 8 * n * 1.01 + 4 * n // 400 + 4096
        assert table.nbytes == 8 * stats.slots + 4 * details["buckets"] + 64
        # The seed, and up to three slots.
        assert 2 < details["reads_found"] < 3 and details["reads_absent"] == 4
        iterations.append(details["iterations"])
        restarts += details["restarts"]
    if bucket_keys == 512:
        assert np.mean(iterations) == pytest.approx(5.55, rel=0.05)
    assert restarts <= 0.01 * seeds * details["buckets"]


def test_reads_are_walked():
    """Keys that stand elsewhere are found by more reads, or not at all."""
    table = HashMap("u4", "u4", 1000, device="cpu", method=METHOD)
    keys = some_keys(900, 1)
    table.insert(keys, keys)
    before = table.stats().details
    table._store.table.fields["seeds"] += np.uint32(1)
    after = table.stats().details
    assert before["reads_found"] < 3 < after["reads_found"] < 4
    assert not table.contains(keys).all()


@pytest.mark.parametrize("word", ["u4", "u8"])
@pytest.mark.parametrize("name", ["multiples of p", "equal modulo p", "edges"])
def test_hostile_keys(device, name, word):
    keys = hostile_keys(name, word)
    table, model = HashMap(word, word, device=device.name, method=METHOD), MapModel()
    lists, pairs = MultiMap(word, word, device=device.name, method=METHOD), MultiMapModel()
    for part in np.array_split(keys, [1900]):
        table.insert(device.array(part), device.array(part))
        model.insert(part, part)
        both = np.concatenate([part, part[::3]])
        lists.insert(device.array(both), device.array(both))
        pairs.insert(both, both)
    agree(device, table, model)
    agree_lists(device, lists, pairs)
    details = table.stats().details
    # The first function deals multiples of p to one bucket.
    dealt_anew = word == "u4" and name != "edges"
    assert (table.stats().reseeds > 0) == dealt_anew
    assert details["restarts"] <= 3


def keys_of_hashes(hashes, seed):
    """Return the keys that `hash_key` of core/hash.cuh gives these hashes by a seed."""

    def unmixed(words):
        for inverse in (0x9CB4B2F8129337DB, 0x4F74430C22A54005):
            words = words ^ (words >> np.uint64(33))
            words = words * np.uint64(inverse)
        return words ^ (words >> np.uint64(33))

    def mixed(word):
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            word = (word ^ word >> 33) * factor % 2**64
        return word ^ word >> 33

    return unmixed(hashes) ^ np.uint64(mixed((seed + 0x9E3779B97F4A7C15) % 2**64))


@pytest.mark.parametrize(("shift", "reseeds"), [(0, 0), (32, 1)])
def test_keys_that_share_half_of_their_hash(device, shift, reseeds):
    """Keys that agree in the half that chooses buckets, or in the one that chooses slots."""
    table = HashMap("u8", "u8", device=device.name, method=METHOD, seed=5)
    hashes = np.arange(1, 61, dtype="u8") << np.uint64(shift)
    hashes += np.uint64(9) << np.uint64(32 - shift)
    keys = keys_of_hashes(hashes, table.stats().seed)
    computed = device.backend.hash_keys(device.array(keys), table.stats().seed)
    assert (device.backend.to_host(computed) == hashes).all()
    keys = np.concatenate([keys, some_keys(2000, 4, "u8")])
    table.insert(device.array(keys), device.array(keys))
    assert table.stats().reseeds == reseeds and table.stats().details["buckets"] > 5
    assert device.backend.to_host(table.contains(device.array(keys))).all()


def test_many_copies_of_a_key(device):
    """A bucket may have any number of rows, but no more keys than it is made for."""
    keys = np.concatenate([np.full(5000, 7, "u4"), some_keys(2000, 3), some_keys(700, 3)])
    values = np.arange(len(keys), dtype="u4")
    table, model = MultiMap("u4", "u4", device=device.name, method=METHOD), MultiMapModel()
    table.insert(device.array(keys), device.array(values))
    model.insert(keys, values)
    agree_lists(device, table, model)
    assert device.backend.to_host(table.count(device.array(keys[:1]))).tolist() == [5000]
    stats = table.stats()
    # Buckets are for different keys, 2,001 of them.
    assert stats.reseeds == 0 and stats.details["buckets"] == 5
    assert stats.slots == 5 * 576


@pytest.mark.parametrize("kind", [HashMap, MultiMap])
def test_buckets_that_cannot_be_filled(device, kind, monkeypatch):
    """Eight times as many keys as a bucket holds: tables grow a little, and then it is told."""
    table = kind("u4", "u4", device=device.name, method=METHOD)
    few, many = some_keys(100, 1), some_keys(2000, 2)
    table.insert(device.array(few), device.array(few))
    with monkeypatch.context() as patched:
        patched.setattr(two_level_cuckoo, "_FILLED", {512: 8.0})
        with pytest.raises(CapacityError, match=r"found no place in 16 tables.*two_level_cuckoo"):
            table.insert(device.array(many), device.array(many))
    assert device.backend.to_host(table.contains(device.array(few))).all() and len(table) == 100
    table.insert(device.array(many), device.array(many))
    assert device.backend.to_host(table.contains(device.array(many))).all()


def test_attempts_that_need_a_larger_table(device, monkeypatch):
    """Buckets a fifth too full: after eight attempts the table grows until all keys fit."""
    monkeypatch.setattr(two_level_cuckoo, "_FILLED", {512: 1.2})
    table = HashMap("u4", "u4", device=device.name, method=METHOD)
    keys = some_keys(9000, 2)
    table.insert(device.array(keys), device.array(keys))
    assert device.backend.to_host(table.contains(device.array(keys))).all()
    assert 8 < table.stats().details["attempts"] <= 16 and table.capacity > 9000


def test_settings():
    with pytest.raises(SpecError, match=r"bucket_keys=2048; use 512 or 1024"):
        HashMap("i8", "i8", method=METHOD, bucket_keys=2048)
    with pytest.raises(UnsupportedError, match="cannot combine; methods that can: auto"):
        HashMap("i8", "i8", method=METHOD).insert([1], [2], combine="sum")
    row = dgpuhash.methods()[METHOD]
    assert row.static and not row.ordered and set(row.nouns) >= {"set", "map", "multimap"}
