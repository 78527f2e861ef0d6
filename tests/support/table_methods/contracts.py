"""What the tables of every method promise, played against the dictionaries."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import agree, fresh_once, pairs_of
from model import MapModel, MultiMapModel, SetModel, rows_of
from strategies import key_pool, random_keys, random_values

import dgpuhash
from dgpuhash.errors import UnsupportedError

__all__ = ["CONTRACTS", "check_combine", "check_map", "check_multi_map", "check_set", "each_method"]

ROWS = 150
Make = Callable[..., Any]


def each_method(kind: str, *verbs: str) -> Any:
    """Run a test for every method that has these tables and verbs.

    Methods but `auto` are part of ``make methods``.
    """
    chosen = [
        pytest.param(each.name, marks=() if each.name == "auto" else pytest.mark.methods)
        for each in dgpuhash.methods().values()
        if kind in each.nouns and all(verb in each.verbs for verb in verbs)
    ]
    return pytest.mark.parametrize("method", chosen)


def check_set(device: Any, make: Make, key: str, folder: Path) -> None:
    """Play every verb of a set, with keys at the edges of the dtype."""
    table, model = make(key), SetModel()
    for seed in range(3):
        keys = random_keys(key, ROWS << seed, seed, distinct=60 << seed)
        fresh = device.backend.to_host(table.insert(device.array(keys)))
        fresh_once(keys, fresh, model.insert(keys))
        agree(device, table, model)
        _ask(device, table, model, key, seed)
        _erase(device, table, model, keys[::3])
        agree(device, table, model)
    _afterwards(device, table, model, folder)


def check_map(device: Any, make: Make, key: str, value: str, folder: Path) -> None:
    """Play every verb of a map."""
    table, model = make(key, value), MapModel()
    blank = np.zeros(1, value).tobytes()
    for seed, keep in enumerate(["first", "last", "first"]):
        keys = random_keys(key, ROWS << seed, seed, distinct=60 << seed)
        values = random_values(value, len(keys), seed)
        fresh = table.insert(device.array(keys), device.array(values), keep=keep)
        assert device.backend.to_host(fresh).tolist() == model.insert(keys, values, keep)
        agree(device, table, model)
        keys = random_keys(key, ROWS, seed + 10, distinct=90)
        values = random_values(value, ROWS, seed + 10)
        table.upsert(device.array(keys), device.array(values))
        model.upsert(keys, values)
        agree(device, table, model)
        _ask(device, table, model, key, seed)
        asked = random_keys(key, ROWS, seed + 20)
        found, mask = table.find(device.array(asked))
        assert rows_of(device.host(found, value)) == model.find(asked, blank)
        assert device.backend.to_host(mask).tolist() == model.contains(asked)
        rows, matched = table.match(device.array(asked))
        present = np.flatnonzero(model.contains(asked))
        assert device.backend.to_host(rows).tolist() == present.tolist()
        assert rows_of(device.host(matched, value)) == model.find(asked[present], blank)
        default = values[0]
        found, _ = table.find(device.array(asked), default=default)
        assert rows_of(device.host(found, value)) == model.find(asked, values[:1].tobytes())
        _erase(device, table, model, keys[::3])
        agree(device, table, model)
    _any_pair(device, make, key, value)
    _afterwards(device, table, model, folder)


def _any_pair(device: Any, make: Make, key: str, value: str) -> None:
    """Of a new key's pairs one is stored, whole, and its row is told."""
    keys = random_keys(key, 1000, 5, distinct=70)
    values = random_values(value, 1000, 6)
    table, model = make(key, value), MapModel()
    candidates = model.candidates(keys, values)
    fresh = device.backend.to_host(table.insert(device.array(keys), device.array(values)))
    stored = dict(pairs_of(device, table))
    assert stored.keys() == candidates.keys()
    assert all(row in candidates[name] for name, row in stored.items())
    model.insert(keys[fresh], values[fresh])
    assert model.pairs == stored


def check_multi_map(device: Any, make: Make, key: str, value: str, folder: Path) -> None:
    """Play every verb of a multimap."""
    table, model = make(key, value), MultiMapModel()
    ordered = dgpuhash.methods()[table.method].ordered
    for seed in range(4):
        keys = random_keys(key, ROWS << seed, seed, distinct=30 << seed)
        values = random_values(value, len(keys), seed)
        table.insert(device.array(keys), device.array(values))
        model.insert(keys, values)
        agree_lists(device, table, model)
        _ask(device, table, model, key, seed)
        asked = random_keys(key, ROWS, seed + 20)
        check_lists(device, table, model, asked)
        _erase(device, table, model, keys[::5])
        agree_lists(device, table, model)
        if seed == 2:
            table.compact()
            agree_lists(device, table, model)
    if not ordered:
        with pytest.raises(UnsupportedError, match="keeps no order"):
            table.find(device.array(key_pool(key)), stable=True)
    _afterwards(device, table, model, folder)


