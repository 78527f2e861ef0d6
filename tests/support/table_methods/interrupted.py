"""Changes of tables to be interrupted, and a judge of what they left."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from dgpuhash import methods
from dgpuhash.errors import TableBroken
from dgpuhash.tables import HashMap, HashSet, MultiMap

__all__ = ["KINDS", "Judge", "columns", "content", "empty", "verbs"]

KINDS = ["set", "map", "wide map", "multimap", "wide multimap"]
Content = dict[int, Any]


def empty(kind: str, capacity: int = 0, method: str = "auto") -> Any:
    """Return an empty table on the CPU."""
    if kind == "set":
        return HashSet("i8", capacity, device="cpu", method=method)
    make = MultiMap if kind.endswith("multimap") else HashMap
    value = "S12" if kind.startswith("wide") else "i8"
    return make("i8", value, capacity, device="cpu", method=method)


def columns(kind: str, keys: np.ndarray, salt: int = 0) -> tuple[np.ndarray, ...]:
    values = keys * 3 + salt
    if kind == "set":
        return (keys,)
    return (keys, values.astype("S12") if kind.startswith("wide") else values)


def content(table: Any) -> Content:
    """Return the table's contents, after checking that every read agrees."""
    found = table.items()
    keys, *values = found if isinstance(found, tuple) else (found,)
    held: Content = {}
    if isinstance(table, MultiMap):
        for key, value in zip(keys.tolist(), values[0].tolist(), strict=True):
            held.setdefault(key, []).append(value)
        size = sum(map(len, held.values()))
        assert table.n_keys == len(held)
    else:
        held = dict(zip(keys.tolist(), values[0].tolist() if values else keys, strict=True))
        size = len(held)
    assert len(table) == size == len(keys)
    asked = np.array([*held, -1], "i8")
    assert table.contains(asked).tolist() == [True] * len(held) + [False]
    if isinstance(table, HashMap):
        assert table.find(asked[:-1])[0].tolist() == list(held.values())
    if isinstance(table, MultiMap):
        found, ends = table.find(asked)
        for key, (first, last) in zip(held, itertools.pairwise(ends), strict=False):
            held[key] = in_order(table.method, held[key])
            assert in_order(table.method, found[first:last].tolist()) == held[key]
    return held


def in_order(method: str, values: list[Any]) -> list[Any]:
    """Return a key's values, sorted where the method keeps no order."""
    return values if methods()[method].ordered else sorted(values)


Verb = Callable[[Any], Any]


def verbs(kind: str, method: str = "auto") -> dict[str, Verb]:
    """Return changes of tables by name, of those that a method's tables have."""
    keys = np.arange(15, 70)
    doubled = np.concatenate([keys, keys[:8], [2**63 - 1, -1 << 63]])
    given = columns(kind, doubled, 7)
    made = {
        "insert": lambda table: table.insert(*given),
        "erase": lambda table: table.erase(doubled),
        "clear": lambda table: table.clear(),
        "reserve": lambda table: table.reserve(900),
    }
    if kind in ("map", "wide map"):
        made["insert last"] = lambda table: table.insert(*given, keep="last")
        made["upsert"] = lambda table: table.upsert(*given)
    if kind == "map":
        made["insert sum"] = lambda table: table.insert(*given, combine="sum")
        made["insert max"] = lambda table: table.insert(*given, combine="max")
    if kind.endswith("multimap"):
        made["compact"] = lambda table: table.compact()
    able = methods()[method].verbs
    refused = {"erase": "erase", "insert sum": "combine", "insert max": "combine"}
    return {name: verb for name, verb in made.items() if refused.get(name, "insert") in able}


def before(kind: str, way: str, method: str) -> Any:
    """Return a table to be changed."""
    table = empty(kind, 400 if way == "in place" else 0, method)
    table.insert(*columns(kind, np.arange(20)))
    table.insert(*columns(kind, np.arange(10, 30)))
    if "erase" in methods()[method].verbs:
        table.erase(np.arange(2, 4))
    return table


def oracle(kind: str, verb: str, held: Content, method: str = "auto") -> Content:
    """Return the expected contents after `verb`."""
    keys = [*range(15, 70)]
    rows = [*keys, *keys[:8], 2**63 - 1, -1 << 63]
    values = columns(kind, np.array(rows), 7)[-1].tolist()
    now = {key: list(each) if isinstance(each, list) else each for key, each in held.items()}
    if verb == "erase":
        return {key: each for key, each in now.items() if key not in set(rows)}
    if verb == "clear":
        return {}
    for key, value in zip(rows, values, strict=True):
        if verb == "upsert":
            now[key] = value
        elif verb.startswith("insert") and kind.endswith("multimap"):
            now.setdefault(key, []).append(value)
        elif verb == "insert sum" and key in now:
            (now[key],) = (np.array([now[key]]) + value).tolist()
        elif verb == "insert max" and key in now:
            now[key] = max(now[key], value)
        elif verb.startswith("insert"):
            now.setdefault(key, value)
    if kind.endswith("multimap"):
        return {key: in_order(method, each) for key, each in now.items()}
    return now


class Judge:
    """Counter of the states of tables after interrupted changes."""

    def __init__(self, kind: str, way: str, verb: str, method: str = "auto") -> None:
        self._kind, self._verb, self._method = kind, verb, method
        self.work = verbs(kind, method)[verb]
        self.base = before(kind, way, method)
        self.old = content(self.base)
        self.new = oracle(kind, verb, self.old, method)
        self.seen: Counter[str] = Counter()

    def judge(self, table: Any) -> None:
        try:
            held = content(table)
        except TableBroken:
            self.seen["broken"] += 1
            return
        assert held in (self.old, self.new), "neither the old state nor the new one"
        self.seen["new" if held == self.new else "old"] += 1
        self.work(table)
        assert content(table) == oracle(self._kind, self._verb, held, self._method)
        # What the host knows of the device is right, too.
        more = np.arange(500, 590)
        table.insert(*columns(self._kind, more))
        assert table.contains(more).all()
        assert len(set(content(table)) - set(held) - set(self.new)) == len(more)
