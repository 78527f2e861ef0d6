"""Independent tables, whose rows stay where they are, against a model for each worker."""

from __future__ import annotations

import itertools
import uuid

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from agreement import fresh_once
from clusters import cluster_of, kill
from hypothesis import given, settings
from hypothesis import strategies as st
from model import MapModel, MultiMapModel, SetModel, key_of, rows_of
from ranks import LandingEnd, Ranks
from strategies import keys_from

from dgpuhash.distributed import DistributedMap, DistributedMultiMap, DistributedSet
from dgpuhash.distributed.collective.local import LocalCollective
from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.partition.table_mode import TableMode
from dgpuhash.distributed.pruning.policy import PruningOptions
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.errors import IndexLost, SpecError, UnsupportedError

MODELS = {"set": SetModel, "map": MapModel, "multimap": MultiMapModel}
VERBS = {
    "set": ["insert", "add", "erase", "contains", "count", "distinct"],
    "map": ["insert", "insert", "upsert", "erase", "find", "find", "count"],
    "multimap": ["insert", "insert", "erase", "find", "find", "count", "distinct"],
}
STORING = ("insert", "upsert", "add")
SPARINGS = [PruningOptions(bloom, once) for bloom in (False, True) for once in (False, True)]
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


def merged(values, conflict, dtype):
    """Return the value, as bytes, that counts of those that several workers have."""
    if conflict in ("first", "last", "error"):
        return values[-1 if conflict == "last" else 0]
    series = pd.Series(np.frombuffer(b"".join(values), dtype))
    options = {"min_count": 1} if conflict == "sum" else {}
    return pd.Series([getattr(series, conflict)(**options)], dtype=dtype).to_numpy().tobytes()


def values_for(dtype, rows, seed):
    """Return values with some nulls, where the dtype has one."""
    made = ((np.arange(rows) * 7 + seed) % 100).astype(np.int32).astype(dtype)
    if made.dtype.kind in "fM":
        made[::5] = np.nan if made.dtype.kind == "f" else np.datetime64("NaT")
    return made


@pytest.mark.parametrize("ends", [LocalCollective, LandingEnd])
@pytest.mark.parametrize(("kind", "size", "key", "value", "conflict"), CASES)
@settings(max_examples=8)
@given(data=st.data())
def test_ranks(device, ends, kind, size, key, value, conflict, data):
    mode = TableMode.of("independent", conflict)
    ranks = Ranks(device, size, ROWS[size], kind, key, value, ends=ends, mode=mode)
    play(ranks, data, VERBS[kind])


def play(ranks, data, verbs, *, ordered=True):
    """Carry out drawn verbs, and compare the answers with those of models.

    There is a model for each rank of an independent table, and else one for all.
    """
    spec, device, mode = ranks.spec, ranks.device, ranks.parts[0].mode
    kind, key, value = spec.kind, spec.key, spec.value
    models = [MODELS[kind]() for _ in range(ranks.size if mode.independent else 1)]
    steps = st.tuples(
        st.sampled_from(verbs),
        keys_from(key),
        st.integers(0, 99),
        st.lists(st.integers(0, 60), max_size=4),
        st.lists(st.integers(0, 2), min_size=1, max_size=4),
    )
    for name, keys, seed, cuts, places in data.draw(st.lists(steps, max_size=6)):
        stored = np.any([model.contains(keys) for model in models], axis=0)
        several = np.sum([model.contains(keys) for model in models], axis=0) > 1
        columns = [keys]
        verb = Verb(name, sparing=SPARINGS[0 if name == "distinct" else seed % 4])
        if name in STORING:
            verb = Verb(name, keep=("first", "last")[seed % 2])
            columns += [] if value is None else [values_for(value, len(keys), seed)]
        if (name, kind, mode.conflict) == ("find", "map", Conflict.ERROR) and several.any():
            with pytest.raises(UnsupportedError, match="several workers"):
                ranks.ask(verb, cuts, places, *columns)
            return
        answers = ranks.ask(verb, cuts, places, *columns)
        got = [
            np.concatenate([device.backend.to_host(each) for each in column])
            for column in zip(*answers, strict=True)
        ]
        if name in STORING:
            for model, rows in zip(models, shares_of(ranks, keys, cuts, places), strict=True):
                stored_once(model, verb, [column[rows] for column in columns], got, rows)
        elif name == "erase":
            gone = SetModel()
            gone.insert(keys[stored])
            fresh_once(keys, got[0], gone.erase(keys))
            for model in models:
                model.erase(keys)
        elif name == "contains":
            assert got[0].tolist() == stored.tolist()
        elif name == "count":
            lists = kind == "multimap"
            counts = [model.count(keys) if lists else model.contains(keys) for model in models]
            assert got[0].tolist() == np.sum(counts, axis=0).tolist()
        elif name == "distinct":
            fresh_once(keys, got[1], SetModel().insert(keys))
        elif kind == "map":
            assert got[1].tolist() == stored.tolist()
            found = rows_of(device.host(device.backend.from_host(got[0]), value))
            for one, each, there in zip(keys, found, stored, strict=True):
                if there:
                    has = [m.pairs[key_of(one)] for m in models if key_of(one) in m.pairs]
                    assert same_value(each, merged(has, mode.conflict.value, value), value)
        else:
            lists = [list_of(device, value, *each) for each in answers]
            for one, each in zip(keys, itertools.chain(*lists), strict=True):
                wanted = [row for m in models for row in m.lists.get(key_of(one), [])]
                assert each == wanted if ordered else sorted(each) == sorted(wanted)
        assert len(ranks) == sum(map(len, models))


