"""Reentrance of a thread into its own table: success or error, no wait."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from agreement import agree
from model import MapModel

from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.errors import ReentranceError
from dgpuhash.frames import FrameIndex
from dgpuhash.tables import HashMap, HashSet, MultiMap
from dgpuhash.tables.rwlock import ReadWriteLock, read_locked, write_locked

SECONDS = 20.0
FEW = np.arange(100)


class Argument:
    """Keys that run `work` when they are converted to an array."""

    def __init__(self, keys, work):
        self.keys, self.work = keys, work

    def __array__(self, dtype=None, copy=None):
        self.work()
        return np.asarray(self.keys, dtype)


class Table:
    """Table whose verbs run given work under the read-write lock."""

    def __init__(self):
        self._turns = ReadWriteLock()

    @read_locked
    def read(self, work):
        return work()

    @write_locked
    def change(self, work):
        self._turns.begin()
        return work()


def free(table):
    """Assert that another thread may change the table and none is inside."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(table.change, lambda: None).result(SECONDS)
    assert not table._turns.entered
    assert not table._turns._waiting


def test_an_argument_may_not_change_what_is_read(host):
    table, model = HashMap.from_arrays(FEW, FEW), MapModel()
    model.insert(FEW, FEW)
    for verb in (table.find, table.contains, table.count):
        with pytest.raises(ReentranceError, match=r"HashMap\.insert.*reading.*returned"):
            verb(Argument([1], lambda: table.insert([500], [500])))
    agree(host, table, model)
    assert table.find(Argument([1], lambda: table.find([2])))[0].tolist() == [1]
    assert table.insert([500], [500]).tolist() == [True]


@pytest.mark.parametrize("verb", ["insert", "upsert", "erase"])
def test_an_argument_has_its_turn_before_the_change_begins(host, verb):
    table, model = HashMap.from_arrays(FEW, FEW), MapModel()
    model.insert(FEW, FEW)
    more = np.arange(50, 5000)

    def change():
        assert table.find([1])[0].tolist() == [1]
        table.insert(more, -more)
        model.insert(more, -more)

    keys = np.arange(90, 9000)
    values = [] if verb == "erase" else [keys * 2]
    getattr(table, verb)(Argument(keys, change), *values)
    getattr(model, verb)(keys, *values)
    agree(host, table, model)


@pytest.mark.parametrize("verb", ["find", "insert", "erase", "clear"])
@pytest.mark.parametrize("make", [HashMap, MultiMap])
def test_nothing_enters_a_change_that_has_begun(monkeypatch, make, verb):
    table = make.from_arrays(FEW, FEW)
    arguments = {"find": (FEW,), "insert": (FEW, FEW), "erase": (FEW,), "clear": ()}[verb]
    caught, launch = [], CpuBackend.launch

    def struck(*args):
        launch(*args)
        try:
            getattr(table, verb)(*arguments)
        except ReentranceError as error:
            caught.append(str(error))

    keys = np.arange(1000, 9000)
    with monkeypatch.context() as patched:
        patched.setattr(CpuBackend, "launch", struck)
        table.insert(keys, keys)
    assert caught
    assert all("in the middle of a change" in each for each in caught)
    assert table.find(keys)[0].tolist() == keys.tolist()
    assert len(table) == 8100


def test_a_frame_index_has_the_same_rules():
    index = FrameIndex.build(pd.DataFrame({"k": FEW, "v": FEW}), on="k")
    row = pd.DataFrame({"k": [500], "v": [500]})
    asked = {"k": Argument([1], lambda: index.insert(row))}
    # What is read stands before the frame is made of it.
    assert len(index.lookup(asked)["v"]) == 1
    assert index.contains([500]).all()

    @read_locked
    def reading(index):
        index.insert(row)

    rows = len(index)
    with pytest.raises(ReentranceError, match=r"FrameIndex\.insert.*reading"):
        reading(index)
    assert len(index) == rows


def test_two_threads_that_would_wait_for_each_other():
    tables = Table(), Table()
    meeting = threading.Barrier(2)
    refused = []

    def both(first, second):
        def other():
            meeting.wait(SECONDS)
            try:
                second.change(lambda: None)
            except ReentranceError as error:
                refused.append(str(error))

        first.change(other)

    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(both, *tables), pool.submit(both, *reversed(tables))]
        for each in ends:
            each.result(SECONDS)
    assert 1 <= len(refused) <= 2
    assert all("another table" in each for each in refused)
    for table in tables:
        free(table)


def test_who_is_gone_is_taken_out():
    """As if an exception had struck a thread between two steps, or its number were another's."""
    table = Table()
    for number in (threading.get_ident(), 12345, -12345):
        table._turns.entered[object()] = number
        free(table)
    table._turns.entered[object()] = threading.get_ident()
    assert table.change(lambda: 7) == 7
    free(table)


