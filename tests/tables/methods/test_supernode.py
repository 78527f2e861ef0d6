"""DACHash's super nodes: figures, node sizes, pools, clean, mappings, answers in any order."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from agreement import agree
from model import MapModel
from table_methods.contracts import check_combine, check_map, check_set

from dgpuhash import HashMap, HashSet, Op
from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.errors import CapacityError, SpecError, UnsupportedError

SIZES = (16, 32, 64, 128)
NONE = np.uint32(0xFFFFFFFF)


def some_keys(n, seed, dtype="u4"):
    drawn = np.random.default_rng(seed).integers(0, 2**32, n + n // 16 + 8, np.uint32)
    return np.random.default_rng(seed).permutation(np.unique(drawn))[:n].astype(dtype)


def map_of(device, word="u4", capacity=0, **settings):
    return HashMap(word, word, capacity, device=device.name, method="supernode", **settings)


def leave_one_node(table, monkeypatch):
    """Let a table's pool have one free node, which it does not count on."""
    recipe = table._store.table
    monkeypatch.setattr(type(recipe), "certain", lambda self, rows: False)
    pool = recipe.fields["pool"]
    pool["counts"][1:].fill(np.uint64(pool["size"] - 1))


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("word", ["uint32", "int64"])
def test_map(device, word, nbytes, tmp_path):
    if (word, nbytes) == ("int64", 16):
        with pytest.raises(SpecError, match="node_nbytes=16 with keys or values of 8 bytes"):
            map_of(device, word, node_nbytes=16)
        return
    make = functools.partial(
        HashMap, device=device.name, method="supernode", node_nbytes=nbytes, length=1.5
    )
    check_map(device, make, word, word, tmp_path)


@pytest.mark.parametrize("nbytes", [16, 64])
@pytest.mark.parametrize("word", ["uint32", "int64"])
def test_set(device, word, nbytes, tmp_path):
    make = functools.partial(HashSet, device=device.name, method="supernode", node_nbytes=nbytes)
    check_set(device, make, word, tmp_path)


@pytest.mark.parametrize(("key", "value"), [("uint16", "complex128"), ("uint32", "int64")])
def test_map_of_other_widths(device, key, value, tmp_path):
    check_map(
        device,
        functools.partial(HashMap, device=device.name, method="supernode"),
        key,
        value,
        tmp_path,
    )


@pytest.mark.parametrize("value", ["int32", "float64"])
def test_combine(device, value):
    make = functools.partial(HashMap, device=device.name, method="supernode", length=2.0)
    check_combine(device, make, "uint32", value)


