"""Changes that an exception cuts off anywhere: the table is as before or as after, never between."""

from __future__ import annotations

import ctypes
import functools
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import dgpuhash
from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.errors import CompileError, OutOfMemoryError, TableBroken
from dgpuhash.tables import HashMap, HashSet, MultiMap, expectation, regions

HOME = os.path.dirname(dgpuhash.__file__)
# Whether a table is left free is asked elsewhere.
_LOCK = "turns.py"
SECONDS = 20.0

KINDS = ["set", "map", "wide map", "multimap", "wide multimap"]
WAYS = ["in place", "growing", "by region"]

Content = dict[int, Any]


class Interrupted(Exception):
    """What a handler raises."""


def empty(kind: str, capacity: int = 0) -> Any:
    if kind == "set":
        return HashSet("i8", capacity, device="cpu")
    make = MultiMap if kind.endswith("multimap") else HashMap
    return make("i8", "S12" if kind.startswith("wide") else "i8", capacity, device="cpu")


def columns(kind: str, keys: np.ndarray, salt: int = 0) -> tuple[np.ndarray, ...]:
    values = keys * 3 + salt
    if kind == "set":
        return (keys,)
    return (keys, values.astype("S12") if kind.startswith("wide") else values)


def content(table: Any) -> Content:
    """All that the table holds, asked for in several ways which must agree."""
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
        assert table.find(asked)[0].tolist() == [each for key in held for each in held[key]]
    return held


Verb = Callable[[Any], Any]


def verbs(kind: str) -> dict[str, Verb]:
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
    if kind.endswith("multimap"):
        made["compact"] = lambda table: table.compact()
    return made


def before(kind: str, way: str, verb: str) -> Any:
    """A table to be changed."""
    table = empty(kind, 400 if way == "in place" else 0)
    table.insert(*columns(kind, np.arange(20)))
    table.insert(*columns(kind, np.arange(10, 30)))
    table.erase(np.arange(2, 4))
    return table


CASES = [
    (kind, way, verb)
    for kind in KINDS
    for way in WAYS
    for verb in verbs(kind)
    if way == "in place" or "ert" in verb
]


def by_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "pays", lambda *batch: True)
    monkeypatch.setattr(expectation, "all_new", lambda *batch: True)
    monkeypatch.setattr(expectation, "LEAST_ROWS", 16)


def oracle(kind: str, verb: str, held: Content) -> Content:
    """What `verb` makes of it."""
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
        elif verb.startswith("insert"):
            now.setdefault(key, value)
    return now


class Judge:
    """Counts what became of tables whose change was cut off."""

    def __init__(self, kind: str, way: str, verb: str) -> None:
        self._kind, self._verb = kind, verb
        self.work = verbs(kind)[verb]
        self.base = before(kind, way, verb)
        self.old = content(self.base)
        self.new = oracle(kind, verb, self.old)
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
        assert content(table) == oracle(self._kind, self._verb, held)
        # What the host knows of the device is right, too.
        more = np.arange(500, 590)
        table.insert(*columns(self._kind, more))
        assert table.contains(more).all()
        assert len(set(content(table)) - set(held) - set(self.new)) == len(more)


def raise_at(event: int, kind: str, work: Callable[[], Any]) -> int:
    """Raise at an event of that kind of our code; how many were missing."""
    left = event

    def trace(frame: Any, what: str, _: Any) -> Any:
        nonlocal left
        name = frame.f_code.co_filename
        if not name.startswith(HOME) or name.endswith(_LOCK):
            return None
        frame.f_trace_opcodes = kind == "opcode"
        if what == kind:
            left -= 1
            if left == 0:
                raise Interrupted
        return trace

    # Whatever the tests use themselves to see which lines run.
    own = sys.gettrace()
    try:
        sys.settrace(trace)
        work()
    except Interrupted:
        pass
    finally:
        sys.settrace(own)
    return left


def events(kind: str, work: Callable[[], Any]) -> int:
    """How many there are."""
    return sys.maxsize - raise_at(sys.maxsize, kind, work)


def of_all(kind: str, judge: Judge, number: int) -> range:
    """So many of the events of a verb, or all."""
    # Once before, as some is worked out only once.
    judge.work(judge.base.copy())
    table = judge.base.copy()
    all_of_them = events(kind, functools.partial(judge.work, table))
    stride = max(1, all_of_them // number)
    return range(1 + random.Random(number).randrange(stride), all_of_them + 1, stride)


@pytest.mark.parametrize("number", [40, pytest.param(sys.maxsize, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "way", "verb"), CASES)
def test_an_exception_at_any_line(monkeypatch, kind, way, verb, number):
    if way == "by region":
        by_region(monkeypatch)
    judge = Judge(kind, way, verb)
    for event in of_all("line", judge, number):
        table = judge.base.copy()
        assert raise_at(event, "line", functools.partial(judge.work, table)) == 0
        judge.judge(table)
    assert judge.seen.total() > 10 and judge.seen["broken"] == 0