@pytest.mark.parametrize("verb", ["read", "change"])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("act", ["read", "change", "raise"])
def test_between_any_two_instructions(verb, beside, act):
    """A handler that uses the table, or raises, at each place of entering and leaving."""
    table, codes = (
        Table(),
        {
            ReadWriteLock.again.__code__,
            ReadWriteLock.wait.__code__,
            ReadWriteLock.wake_waiters.__code__,
        },
    )
    codes |= {ReadWriteLock._before.__code__, Table.read.__code__}
    left, done = 0, False

    def look(frame, event, _):
        nonlocal left
        if frame.f_code not in codes:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                sys.settrace(None)
                if act == "raise":
                    raise InterruptedError
                try:
                    getattr(table, act)(lambda: None)
                except ReentranceError as error:
                    refused.append(error)
        return look

    before, refused = sys.gettrace(), []
    for place in itertools.count(1):
        go_on, inside = threading.Event(), threading.Event()

        def stay(go_on=go_on, inside=inside):
            inside.set()
            go_on.wait(0.005)

        with ThreadPoolExecutor(1) as pool:
            if beside:
                other = pool.submit(table.change, stay)
                assert inside.wait(SECONDS)
            left, done = place, False
            sys.settrace(look)
            try:
                done = getattr(table, verb)(lambda: True)
            except InterruptedError:
                assert act == "raise"
            finally:
                sys.settrace(before)
            if beside:
                other.result(SECONDS)
        if left > 0:
            break
        assert done or act == "raise"
        free(table)
    assert place > 20
    # Beside others how many instructions there are is not always the same.
    assert beside or bool(refused) == (act != "raise" and (act, verb) != ("read", "read"))


def fresh(kind, count):
    """Return `count` unused keys, with values three times the keys."""
    keys = np.fromiter(itertools.islice(NUMBERS, count), "i8", count)
    return (keys,) if kind == "set" else (keys, 3 * keys)


NUMBERS = itertools.count()


class Subject:
    """Table of one kind with its inserted keys and checked verbs."""

    def __init__(self, kind):
        self.kind, self.stored, self.refusals = kind, [], 0
        made = {"set": HashSet, "map": HashMap, "multimap": MultiMap}
        if kind == "frames":
            self.table = FrameIndex.build(pd.DataFrame({"k": FEW[:0], "v": FEW[:0]}), on="k")
        else:
            self.table = made[kind](*(("i8",) if kind == "set" else ("i8", "i8")))

    def insert(self, count=3, work=None):
        keys, *values = fresh(self.kind, count)
        if self.kind == "frames":
            self.table.insert(pd.DataFrame({"k": keys, "v": values[0]}))
        else:
            self.table.insert(keys if work is None else Argument(keys, work), *values)
        self.stored.append(keys)

    def look(self):
        known = self.stored[-1] if self.stored else FEW[:0]
        keys = np.concatenate([known, [-5]])
        if self.kind == "frames":
            found = self.table.lookup(keys).tolist()
            assert found[:-1] == (3 * known).tolist()
            return
        assert self.table.contains(keys).tolist() == [True] * len(known) + [False]
        if self.kind != "set":
            assert self.table.find(known)[0].tolist() == (3 * known).tolist()

    def use(self, number):
        try:
            if number % 2:
                self.insert(1)
            else:
                self.look()
        except ReentranceError:
            self.refusals += 1

    def check(self):
        stored = np.sort(np.concatenate(self.stored))
        assert len(self.table) == len(stored)
        found = self.table.frame()["k"] if self.kind == "frames" else self.table.items()
        keys = np.sort(found[0] if isinstance(found, tuple) else np.asarray(found))
        assert keys.tolist() == stored.tolist()
        if self.kind in ("map", "multimap"):
            assert self.table.find(stored)[0].tolist() == (3 * stored).tolist()


def storm(kind, seconds):
    """Use two tables from signals, finalizers, arguments and threads.

    Both must be right in the end.
    """
    subjects, turn, busy = [Subject(kind), Subject(kind)], itertools.count(), threading.Lock()
    failures, end, pause = [], time.monotonic() + seconds, [0.0]

    def use():
        number = next(turn)
        try:
            subjects[number // 2 % 2].use(number)
        except BaseException as error:
            failures.append(error)

    def handler(*_):
        # One that takes longer than the time between two signals would leave no time for others.
        if time.monotonic() > pause[0] and busy.acquire(blocking=False):
            began = time.monotonic()
            use()
            pause[0] = 2 * time.monotonic() - began
            busy.release()

    class Garbage:
        def __init__(self):
            self.itself = self

        def __del__(self):
            use()

    def work():
        for number in itertools.takewhile(lambda _: time.monotonic() < end, itertools.count()):
            subject = subjects[number % 2]
            try:
                subject.insert(work=use if number % 3 == 0 else None)
                Garbage()
                subject.look()
            except ReentranceError:
                # Another thread's garbage is in the way of ours.
                subject.refusals += 1
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    signal.signal(signal.SIGALRM, handler)
    # What is there already takes the collector longer than is between two signals.
    gc.freeze()
    gc.set_threshold(1)
    for each in threads:
        each.start()
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    work()
    signal.setitimer(signal.ITIMER_REAL, 0)
    gc.set_threshold(700)
    for each in threads:
        each.join()
    gc.collect()
    if failures:
        raise failures[0]
    for subject in subjects:
        subject.check()
    assert next(turn) > 5
    assert sum(len(each.stored) for each in subjects) > 5


@pytest.mark.parametrize("kind", ["set", "map", "multimap", "frames"])
def test_a_storm_of_signals_and_finalisers(kind):
    process = multiprocessing.get_context("fork").Process(target=storm, args=(kind, 1.5))
    process.start()
    process.join(SECONDS + 20)
    ended = process.exitcode
    if ended is None:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert ended == 0, "it hung" if ended is None else "it failed"