@pytest.mark.parametrize(
    ("length", "for_a_key", "for_a_bucket"),
    [(0.5, 0.293, 1.027), (0.6, 0.253, 1.064), (1.0, 0.201, 1.405)],
)
def test_nodes(device, length, for_a_key, for_a_bucket):
    n, seen = 200_000, []
    for seed in range(5):
        table = map_of(device, "u4", n, length=length, seed=seed)
        keys = device.array(some_keys(n, seed))
        table.insert(keys, keys)
        details = table.stats().details
        seen.append((details["nodes"] / n, details["nodes_a_bucket"]))
        assert details["buckets"] == -(-n // (7 * length)) and details["rebuilds"] == 0
        # The expected nodes and a tenth.
        grown, pool = details["nodes"] - details["buckets"], details["pool"]
        assert grown + details["free"] == pool <= 1.2 * grown + 8 * grown**0.5
        nodes = 64 * (details["buckets"] + pool)
        assert nodes <= table.nbytes <= nodes + 256
        assert details["utilisation"] == pytest.approx(8 * n / (64 * details["nodes"]))
    assert np.mean(seen, axis=0) == pytest.approx((for_a_key, for_a_bucket), rel=0.05)


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("kind", [HashMap, HashSet])
@pytest.mark.parametrize("word", ["u4", "u8"])
def test_slots_of_a_node(kind, word, nbytes):
    """One bucket, whose chain is as long as its keys need."""
    slot = np.dtype(word).itemsize * (2 if kind is HashMap else 1)
    slots = (nbytes - max(8, slot)) // slot
    if slots == 0:
        return
    types = (word, word) if kind is HashMap else (word,)
    table = kind(*types, 32, device="cpu", method="supernode", node_nbytes=nbytes, length=4.0)
    recipe = table._store.table
    recipe.keys = 10**6
    buckets = recipe.fields["buckets"]
    assert buckets == -(-32 // (4 * slots)) and recipe.per_node == slots
    keys = some_keys(100 * buckets * slots, 1, word)
    table.insert(keys, *([keys] if kind is HashMap else []))
    details = table.stats().details
    assert details["nodes"] * slots >= len(keys) > (details["nodes"] - buckets) * slots
    pool_and_first = (details["pool"] + buckets) * nbytes
    assert pool_and_first <= table.nbytes <= pool_and_first + 256


def test_nodes_are_walked():
    """Every chain grows by a node behind the searches' backs."""
    table = HashMap("u4", "u4", 3000, device="cpu", method="supernode")
    table.insert(some_keys(1000, 1), some_keys(1000, 1))
    before = table.stats()
    nodes = table._store.table.fields["nodes"].reshape(-1, 16)
    assert (nodes[:, 1] == NONE).all()
    pairs = nodes[:, 2:].copy().view(np.uint64)
    pairs[pairs == np.uint64(2**64 - 1)] = np.uint64(2**64 - 2)
    nodes[:, 2:] = pairs.view(np.uint32)
    nodes[:, 0] = 5
    after = table.stats()
    assert before.details["nodes_absent"] == 1.0
    assert after.details["nodes_absent"] == 2.0
    assert after.details["nodes"] == 2 * before.details["nodes"]


@pytest.mark.parametrize("nbytes", [32, 64])
@pytest.mark.parametrize("word", ["u4", "i8"])
def test_a_pool_of_one_runs_dry(device, word, nbytes, monkeypatch):
    """Nodes are taken by the kernel that inserts; what they are short of, a larger pool brings."""
    table, model = map_of(device, word, 1000, length=3.0, node_nbytes=nbytes), MapModel()
    few = some_keys(10, 1, word)
    table.insert(device.array(few), device.array(few))
    model.insert(few, few)
    leave_one_node(table, monkeypatch)
    before = table.stats().details["pool"]
    keys = some_keys(900, 2, word)
    mask = device.backend.to_host(table.insert(device.array(keys), device.array(keys + 1)))
    model.insert(keys, keys + 1)
    agree(device, table, model)
    assert mask.sum() == len(model) - len(few)
    details = table.stats().details
    assert details["attempts"] >= 1 and details["pool"] > before and details["rebuilds"] == 0
    # What the pool was short of at first is behind the node that it had.
    assert details["nodes"] > details["buckets"] + 1


@pytest.mark.parametrize("word", ["u4", "i8"])
def test_a_pool_of_one_runs_dry_amid_a_mixed_batch(device, word, monkeypatch):
    table = map_of(device, word, 600, length=3.0)
    first = np.arange(100).astype(word)
    table.insert(device.array(first), device.array(first))
    leave_one_node(table, monkeypatch)
    keys = np.arange(500).astype(word)
    ops = np.where(keys < 100, keys % 2 * 3, 1 + keys % 2).astype("u1")
    found, flags = table.execute(device.array(ops), device.array(keys), device.array(keys + 1), 7)
    assert device.backend.to_host(flags).all()
    assert (device.backend.to_host(found)[:100:2] == first[::2]).all()
    assert table.stats().details["attempts"] >= 1
    values, stored = table.find(device.array(keys))
    values, stored = device.backend.to_host(values), device.backend.to_host(stored)
    assert (stored == ((keys >= 100) | (keys % 2 == 0))).all()
    assert (values[100:] == keys[100:] + 1).all() and len(table) == 450


def test_what_an_empty_pool_needs_first_is_a_clean(device, monkeypatch):
    table, model = map_of(device, "u4", 4000, length=3.0), MapModel()
    keys = some_keys(4000, 4)
    table.insert(device.array(keys), device.array(keys))
    table.erase(device.array(keys[:400]))
    model.insert(keys[400:], keys[400:])
    before = table.stats()
    assert before.tombstones == 400
    leave_one_node(table, monkeypatch)
    # So few marks that a batch does not drop them before, and no room but theirs.
    table._store.table.erased_bound = 0
    table._store.table.keys = 8000
    table.insert(device.array(keys[:350]), device.array(keys[:350]))
    model.insert(keys[:350], keys[:350])
    agree(device, table, model)
    after = table.stats()
    assert after.tombstones == 0 and after.details["attempts"] >= 1
    assert after.details["rebuilds"] == 0


def test_a_pool_that_never_has_enough_ends_in_an_error(device, monkeypatch):
    table, model = map_of(device, "u4", 2000, length=3.0), MapModel()
    few = some_keys(100, 1)
    table.insert(device.array(few), device.array(few))
    model.insert(few, few)
    recipe = type(table._store.table)
    leave_one_node(table, monkeypatch)
    keys = some_keys(1500, 2)
    with monkeypatch.context() as patch:
        patch.setattr(recipe, "remedy", lambda self, refused: True)
        with pytest.raises(CapacityError, match=r"no place in 16 tables of method 'supernode'"):
            table.insert(device.array(keys), device.array(keys))
    agree(device, table, model)
    table.insert(device.array(keys), device.array(keys))
    model.insert(keys, keys)
    agree(device, table, model)


@pytest.mark.parametrize("word", ["u4", "i8"])
def test_clean_gives_nodes_back(device, word):
    table, model = map_of(device, word, 2000, length=3.0), MapModel()
    keys = some_keys(2000, 4, word)
    table.insert(device.array(keys), device.array(keys))
    before = table.stats().details
    table.erase(device.array(keys[:1500]))
    model.insert(keys[1500:], keys[1500:])
    agree(device, table, model)
    assert table.stats().tombstones == 1500
    assert table.stats().details["nodes"] == before["nodes"]
    # A batch finds that there are many marks, and drops them before.
    table.insert(device.array(keys[:3]), device.array(keys[:3]))
    model.insert(keys[:3], keys[:3])
    agree(device, table, model)
    after = table.stats()
    assert after.tombstones == 0 and after.details["rebuilds"] == 0
    assert after.details["nodes"] < before["nodes"] and after.details["free"] > before["free"]
    table.insert(device.array(keys), device.array(keys))
    model.insert(keys, keys)
    agree(device, table, model)
    assert table.stats().details["pool"] == before["pool"]


@pytest.mark.parametrize(
    ("settings", "stored", "mapping"),
    [
        ({}, 4000, "one-to-one"),
        ({"length": 4.0}, 4000, "one-to-one"),
        ({"length": 1.0, "tau": 0.6}, 2000, "one-to-one"),
        ({"length": 1.0, "tau": 0.6}, 4000, "many-to-one"),
        ({"tau": 0}, 4000, "many-to-one"),
        ({"length": 1.0, "tau": 2}, 4000, "one-to-one"),
    ],
)
def test_mixed_batches_follow_the_mapping(monkeypatch, settings, stored, mapping):
    seen = []
    prepared = CpuBackend.prepared

    def noted(self, kernel, n, **fields):
        seen.append((kernel.expression, kernel.tile))
        return prepared(self, kernel, n, **fields)

    table = HashMap("u4", "u4", 4000, method="supernode", device="cpu", **settings)
    keys = some_keys(stored, 1)
    table.insert(keys, keys)
    monkeypatch.setattr(CpuBackend, "prepared", noted)
    table.execute(np.full(50, Op.FIND, "u1"), keys[:50])
    lanes = 1 if mapping == "one-to-one" else 4
    assert table.stats().details["mapping"] == mapping
    # One launch, of the method's own.
    assert seen == [(f"dg::verb::execute<dg::Supernode<dg::u32,dg::u32>,{lanes}>", 1)]


@pytest.mark.parametrize(
    ("key", "value"), [("u4", "u4"), ("i8", "f8"), ("u4", "i8"), ("f4", "S20"), ("u2", "u1")]
)
def test_answers_in_any_order(device, key, value):
    """What is asked, and answered, row by row is the same, in the order of the table's buckets."""
    pool = some_keys(3000, 1).astype(key)
    values = np.arange(3000).astype(value)
    table = HashMap(key, value, device=device.name, method="supernode", combined=4)
    table.insert(device.array(pool), device.array(values))
    asked = np.concatenate([pool[::2], some_keys(1000, 3).astype(key), pool[:5]])
    given, host = device.array(asked), device.backend.to_host
    values_in, found_in = map(host, table.find(given, default=values[7]))
    values_any, found_any, rows = map(host, table.find(given, default=values[7], in_order=False))
    assert rows.dtype == np.int64 and sorted(rows) == list(range(len(asked)))
    assert (values_any == values_in[rows]).all() and (found_any == found_in[rows]).all()
    assert (np.diff(rows) < 0).any()

    distinct = np.unique(asked)
    ops = np.random.default_rng(5).integers(0, 5, len(distinct)).astype("u1")
    stored = np.arange(len(distinct)).astype(value)
    other = table.copy()
    sent = device.array(ops), device.array(distinct), device.array(stored)
    found_in, flags_in = map(host, table.execute(*sent))
    found_any, flags_any, rows = map(host, other.execute(*sent, in_order=False))
    assert sorted(rows) == list(range(len(distinct)))
    assert (found_any == found_in[rows]).all() and (flags_any == flags_in[rows]).all()
    assert len(table) == len(other)


def test_combined_buckets_are_answered_together():
    table = HashMap("u4", "u4", 20_000, method="supernode", device="cpu", combined=16, seed=5)
    keys = some_keys(20_000, 1)
    table.insert(keys, np.arange(20_000, dtype="u4"))
    values, found, rows = table.find(keys, in_order=False)
    assert found.all() and (values == rows).all()
    recipe, backend = table._store.table, table._store.backend
    buckets = backend.owner_of(backend.hash_keys(keys[rows], recipe.seed), recipe.fields["buckets"])
    # Rows of one part come in input order; the next part has the buckets that follow.
    assert (np.diff(buckets.astype(int)) > -17).all()


def test_small_tables_are_not_reordered(monkeypatch):
    table = HashMap("u4", "u4", 5000, method="supernode", device="cpu")
    keys = some_keys(5000, 1)
    table.insert(keys, keys)
    values, _, rows = table.find(keys, in_order=False)
    assert (rows == np.arange(5000)).all() and (values == keys).all()
    # One that is much larger than the cache is.
    monkeypatch.setattr(CpuBackend, "cache_nbytes", lambda self: table.nbytes // 16)
    values, _, rows = table.find(keys, in_order=False)
    assert (np.diff(rows) < 0).any() and (values == keys[rows]).all()


def test_answers_in_any_order_of_sets_and_other_keys(device):
    seen = HashSet("u4", 1000, device=device.name, method="supernode", combined=2)
    keys = device.array(some_keys(500, 1))
    ops = np.full(500, Op.INSERT, "u1")
    flags, rows = seen.execute(device.array(ops), keys, in_order=False)
    assert device.backend.to_host(flags).all() and len(seen) == 500
    assert sorted(device.backend.to_host(rows)) == list(range(500))
    table = HashMap.from_arrays([1, 2], [10, 20], device="cpu", method="supernode")
    values, found, rows = table.find(np.array([2.5, 2.0]), in_order=False)
    assert (values.tolist(), found.tolist(), rows.tolist()) == ([0, 20], [False, True], [0, 1])
    assert [len(each) for each in table.find([], in_order=False)] == [0, 0, 0]
    with pytest.raises(UnsupportedError, match=r"'slab' cannot reorder; .*: supernode"):
        HashMap("u4", "u4", method="slab").find([1], in_order=False)
    with pytest.raises(UnsupportedError, match=r"'slab' cannot reorder; .*: supernode"):
        HashMap("u4", "u4", method="slab").execute([Op.FIND], [1], in_order=False)


def test_settings():
    with pytest.raises(SpecError, match=r"length=9; use a number from 0\.05 to 4\.0"):
        HashMap("i4", "i4", method="supernode", length=9)
    with pytest.raises(SpecError, match="node_nbytes=48; use 16 or 32 or 64 or 128"):
        HashSet("i4", method="supernode", node_nbytes=48)
    with pytest.raises(SpecError, match="whose size is set by length="):
        HashMap("i4", "i4", method="supernode", max_load=0.9)
    with pytest.raises(SpecError, match="combined=-1; use a whole number from 0"):
        HashMap("i4", "i4", method="supernode", combined=-1)
