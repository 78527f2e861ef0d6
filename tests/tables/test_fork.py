"""Tables in processes that fork while other threads work on them."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.backend.cuda import CudaBackend
from dgpuhash.errors import DeviceError, TableBroken
from dgpuhash.frames import FrameIndex
from dgpuhash.tables import HashMap, HashSet, MultiMap, factorize

SECONDS = 20
FEW = np.arange(1000)
# For all threads of the pool.
MANY = np.arange(50_000)

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_child(work):
    """Return the result of `work` in a forked child, with a time limit.

    The child reports by a pipe.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            os.close(read)
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(work(), pipe)
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status), f"the child was ended by signal {os.WTERMSIG(status)}"
    assert os.WEXITSTATUS(status) == 0
    return pickle.loads(answer)


def made(kind):
    """Return a table whose values are three times its keys."""
    if kind == "frames":
        return FrameIndex.build(pd.DataFrame({"k": FEW, "v": 3 * FEW}), on="k")
    if kind == "set":
        return HashSet.from_keys(FEW)
    return {"map": HashMap, "multimap": MultiMap}[kind].from_arrays(FEW, 3 * FEW)


def insert(table, keys):
    if isinstance(table, FrameIndex):
        table.insert(pd.DataFrame({"k": keys, "v": 3 * keys}))
    elif isinstance(table, HashSet):
        table.insert(keys)
    else:
        table.insert(keys, 3 * keys)


def look(table):
    assert table.contains(FEW).all()
    assert not table.contains(-1 - FEW).any()
    if isinstance(table, FrameIndex):
        assert table.lookup(FEW).tolist() == (3 * FEW).tolist()
    elif not isinstance(table, HashSet):
        assert table.find(FEW)[0].tolist() == (3 * FEW).tolist()


def used(table):
    """Return whether the child may look up and insert few and many rows."""
    try:
        look(table)
        insert(table, MANY + 10**9)
        look(table)
        assert table.contains(MANY + 10**9).all()
    except TableBroken as error:
        return str(error)
    return "right"


KINDS = ["set", "map", "multimap", "frames"]


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_else_is_at_work(kind):
    table = made(kind)
    insert(table, MANY + 10**6)
    assert in_child(lambda: used(table)) == "right"
    look(table)


class Stopped:
    """Thread that is stopped in the middle of a verb during a block."""

    def __init__(self, monkeypatch, work):
        self._inside, self._go_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=work)
        launch = CpuBackend.launch

        def stop(*args):
            launch(*args)
            if threading.current_thread() is self._thread:
                self._inside.set()
                assert self._go_on.wait(SECONDS)

        monkeypatch.setattr(CpuBackend, "launch", stop)

    def __enter__(self):
        self._thread.start()
        assert self._inside.wait(SECONDS)

    def __exit__(self, *_):
        self._go_on.set()
        self._thread.join(SECONDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_is_read(monkeypatch, kind):
    table = made(kind)
    with ThreadPoolExecutor(1) as pool, Stopped(monkeypatch, lambda: table.contains(FEW)):
        # One waits to change it, and has changed nothing.
        change = pool.submit(insert, table, MANY + 10**6)
        while len(table._turns._waiting) == 0:
            time.sleep(0.001)
        assert in_child(lambda: used(table)) == "right"
        assert not change.done()
    look(table)
    assert table.contains(MANY + 10**6).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_is_changed(monkeypatch, kind):
    table, other = made(kind), made(kind)
    with Stopped(monkeypatch, lambda: insert(table, FEW + 5000)):

        def report():
            with pytest.raises(TableBroken):
                insert(table, FEW)
            with pytest.raises(TableBroken):
                pickle.dumps(table._turns if kind == "frames" else table)
            return used(table), used(other)

        refused, right = in_child(report)
    assert right == "right"
    assert "another thread was changing this table" in refused
    assert "spawn" in refused
    look(table)
    assert table.contains(FEW + 5000).all()


@pytest.mark.parametrize("kind", KINDS)
def test_forks_amid_threads(kind):
    """Wherever the others are: a child finds what was there, or is told."""
    read, changed = made(kind), made(kind)
    end, failures, found = threading.Event(), [], []

    def again(work):
        numbers = itertools.count()
        try:
            while not end.is_set():
                work(next(numbers))
        except BaseException as error:
            failures.append(error)

    def change(number):
        insert(changed, MANY[: 4000 * (number % 2) + 10] + 10**6 + 10**5 * number)

    works = (lambda _: look(read), lambda _: factorize(MANY[:5000]), change)
    threads = [threading.Thread(target=again, args=(work,)) for work in works]
    for each in threads:
        each.start()
    try:
        for _ in range(8):
            found.append(in_child(lambda: (used(read), used(changed))))
            time.sleep(0.003)
    finally:
        end.set()
        for each in threads:
            each.join(SECONDS)
    assert not failures
    assert {first for first, _ in found} == {"right"}
    assert all(second == "right" or "half changed" in second for _, second in found)
    look(changed)


@pytest.mark.parametrize("verb", ["find", "insert"])
def test_a_thread_that_forks_while_it_is_inside(verb):
    table, children = HashMap.from_arrays(FEW, 3 * FEW), []

    class Argument:
        def __array__(self, dtype=None, copy=None):
            def work():
                look(table)
                return table.find(MANY)[0][: len(FEW)].tolist()

            children.append(in_child(work))
            return FEW + (10**6 if verb == "insert" else 0)

    getattr(table, verb)(Argument(), *([3 * FEW] if verb == "insert" else []))
    assert children
    assert all(each == (3 * FEW).tolist() for each in children)
    look(table)


TABLES: list[object] = []


def in_process(number, table):
    for each in (table, TABLES[number]):
        look(each)
        insert(each, FEW + 5000)
        assert len(each) == 2000


def test_processes_of_multiprocessing():
    TABLES[:] = [made(kind) for kind in KINDS]
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        # A frame index does not travel.
        for job in [pool.apply_async(in_process, each) for each in enumerate(TABLES[:3])]:
            job.get(SECONDS)
    for number in range(4):
        process = context.Process(target=in_process, args=(number, made(KINDS[number])))
        process.start()
        process.join(SECONDS)
        assert process.exitcode == 0
    for each in TABLES:
        assert len(each) == 1000


def test_tables_on_a_gpu_say_what_to_do(monkeypatch):
    cuda = SimpleNamespace(
        runtime=SimpleNamespace(
            CUDARuntimeError=RuntimeError, getDevice=lambda: 0, getDeviceCount=lambda: 1
        ),
        driver=SimpleNamespace(CUDADriverError=RuntimeError),
        Device=lambda _: SimpleNamespace(compute_capability="90"),
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    backend = CudaBackend()
    table = HashMap.from_arrays(FEW, FEW)
    # As of a table there.
    table._turns.check_device = backend.check_device()
    look_up = functools.partial(table.find, FEW)
    look_up()

    def report():
        refused = []
        for work in (
            look_up,
            lambda: backend.empty(1, "u8"),
            lambda: backend.memory(),
            CudaBackend,
        ):
            with pytest.raises(DeviceError, match="'spawn'") as raised:
                work()
            refused.append(str(raised.value))
        return refused

    assert len(in_child(report)) == 4
    look_up()