def shares_of(ranks, keys, cuts, places):
    """Return the rows of each model, in their order."""
    edges = [0, *sorted(min(cut, len(keys)) for cut in cuts), len(keys)]
    shares = [[] for _ in range(ranks.size)]
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        shares[places[number % len(places)] % ranks.size] += range(start, stop)
    return shares if ranks.parts[0].mode.independent else [list(range(len(keys)))]


def stored_once(model, verb, columns, got, rows):
    """Store rows in a model, and compare the mask of what was new there."""
    if verb.name == "upsert":
        model.upsert(*columns)
    elif isinstance(model, MapModel):
        fresh = model.insert(*columns, keep=verb.keep)
        assert verb.name == "add" or got[0][rows].tolist() == fresh
    else:
        fresh = model.insert(*columns)
        if verb.name == "insert" and isinstance(model, SetModel):
            fresh_once(columns[0], got[0][rows], fresh)


def list_of(device, dtype, values, offsets):
    """Return the values of each key of a chunk, as bytes."""
    rows, ends = rows_of(device.host(values, dtype)), device.backend.to_host(offsets).tolist()
    return [rows[start:stop] for start, stop in itertools.pairwise(ends)]


def same_value(one, other, dtype):
    values = [np.frombuffer(each, dtype)[0] for each in (one, other)]
    return one == other or all(each != each for each in values)


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
        wanted = [column.tolist() for column in table.find(ASKED)]
        assert wanted[1] == [0, 1, 3, 6, 7, 8, 8]
        table.save(tmp_path / "saved")
        for some in (workers, workers[:2], workers[:1]):
            with DistributedMultiMap.load(tmp_path / "saved", workers=some) as loaded:
                assert [column.tolist() for column in loaded.find(ASKED)] == wanted
                assert len(loaded) == 8
    with DistributedSet.from_keys(keys, mode="independent") as table:
        assert table.insert(keys).compute().sum() == 0
        assert table.insert([3]).sum() == 1 - int(table.stats()["size"][0] == 3)
        assert sorted(table.keys().compute()) == [1, 2, 3, 4, 5]
        assert len(table.items()) == len(table) == 8
        assert table.contains(ASKED, bloom_filter=True).tolist() == [True] * 5 + [False]


def test_a_worker_that_is_lost(tmp_path):
    with cluster_of(2, processes=True) as client, client.as_current():
        keys = on_workers(client, SHARES[:2])
        with DistributedMap.from_arrays(keys, keys, mode="independent", conflict="sum") as table:
            table.save(tmp_path / "saved")
            kill(client, table.workers[1])
            for verb in (lambda: table.find(ASKED), lambda: table.erase([1]), table.keys):
                with pytest.raises(IndexLost, match=r"rebuild\(\)"):
                    verb()
            client.wait_for_workers(2, timeout=120)
            assert table.rebuild() == (1,)
            assert table.find(ASKED, default=0)[0].tolist() == [1, 4, 6, 4, 5, 0]
            assert sorted(table.stats()["size"]) == [3, 4]
