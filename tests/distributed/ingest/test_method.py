"""Indexes whose key tables are of a named method, built, changed, saved and rebuilt."""

from __future__ import annotations

from dataclasses import replace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same_rows

import dgpuhash
from dgpuhash.distributed import DistributedIndex
from dgpuhash.errors import FormatError, SpecError, UnsupportedError
from dgpuhash.tables.methods.auto import Auto
from dgpuhash.tables.stores import method as rows
from dgpuhash.tables.stores.method import Method, Methods, Setting

pytestmark = pytest.mark.cluster

TOY = Method(
    name="toy",
    paper="",
    section="",
    nouns={"map": Auto, "multimap": Auto},
    when="never",
    settings={"space": Setting(1.5, 1.05, 4.0, size=True)},
)


@pytest.fixture
def toy(monkeypatch):
    found = Methods({**dgpuhash.methods(), "toy": TOY})
    monkeypatch.setattr(rows, "_found", lambda path: found)
    return TOY


def settings_held(client, index):
    """Return the method and settings of the key table of each worker's shard."""
    uid = index._descriptor.uid

    def held(dask_worker):
        spec = dask_worker.plugins["dgpuhash"].shards.standing(uid).index._rows.table.table.spec
        return spec.method, dict(spec.settings)

    return [*client.run(held, workers=index.workers).values()]


@pytest.mark.parametrize("mode", ["distributed", "independent", "replicated"])
def test_a_method_stays(threads, toy, tmp_path, mode):
    frame = pd.DataFrame({"k": np.arange(300) % 200, "v": np.arange(300)})
    left = pd.DataFrame({"k": np.arange(150, 250)})
    options = {"mode": mode, "method": "toy", "space": 2}
    with DistributedIndex.build(dd.from_pandas(frame, npartitions=3), "k", **options) as index:
        wanted = [("toy", {"space": 2.0})] * 3
        assert settings_held(threads, index) == wanted
        more = pd.DataFrame({"k": [249, 151], "v": [-1, -2]})
        index.insert(more)
        index.erase(pd.DataFrame({"k": [152]}))
        rows_now = pd.concat([frame, more]).query("k != 152")
        merged = index.merge(dd.from_pandas(left, npartitions=2)).compute()
        assert_same_rows(merged, left.merge(rows_now))
        assert settings_held(threads, index) == wanted
        assert set(index.stats()["table"]) <= {"HashMap (toy)", "MultiMap (toy)"}
        index.save(tmp_path / "saved")
        workers = sorted(threads.nthreads())[:2]
        with DistributedIndex.load(tmp_path / "saved", workers=workers) as loaded:
            assert settings_held(threads, loaded) == wanted[:2]
            merged = loaded.merge(dd.from_pandas(left, npartitions=2)).compute()
            assert_same_rows(merged, left.merge(rows_now))
        threads.run(lambda dask_worker: dask_worker.plugins["dgpuhash"].shards._shards.clear())
        index.rebuild()
        assert settings_held(threads, index) == wanted
    with pytest.raises(SpecError, match="no setting 'width'"):
        DistributedIndex.build(frame, "k", method="toy", width=4)


def test_what_a_method_cannot_is_refused_in_time(threads, toy, monkeypatch):
    narrow = replace(toy, nouns={"map": Auto}, verbs=("insert", "find", "contains", "items"))
    found = Methods({**dgpuhash.methods(), "toy": narrow})
    monkeypatch.setattr(rows, "_found", lambda path: found)
    frame = pd.DataFrame({"k": np.arange(30), "v": np.arange(30)})
    twice = pd.concat([frame, frame])
    with pytest.raises(UnsupportedError, match="several rows have one key"):
        DistributedIndex.build(dd.from_pandas(twice, npartitions=3), "k", method="toy")
    with DistributedIndex.build(dd.from_pandas(frame, npartitions=3), "k", method="toy") as index:
        for more in (frame[:2], pd.DataFrame({"k": [99, 99], "v": [0, 1]})):
            with pytest.raises(UnsupportedError, match="several rows have one key"):
                index.insert(more)
        with pytest.raises(UnsupportedError, match="'toy' cannot erase"):
            index.erase(frame[["k"]])
        assert index.insert(pd.DataFrame({"k": [99], "v": [0]})) == 1
        assert len(index.lookup(pd.DataFrame({"k": [98, 99, 1]}))) == 3


@pytest.mark.parametrize("mode", ["distributed", "independent"])
def test_key_tables_that_are_built_at_once(threads, mode):
    frame = pd.DataFrame({"k": np.arange(300) % 200, "v": np.arange(300)})
    more = pd.DataFrame({"k": [249, 151], "v": [-1, -2]})
    left = pd.DataFrame({"k": np.arange(150, 260)})
    options = {"mode": mode, "method": "chained", "buckets": 2}
    with DistributedIndex.build(dd.from_pandas(frame, npartitions=3), "k", **options) as index:
        index.insert(more)
        assert settings_held(threads, index) == [("chained", {"buckets": 2.0})] * 3
        merged = index.merge(dd.from_pandas(left, npartitions=2)).compute()
        assert_same_rows(merged, left.merge(pd.concat([frame, more])))
        with pytest.raises(UnsupportedError, match="'chained' cannot erase"):
            index.erase(pd.DataFrame({"k": [152]}))
        assert index.insert(more[:1]) == 1


def test_a_save_of_an_unknown_method(threads, toy, tmp_path, monkeypatch):
    frame = pd.DataFrame({"k": np.arange(9)})
    with DistributedIndex.build(frame, "k", method="toy") as index:
        index.save(tmp_path / "saved")
    monkeypatch.undo()
    with pytest.raises(FormatError, match="'toy' is no method"):
        DistributedIndex.load(tmp_path / "saved")