def check_lists(device: Any, table: Any, model: MultiMapModel, asked: np.ndarray) -> None:
    """Assert that `find` and `count` give the lists of keys."""
    found, offsets = table.find(device.array(asked))
    ends = device.backend.to_host(offsets)
    values, expected = model.find(asked)
    assert ends.tolist() == expected
    rows = rows_of(device.host(found, table.value_dtype))
    if dgpuhash.methods()[table.method].ordered:
        assert rows == values
    for first, last in itertools.pairwise(expected):
        assert Counter(rows[first:last]) == Counter(values[first:last])
    counts = device.backend.to_host(table.count(device.array(asked)))
    assert counts.tolist() == model.count(asked) == np.diff(ends).tolist()


def agree_lists(device: Any, table: Any, model: MultiMapModel) -> None:
    """Assert that a multimap holds the pairs of its model, in order if its method keeps that."""
    if dgpuhash.methods()[table.method].ordered:
        agree(device, table, model)
        return
    assert len(table) == len(model)
    assert table.n_keys == len(model.lists)
    assert Counter(pairs_of(device, table)) == Counter(model.pairs())


def check_combine(device: Any, make: Make, key: str, value: str) -> None:
    """Combine the values of equal keys, in batches and with those stored."""
    kind = np.dtype(value).kind
    for combine in ("sum", "min", "max") if kind == "f" else ("sum", "min", "max", "or"):
        table, held = make(key, value), {}
        at_once = {"sum": np.add, "min": np.minimum, "max": np.maximum, "or": np.bitwise_or}
        for seed in range(3):
            keys = random_keys(key, ROWS << seed, seed, distinct=40)
            values = np.random.default_rng(seed).integers(-99, 99, len(keys)).astype(value)
            fresh = table.insert(device.array(keys), device.array(values), combine=combine)
            names, new = rows_of(keys), set()
            for name, each in zip(names, values, strict=True):
                if name in held:
                    held[name] = at_once[combine](held[name], each)
                else:
                    held[name], _ = each, new.add(name)
            marked = Counter(np.array(names, object)[device.backend.to_host(fresh)])
            assert marked == Counter(new)
            stored = {name: np.frombuffer(row, value)[0] for name, row in pairs_of(device, table)}
            assert stored == held


def _ask(device: Any, table: Any, model: Any, key: str, seed: int) -> None:
    asked = np.concatenate([random_keys(key, ROWS, seed + 30), key_pool(key)])
    given = device.array(asked)
    present = model.contains(asked)
    assert device.backend.to_host(table.contains(given)).tolist() == present
    if not isinstance(model, MultiMapModel):
        assert device.backend.to_host(table.count(given)).tolist() == present


def _erase(device: Any, table: Any, model: Any, keys: np.ndarray) -> None:
    """Erase keys, or see that the method refuses."""
    if "erase" not in dgpuhash.methods()[table.method].verbs:
        with pytest.raises(UnsupportedError, match="cannot erase; methods that can: auto"):
            table.erase(device.array(keys))
        return
    gone = np.concatenate([keys, random_keys(table.key_dtype, 20, 40)])
    fresh_once(gone, device.backend.to_host(table.erase(device.array(gone))), model.erase(gone))


def _afterwards(device: Any, table: Any, model: Any, folder: Path) -> None:
    """Copies, saves and rebuilt tables hold the same; a cleared one nothing, until it is filled."""
    same = agree_lists if isinstance(model, MultiMapModel) else agree
    copied = table.copy()
    for made in (copied, pickle.loads(pickle.dumps(table))):
        same(device, made, model)
        assert made.spec == table.spec
        mine, own = made.stats(), table.stats()
        # A full table may refuse the keys in another order, and takes another function then.
        assert mine.seed == own.seed or mine.reseeds > own.reseeds
    table.save(folder / "saved", overwrite=True)
    loaded = dgpuhash.load(folder / "saved", device.name)
    same(device, loaded, model)
    assert loaded.method == table.method and loaded.spec.settings == table.spec.settings
    table.rehash(seed=77)
    same(device, table, model)
    table.reserve(4 * max(len(table), 100))
    assert table.capacity >= 4 * max(len(table), 100)
    same(device, table, model)
    stats = table.stats()
    assert stats.size == len(model) and stats.nbytes == table.nbytes > 0
    assert f"({table.method})" in repr(table) or table.method == "auto"
    table.clear()
    same(device, table, type(model)())
    same(device, copied, model)
    stored = copied.items()
    table.insert(*stored) if isinstance(stored, tuple) else table.insert(stored)
    same(device, table, model)


CONTRACTS = {"set": check_set, "map": check_map, "multimap": check_multi_map}
