"""Mixed batches: what a dictionary would answer, and one launch."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from interrupting import events, raise_at
from strategies import random_keys, random_values
from table_methods.contracts import each_method

import dgpuhash
from dgpuhash import HashMap, HashSet, Op
from dgpuhash.errors import KeyTypeError, ShapeError, SpecError, UnsupportedError

ROWS = 600
PAIRS = [("u4", "u4"), ("i8", "f8"), ("u4", "S5"), ("u2", "i8"), ("i8", "u1"), ("f4", "M8[s]")]


class Model:
    """A dictionary that executes operations one by one."""

    def __init__(self):
        self.held = {}

    def execute(self, op, key, value):
        """Return the flag, and the value that was found."""
        there = key in self.held
        if op == Op.FIND:
            return there, self.held.get(key)
        if op in (Op.INSERT, Op.UPSERT):
            if op == Op.UPSERT or not there:
                self.held[key] = value
            return not there, None
        self.held.pop(key, None)
        return there, None


def listed(array):
    """Elements as they can be compared; NaN is one key."""
    return ["nan" if each != each else each for each in array.tolist()]


def draw(key, value, seed):
    """Distinct keys, so that their order in a batch does not matter."""
    keys = np.unique(random_keys(key, ROWS, seed, distinct=400))
    rng = np.random.default_rng(seed)
    keys = rng.permutation(keys)
    ops = rng.integers(0, 5, len(keys)).astype("u1")
    return ops, keys, random_values(value, len(keys), seed)


@each_method("map", "execute")
@pytest.mark.parametrize(("key", "value"), PAIRS)
def test_map(device, method, key, value):
    table, model = HashMap(key, value, device=device.name, method=method), Model()
    default = random_values(value, 1, 77)[0]
    for seed in range(6):
        ops, keys, values = draw(key, value, seed)
        found, flags = table.execute(
            device.array(ops), device.array(keys), device.array(values), default=default
        )
        found, flags = device.backend.to_host(found), device.backend.to_host(flags)
        found = found.view(value) if found.dtype != np.dtype(value) else found
        wanted = [model.execute(*row) for row in zip(ops, listed(keys), values, strict=True)]
        assert flags.tolist() == [flag for flag, _ in wanted]
        for row, (flag, held) in enumerate(wanted):
            right = held if flag and ops[row] == Op.FIND else default
            assert found.reshape(len(keys), -1)[row].tobytes() == np.array([right], value).tobytes()
        assert len(table) == len(model.held)
    assert table.stats().details["rebuilds"] <= 2


@each_method("set", "execute")
@pytest.mark.parametrize("key", ["u4", "i8", "f8", "u1"])
def test_set(device, method, key):
    table, model = HashSet(key, device=device.name, method=method), Model()
    for seed in range(4):
        ops, keys, _ = draw(key, "u1", seed)
        flags = device.backend.to_host(table.execute(device.array(ops), device.array(keys)))
        assert flags.tolist() == [
            model.execute(op, each, None)[0] for op, each in zip(ops, listed(keys), strict=True)
        ]
        assert len(table) == len(model.held)


@each_method("map", "execute")
@pytest.mark.parametrize("word", ["u4", "u8"])
def test_rows_of_a_key_happen_one_after_another(device, method, word):
    """Every key is created and removed by turns, reserved ones too."""
    rng = np.random.default_rng(3)
    top = np.iinfo(word).max
    pool = np.array([*range(30), top, top - 1], word)
    table, present = HashMap(word, word, 500, device=device.name, method=method), {}
    for _ in range(6):
        n = 20_000
        keys, ops = rng.choice(pool, n), rng.integers(0, 4, n).astype("u1")
        # A value tells its key.
        values = keys * np.asarray(8, word) + rng.integers(0, 8, n).astype(word)
        found, flags = table.execute(device.array(ops), device.array(keys), device.array(values), 5)
        found, flags = device.backend.to_host(found), device.backend.to_host(flags)
        for key in pool:
            rows = keys == key
            created = np.count_nonzero(flags & rows & ((ops == 1) | (ops == 2)))
            removed = np.count_nonzero(flags & rows & (ops == 3))
            was = present.get(key, False)
            present[key] = was + created - removed
            assert present[key] in (0, 1)
            hit = found[rows & flags & (ops == Op.FIND)]
            assert ((hit - key * np.asarray(8, word)) < 8).all()
            if not created and not was:
                assert not flags[rows & (ops != 3)].any() or created
        assert (found[(ops != Op.FIND) | ~flags] == 5).all()
        there = device.backend.to_host(table.contains(device.array(pool)))
        assert there.tolist() == [bool(present[key]) for key in pool]
        assert len(table) == sum(present.values())


@pytest.mark.parametrize("word", ["u4", "i8"])
@pytest.mark.parametrize("allocator", ["slab", "light"])
def test_a_pool_of_one_runs_dry(device, word, allocator, monkeypatch):
    table = HashMap(word, word, 300, device=device.name, method="slab", allocator=allocator)
    first = np.arange(100).astype(word)
    table.insert(device.array(first), device.array(first))
    recipe = table._store.table
    monkeypatch.setattr(type(recipe), "certain", lambda self, rows: False)
    recipe.fields["pool"]["bitmaps"].fill(np.uint32(0xFFFFFFFF))
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


def test_a_batch_is_one_launch(monkeypatch):
    seen = []
    backend = dgpuhash.backend.get("cpu")
    real, prepared = type(backend).launch, type(backend).prepared

    def launch(self, kernel, args, n):
        seen.append(kernel.expression)
        real(self, kernel, args, n)

    def counted(self, kernel, n, **fields):
        seen.append(kernel.expression)
        return prepared(self, kernel, n, **fields)

    monkeypatch.setattr(type(backend), "launch", launch)
    monkeypatch.setattr(type(backend), "prepared", counted)
    table = HashMap("u4", "u4", 5000, method="slab", device="cpu")
    ops, keys = np.arange(1000, dtype="u1") % 5, np.arange(1000, dtype="u4")
    for _ in range(2):
        seen.clear()
        table.execute(ops, keys, keys)
        # But for the codes, which are checked before.
        (one,) = [each for each in seen if each != "dg::op_counts"]
        assert "verb::execute<dg::Slab<dg::u32,dg::u32>" in one


@pytest.mark.parametrize("method", ["slab", "supernode"])
def test_what_the_count_refuses_changes_nothing(device, method):
    """A strange code, or stores without values, also in a blank table and in one without room."""
    keys = device.array(np.arange(500, dtype="u4"))
    ops = np.full(500, Op.UPSERT, "u1")
    strange = ops.copy()
    strange[77] = 9
    table = HashMap("u4", "u4", 400, device=device.name, method=method)
    for stored in (0, 400):
        with pytest.raises(SpecError, match=r"ops\[77\] is 9"):
            table.execute(device.array(strange), keys, keys)
        with pytest.raises(SpecError, match="500 rows of ops store a pair"):
            table.execute(device.array(ops), keys)
        assert len(table) == stored and table.capacity == 400 and not table._store.broken
        table.insert(keys[:400], keys[:400] * 2)
        assert (table.find(keys)[0][:400] == keys[:400] * 2).all()
    recipe = table._store.table
    recipe.bound = 10**6
    table.execute(device.array(ops), keys, keys)
    assert len(table) == 500 and (table.find(keys)[0] == keys).all()


@pytest.mark.parametrize("method", ["slab", "supernode"])
@pytest.mark.parametrize("capacity", [1000, 32])
def test_an_exception_at_any_line_leaves_all_or_nothing(method, capacity):
    """Also where the first launch finds no room, and the table grows."""
    keys = np.arange(200, dtype="u4")
    base = HashMap("u4", "u4", capacity, method=method, device="cpu")
    base.insert(keys[:30], keys[:30])
    ops = np.resize(np.array([Op.ERASE, Op.INSERT, Op.FIND, Op.UPSERT], "u1"), 200)

    def content(table):
        return sorted(zip(*(each.tolist() for each in table.items()), strict=True))

    def work(table):
        table.execute(ops, keys, keys + 1)

    after = base.copy()
    work(after)
    seen = []
    for event in events("line", lambda: work(base.copy()), 60):
        table = base.copy()
        raise_at(event, "line", functools.partial(work, table))
        seen.append([content(base), content(after)].index(content(table)))
    assert len(seen) > 10 and not seen[0] and seen[-1]


def test_arguments():
    table = HashMap("u4", "u4", method="slab", device="cpu")
    with pytest.raises(
        SpecError, match=r"ops\[1\] is 5, which is not an operation; use dgpuhash.Op"
    ):
        table.execute([Op.INSERT, 5], [1, 2], [1, 2])
    with pytest.raises(SpecError, match="1 rows of ops store a pair, and there are no values"):
        table.execute([Op.FIND, Op.INSERT], [1, 2])
    with pytest.raises(ShapeError, match="1 ops for 2 keys"):
        table.execute([Op.FIND], [1, 2])
    with pytest.raises(ShapeError, match="2 keys came with 1 values"):
        table.execute([Op.FIND, Op.FIND], [1, 2], [1])
    with pytest.raises(KeyTypeError):
        table.execute([-1], [1])
    assert len(table) == 0
    values, flags = table.execute([], [])
    assert len(values) == len(flags) == 0
    with pytest.raises(UnsupportedError, match=r"method 'auto' cannot execute.*slab"):
        HashMap("u4", "u4").execute([Op.FIND], [1])
    with pytest.raises(UnsupportedError, match=r"HashSet of method 'auto' cannot execute.*slab"):
        HashSet("u4").execute([Op.FIND], [1])
