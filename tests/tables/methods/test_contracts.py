"""Every method keeps the contracts of the tables that it serves, with kernels of its own."""

from __future__ import annotations

import functools
import random
import re
import sys

import numpy as np
import pytest
from agreement import agree, fresh_once
from interrupting import events, raise_at
from model import MapModel, MultiMapModel, SetModel
from strategies import key_pool, random_keys
from table_methods.contracts import (
    agree_lists,
    check_combine,
    check_map,
    check_multi_map,
    check_set,
)
from table_methods.interrupted import Judge, content, verbs

import dgpuhash
from dgpuhash import HashMap, HashSet, MultiMap
from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.errors import OutOfMemoryError

TABLES = {"set": HashSet, "map": HashMap, "multimap": MultiMap}
MODELS = {"set": SetModel, "map": MapModel, "multimap": MultiMapModel}
PAIRS = [("int32", "float32"), ("int64", "int64"), ("uint8", "S20")]
# Primes of hash functions that papers print, and what a multiplication by them has in common.
PRIMES = [1_900_813, 334_214_459, 4_294_967_291]


def serving(*kinds: str, verb: str = "insert") -> list[tuple[str, str]]:
    """Return the kinds of tables, and the methods of each, auto left out."""
    return [
        (kind, each.name)
        for each in dgpuhash.methods().values()
        for kind in kinds
        if kind in each.nouns and verb in each.verbs and each.name != "auto"
    ]


def of(kind: str, method: str, device: str, **settings):
    return functools.partial(TABLES[kind], device=device, method=method, **settings)


def rows(kind: str, keys: np.ndarray, device) -> list:
    """Return the arguments of an insert: keys, and their values."""
    given = device.array(keys)
    return [given] if kind == "set" else [given, device.array(np.arange(len(keys)))]


def same(kind: str, device, table, model) -> None:
    (agree_lists if kind == "multimap" else agree)(device, table, model)


@pytest.mark.parametrize("key", ["int32", "float64", "uint8"])
@pytest.mark.parametrize(("kind", "method"), serving("set"))
def test_sets(device, kind, method, key, tmp_path):
    check_set(device, of(kind, method, device.name), key, tmp_path)


@pytest.mark.parametrize(("key", "value"), PAIRS)
@pytest.mark.parametrize(("kind", "method"), serving("map"))
def test_maps(device, kind, method, key, value, tmp_path):
    check_map(device, of(kind, method, device.name), key, value, tmp_path)


@pytest.mark.parametrize(("key", "value"), PAIRS)
@pytest.mark.parametrize(("kind", "method"), serving("multimap"))
def test_multi_maps(device, kind, method, key, value, tmp_path):
    check_multi_map(device, of(kind, method, device.name), key, value, tmp_path)


@pytest.mark.parametrize(("key", "value"), [("int32", "int32"), ("int64", "float32")])
@pytest.mark.parametrize(("kind", "method"), serving("map", verb="combine"))
def test_combine(device, kind, method, key, value):
    check_combine(device, of(kind, method, device.name), key, value)


@pytest.mark.parametrize("key", ["int8", "uint32", "int64", "float32"])
@pytest.mark.parametrize(("kind", "method"), serving("set", "map", "multimap"))
def test_no_key_is_forbidden(device, kind, method, key):
    """Each pattern alone, then all, is stored, found, erased and stored again."""
    make, pool = of(kind, method, device.name), key_pool(key)
    types = (key,) if kind == "set" else (key, "int64")
    erases = "erase" in dgpuhash.methods()[method].verbs
    for keys in [*(pool[i : i + 1] for i in range(12)), pool]:
        table, model = make(*types), MODELS[kind]()
        for _ in range(2):
            table.insert(*rows(kind, keys, device))
            model.insert(*((keys,) if kind == "set" else (keys, np.arange(len(keys)))))
            same(kind, device, table, model)
            present = device.backend.to_host(table.contains(device.array(pool)))
            assert present.tolist() == model.contains(pool)
            if erases:
                gone = device.backend.to_host(table.erase(device.array(keys)))
                fresh_once(keys, gone, model.erase(keys))
                same(kind, device, table, model)


