"""Independent tables, whose rows stay where they are, against a model for each worker."""

from __future__ import annotations

import itertools
import threading
import time
import uuid

import dask.array as da
import numpy as np
import pytest
from clusters import cluster_of, killer
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import VERBS, LandingEnd, Ranks, play

from dgpuhash.distributed import DistributedMap, DistributedMultiMap, DistributedSet
from dgpuhash.distributed.collective.local import LocalCollective
from dgpuhash.distributed.partition.table_mode import TableMode
from dgpuhash.errors import IndexLost, SpecError, UnsupportedError

# Rows of a piece, and of a slice, by the number of ranks: one slice, and several.
ROWS = {1: (7, 7), 2: (14, 100), 3: (60, 1)}
CASES = [
    ("set", 2, "int8", None, "error"),
    ("set", 3, "float64", None, "error"),
    ("map", 1, "int64", "int64", "error"),
    ("map", 2, "int64", "float64", "sum"),
    ("map", 3, "int8", "int64", "sum"),
    ("map", 2, "uint32", "float16", "min"),
    ("map", 3, "float64", "datetime64[s]", "max"),
    ("map", 3, "int16", "S5", "first"),
    ("map", 2, "datetime64[s]", "complex128", "last"),
    ("multimap", 2, "uint32", "int64", "error"),
    ("multimap", 3, "int64", "S5", "error"),
]


@pytest.mark.parametrize("ends", [LocalCollective, LandingEnd])
@pytest.mark.parametrize(("kind", "size", "key", "value", "conflict"), CASES)
@settings(max_examples=8)
@given(data=st.data())
def test_ranks(device, ends, kind, size, key, value, conflict, data):
    mode = TableMode.of("independent", conflict)
    ranks = Ranks(device, size, ROWS[size], kind, key, value, ends=ends, mode=mode)
    play(ranks, data, VERBS[kind])


def on_workers(client, shares):
    """Return a Dask array with one chunk on each worker, which has that row of `shares`."""
    workers, name = sorted(client.nthreads()), f"shares-{uuid.uuid4().hex}"
    graph = {
        (name, number): client.scatter(np.array(share), workers=[worker], hash=False)
        for number, (share, worker) in enumerate(zip(shares, workers, strict=False))
    }
    return da.Array(graph, name, (tuple(map(len, shares)),), dtype=np.int64)


def sorted_rows(*columns):
    return sorted(zip(*map(list, columns), strict=True))


SHARES = [[1, 2, 3], [2, 3, 4, 5], [3]]
VALUES = [[10, 20, 30], [21, 31, 41, 51], [32]]
FOUND = {
    "first": [10, 20, 30, 41, 51, -1],
    "last": [10, 21, 32, 41, 51, -1],
    "min": [10, 20, 30, 41, 51, -1],
    "max": [10, 21, 32, 41, 51, -1],
    "sum": [10, 41, 93, 41, 51, -1],
}
ASKED = np.arange(1, 7)


@pytest.mark.parametrize("conflict", FOUND)
def test_maps(threads, tmp_path, conflict):
    keys, values = on_workers(threads, SHARES), on_workers(threads, VALUES)
    options = {"mode": "independent", "conflict": conflict}
    with DistributedMap.from_arrays(keys, values, **options) as table:
        assert "independent over 3" in repr(table)
        assert len(table) == 8
        assert table.stats()["size"].tolist() == [3, 4, 1]
        for asked in (ASKED, da.from_array(ASKED, 2)):
            found, there = (np.asarray(each) for each in table.find(asked, default=-1))
            assert found.tolist() == FOUND[conflict]
            assert there.tolist() == [True] * 5 + [False]
            rows, matched = (np.asarray(each) for each in table.match(asked))
            assert rows.tolist() == [0, 1, 2, 3, 4]
            assert matched.tolist() == FOUND[conflict][:5]
        assert table.count(ASKED).tolist() == [1, 2, 3, 1, 1, 0]
        assert table.contains(np.append(ASKED, 2.5)).tolist() == [True] * 5 + [False] * 2
        assert sorted(table.keys().compute()) == [1, 2, 3, 4, 5]
        everything = sorted_rows(*(column.compute() for column in table.items()))
        assert everything == sorted_rows(*(itertools.chain(*each) for each in (SHARES, VALUES)))
        table.save(tmp_path / "saved")
        for workers in (3, 2, 1):
            with DistributedMap.load(tmp_path / "saved", workers=table.workers[:workers]) as loaded:
                assert loaded.placement is table.placement
                assert loaded.find(ASKED, default=-1)[0].tolist() == FOUND[conflict]
                assert len(loaded) == {3: 8, 2: 6, 1: 5}[workers]
        with table.copy() as copy:
            assert copy.erase([3, 9, 3]).sum() == 1
            assert len(copy) == 5
            copy.upsert(keys, values * 0 + 7)
            assert len(copy) == 8
        threads.run(lambda dask_worker: dask_worker.plugins["dgpuhash"].tables.clear())
        assert table.rebuild() == (0, 1, 2)
        assert table.find(ASKED, default=-1)[0].tolist() == FOUND[conflict]
        assert table.stats()["size"].tolist() == [3, 4, 1]


