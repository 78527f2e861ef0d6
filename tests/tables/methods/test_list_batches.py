"""Mixed batches of multimaps: what a dictionary of lists answers, row after row."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from interrupting import events, raise_at
from strategies import random_keys, random_values

import dgpuhash
from dgpuhash import MultiMap, Op
from dgpuhash.errors import ShapeError, SpecError, UnsupportedError

METHODS = [
    name
    for name, each in dgpuhash.methods().items()
    if "multimap" in each.nouns and "erase" in each.verbs
]
KINDS = np.array([Op.FIND, Op.INSERT, Op.INSERT, Op.ERASE, Op.ERASE_ALL], "u1")


def answers(lists, ops, keys, values):
    """Execute rows one after another on a dictionary; return what they find, and flags."""
    found, flags = [], []
    for op, key, value in zip(ops.tolist(), keys.tolist(), values, strict=True):
        key = "nan" if key != key else key
        stored = lists.get(key, [])
        flags.append(bool(stored) != (op == Op.INSERT))
        found.append([*stored] if op == Op.FIND else [])
        if op == Op.INSERT:
            lists[key] = [*stored, value.tobytes()]
        elif op != Op.FIND:
            lists.pop(key, None)
    return found, flags


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("key", "value"), [("i8", "i8"), ("f4", "S5"), ("u1", "M8[s]")])
def test_rows_happen_in_their_order(device, method, key, value):
    table, lists = MultiMap(key, value, device=device.name, method=method), {}
    ordered = dgpuhash.methods()[method].ordered
    for seed in range(5):
        keys = random_keys(key, 400, seed, distinct=60)
        ops = np.random.default_rng(seed).choice(KINDS[: 3 + seed % 3], 400)
        values = random_values(value, 400, seed)
        given = [device.array(each) for each in (ops, keys, values)]
        found, offsets, flags = table.execute(*given)
        found = device.host(found, value)
        offsets, flags = map(device.backend.to_host, (offsets, flags))
        wanted, truths = answers(lists, ops, keys, values)
        assert flags.tolist() == truths
        assert offsets.tolist() == np.cumsum([0, *map(len, wanted)]).tolist()
        for row, its in enumerate(wanted):
            got = [each.tobytes() for each in found[offsets[row] : offsets[row + 1]]]
            assert got == its if ordered else sorted(got) == sorted(its)
        assert len(table) == sum(map(len, lists.values())) and table.n_keys == len(lists)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_refused_changes_nothing(device, method):
    table = MultiMap.from_arrays(
        device.array(np.array([1, 1])), device.array(np.array([5, 6])), method=method
    )
    with pytest.raises(SpecError, match=r"ops\[1\] is 9, which is not an operation"):
        table.execute([Op.ERASE, 9], [1, 1])
    with pytest.raises(SpecError, match=r"ops\[1\] is UPSERT, .*use ERASE_ALL and INSERT"):
        table.execute([Op.ERASE, Op.UPSERT], [1, 1], [1, 1])
    with pytest.raises(SpecError, match="1 rows of ops store a pair, and there are no values"):
        table.execute([Op.ERASE, Op.INSERT], [1, 1])
    with pytest.raises(ShapeError, match="1 ops for 2 keys"):
        table.execute([Op.ERASE], [1, 1])
    values, offsets, flags = table.execute([], [])
    assert (len(values), len(offsets), len(flags)) == (0, 1, 0) and len(table) == 2


def test_tables_without_order_or_erasures_are_refused():
    with pytest.raises(UnsupportedError, match="call insert, find and erase, or make it without"):
        MultiMap("i8", "i8", cap=2).execute([Op.FIND], [1])
    for name in {n for n, each in dgpuhash.methods().items() if "multimap" in each.nouns}:
        if name not in METHODS:
            with pytest.raises(UnsupportedError, match="cannot erase"):
                MultiMap("i8", "i8", method=name).execute([Op.FIND], [1])


@pytest.mark.parametrize("method", ["auto", "slab", "bucket_list"])
def test_an_exception_at_any_line_leaves_all_or_nothing(method):
    base = MultiMap.from_arrays(np.arange(300) % 40, np.arange(300), method=method, device="cpu")
    ops, keys = np.resize(KINDS, 100), np.arange(100) % 60

    def content(table):
        return sorted(zip(*(each.tolist() for each in table.items()), strict=True))

    def work(table):
        table.execute(ops, keys, keys)

    after = base.copy()
    work(after)
    seen = []
    for event in events("line", lambda: work(base.copy()), 60):
        table = base.copy()
        raise_at(event, "line", functools.partial(work, table))
        seen.append([content(base), content(after)].index(content(table)))
    assert len(seen) > 10 and not seen[0]