def hostile(word: str) -> dict[str, np.ndarray]:
    """Return keys that a weak hash function, or few of its bits, would put in one place."""
    count, top = 1500, np.iinfo(word).max
    steps = np.arange(1, count, dtype="u8")
    made = {f"multiples of {prime}": steps * prime for prime in PRIMES}
    made |= {f"equal modulo {prime}": steps * prime + 7 for prime in PRIMES[:2]}
    made |= {"low bits zero": steps << np.uint64(20), "counted": steps, "from the top": top - steps}
    return {name: np.unique(keys.astype(word)) for name, keys in made.items()}


@pytest.mark.parametrize("word", ["uint32", "uint64"])
@pytest.mark.parametrize(("kind", "method"), serving("set", "map", "multimap"))
def test_hostile_keys(device, kind, method, word):
    for keys in hostile(word).values():
        table = of(kind, method, device.name)(*((word,) if kind == "set" else (word, "int64")))
        table.insert(*rows(kind, keys, device))
        assert len(table) == len(keys)
        assert device.backend.to_host(table.contains(device.array(keys))).all()
        others = np.setdiff1d(keys + keys.dtype.type(3), keys)
        assert not device.backend.to_host(table.contains(device.array(others))).any()
        assert table.stats().details["attempts"] <= 2, "they are keys like any others"


@pytest.mark.parametrize(("kind", "method"), serving("set", "map", "multimap"))
def test_growth(device, kind, method):
    """Batches far larger than the table, of new keys and of a few keys again and again."""
    table = of(kind, method, device.name)(*(("int64",) if kind == "set" else ("int64", "int64")))
    model = MODELS[kind]()
    for size, distinct in [(3, 3), (1000, 700), (10, 5), (6000, 5000), (4000, 20)]:
        keys = random_keys("int64", size, size, distinct=distinct)
        values = np.arange(size)
        table.insert(*rows(kind, keys, device))
        model.insert(*((keys,) if kind == "set" else (keys, values)))
        if kind == "map":
            # Any of a new key's values may have been stored.
            assert len(table) == len(model)
            table.upsert(device.array(keys), device.array(values))
            model.upsert(keys, values)
        same(kind, device, table, model)
    rebuilds = table.stats().details["rebuilds"]
    assert rebuilds >= 1
    table.contains(device.array(keys)), table.items(), table.copy()
    assert table.stats().details["rebuilds"] == rebuilds, "only changes rebuild"


@pytest.mark.parametrize(("kind", "method"), serving("set", "map", "multimap", verb="erase"))
def test_keys_that_come_and_go(device, kind, method):
    """Marks of erased keys are dropped, so that the table does not grow for ever."""
    table = of(kind, method, device.name)(
        *(("int64",) if kind == "set" else ("int64", "int64")), capacity=2000
    )
    sizes = []
    for number in range(40):
        keys = np.arange(number * 700, number * 700 + 1000)
        table.insert(*rows(kind, keys, device))
        assert device.backend.to_host(table.erase(device.array(keys[:700]))).all()
        sizes.append(table.nbytes)
    assert len(table) == 300 if kind != "multimap" else table.n_keys == 300
    table.insert(*rows(kind, keys[:1], device))
    stats = table.stats()
    assert stats.tombstones <= stats.slots // 8
    assert max(sizes[20:]) <= 2 * max(sizes[:10])


@pytest.mark.parametrize(("kind", "method"), serving("set", "map", "multimap"))
def test_searches_are_counted_one_by_one(device, kind, method):
    """The counts have the mean that `stats` has; reserved keys are in no slot."""
    table = of(kind, method, device.name)(*(("int32",) if kind == "set" else ("int32", "int32")))
    keys = np.arange(3000, dtype="u4")
    table.insert(*[device.array(keys.view("i4"))] * (1 if kind == "set" else 2))
    counts = device.backend.to_host(table._store.probe_counts(device.array(keys)))
    assert counts.dtype == np.uint32 and counts.min() >= 1
    found = table.stats().details[f"{table._store.table.unit}_found"]
    assert counts.mean() == pytest.approx(found)
    assert table._store.table.plan.key.itemsize == 4
    aside = table._store.probe_counts(device.array(np.array([-1, -2], "i4").view("u4")))
    assert device.backend.to_host(aside).tolist() == [0, 0]


