"""Keys that are records of 16 bytes, against dictionaries."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
from agreement import agree, fresh_once
from hypothesis import given, settings
from hypothesis import strategies as st
from model import MapModel, SetModel, key_of, keys_of
from strategies import RECORD, key_pool, keys_from, random_keys

import dgpuhash
from dgpuhash.backend import kernel_named, native
from dgpuhash.backend.kernel import WIDE_WORD
from dgpuhash.distributed import DistributedSet
from dgpuhash.errors import (
    CountOverflowError,
    DeviceError,
    KeyTypeError,
    ShapeError,
    UnsupportedError,
)
from dgpuhash.tables import CountMap, HashMap, HashSet
from dgpuhash.tables.open_addressing import batch_insert

FIVE = np.dtype([("a", "<i8"), ("b", "<u4"), ("c", "<i2"), ("d", "<u2")])
WORD = np.dtype(np.uint64)


def counted(device, table):
    keys, counts = table.items()
    names = keys_of(device.host(keys, table.key_dtype))
    assert len(names) == len(set(names)) == len(table)
    return dict(zip(names, device.backend.to_host(counts).tolist(), strict=True))


@settings(max_examples=12)
@given(
    batches=st.lists(
        st.tuples(st.sampled_from(["add", "add", "erase", "copy"]), keys_from(RECORD)), max_size=10
    )
)
def test_counts(device, batches):
    table, model = CountMap(RECORD, device=device.name), Counter()
    for number, (verb, keys) in enumerate(batches):
        if verb == "add":
            table.insert(device.array(keys), number)
            for name in keys_of(keys):
                model[name] += number
        elif verb == "erase":
            table.erase(device.array(keys))
            for name in keys_of(keys):
                model.pop(name, None)
        else:
            table = pickle.loads(pickle.dumps(table.copy()))
        assert counted(device, table) == model
    pool = key_pool(RECORD)
    found = device.backend.to_host(table.count(device.array(pool)))
    assert found.tolist() == [model.get(name, 0) for name in keys_of(pool)]


@pytest.mark.parametrize("dtype", [RECORD, FIVE, np.dtype("u8,u8")])
def test_any_fields_of_integers(device, dtype):
    keys = random_keys(RECORD, 500, 3, distinct=200).view(dtype)
    table, model = HashSet(dtype, device=device.name), SetModel()
    fresh_once(keys, device.backend.to_host(table.insert(device.array(keys))), model.insert(keys))
    agree(device, table, model)
    assert table.key_dtype == dtype
    assert table.stats().lines_per_lookup >= 1


def numbered(numbers):
    """Return a key for each number."""
    keys = np.empty(len(numbers), RECORD)
    keys["high"], keys["low"] = numbers * np.uint64(0x9E3779B97F4A7C15), ~numbers
    return keys


@pytest.mark.parametrize("rows", [2**17, 2**19])
@pytest.mark.parametrize("distinct", [2**12, 2**40])
def test_large_batches_grow(device, rows, distinct):
    """Batches with an estimate of their new keys, of few keys and of many."""
    numbers = np.random.default_rng(rows).integers(0, distinct, rows, np.uint64)
    chosen, first, times = np.unique(numbers, return_index=True, return_counts=True)
    keys, names = numbered(numbers), device.array(numbered(chosen))
    counts = CountMap(RECORD, device=device.name)
    for part in (slice(0, 1000), slice(1000, None)):
        counts.insert(device.array(keys[part]))
    assert len(counts) == len(chosen)
    found = device.backend.to_host(counts.count(names))
    assert (found == times.astype(np.uint64)).all()
    table = HashMap(RECORD, "i4", device=device.name)
    numbered_rows = device.array(np.arange(rows, dtype=np.int32))
    table.insert(device.array(keys), numbered_rows, keep="first")
    assert (device.backend.to_host(table.find(names)[0]) == first).all()


def test_no_bulk_build(device, monkeypatch):
    """There are no kernels for one, whatever would be faster."""
    monkeypatch.setattr(batch_insert, "bulk_pays", lambda *_: True)
    keys = numbered(np.arange(2**17, dtype=np.uint64))
    table = HashSet(RECORD, device=device.name)
    assert device.backend.to_host(table.insert(device.array(keys))).all()
    assert len(table) == len(keys)


@pytest.mark.parametrize("combine", ["sum", "min", "max", "or"])
@pytest.mark.parametrize("value", ["int8", "uint64"])
def test_combine(device, value, combine):
    keys = random_keys(RECORD, 3000, 7, distinct=50)
    values = np.random.default_rng(1).integers(0, 100, 3000).astype(value)
    table = HashMap(RECORD, value, device=device.name)
    step = {"sum": np.add, "min": np.minimum, "max": np.maximum, "or": np.bitwise_or}[combine]
    model = {}
    with np.errstate(over="ignore"):
        for name, each in zip(keys_of(keys), values, strict=True):
            model[name] = step(model[name], each) if name in model else each
    for part in (slice(0, 500), slice(500, None)):
        table.insert(device.array(keys[part]), device.array(values[part]), combine=combine)
    assert counted(device, table) == {name: int(each) for name, each in model.items()}


def test_ancestors(device):
    parents = np.array([0, 0, 1, 1, 2], np.uint32)
    pool = key_pool(RECORD)
    table = HashMap(RECORD, "u4", device=device.name)
    fold = dgpuhash.lca(device.array(parents))
    for nodes in (4, 3):
        values = np.full(len(pool), nodes, np.uint32)
        values[::2] = 2
        table.insert(device.array(pool), device.array(values), combine=fold)
    found = device.backend.to_host(table.find(device.array(pool))[0])
    assert (found[::2] == 2).all()
    assert (found[1::2] == 1).all()


def test_values_of_any_width(device):
    keys = random_keys(RECORD, 400, 5, distinct=90)
    for value in ("i2", "f8", "S24", "u8,u8"):
        values = np.arange(400).astype("i2" if value == "u8,u8" else value).astype(value)
        table, model = HashMap(RECORD, value, device=device.name), MapModel()
        table.upsert(device.array(keys), device.array(values))
        model.upsert(keys, values)
        agree(device, table, model)
        assert table.value_dtype == np.dtype(value)


def test_what_matches(device):
    pool = key_pool(RECORD)
    table = HashMap(RECORD, "i8", device=device.name)
    table.insert(device.array(pool[::2]), device.array(np.arange(0, len(pool), 2)))
    rows, values = (device.backend.to_host(each) for each in table.match(device.array(pool)))
    assert rows.tolist() == values.tolist() == list(range(0, len(pool), 2))
    seen = []
    table.for_each(
        device.array(pool),
        lambda keys, values, rows: seen.extend(device.host(keys, RECORD).tolist()),
    )
    assert sorted(seen) == sorted(pool[::2].tolist())


@pytest.mark.parametrize("make", [
    lambda keys: HashSet.from_keys(keys),
    lambda keys: HashMap.from_arrays(keys, np.arange(len(keys))),
    lambda keys: CountMap.from_keys(keys),
])  # fmt: skip
def test_save_and_load(make, tmp_path):
    keys = np.concatenate([random_keys(RECORD, 3000, 2), key_pool(RECORD)])
    table = make(keys)
    table.save(tmp_path / "a.dgph")
    loaded = dgpuhash.load(tmp_path / "a.dgph")
    assert type(loaded) is type(table)
    assert loaded.key_dtype == RECORD
    assert len(loaded) == len(table)
    assert loaded.contains(keys).all()


def test_rows_without_alignment(host):
    """Kernels load keys whole, and a view of a buffer may begin anywhere."""
    keys = random_keys(RECORD, 300, 2)
    raw = np.zeros(300 * 16 + 1, np.uint8)
    raw[1:] = keys.view(np.uint8)
    table = HashSet.from_keys(raw[1:].view(RECORD))
    assert {key_of(each) for each in table.items()} == set(keys_of(keys))
    assert table.contains(keys[3:]).all()
    assert table.contains(keys[::2]).all()


def test_counts_do_not_wrap(device):
    table = CountMap(RECORD, device=device.name)
    pool = device.array(key_pool(RECORD))
    table.insert(pool, 2**63)
    with pytest.raises(CountOverflowError, match="25 keys"):
        table.insert(pool, 2**63)
    assert (device.backend.to_host(table.count(pool)) == 2**63).all()


def test_a_change_of_the_seed_and_tombstones(device):
    keys = np.unique(random_keys(RECORD, 20_000, 9))
    table, model = HashSet(RECORD, device=device.name), set()
    for first in range(0, len(keys), 2000):
        part = keys[first : first + 2000]
        table.insert(device.array(part))
        table.erase(device.array(part[:1500]))
        model |= set(keys_of(part[1500:]))
    table.rehash(seed=3)
    assert set(keys_of(device.host(table.items(), RECORD))) == model
    assert table.stats().tombstones == 0


def test_what_is_refused():
    table = HashSet(RECORD)
    for keys in (np.array([1, 2]), key_pool(RECORD).view("u8,u8")):
        with pytest.raises(KeyTypeError, match="fields by position"):
            table.insert(keys)
        with pytest.raises(KeyTypeError, match="fields by position"):
            table.contains(keys)
    with pytest.raises(ShapeError, match="records"):
        table.insert([(1, 2), (3, 4)])
    with pytest.raises(UnsupportedError, match="device='cuda'"), table.device_view():
        pass
    with pytest.raises(KeyTypeError, match="distributed"):
        DistributedSet(RECORD)
    assert len(table) == 0
    assert len(HashSet.from_keys(np.zeros(0, RECORD))) == 0
    assert table.contains([]).tolist() == []


@pytest.mark.gpu
def test_kernels_of_users_take_no_records():
    table = HashSet(RECORD, device="cuda")
    with pytest.raises(UnsupportedError, match="at most 8 bytes"), table.device_view():
        pass


def test_words_have_kernels():
    assert kernel_named("open_find", WIDE_WORD, WORD).expression.startswith(
        "dg::open_find<dg::u128"
    )


@pytest.mark.parametrize(("flags", "taken"), [("fpu cx8 cx16 sse", True), ("fpu cx8 sse", False)])
def test_a_cpu_without_a_swap_of_16_bytes(monkeypatch, tmp_path, flags, taken):
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags\t\t: {flags}\n")
    monkeypatch.setattr(native, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    native.require_wide_swap.cache_clear()
    try:
        if taken:
            assert len(HashSet.from_keys(np.zeros(3, RECORD))) == 1
        else:
            with pytest.raises(DeviceError, match=r"lacks the instruction cmpxchg16b.*FrameIndex"):
                HashSet.from_keys(np.zeros(3, RECORD))
            assert len(HashSet.from_keys(np.zeros(3, WORD))) == 1
    finally:
        native.require_wide_swap.cache_clear()
