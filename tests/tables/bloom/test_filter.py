"""BloomFilter: every dtype, rates, unions, copies, files, errors."""

from __future__ import annotations

import json
import pickle
import threading

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgpuhash
from dgpuhash import BloomFilter, HashSet
from dgpuhash.errors import (
    DeviceError,
    ExistsError,
    FormatError,
    KeyTypeError,
    ShapeError,
    SpecError,
)
from dgpuhash.tables.serialization import read_file, write_file

DTYPES = ["bool", "i1", "u2", "i4", "u4", "f4", "i8", "u8", "f8", "M8[ns]", "m8[s]", "f2"]


def keys_of(dtype, count=300, seed=0):
    drawn = np.random.default_rng(seed).integers(0, 2**62, count)
    return (drawn % 60_000 if dtype == "f2" else drawn).astype(dtype)


def same_bits(one, other):
    store = one._store
    return bool((store.words == other._store.words).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_inserted_key_passes(device, dtype):
    keys = device.array(keys_of(dtype))
    made = BloomFilter(dtype, capacity=300, device=device.name)
    assert made.insert(keys) is None
    assert bool(made.contains(keys).all())
    assert made.key_dtype == np.dtype(dtype)


@given(
    stored=st.lists(st.integers(-(2**63), 2**63 - 1)),
    asked=st.lists(st.integers(-(2**63), 2**63 - 1) | st.floats()),
    capacity=st.integers(0, 50),
)
def test_answers_are_never_falsely_no(stored, asked, capacity):
    made, exact = BloomFilter("i8", capacity), HashSet("i8")
    for piece in (stored[:3], stored[3:]):
        made.insert(piece)
        exact.insert(piece)
    for keys in (stored, asked):
        assert not (exact.contains(keys) & ~made.contains(keys)).any()


def test_keys_are_canonical(device):
    made = BloomFilter.from_keys(device.array(np.array([0.0, np.nan])))
    odd = np.array([-0.0, -np.nan])
    odd.view("u8")[1] ^= 5
    assert bool(made.contains(device.array(odd)).all())


def test_keys_of_other_dtypes_are_compared_by_value(device):
    made = BloomFilter("i4", capacity=100, device=device.name)
    made.insert(device.array(np.arange(100, dtype="i4")))
    asked = device.array(np.array([7.0, 7.5, 1e30, np.nan]))
    assert device.backend.to_host(made.contains(asked)).tolist() == [True, False, False, False]
    assert made.contains([99, 2**40]).tolist() == [True, False]
    with pytest.raises(KeyTypeError):
        made.contains(["a"])


def test_answers_are_of_the_kind_of_the_keys():
    made = BloomFilter.from_keys(pd.Series([1, 2, 3]))
    found = made.contains(pd.Series([3, 2], index=["a", "b"]))
    assert found.to_dict() == {"a": True, "b": True}


@pytest.mark.parametrize("rate", [0.0005, 0.02, 0.25])
def test_the_rate_at_capacity_is_the_asked_one(device, rate):
    keys = np.random.default_rng(5).integers(0, 2**62, 100_000)
    made = BloomFilter("i8", len(keys), rate=rate, device=device.name, seed=7)
    assert made.rate == 0
    made.insert(device.array(keys))
    assert made.rate == pytest.approx(rate, rel=0.05)
    assert made.measured_rate(2_000_000, seed=2) == pytest.approx(rate, rel=0.1)
    stats = made.stats()
    assert stats.keys == pytest.approx(len(keys), rel=0.01)
    assert (stats.capacity, stats.nbytes, stats.seed) == (len(keys), made.nbytes, 7)
    assert stats.blocks * 32 == stats.nbytes and 0 < stats.fill < 1
    before = made._store.words.copy()
    made.insert(device.array(keys[::2]))
    assert bool((before == made._store.words).all())


def test_short_keys_are_measured_too():
    made = BloomFilter.from_keys(np.array([True, False]), rate=0.1)
    assert made.contains([True, False]).all() and made.measured_rate(10_000) < 0.01
    full = BloomFilter("u2", nbytes=32)
    full.insert(np.arange(2**16, dtype="u2"))
    assert full.rate == full.measured_rate(100) == 1
    assert full.stats().fill == 1 and full.stats().keys > 0


def test_nbytes_decide_the_size():
    made = BloomFilter("i8", nbytes=2**20 + 31, rate=0.05)
    assert made.nbytes == 2**20
    assert BloomFilter("i8", made.capacity, rate=0.05).nbytes == 2**20
    assert BloomFilter("i8", 0).nbytes == 32


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"capacity": 10, "nbytes": 320},
        {"capacity": -1},
        {"capacity": 2**60},
        {"nbytes": 31},
        {"capacity": 10, "rate": 0.0004},
        {"capacity": 10, "rate": 0.26},
        {"capacity": 10, "rate": float("nan")},
        {"capacity": 10, "rate": "low"},
        {"capacity": 10, "seed": -1},
        {"nbytes": 2**37},
    ],
)
def test_impossible_settings(settings):
    with pytest.raises(SpecError):
        BloomFilter("i8", **settings)


