"""Changes that an exception interrupts anywhere: all or nothing."""

from __future__ import annotations

import functools
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from interrupting import Interrupted, events, raise_at, raise_from_thread, raise_on_signal

from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.errors import CompileError, OutOfMemoryError, TableBroken
from dgpuhash.tables import HashMap, HashSet, MultiMap
from dgpuhash.tables.open_addressing import bulk_build, cardinality

SECONDS = 20.0

KINDS = ["set", "map", "wide map", "multimap", "wide multimap"]
WAYS = ["in place", "growing", "by region"]

Content = dict[int, Any]


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
    if kind == "map":
        made["insert sum"] = lambda table: table.insert(*given, combine="sum")
        made["insert max"] = lambda table: table.insert(*given, combine="max")
    if kind.endswith("multimap"):
        made["compact"] = lambda table: table.compact()
    return made


def before(kind: str, way: str, verb: str) -> Any:
    """Return a table to be changed."""
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
    monkeypatch.setattr(bulk_build, "pays", lambda *batch: True)
    monkeypatch.setattr(cardinality, "all_new", lambda *batch: True)
    monkeypatch.setattr(cardinality, "LEAST_ROWS", 16)


def oracle(kind: str, verb: str, held: Content) -> Content:
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
    return now


class Judge:
    """Counter of the states of tables after interrupted changes."""

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


@pytest.mark.parametrize("number", [16, pytest.param(sys.maxsize, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "way", "verb"), CASES)
def test_an_exception_at_any_line(monkeypatch, kind, way, verb, number):
    if way == "by region":
        by_region(monkeypatch)
    judge = Judge(kind, way, verb)
    for event in events("line", lambda: judge.work(judge.base.copy()), number):
        table = judge.base.copy()
        raise_at(event, "line", functools.partial(judge.work, table))
        judge.judge(table)
    assert judge.seen.total() > 10 and judge.seen["broken"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "way", "verb"), CASES)
def test_an_exception_at_any_instruction(monkeypatch, kind, way, verb):
    if way == "by region":
        by_region(monkeypatch)
    judge = Judge(kind, way, verb)
    for event in events("opcode", lambda: judge.work(judge.base.copy()), 500):
        table = judge.base.copy()
        raise_at(event, "opcode", functools.partial(judge.work, table))
        judge.judge(table)
    assert judge.seen.total() > 100 and judge.seen["broken"] == 0


def test_an_exception_at_any_line_before_there_is_memory():
    keys = np.arange(30)
    for kind in KINDS:
        given = columns(kind, keys)
        for event in events("line", lambda: empty(kind).insert(*given), 20):  # noqa: B023
            table = (
                HashSet("i8") if kind == "set" else type(empty(kind))("i8", empty(kind).value_dtype)
            )
            raise_at(event, "line", functools.partial(table.insert, *given))
            assert len(table) in (0, len(keys))
            if len(table) == 0:
                table.insert(*given)
            assert set(content(table)) == set(keys.tolist())


@pytest.mark.parametrize("error", [Interrupted, KeyboardInterrupt])
@pytest.mark.parametrize("kind", KINDS)
def test_signals_at_any_time(kind, error):
    chance, seen = random.Random(1), Counter()
    for way in ("in place", "growing"):
        for verb in ("insert", "erase"):
            judge = Judge(kind, way, verb)
            began = time.perf_counter()
            judge.work(judge.base.copy())
            most = 2 * (time.perf_counter() - began)
            with raise_on_signal(error) as during:
                for _ in range(20):
                    table = judge.base.copy()
                    if during(functools.partial(judge.work, table), chance.uniform(1e-6, most)):
                        judge.judge(table)
            seen += judge.seen
    assert seen.total() > 10 and seen["broken"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_exceptions_that_other_threads_raise(kind):
    chance, judge = random.Random(2), Judge(kind, "growing", "insert")
    for _ in range(20):
        table = judge.base.copy()
        raise_from_thread(functools.partial(judge.work, table), chance.uniform(1e-6, 2e-3))
        judge.judge(table)
    assert judge.seen["broken"] == 0


@pytest.mark.parametrize(("kind", "way", "verb"), CASES)
def test_memory_that_is_refused_at_any_time(monkeypatch, kind, way, verb):
    if way == "by region":
        by_region(monkeypatch)
    judge, real = Judge(kind, way, verb), CpuBackend.empty
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
                whole = True
            except OutOfMemoryError:
                whole = False
        if not whole:
            assert content(table) == judge.old
        judge.judge(table)
        if left >= 0:
            break
    assert judge.seen["broken"] == 0


@pytest.mark.parametrize("kind", ["wide map", "multimap", "wide multimap"])
def test_a_kernel_that_fails_between_others(monkeypatch, kind):
    """Nothing can be done about it, but to tell."""
    verb = "upsert" if kind == "wide map" else "insert"
    judge, real = Judge(kind, "in place", verb), CpuBackend.prepare
    table = judge.base

    def prepare(self, kernel, args, n):
        name = kernel.expression
        if "open_insert" in name:
            return functools.partial(int, "no kernel")
        return real(self, kernel, args, n)

    with monkeypatch.context() as failing:
        failing.setattr(CpuBackend, "prepare", prepare)
        with pytest.raises(CompileError, match="did not start"):
            judge.work(table)
    for use in (
        lambda: len(table),
        lambda: table.contains([1]),
        lambda: table.insert(*columns(kind, np.arange(3))),
        lambda: table.erase([1]),
        table.items,
        table.copy,
        table.stats,
    ):
        with pytest.raises(TableBroken, match=r"load a save.*clear\(\)"):
            use()
    assert "broken" in repr(table)
    table.clear()
    assert content(table) == {}
    table.insert(*columns(kind, np.arange(50)))
    assert set(content(table)) == set(range(50))


@pytest.mark.parametrize("kind", KINDS)
def test_others_see_the_old_or_the_new_state(kind):
    judge, stop = Judge(kind, "growing", "insert"), threading.Event()
    tables = [judge.base.copy() for _ in range(20)]
    current = [tables[0]]

    def look():
        seen = 0
        while not stop.is_set():
            keys = current[0].items()
            keys = keys if kind == "set" else keys[0]
            assert set(keys.tolist()) in (set(judge.old), set(judge.new))
            seen += 1
        return seen

    chance = random.Random(3)
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            with raise_on_signal() as during:
                for table in tables:
                    current[0] = table
                    during(functools.partial(judge.work, table), chance.uniform(1e-5, 2e-3))
        finally:
            stop.set()
        assert looking.result(SECONDS) > 0
