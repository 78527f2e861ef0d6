"""Chaining of the thesis: figures, layout, hostile keys, many values of a key."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from agreement import agree
from model import MapModel, MultiMapModel
from table_methods.contracts import agree_lists, check_map, check_multi_map

import dgpuhash
from dgpuhash import HashMap, HashSet, MultiMap
from dgpuhash.errors import SpecError, UnsupportedError

PRIME = 4_294_967_291


def some_keys(n, seed, word="u4"):
    top = 2**32 - 2 if word == "u4" else 2**63
    drawn = np.random.default_rng(seed).integers(0, top, n + n // 16, word)
    return np.unique(drawn)[np.random.default_rng(seed).permutation(n)]


@pytest.mark.parametrize("buckets", [0.1, 2])
@pytest.mark.parametrize("word", ["uint32", "int64"])
def test_map(device, word, buckets, tmp_path):
    make = functools.partial(HashMap, device=device.name, method="chained", buckets=buckets)
    check_map(device, make, word, word, tmp_path)


@pytest.mark.parametrize("word", ["uint32", "int64"])
def test_multi_map(device, word, tmp_path):
    make = functools.partial(MultiMap, device=device.name, method="chained")
    check_multi_map(device, make, word, word, tmp_path)


@pytest.mark.parametrize("word", ["u4", "u8"])
@pytest.mark.parametrize("buckets", [0.1, 0.5, 2.0])
def test_figures_of_the_thesis(device, word, buckets):
    """Searches read 1 + N/2B entries for a stored key, and N/B for another."""
    n, found, absent = 100_000, [], []
    for seed in range(2):
        keys = device.array(some_keys(n, seed, word))
        table = HashMap(
            word, word, n, device=device.name, method="chained", buckets=buckets, seed=seed + 1
        )
        table.insert(keys, keys)
        details = table.stats().details
        entry = 2 * np.dtype(word).itemsize
        assert details["buckets"] == buckets * n
        assert table.nbytes == entry * n + 4 * buckets * n + 64
        found.append(details["probes_found"])
        absent.append(details["probes_absent"])
    assert np.mean(found) == pytest.approx(1 + 1 / buckets / 2, rel=0.05)
    assert np.mean(absent) == pytest.approx(1 / buckets, rel=0.05)


def test_buckets_stand_one_after_the_other(device):
    keys = device.array(some_keys(1000, 1))
    table = HashMap("u4", "u4", 1000, device=device.name, method="chained", buckets=0.1, seed=3)
    table.insert(keys, keys)
    recipe = table._store.table
    ends, function = device.backend.to_host(recipe.fields["ends"]), recipe.fields["function"]
    entries = device.backend.to_host(recipe.fields["entries"]).reshape(-1, 2)
    of = [(function["a"] * int(key) + function["b"]) % PRIME % len(ends) for key in entries[:, 0]]
    assert of == np.repeat(np.arange(100), np.diff(ends, prepend=np.uint32(0))).tolist()
    # A search of a damaged table reads what is there.
    before = table.stats().details["probes_absent"]
    recipe.fields["ends"][:-1] = 0
    assert table.stats().details["probes_absent"] < before / 2 + 10


@pytest.mark.parametrize("word", ["u4", "u8"])
def test_keys_that_agree_modulo_the_prime(device, word):
    if word == "u4":
        keys = np.concatenate([np.arange(9, dtype=word), PRIME + np.arange(5, dtype=word)])
    else:
        keys = np.arange(3000, dtype=word) * np.uint64(PRIME) + np.uint64(77)
    table, model = HashMap(word, word, device=device.name, method="chained"), MapModel()
    for part in np.array_split(keys, 3):
        table.insert(device.array(part), device.array(part))
        model.insert(part, part)
        agree(device, table, model)
    assert table.stats().details["probes_found"] < 3
    assert table.stats().details["rebuilds"] == 2


def test_many_values_of_a_key(device):
    keys = np.concatenate([np.full(3000, 7, "u4"), some_keys(500, 3)])
    values = np.arange(len(keys), dtype="u4")
    table, model = MultiMap("u4", "u4", device=device.name, method="chained"), MultiMapModel()
    for part in np.array_split(np.arange(len(keys)), 2):
        table.insert(device.array(keys[part]), device.array(values[part]))
        model.insert(keys[part], values[part])
    agree_lists(device, table, model)
    assert device.backend.to_host(table.count(device.array(keys[:1]))).tolist() == [3000]


def test_settings():
    with pytest.raises(SpecError, match=r"buckets=9"):
        HashMap("i8", "i8", method="chained", buckets=9)
    with pytest.raises(SpecError, match="methods of HashSet: auto"):
        HashSet("i8", method="chained")
    with pytest.raises(UnsupportedError, match="cannot erase; methods that can: auto"):
        HashMap("i8", "i8", method="chained").erase([1])
    assert dgpuhash.methods()["chained"].static