@pytest.mark.parametrize(("kind", "method"), serving("set", "map", "multimap"))
def test_launches_are_the_methods_own(monkeypatch, kind, method):
    """No verb launches a kernel of another method's table, save those that its row names."""
    seen: list[str] = []
    row = dgpuhash.methods()[method]
    launch, prepare = CpuBackend.launch, CpuBackend.prepare

    def noting(real):
        def note(self, kernel, args, n):
            seen.append(kernel.expression)
            return real(self, kernel, args, n)

        return note

    monkeypatch.setattr(CpuBackend, "launch", noting(launch))
    monkeypatch.setattr(CpuBackend, "prepare", noting(prepare))
    make = of(kind, method, "cpu")
    table = make(*(("int64",) if kind == "set" else ("int64", "int64")), capacity=64)
    keys = np.arange(500)
    acts = {
        "insert": lambda: table.insert(*([keys] if kind == "set" else [keys, keys])),
        "upsert": lambda: table.upsert(keys, keys),
        "find": lambda: table.find(keys),
        "contains": lambda: table.contains(keys),
        "count": lambda: table.count(keys),
        "erase": lambda: table.erase(keys[:50]),
        "items": lambda: table.items(),
    }
    lacking = {"set": {"upsert", "find"}, "map": set(), "multimap": {"upsert"}}[kind]
    for verb in row.verbs:
        if verb not in acts or verb in lacking:
            continue
        seen.clear()
        acts[verb]()
        own = [each for each in seen if method.replace("_", "") in each.lower().replace("_", "")]
        typed = [each for each in seen if type(table._store.table).__name__ in each]
        assert own or typed, f"{verb} launched {seen}"
        others = [each for each in seen if re.match(r"dg::(open|region|list)_", each)]
        allowed = tuple(f"dg::{name}" for name in row.uses)
        assert [each for each in others if not each.startswith(allowed or "none")] == []


@pytest.mark.parametrize("way", ["in place", "growing"])
@pytest.mark.parametrize(("kind", "method"), serving("set", "map", "multimap"))
def test_an_exception_at_any_line(kind, way, method):
    chance = random.Random(kind + way + method)
    for name in [kind] if kind == "set" else [kind, f"wide {kind}"]:
        for verb in verbs(name, method):
            judge = Judge(name, way, verb, method)
            lines = events("line", lambda: judge.work(judge.base.copy()), sys.maxsize)  # noqa: B023
            for event in chance.sample(lines, min(12, len(lines))):
                table = judge.base.copy()
                raise_at(event, "line", functools.partial(judge.work, table))
                judge.judge(table)
            assert judge.seen["broken"] == 0


@pytest.mark.parametrize("way", ["in place", "growing"])
@pytest.mark.parametrize(("kind", "method"), serving("set", "map", "multimap"))
def test_memory_that_is_refused_at_any_time(monkeypatch, kind, way, method):
    real = CpuBackend.empty
    for verb in verbs(kind, method):
        judge = Judge(kind, way, verb, method)
        for refused in range(10_000):
            table, left = judge.base.copy(), refused

            def empty(self, shape, dtype):
                nonlocal left
                left -= 1
                if left == -1:
                    raise OutOfMemoryError("1 byte needed and 0 free; use less")
                return real(self, shape, dtype)

            with monkeypatch.context() as scarce:
                scarce.setattr(CpuBackend, "empty", empty)
                try:
                    judge.work(table)
                except OutOfMemoryError:
                    whole = False
                else:
                    whole = True
            assert whole or content(table) == judge.old
            judge.judge(table)
            if left >= 0:
                break
        assert judge.seen["broken"] == 0
