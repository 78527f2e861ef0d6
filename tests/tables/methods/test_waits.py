"""Which verbs wait for the device, as docs/tables.md says."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

import dgpuhash
from dgpuhash import HashMap, HashSet, KeyIds, Op

METHODS = [name for name, each in dgpuhash.methods().items() if "map" in each.nouns]
KEYS = np.arange(1000, dtype="u4")


@contextmanager
def waits(backend, monkeypatch):
    """Collect the ways in which the host waits for a device, as they are taken."""
    taken = []
    with monkeypatch.context() as patch:
        for name in ("to_host", "fetch", "synchronize"):
            real = getattr(backend, name)

            def noted(*given, real=real, name=name):
                taken.append(name)
                return real(*given)

            patch.setattr(backend, name, noted, raising=False)
        yield taken


@pytest.mark.parametrize("method", METHODS)
def test_lookups_do_not_wait(device, method, monkeypatch):
    table = HashMap.from_arrays(device.array(KEYS), device.array(KEYS), method=method)
    keys = device.array(KEYS + np.uint32(500))
    table.find(keys)
    with waits(device.backend, monkeypatch) as taken:
        values, found = table.find(keys)
        there = table.contains(keys)
        counts = table.count(keys)
    assert taken == []
    assert (found == there).all() and (counts == found).all()
    assert int(found.sum()) == 500 and int(values.max()) == 999


@pytest.mark.parametrize(
    "method", [name for name in METHODS if "reorder" in dgpuhash.methods()[name].verbs]
)
def test_answers_in_any_order_do_not_wait(device, method, monkeypatch):
    table = HashMap("u4", "u4", device=device.name, method=method, combined=4)
    table.insert(device.array(KEYS), device.array(KEYS))
    keys = device.array(KEYS + np.uint32(500))
    table.find(keys, in_order=False)
    with waits(device.backend, monkeypatch) as taken:
        values, found, rows = table.find(keys, in_order=False)
    assert taken == []
    assert (found == (rows < 500)).all() and (values[found] == rows[found] + 500).all()


@pytest.mark.parametrize(
    "method", [name for name, each in dgpuhash.methods().items() if "ids" in each.nouns]
)
def test_ids_do_not_wait(device, method, monkeypatch):
    table = KeyIds.from_keys(device.array(KEYS), method=method)
    keys = device.array(KEYS + np.uint32(500))
    with waits(device.backend, monkeypatch) as taken:
        ids, found = table.ids_of(keys)
    assert taken == []
    assert int(found.sum()) == 500 and int(ids.min()) == -1


@pytest.mark.parametrize(
    "method", [name for name in METHODS if "erase" in dgpuhash.methods()[name].verbs]
)
def test_changes_with_room_do_not_wait(device, method, monkeypatch):
    table = HashSet("u4", 100_000, device=device.name, method=method)
    keys = device.array(KEYS[:100])
    table.insert(keys)
    # Methods that may find no place however much room there is wait for each insert.
    certain = method == "auto" or table._store.table.certain(len(keys))
    with waits(device.backend, monkeypatch) as taken:
        fresh = table.insert(keys)
    assert taken == [] or not certain
    with waits(device.backend, monkeypatch) as taken:
        erased = table.erase(keys)
    assert taken == []
    assert not fresh.any() and erased.all()


@pytest.mark.parametrize(
    "method", [name for name in METHODS if "execute" in dgpuhash.methods()[name].verbs]
)
def test_mixed_batches_wait_once(device, method, monkeypatch):
    table = HashSet("u4", 100_000, device=device.name, method=method)
    keys = device.array(KEYS[:100])
    ops = device.array(np.resize(np.array([Op.INSERT, Op.FIND], "u1"), 100))
    table.execute(ops, keys)
    with waits(device.backend, monkeypatch) as taken:
        flags = table.execute(ops, keys)
    assert taken == ["to_host"]
    # Keys in odd rows are found nowhere: those of even rows are stored.
    assert not device.backend.to_host(flags).any()


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_finds_return_before_their_work_is_done(method):
    import cupy

    tables = [
        HashMap.from_arrays(cupy.arange(n, dtype="u4"), cupy.arange(n, dtype="u4"), method=method)
        for n in (1000, 2000)
    ]
    keys = cupy.arange(2**26, dtype="u4")
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in tables]
    # Memory that was taken before is taken again without a wait.
    for table, stream in zip(tables, streams, strict=True):
        with stream:
            _ = [table.find(keys) for _ in range(2)]
    cupy.cuda.Device().synchronize()
    done = []
    for table, stream in zip(tables, streams, strict=True):
        with stream:
            for _ in range(20):
                _, found = table.find(keys)
            done.append((stream.record(), found))
    assert not all(event.done for event, _ in done)
    for stream, (_, found), size in zip(streams, done, (1000, 2000), strict=True):
        stream.synchronize()
        assert int(found.sum()) == size
