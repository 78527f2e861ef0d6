"""Cuckoo hashing with a stash: its figures, its failures, and what changes leave behind."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from agreement import agree
from model import MapModel, MultiMapModel
from table_methods.contracts import check_combine, check_map, check_multi_map, check_set

from dgpuhash import HashMap, HashSet, MultiMap
from dgpuhash.errors import CapacityError, OutOfMemoryError, SpecError, UnsupportedError
from dgpuhash.tables.methods import cuckoo
from dgpuhash.tables.methods.cuckoo import Cuckoo, most_swaps
from dgpuhash.tables.stores import method_store, moving

FORMS = [
    {"functions": 2, "space": 2.1},
    {"functions": 3, "space": 1.1, "family": "xor"},
    {"functions": 4, "space": 1.03},
    {"functions": 5, "space": 1.02, "family": "xor"},
    {"functions": 2, "space": 1 / 0.95, "bucket": 8},
    {"functions": 3, "space": 1.02, "bucket": 8},
]


def some_keys(n, seed):
    drawn = np.random.default_rng(seed).integers(0, 2**32, n + n // 16 + 64, np.uint32)
    return np.unique(drawn)[np.random.default_rng(seed).permutation(n)]


def modelled(n, space, functions, seed):
    """Return exchanges a key, and buckets read to find one, if functions were random."""
    random = np.random.default_rng(seed)
    buckets = random.integers(0, math.ceil(space * n), (n, functions)).tolist()
    held, exchanges = {}, 0
    for key in range(n):
        at = buckets[key][0]
        while True:
            exchanges += 1
            held[at], key = key, held.get(at)
            if key is None:
                break
            at = buckets[key][(buckets[key].index(at) + 1) % functions]
    reads = sum(buckets[key].index(at) + 1 for at, key in held.items())
    return exchanges / n, reads / n


@pytest.mark.parametrize("family", ["multiply", "xor"])
def test_figures(device, family):
    """At 1.25 slots a key: two exchanges each, next to nothing in the stash, eight bytes a slot."""
    n, seen = 200_000, []
    for seed in range(5):
        table = HashMap(
            "u4", "u4", n, device=device.name, method="cuckoo", family=family, seed=seed + 9
        )
        keys = device.array(some_keys(n, seed))
        table.insert(keys, keys)
        stats = table.stats()
        details = stats.details
        seen.append((details["exchanges_a_key"], details["probes_found"]))
        assert details["stash"] <= 4 and details["attempts"] == 0
        assert details["exchanges"] == round(details["exchanges_a_key"] * n)
        assert stats.slots == math.ceil(1.25 * n) and details["space"] == 1.25
        assert 8 * (stats.slots + 101) <= table.nbytes <= 8 * (stats.slots + 101) + 4096
        # Bounds of a search that meets four buckets, of which the share 0.8 is full.
        assert details["probes_absent"] == pytest.approx(sum(0.8**i for i in range(4)), rel=0.02)
    model = np.mean([modelled(20_000, 1.25, 4, seed) for seed in range(3)], axis=0)
    assert np.mean(seen, axis=0) == pytest.approx(model, rel=0.05)
    assert model == pytest.approx((2.02, 1.9), rel=0.05)


@pytest.mark.parametrize("word", ["uint32", "int64"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: " ".join(map(str, form.values())))
def test_least_space(device, form, word):
    """Each number of functions fills the table that the thesis says, and a bucket of 8 more."""
    n, keys = 50_000, some_keys(50_000, 3).astype(word)
    table = HashMap(word, word, n, device=device.name, method="cuckoo", seed=5, **form)
    table.insert(device.array(keys), device.array(keys + 1))
    found, there = table.find(device.array(keys))
    assert device.backend.to_host(there).all()
    assert (device.host(found, word) == keys + 1).all()
    others = np.setdiff1d(keys + keys.dtype.type(1), keys)
    assert not device.backend.to_host(table.contains(device.array(others))).any()
    stats = table.stats()
    assert stats.details["attempts"] <= 2 and stats.details["stash"] <= 20
    assert n / stats.slots == pytest.approx(1 / form["space"], rel=0.001)
    most = form["functions"] + (stats.details["stash"] > 0)
    assert 1 <= stats.details["probes_found"] <= stats.details["probes_absent"] <= most


@pytest.mark.parametrize("form", FORMS[3:5], ids=["five", "bucket"])
def test_contracts(device, form, tmp_path):
    make = functools.partial
    settings = {"device": device.name, "method": "cuckoo", **form}
    check_set(device, make(HashSet, **settings), "int32", tmp_path)
    check_map(device, make(HashMap, **settings), "uint32", "float32", tmp_path)
    check_map(device, make(HashMap, **settings), "int64", "S20", tmp_path)
    check_combine(device, make(HashMap, **settings), "uint32", "int16")
    check_combine(device, make(HashMap, **settings), "int64", "float64")
    check_multi_map(device, make(MultiMap, **settings), "int64", "uint8", tmp_path)


def test_early_stop_is_off_after_an_erase(device):
    n = 20_000
    keys = some_keys(n + 1, 1)
    table = HashSet("u4", n, device=device.name, method="cuckoo")
    assert not device.backend.to_host(table.erase(device.array(keys[:5]))).any()
    table.insert(device.array(keys[:n]))
    before = table.stats().details
    assert before["stops_early"] and before["probes_absent"] < 3.1
    assert device.backend.to_host(table.erase(device.array(keys[:1]))).all()
    after = table.stats().details
    assert not after["stops_early"] and after["probes_absent"] == 4
    assert device.backend.to_host(table.contains(device.array(keys[1:n]))).all()
    assert after["probes_found"] == pytest.approx(before["probes_found"], rel=0.01)
    # A slot that was left is taken again, and a table that is built anew stops early again.
    assert device.backend.to_host(table.insert(device.array(keys[n:]))).all()
    assert not table.stats().details["stops_early"] and table.stats().details["rebuilds"] == 0
    table.rehash(seed=3)
    assert table.stats().details["stops_early"]
    assert device.backend.to_host(table.contains(device.array(keys[1:]))).all()


def test_figures_are_walked():
    """Where all slots are taken, searches read all buckets, and the stash if it is used."""
    table = HashMap("u4", "u4", 1000, device="cpu", method="cuckoo")
    table.insert(some_keys(800, 1), some_keys(800, 1))
    before, recipe = table.stats().details, table._store.table
    slots = recipe.fields["slots"]
    slots[slots == np.uint64(2**64 - 1)] = np.uint64(2**64 - 2)
    assert before["probes_absent"] < 3
    assert table.stats().details["probes_absent"] == 4
    recipe.state[3] = 1
    assert table.stats().details["probes_absent"] == 5


@pytest.fixture
def meeting(monkeypatch):
    """Make the functions of so many first seeds send all keys to one bucket each."""
    left, real = [0], Cuckoo._drawn

    def drawn(self):
        made = real(self)
        if self.generation < left[0]:
            made["a"] = (0,) * len(made["a"])
            made["printed"] = True
        return made

    def meet(seeds):
        left[0] = seeds

    monkeypatch.setattr(Cuckoo, "_drawn", drawn)
    return meet


@pytest.mark.parametrize("kind", [HashSet, HashMap, MultiMap])
def test_other_functions_after_a_failure(device, meeting, kind):
    meeting(3)
    keys = np.arange(500, dtype="u4")
    columns = [device.array(keys)] * (1 if kind is HashSet else 2)
    table = kind(*["u4"] * len(columns), device=device.name, method="cuckoo")
    table.insert(*columns)
    assert device.backend.to_host(table.contains(columns[0])).all() and len(table) == 500
    stats = table.stats()
    assert (stats.details["attempts"], stats.reseeds, stats.details["rebuilds"]) == (3, 3, 0)
    # The first functions again.
    table.clear()
    table.insert(*columns)
    assert table.stats().details["attempts"] == 3 and len(table) == 500


@pytest.mark.parametrize(("repeated", "tables"), [(0, 4), (1, 5)])
def test_functions_that_failed_a_large_batch(device, meeting, monkeypatch, repeated, tables):
    """Other functions come next, and where keys repeat the same ones for the distinct keys."""
    monkeypatch.setattr(moving, "_LEAST_SAMPLED", 100)
    monkeypatch.setattr(moving.KeySample, "unique", True)
    placed, place = [], Cuckoo.place
    monkeypatch.setattr(
        Cuckoo, "place", lambda self, *given: placed.append(1) or place(self, *given)
    )
    meeting(3)
    keys = device.array(np.r_[np.arange(500), np.arange(repeated)].astype("u4"))
    table = HashMap("u4", "u4", 600, device=device.name, method="cuckoo")
    table.insert(keys, keys)
    assert len(placed) == tables
    details = table.stats().details
    assert (details["attempts"], len(table)) == (3, 500)
    model = MapModel()
    model.insert(np.arange(500, dtype="u4"), np.arange(500, dtype="u4"))
    agree(device, table, model)


def test_no_functions_help(device, meeting):
    """After eight attempts tables grow, and after 16 the table is what it was."""
    table = HashMap("u4", "u4", 600, device=device.name, method="cuckoo")
    keys = np.arange(100, dtype="u4")
    table.insert(device.array(keys), device.array(keys))
    model = MapModel()
    model.insert(keys, keys)
    meeting(12)
    table.insert(device.array(keys + 300), device.array(keys))
    model.insert(keys + 300, keys)
    agree(device, table, model)
    assert table.stats().details["attempts"] == 0, "its functions were good ones"
    meeting(100)
    with pytest.raises(CapacityError, match="no place in 16 tables of method 'cuckoo'"):
        table.rehash(5)
    more = np.arange(1000, 2000, dtype="u4")
    with pytest.raises(CapacityError, match="a roomier setting, or use method 'auto'"):
        table.insert(device.array(more), device.array(more))
    agree(device, table, model)
    meeting(12)
    table.insert(device.array(more), device.array(more))
    model.insert(more, more)
    agree(device, table, model)
    details = table.stats().details
    assert details["attempts"] == 12
    assert table.capacity == pytest.approx(2 * 1200 * 1.1**4, rel=0.01)
    assert details["space"] == pytest.approx(1.25 * table.capacity / 1200, rel=0.01)


@pytest.mark.parametrize("stash", [0, 1])
def test_an_insert_that_fails_leaves_the_table(device, monkeypatch, stash):
    """With few evictions allowed and hardly a stash, many tables fail, and no key is lost."""
    monkeypatch.setattr(cuckoo, "most_swaps", lambda keys, settings: 12)
    table = HashMap("i8", "i8", 400, device=device.name, method="cuckoo", stash=stash, seed=11)
    model, tried = MapModel(), 0
    for seed in range(12):
        keys = some_keys(200, seed)[:80].astype("i8")
        table.insert(device.array(keys), device.array(keys + seed))
        model.insert(keys, keys + seed)
        agree(device, table, model)
        tried += table.stats().details["attempts"]
    assert tried > 0 and table.stats().details["rebuilds"] > 0


def test_memory_that_ends_amid_attempts(meeting, monkeypatch):
    table = HashSet("u4", 200, device="cpu", method="cuckoo")
    table.insert(np.arange(100, dtype="u4"))
    meeting(5)
    left, allocate = [3], Cuckoo.allocate

    def scarce(self, keys):
        left[0] -= 1
        if left[0] == 0:
            raise OutOfMemoryError("1 byte needed and 0 free; use less")
        return allocate(self, keys)

    with monkeypatch.context() as patch:
        patch.setattr(Cuckoo, "allocate", scarce)
        with pytest.raises(OutOfMemoryError):
            table.insert(np.arange(5000, dtype="u4"))
    assert sorted(table.items().tolist()) == list(range(100))
    assert table.insert(np.arange(50, 150, dtype="u4")).sum() == 50


@pytest.mark.parametrize("repeated", [0, 1, 500])
def test_batches_that_seem_to_repeat_no_key(device, monkeypatch, repeated):
    """They are stored at once where that is so, and else as others are."""
    monkeypatch.setattr(moving, "_LEAST_SAMPLED", 1000)
    monkeypatch.setattr(moving.KeySample, "unique", True)
    dropped, real = [], method_store.deduplicated_rows
    monkeypatch.setattr(
        method_store,
        "deduplicated_rows",
        lambda *given, **how: dropped.append(1) or real(*given, **how),
    )
    keys = some_keys(5000, 2)
    keys[:2] = 2**32 - 1, 2**32 - 2
    keys = np.concatenate([keys, np.repeat(keys[:repeated], 9)])
    values = np.arange(len(keys), dtype="u4")
    for capacity in (0, 20_000):
        table = HashMap("u4", "u4", capacity, device=device.name, method="cuckoo")
        fresh = device.backend.to_host(table.insert(device.array(keys), device.array(values)))
        assert fresh[:5000].all() and not fresh[5000:].any()
        model = MapModel()
        model.insert(keys, values)
        agree(device, table, model)
        assert dropped == ([1] if repeated else [])
        assert table.capacity == max(capacity, 5000)
        dropped.clear()
    seen = HashSet.from_keys(device.array(keys), method="cuckoo")
    assert len(seen) == 5000 and len(dropped) == (repeated > 0)


def test_a_batch_that_repeats_keys_and_does_not_seem_to(monkeypatch):
    """Memory for all rows is no condition where the distinct keys need less."""
    monkeypatch.setattr(moving, "_LEAST_SAMPLED", 1000)
    monkeypatch.setattr(moving.KeySample, "unique", True)
    allocate = Cuckoo.allocate

    def scarce(self, keys):
        if keys > 5000:
            raise OutOfMemoryError("1 byte needed and 0 free; use less")
        return allocate(self, keys)

    monkeypatch.setattr(Cuckoo, "allocate", scarce)
    table = HashSet("u4", device="cpu", method="cuckoo")
    assert table.insert(np.arange(9000, dtype="u4") % 4000).sum() == 4000
    with pytest.raises(OutOfMemoryError):
        table.insert(np.arange(9000, dtype="u4"))
    assert len(table) == 4000


def test_later_inserts_go_into_a_copy(device):
    """Batches that fit build nothing anew, and give no key another value."""
    table, model = HashMap("u4", "u4", 5000, device=device.name, method="cuckoo"), MapModel()
    for seed in range(5):
        keys = np.repeat(some_keys(900, seed), 2)
        values = np.arange(len(keys), dtype="u4")
        fresh = table.insert(device.array(keys), device.array(values), keep="last")
        assert device.backend.to_host(fresh).tolist() == model.insert(keys, values, "last")
        agree(device, table, model)
    details = table.stats().details
    assert (details["rebuilds"], details["attempts"]) == (0, 0)
    assert table.capacity == 5000
    table.insert(device.array(some_keys(900, 9)), device.array(some_keys(900, 9)))
    assert table.stats().details["rebuilds"] == 1 and table.capacity == 2 * len(table)


def test_runs(device):
    """A multimap's values stand in runs, in their order, behind a table of the distinct keys."""
    model = MultiMapModel()
    table = MultiMap("u4", "u4", device=device.name, method="cuckoo")
    keys = np.concatenate([np.arange(1000), np.repeat([7, 5], (30_000, 900))]).astype("u4")
    values = np.random.default_rng(1).permutation(len(keys)).astype("u4")
    table.insert(device.array(keys), device.array(values))
    model.insert(keys, values)
    agree(device, table, model)
    stats, n = table.stats(), len(keys)
    assert (stats.details["runs"], stats.details["run_slots"]) == (1000, n)
    assert stats.slots == 1250
    assert table.nbytes <= 8 * (1250 + 101) + 4 * n + 8 * 1002 + 4096
    found, ends = table.find(device.array(np.array([9999, 5, 7], "u4")), stable=True)
    assert device.backend.to_host(ends).tolist() == [0, 0, 901, 30_902]
    assert device.host(found, "u4").tolist() == [*values[keys == 5], *values[keys == 7]]
    table.erase(device.array(np.array([7], "u4")))
    model.erase(np.array([7], "u4"))
    agree(device, table, model)
    assert table.stats().details["run_slots"] == n
    assert (len(table), table.n_keys) == (n - 30_001, 999)
    table.insert(device.array(keys[:3]), device.array(values[:3]))
    model.insert(keys[:3], values[:3])
    agree(device, table, model)
    details = table.stats().details
    assert (details["run_slots"], details["rebuilds"]) == (n - 30_001 + 3, 1)
    table.erase(device.array(keys[:10]))
    table.compact()
    assert table.stats().details["run_slots"] == len(table)


