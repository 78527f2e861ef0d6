"""Changes that an exception interrupts anywhere: all or nothing."""

from __future__ import annotations

import functools
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from interrupting import Interrupted, events, raise_at, raise_from_thread, raise_on_signal
from table_methods.interrupted import KINDS, Judge, columns, content, empty, verbs

from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.errors import CompileError, OutOfMemoryError, TableBroken
from dgpuhash.tables import HashSet
from dgpuhash.tables.open_addressing import batch_insert, cardinality

SECONDS = 20.0

WAYS = ["in place", "growing", "by region"]
CASES = [
    (kind, way, verb)
    for kind in KINDS
    for way in WAYS
    for verb in verbs(kind)
    if way == "in place" or "ert" in verb
]


def by_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_insert, "bulk_pays", lambda *batch: True)
    monkeypatch.setattr(cardinality, "all_new", lambda *batch: True)
    monkeypatch.setattr(cardinality, "LEAST_ROWS", 16)


@pytest.mark.parametrize("number", [20, pytest.param(sys.maxsize, marks=pytest.mark.exhaustive)])
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


@pytest.mark.parametrize("number", [60, pytest.param(500, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(("kind", "way", "verb"), CASES)
def test_an_exception_at_any_instruction(monkeypatch, kind, way, verb, number):
    if way == "by region":
        by_region(monkeypatch)
    judge = Judge(kind, way, verb)
    for event in events("opcode", lambda: judge.work(judge.base.copy()), number):
        table = judge.base.copy()
        raise_at(event, "opcode", functools.partial(judge.work, table))
        judge.judge(table)
    assert judge.seen.total() > 40 and judge.seen["broken"] == 0


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


def seconds_of(work, table):
    began = time.perf_counter()
    work(table)
    return time.perf_counter() - began


@pytest.mark.parametrize("error", [Interrupted, KeyboardInterrupt])
@pytest.mark.parametrize("kind", KINDS)
def test_signals_at_any_time(kind, error):
    chance, seen = random.Random(1), Counter()
    for way in ("in place", "growing"):
        for verb in ("insert", "erase"):
            judge = Judge(kind, way, verb)
            most = 2 * min(seconds_of(judge.work, judge.base.copy()) for _ in range(3))
            with raise_on_signal(error) as during:
                for _ in range(20):
                    table = judge.base.copy()
                    if during(functools.partial(judge.work, table), chance.uniform(1e-6, most)):
                        judge.judge(table)
            seen += judge.seen
    # A busy machine is late with most signals.
    assert seen.total() > 2 and seen["broken"] == 0


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
