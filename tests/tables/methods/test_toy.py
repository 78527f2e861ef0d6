"""A method that a folder adds: kernel file, rows, recipe, and nothing else."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from interrupting import events, raise_at
from table_methods import toy_loader
from table_methods.contracts import check_combine, check_map, check_set
from table_methods.interrupted import Judge, content, verbs

import dgpuhash
from dgpuhash import HashMap, HashSet, MultiMap
from dgpuhash.backend.cpu import CpuBackend
from dgpuhash.errors import CapacityError, OutOfMemoryError, SpecError


@pytest.fixture(scope="module", autouse=True)
def toy(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        toy_loader.add(tmp_path_factory.mktemp("toy"), patch)
        yield


@pytest.mark.parametrize("key", ["int8", "uint32", "float64"])
def test_set(host, key, tmp_path):
    check_set(host, functools.partial(HashSet, device="cpu", method="toy"), key, tmp_path)


@pytest.mark.parametrize("value", ["int16", "float32", "int64", "complex128"])
@pytest.mark.parametrize("key", ["uint16", "int32", "float64"])
def test_map(host, key, value, tmp_path):
    check_map(host, functools.partial(HashMap, device="cpu", method="toy"), key, value, tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("int64", "int32"), ("int64", "float32"), ("int8", "int16"), ("uint64", "float64")],
)
def test_combine(host, key, value):
    make = functools.partial(HashMap, device="cpu", method="toy")
    check_combine(host, make, key, value)


CASES = [
    (kind, way, method)
    for kind in ("set", "map", "wide map")
    for way, method in (("in place", "toy"), ("in place", "toy_that_refuses"), ("growing", "toy"))
]


@pytest.mark.parametrize(("kind", "way", "method"), CASES)
def test_an_exception_at_any_line(kind, way, method):
    """The toy refuses rows, so that batches have to be undone, or completed in other tables."""
    for verb in verbs(kind):
        judge = Judge(kind, way, verb, method)
        for event in events("line", lambda: judge.work(judge.base.copy()), 60):  # noqa: B023
            table = judge.base.copy()
            raise_at(event, "line", functools.partial(judge.work, table))
            judge.judge(table)
        assert judge.seen["broken"] == 0


@pytest.mark.parametrize(("kind", "way", "method"), CASES)
def test_memory_that_is_refused_at_any_time(monkeypatch, kind, way, method):
    real = CpuBackend.empty
    for verb in verbs(kind):
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
                    assert content(table) == judge.old
            judge.judge(table)
            if left >= 0:
                break
        assert judge.seen["broken"] == 0


def test_it_is_seen():
    assert {"auto", "toy"} < dgpuhash.methods().keys()
    assert "a test is to see" in repr(dgpuhash.methods())
    with pytest.raises(SpecError, match="'toy' serves no MultiMap"):
        MultiMap("i8", "i8", method="toy")


def test_launches_are_its_own(monkeypatch):
    """Every verb's kernel is one of the toy's C++ type."""
    seen = []
    backend = dgpuhash.backend.get("cpu")
    real = type(backend).launch

    def launch(self, kernel, args, n):
        seen.append(kernel.expression)
        real(self, kernel, args, n)

    monkeypatch.setattr(type(backend), "launch", launch)
    table = HashMap("i8", "i8", method="toy", device="cpu", capacity=100)
    table.insert(np.arange(50), np.arange(50))
    table.find([1]), table.contains([1]), table.erase([2]), table.items(), table.stats()
    assert seen
    assert [each for each in seen if "dg::Toy<dg::u64,dg::u64>" not in each] == []


def test_refused_rows_take_another_table():
    keys = np.random.default_rng(2).integers(0, 2**62, 30_000)
    table = HashSet("i8", len(keys), method="toy", device="cpu", space=1.2)
    assert table.insert(keys).sum() == len(set(keys.tolist()))
    assert table.contains(keys).all()
    details = table.stats().details
    assert details["attempts"] > 0
    assert details["rebuilds"] == 1
    before = details["rebuilds"]
    table.contains(keys), table.items(), table.stats()
    assert table.stats().details["rebuilds"] == before


def test_a_batch_that_no_table_takes(monkeypatch):
    table = HashMap("i8", "i8", 100, method="toy", device="cpu")
    table.insert(np.arange(10), np.arange(10))
    monkeypatch.setattr("dgpuhash.tables.stores.rebuilds._ATTEMPTS", 0)
    keys = np.random.default_rng(2).integers(11, 2**62, 60)
    stored = 0
    for _ in range(40):
        try:
            table.insert(keys, keys)
        except CapacityError as error:
            assert "give a larger capacity" in str(error)
            break
        stored = len(table)
        keys = np.random.default_rng(stored).integers(11, 2**62, 60)
    else:
        pytest.fail("the toy refused nothing")
    assert len(table) == max(stored, 10)
    assert table.find(np.arange(10))[0].tolist() == list(range(10))
