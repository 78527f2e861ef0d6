"""Group cache: a client's tables share a group until the last is closed."""

from __future__ import annotations

import gc
import threading

import dask.array as da
import numpy as np
import pytest
from clusters import parts_held, until
from distributed import Client

from dgpuhash.distributed import DistributedMap, DistributedMultiMap, DistributedSet
from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.collective.group import form_group, join_group
from dgpuhash.distributed.shards.table_shard import TableShard
from dgpuhash.distributed.tables import leases
from dgpuhash.distributed.tables.batch import EarlyAnswer
from dgpuhash.errors import IndexLost, OutOfMemoryError

pytestmark = pytest.mark.cluster


def test_the_last_table_frees_what_it_shared(processes):
    before, workers = parts_held(processes), len(processes.nthreads())

    def held() -> list[int]:
        return [now - then for now, then in zip(parts_held(processes), before, strict=True)]

    first = DistributedSet.from_keys(np.arange(9))
    others = [
        DistributedMap.from_arrays(np.arange(9), np.arange(9)),
        DistributedMultiMap.from_arrays(np.arange(9), np.arange(9)),
    ]
    assert held() == [3 * workers, workers]
    with DistributedSet.from_keys(np.arange(9), workers=first.workers[:1]) as alone:
        assert len(alone) == 9
        assert held() == [3 * workers + 1, workers + 1]
    until(lambda: held() == [3 * workers, workers])
    with DistributedSet.from_keys(np.arange(9), exchange="comm") as another:
        assert len(another) == 9
        assert held() == [4 * workers, 2 * workers]
    first.close()
    first.close()
    until(lambda: held() == [2 * workers, workers])
    for table in others:
        assert table.contains(da.arange(20, chunks=5)).compute().sum() == 9
    others.pop().close()
    until(lambda: held() == [workers, workers])
    del table
    others.clear()
    gc.collect()
    until(lambda: held() == [0, 0])
    with DistributedSet.from_keys(np.arange(9)) as anew:
        assert len(anew) == 9
        assert held() == [workers, workers]


def test_a_table_that_is_interrupted_while_it_is_made_shares_nothing(threads, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    before = parts_held(threads)
    with monkeypatch.context() as patched:
        patched.setattr(leases, "take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            DistributedSet("int64")
    gc.collect()
    DistributedSet("int64").close()
    until(lambda: parts_held(threads) == before)


def test_clients_share_nothing(processes):
    before, workers = parts_held(processes), len(processes.nthreads())
    with DistributedSet.from_keys(np.arange(9)) as mine:
        with Client(processes.scheduler.address, set_as_default=False) as other:
            theirs = DistributedSet.from_keys(np.arange(5), client=other)
            assert parts_held(processes) == [before[0] + 2 * workers, before[1] + 2 * workers]
            theirs.close()
        until(lambda: parts_held(processes) == [before[0] + workers, before[1] + workers])
        assert mine.contains(da.arange(9, chunks=4)).compute().all()


@pytest.mark.parametrize("verb", ["contains", "insert"])
def test_a_group_that_failed_in_another_table(threads, monkeypatch, verb):
    serve = TableShard.serve

    def no_memory(self, verb, columns, counts, to):
        if (columns[0] == 77).any():
            raise OutOfMemoryError("on purpose")
        return serve(self, verb, columns, counts, to)

    tables = [DistributedSet.from_keys(np.arange(100)) for _ in range(2)]
    monkeypatch.setattr(TableShard, "serve", no_memory)
    with pytest.raises(OutOfMemoryError, match="on purpose"):
        tables[0].erase(da.arange(70, 80, chunks=4))
    tables.append(DistributedSet.from_keys(np.arange(50)))
    for table, keys in zip(tables[1:], (100, 50), strict=True):
        if verb == "insert":
            assert table.insert(da.arange(200, 220, chunks=5)).compute().all()
            keys += 20
        assert len(table) == keys
        assert table.contains(da.arange(50, chunks=5)).compute().all()
        assert "lost" not in repr(table)
    with pytest.raises(IndexLost, match="its erase failed"):
        len(tables[0])
    for table in tables:
        table.close()
    until(lambda: parts_held(threads)[1] == 0)


def test_a_table_that_is_lost_with_the_group_of_another_names_the_remedy(threads, monkeypatch):
    with DistributedSet.from_keys(np.arange(100)) as table:
        # As where another table that shared it has lost a worker.
        table._holding.use.group.close(threads)
        monkeypatch.setattr(DistributedSet, "_as_before", lambda self: False)
        with pytest.raises(IndexLost, match=r"call rebuild.* make the table again"):
            table.insert([100])


def test_tables_that_are_made_at_once(processes):
    before, failed = parts_held(processes), []

    def work(number: int) -> None:
        try:
            for turn in range(3):
                keys = np.arange(number * 1000, number * 1000 + 100 * (turn + 1))
                with DistributedMap.from_arrays(keys, keys * 3, client=processes) as table:
                    values, found = table.find(keys)
                    assert found.all()
                    assert (values == keys * 3).all()
        except BaseException as error:
            failed.append(error)

    running = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert not failed
    until(lambda: parts_held(processes) == before)


def test_who_is_interrupted_while_another_has_its_turn_hurts_nobody(threads, monkeypatch):
    serve, serving, go_on = TableShard.serve, threading.Event(), threading.Event()

    def held(self, verb, columns, counts, to):
        if verb.changes:
            serving.set()
            assert go_on.wait(30)
        return serve(self, verb, columns, counts, to)

    def interrupted(self):
        raise KeyboardInterrupt

    rows = da.arange(1_000, chunks=100).persist()
    with DistributedSet.from_keys(np.arange(10)) as asked, DistributedSet("int64") as filled:
        assert filled.insert([-1]).all()
        monkeypatch.setattr(TableShard, "serve", held)
        inserting = threading.Thread(target=filled.insert, args=(rows,))
        inserting.start()
        assert serving.wait(30)
        with monkeypatch.context() as patched:
            patched.setattr(EarlyAnswer, "make", interrupted)
            with pytest.raises(KeyboardInterrupt):
                asked.contains(rows)
        go_on.set()
        inserting.join(30)
        assert len(filled) == 1_001
        assert filled.epoch == 2
        assert int(asked.contains(rows).sum().compute()) == 10


def test_a_group_that_was_closed_is_not_joined(threads):
    workers = sorted(threads.nthreads())
    group = form_group(threads, workers)
    group.close(threads)
    with pytest.raises(IndexLost, match="was abandoned"):
        run_on_workers(threads, workers, join_group, group.name, workers)
    left = threads.run(lambda dask_worker: len(dask_worker.plugins["dgpuhash"].ends))
    assert set(left.values()) == {0} or group.name not in str(left)