def test_impossible_keys():
    with pytest.raises(KeyTypeError):
        BloomFilter("S4", 10)
    made = BloomFilter("i8", 10)
    with pytest.raises(ShapeError):
        made.insert(np.zeros((2, 2), int))
    with pytest.raises(KeyTypeError):
        made.insert([1.5])


def test_unions(device):
    keys = keys_of("i8", 2000)
    parts = [BloomFilter("i8", 2000, device=device.name, seed=3) for _ in range(3)]
    whole = parts[0].copy()
    whole.insert(device.array(keys))
    for part, its in zip(parts, np.array_split(keys, 3), strict=True):
        part.insert(device.array(its))
    made = parts[0].union(*parts[1:])
    assert same_bits(made, whole) and not same_bits(parts[0], whole)
    assert same_bits(parts[0] | parts[1] | parts[2], whole)
    first = parts[0]
    parts[0] |= parts[1]
    parts[0] |= parts[2]
    parts[0] |= parts[0]
    assert parts[0] is first and same_bits(first, whole)
    empty = BloomFilter("i8", 2000, seed=3)
    assert same_bits(empty | whole, whole) and same_bits(whole | empty, whole)
    empty |= whole
    assert same_bits(empty, whole) and empty.device == device.name
    with pytest.raises(TypeError):
        whole | {1}


def test_unions_of_unlike_filters():
    made = BloomFilter("i8", 2000, seed=3)
    for other, what in (
        (BloomFilter("i4", 2000, seed=3), "key_dtype"),
        (BloomFilter("i8", 9000, seed=3), "nbytes"),
        (BloomFilter("i8", 2000, seed=4), "seed"),
    ):
        with pytest.raises(SpecError, match=what):
            made | other


@pytest.mark.gpu
def test_unions_across_devices():
    one, other = (BloomFilter("i8", 10, device=each, seed=1) for each in ("cpu", "cuda"))
    with pytest.raises(DeviceError):
        one | other


def test_copies_are_independent(device):
    keys = device.array(keys_of("i8"))
    made = BloomFilter.from_keys(keys)
    for copy in (made.copy(), pickle.loads(pickle.dumps(made))):
        assert same_bits(copy, made) and copy.capacity == 300
        copy.clear()
        assert not copy.contains(keys).any() and bool(made.contains(keys).all())
        copy |= made
        assert same_bits(copy, made)
    empty = pickle.loads(pickle.dumps(BloomFilter("i8", 5)))
    assert empty.device is None and not empty.contains([1]).any()


def test_files(device, tmp_path):
    keys = device.array(keys_of("f8", 5000))
    made = BloomFilter("f8", 5000, rate=0.001, device=device.name)
    made.insert(keys)
    path = tmp_path / "seen.dgph"
    made.save(path)
    for load in (BloomFilter.load, dgpuhash.load, dgpuhash.tables.load):
        found = load(path, device=device.name)
        assert type(found) is BloomFilter and found.spec == made.spec
        assert found.capacity == 5000 and found.rate == made.rate
        assert bool(found.contains(keys).all())
        assert same_bits(found | made, made)
    with pytest.raises(ExistsError):
        made.save(path)
    with pytest.raises(FormatError, match="bloom_filter and not a set"):
        HashSet.load(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(FormatError):
        BloomFilter.load(path)
    HashSet.from_keys([1]).save(tmp_path / "set.dgph")
    with pytest.raises(FormatError, match="set and not a bloom_filter"):
        BloomFilter.load(tmp_path / "set.dgph")


@pytest.mark.parametrize(
    "settings", [{}, {"blocks": 0, "capacity": 1}, {"blocks": 2**40, "capacity": 1}]
)
def test_files_that_claim_what_they_have_not(tmp_path, settings):
    made, path = BloomFilter("i8", nbytes=64), tmp_path / "seen.dgph"
    made.save(path)
    header, buffers = read_file(path)
    spec = json.loads(header["spec"]) | {"settings": list(settings.items())}
    write_file(path, header | {"spec": json.dumps(spec)}, buffers, overwrite=True)
    with pytest.raises(FormatError):
        BloomFilter.load(path)


def test_display(device):
    made = BloomFilter("i8", 1000, seed=9)
    assert repr(made) == "<BloomFilter int64: for 1,000 keys, 1.3 KiB, no device yet, seed 9>"
    assert "<caption>" in made._repr_html_()
    made.insert(device.array(np.arange(1000)))
    assert device.name in repr(made)
    assert "rate" in made._repr_html_() and "fill" in made.stats()._repr_html_()


def test_threads_share_a_filter():
    made = BloomFilter("i8", 40_000)
    pieces = np.array_split(np.arange(40_000), 8)
    threads = [threading.Thread(target=made.insert, args=(piece,)) for piece in pieces]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.contains(np.arange(40_000)).all()