def test_contested_values_without_a_rule(threads, tmp_path):
    keys = on_workers(threads, SHARES)
    with DistributedMap.from_arrays(keys, keys, mode="independent") as table:
        assert table.find([1, 4, 5])[0].tolist() == [1, 4, 5]
        for asked in ([3], da.from_array(ASKED, 2)):
            with pytest.raises(UnsupportedError, match=r"a value for key [23]; .*conflict='first'"):
                table.find(asked)
        assert table.contains(ASKED).tolist() == [True] * 5 + [False]
        table.save(tmp_path / "saved")
        one = {"workers": table.workers[:1]}
        with pytest.raises(UnsupportedError, match="several workers"):
            DistributedMap.load(tmp_path / "saved", **one)
        with DistributedMap.load(tmp_path / "saved", conflict="max", **one) as loaded:
            assert loaded.find([3])[0].tolist() == [3]
    with pytest.raises(SpecError, match="mode='distributed'"):
        DistributedMap("int64", "int64", conflict="sum")
    with pytest.raises(SpecError, match="may not fit"):
        DistributedMap("int64", "int32", mode="independent", conflict="sum")
    with pytest.raises(SpecError, match="use conflict='first'"):
        DistributedMap("int64", "S5", mode="independent", conflict="min")
    with pytest.raises(SpecError, match="'distributed' or 'independent'"):
        DistributedSet("int64", mode="replicated")


def test_lists_and_sets(threads, tmp_path):
    keys, values = on_workers(threads, SHARES), on_workers(threads, VALUES)
    workers = sorted(threads.nthreads())
    with DistributedMultiMap("int64", "int64", mode="independent", workers=workers[1:]) as table:
        table.insert(keys, values)
        assert sum(table.stats()["size"]) == len(table) == 8
        assert table.n_keys == 5
        assert ": 8 pairs, " in repr(table)
        wanted = [column.tolist() for column in table.find(ASKED)]
        assert wanted[1] == [0, 1, 3, 6, 7, 8, 8]
        table.save(tmp_path / "saved")
        for some in (workers, workers[:2], workers[:1]):
            with DistributedMultiMap.load(tmp_path / "saved", workers=some) as loaded:
                assert [column.tolist() for column in loaded.find(ASKED)] == wanted
                assert len(loaded) == 8
    keys = on_workers(threads, SHARES)  # Of the others there are copies on several workers by now.
    with DistributedSet.from_keys(keys, mode="independent") as table:
        assert table.stats()["size"].tolist() == [3, 4, 1]
        assert table.insert(keys).compute().sum() == 0
        assert table.insert([3]).sum() == 0
        assert sorted(table.keys().compute()) == [1, 2, 3, 4, 5]
        assert len(table.items()) == len(table) == 8
        assert table.contains(ASKED, bloom_filter=True).tolist() == [True] * 5 + [False]


def test_a_worker_that_is_lost_at_work(tmp_path):
    options = {"mode": "independent", "conflict": "sum", "piece_rows": 1000}
    with cluster_of(2, processes=True) as client, client.as_current():
        keys, asked = on_workers(client, SHARES[:2]), np.arange(100_000)
        with DistributedMap.from_arrays(keys, keys, **options) as table:
            table.save(tmp_path / "saved")
            timer = threading.Timer(0.1, killer(client, table.workers[1], noticed=False))
            timer.start()
            end = time.monotonic() + 60
            with pytest.raises(IndexLost, match=r"rebuild\(\)"):
                while time.monotonic() < end:
                    table.find(asked)
            timer.join()
            client.wait_for_workers(2, timeout=120)
            for verb in (lambda: table.insert(keys, keys), lambda: table.erase([1]), table.keys):
                with pytest.raises(IndexLost, match=r"rebuild\(\)"):
                    verb()
            assert table.rebuild() == (1,)
            assert table.find(ASKED, default=0)[0].tolist() == [1, 4, 6, 4, 5, 0]
            assert sorted(table.stats()["size"]) == [3, 4]
