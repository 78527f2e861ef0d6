"""Read-write lock of a table: concurrent readers, waiting writers."""

from __future__ import annotations

import concurrent.futures
import functools
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from agreement import agree
from model import MapModel, MultiMapModel, SetModel
from strategies import random_values

from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.errors import DeviceError
from dgpuhash.tables import HashMap, HashSet, MultiMap
from dgpuhash.tables.open_addressing.slots import Slots
from dgpuhash.tables.rwlock import ReadWriteLock, read_locked, write_locked

SECONDS = 20.0


class Table:
    """Table whose verbs run given work under the read-write lock."""

    def __init__(self):
        self._turns = ReadWriteLock()

    @read_locked
    def read(self, work):
        return work()

    @write_locked
    def change(self, work):
        return work()


def test_readers_work_at_once():
    table, meeting = Table(), threading.Barrier(3)
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(table.read, lambda: meeting.wait(SECONDS)) for _ in range(3)]:
            done.result(SECONDS)


@pytest.mark.parametrize("first", ["read", "change"])
@pytest.mark.parametrize("second", ["read", "change"])
def test_a_change_is_alone(first, second):
    table, inside, go_on = Table(), threading.Event(), threading.Event()
    order = []

    def stay():
        inside.set()
        assert go_on.wait(SECONDS)
        order.append("first")

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(getattr(table, first), stay)
        assert inside.wait(SECONDS)
        two = pool.submit(getattr(table, second), lambda: order.append("second"))
        if first == second == "read":
            two.result(SECONDS)
        go_on.set()
        one.result(SECONDS)
        two.result(SECONDS)
    assert order == (["second", "first"] if first == second == "read" else ["first", "second"])


def test_whoever_changes_may_enter_again():
    table = Table()
    assert table.change(lambda: table.read(lambda: table.change(lambda: 5))) == 5
    assert table.read(lambda: 6) == 6


def test_a_change_waits_for_those_only_that_came_before():
    """Two that read by turns always leave one at work."""
    table, entered, changed = Table(), threading.Semaphore(0), threading.Event()
    leave = [threading.Event(), threading.Event()]

    def stay(mine):
        entered.release()
        assert mine.wait(SECONDS)
        # Whoever reads already does not wait for a change that waits for it.
        assert table.read(lambda: 5) == 5

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(table.read, lambda: stay(leave[0]))
        assert entered.acquire(timeout=SECONDS)
        change = pool.submit(table.change, changed.set)
        concurrent.futures.wait([change], 0.1)
        second = pool.submit(table.read, lambda: stay(leave[1]))
        assert not entered.acquire(timeout=0.1)
        leave[0].set()
        assert changed.wait(SECONDS)
        assert entered.acquire(timeout=SECONDS)
        leave[1].set()
        for each in (first, change, second):
            each.result(SECONDS)


def test_changes_leave_turns_to_lookups():
    table, order, go_on = Table(), [], threading.Event()
    with ThreadPoolExecutor(4) as pool:
        inside = pool.submit(table.change, lambda: go_on.wait(SECONDS))
        verbs = (table.read, table.change, table.read)
        late = []
        for number, verb in enumerate(verbs):
            late.append(pool.submit(verb, functools.partial(order.append, number)))
            while len(table._turns._waiting) <= number:
                time.sleep(0.001)
        go_on.set()
        for each in (inside, *late):
            each.result(SECONDS)
    assert order == [0, 1, 2]


def test_a_verb_that_fails_frees_the_table():
    table = Table()
    for verb in (table.read, table.change):
        with pytest.raises(ZeroDivisionError):
            verb(lambda: 1 / 0)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(table.change, lambda: 7).result(SECONDS) == 7


@pytest.mark.parametrize("kind", ["set", "multimap"])
def test_a_size_that_is_read_beside_an_insert_is_not_kept(host, monkeypatch, kind):
    """The next insert would take the room for free that this one took."""
    table = HashSet("u8", 10_000) if kind == "set" else MultiMap("u8", "u8", 10_000)
    few, many = table.capacity // 10, table.capacity * 17 // 20
    first, second, third = np.split(np.arange(few + 2 * many, dtype="u8"), [few, few + many])

    def insert(keys):
        return table.insert(*((keys,) if kind == "set" else (keys, keys)))

    insert(first)
    reading, go_on, real = threading.Event(), threading.Event(), Slots._host_state

    def slowly(slots):
        found = real(slots).copy()
        if threading.current_thread() is reader:
            reading.set()
            assert go_on.wait(SECONDS)
        return found

    monkeypatch.setattr(Slots, "_host_state", slowly)
    reader = threading.Thread(target=lambda: len(table) if kind == "set" else table.n_keys)
    reader.start()
    assert reading.wait(SECONDS)
    with ThreadPoolExecutor(1) as pool:
        inserted = pool.submit(insert, second)
        # It waits for the reader, or is done.
        concurrent.futures.wait([inserted], 0.2)
        go_on.set()
        inserted.result(SECONDS)
    reader.join(SECONDS)
    insert(third)
    assert len(table) == len(first) + len(second) + len(third)
    assert table.contains(np.concatenate([first, second, third])).all()


@pytest.mark.parametrize("value", ["i8", "i8,i8"])
@pytest.mark.parametrize(
    ("make", "model", "verb"),
    [
        (HashSet, SetModel, "insert"),
        (HashSet, SetModel, "erase"),
        (HashMap, MapModel, "insert"),
        (HashMap, MapModel, "upsert"),
        (HashMap, MapModel, "erase"),
        (MultiMap, MultiMapModel, "insert"),
        (MultiMap, MultiMapModel, "erase"),
    ],
)
def test_ctrl_c_leaves_no_change_half_done(host, monkeypatch, make, model, verb, value):
    table, model = (make("i8") if make is HashSet else make("i8", value)), model()
    # The second batch makes the table grow.
    keys = np.concatenate([np.arange(100), np.arange(50, 20_000)])
    values = [] if make is HashSet else [random_values(value, len(keys), 1)]
    few = [column[:100] for column in (keys, *values)]
    table.insert(*few)
    model.insert(*few)
    launch = CpuBackend.launch

    def interrupted(*args):
        launch(*args)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(CpuBackend, "launch", interrupted)
            getattr(table, verb)(*([keys[50:]] if verb == "erase" else [keys, *values]))
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        # It may not have begun.
        agree(host, table, model)
    except AssertionError:
        getattr(model, verb)(*([keys[50:]] if verb == "erase" else [keys, *values]))
        agree(host, table, model)


def test_whoever_may_not_enter_leaves_the_table_free():
    def refuse():
        raise ZeroDivisionError

    table = Table()
    table._turns.check_device = refuse
    for verb in (table.read, table.change):
        with pytest.raises(ZeroDivisionError):
            verb(lambda: None)
    table._turns.check_device = None
    assert table.change(lambda: 8) == 8


def test_a_pickled_table_knows_where_it_comes_to_lie(monkeypatch):
    def elsewhere():
        raise DeviceError("elsewhere")

    sent = pickle.dumps(HashSet.from_keys([1]))
    monkeypatch.setattr(CpuBackend, "check_device", lambda backend: elsewhere)
    table = pickle.loads(sent)
    with pytest.raises(DeviceError, match="elsewhere"):
        table.contains([1])