def test_no_keys_from_kernels_of_users():
    """They could bring equal keys, which no launch may."""
    store = HashMap("u4", "u4", device="cpu", method="cuckoo")._store
    assert store.lend(write=False).table == "dg::Cuckoo<dg::u32,dg::u32>"
    with pytest.raises(
        UnsupportedError, match=r"'cuckoo' do not support inserts by user kernels, .*use method"
    ):
        store.lend(write=True)


def test_settings():
    with pytest.raises(SpecError, match=r"below 2\.1 slots each; use space=2\.1 or more, or more"):
        HashMap("i4", "i4", method="cuckoo", functions=2)
    for functions, bucket, least in ((3, 1, 1.1), (4, 1, 1.03), (5, 1, 1.02), (2, 8, 1.05)):
        settings = {"method": "cuckoo", "functions": functions, "bucket": bucket}
        HashSet("i4", space=least, **settings)
        if least > 1.02:
            with pytest.raises(SpecError, match=f"use space={least}"):
                MultiMap("i4", "i4", space=least - 0.01, **settings)
    with pytest.raises(SpecError, match=r"space=1; use a number from 1\.02"):
        HashSet("i4", method="cuckoo", space=1)
    with pytest.raises(SpecError, match="bucket=4; use 1 or 8"):
        HashSet("i4", method="cuckoo", bucket=4)
    with pytest.raises(SpecError, match="whose size is set by space="):
        HashSet("i4", method="cuckoo", max_load=0.5)
    with pytest.raises(CapacityError, match="a cuckoo table has at most 1,073,741,824; use bucket"):
        HashSet("i4", 2**30, method="cuckoo", device="cpu")


def test_bound():
    """The thesis' bound at its own size, and more where there is less space."""
    settings = {"functions": 4, "bucket": 1}
    bounds = [most_swaps(2**20, {**settings, "space": space}) for space in (4, 1.25, 1.1, 1.03)]
    assert bounds == [140, 140, 400, 4000]
    for functions, space in ((2, 2.1), (3, 1.1), (5, 1.02)):
        assert most_swaps(2**20, {**settings, "functions": functions, "space": space}) >= 180
