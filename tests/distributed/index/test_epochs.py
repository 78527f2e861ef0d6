"""Epochs with changes, clients and indexes: newest answer or an error."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import pickle
import threading
from collections.abc import Iterator
from html import escape

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, cluster_of, lazy, merged_lazily, set_status, until
from distributed import Client, Status

from dgpuhash.distributed import DistributedIndex, Placement
from dgpuhash.distributed.cluster.host import NAME
from dgpuhash.distributed.index.reads import Lookups
from dgpuhash.distributed.partition.registry import Registry
from dgpuhash.errors import (
    ClosedError,
    ColumnError,
    IndexChanged,
    IndexLost,
    IndexNotFound,
    KeyTypeError,
    OutOfMemoryError,
    UnsupportedError,
)
from dgpuhash.tables.stats import format_bytes

pytestmark = pytest.mark.cluster


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame({"k": np.arange(1000) % 300, "v": np.arange(1000)})


@pytest.fixture
def second(client: Client) -> Iterator[Client]:
    """Yield another client of the same cluster."""
    # UCXX serves one event loop of a process.
    with Client(client.scheduler.address, loop=client.loop, set_as_default=False) as other:
        yield other


def test_insert_and_erase(client, frame):
    probes = pd.DataFrame({"k": np.arange(400)})
    with DistributedIndex.build(frame, on="k", client=client) as index:
        added = pd.DataFrame({"k": [5, 350, 350], "v": [-1, -2, -3]})
        assert index.insert(dd.from_pandas(added, npartitions=2)) == 3
        now = pd.concat([frame, added], ignore_index=True)
        assert_same(index.merge(probes).compute(), probes.merge(now, on="k"))
        assert index.erase([350, 7, 999]) == 2 + int((frame["k"] == 7).sum())
        now = now[~now["k"].isin([350, 7])]
        assert_same(index.merge(probes).compute(), probes.merge(now, on="k"))
        assert index.erase(dd.from_pandas(pd.DataFrame({"k": [8]}))) == int((frame["k"] == 8).sum())
        assert len(index) == index.stats()["rows"].sum()
        assert index.epoch == 4


def test_a_merge_from_before_a_change_raises(threads, frame):
    with DistributedIndex.build(frame, on="k", client=threads) as index:
        before = index.merge(frame)
        index.insert(frame[:1])
        with pytest.raises(IndexChanged, match="again"):
            before.compute()
        assert len(index.merge(frame).compute()) > 0


def test_a_handle_describes_its_index_without_a_call(threads, frame, tmp_path, monkeypatch):
    def said(index: DistributedIndex) -> str:
        with monkeypatch.context() as alone:
            alone.setattr(DistributedIndex, "_client", None)
            text, html = repr(index), index._repr_html_()
        for each in text.split(": ")[1].rstrip(">").split(", epoch")[0].split(", "):
            assert escape(each) in html
        return text

    texts = frame.assign(note=[object()] * 1000)
    for data in (frame, lazy(frame, 3), lazy(frame, 3).persist()):
        with DistributedIndex.build(data, on="k", client=threads) as index:
            stats = index.stats()
            nbytes = format_bytes(int((stats["row_nbytes"] + stats["table_nbytes"]).sum()))
            index._held, held = None, index._held
            assert "rows and bytes unknown" in said(index)
            index._held = held
            assert f": columns ['v'], 1,000 rows, {nbytes}, 3 shards, distributed, " in said(index)
            assert "can be rebuilt from its source" in said(index)
            index.insert(frame[:10])
            assert "1,010 rows" in said(index)
            index.erase([0])
            assert f"{1010 - 5:,} rows" in said(index)
            other = DistributedIndex.open(index.name, threads)
            assert "rows and bytes unknown before stats()" in said(other)
            assert "cannot be rebuilt by this handle" in said(other)
            other.stats()
            assert "1,005 rows" in said(other)
            index.save(tmp_path, overwrite=True)
            other.refresh()
            assert f"can be rebuilt from file://{tmp_path}" in said(other)
    with DistributedIndex.build(texts, on="k", client=threads, mode="replicated") as index:
        assert "columns ['v', 'note'], 1,000 rows, bytes unknown" in said(index)
    assert "closed" in index._repr_html_()


def test_a_second_client_finds_the_index_by_name(client, second, frame):
    with DistributedIndex.build(frame, on="k", client=client, name="numbers") as index:
        other = DistributedIndex.open("numbers", second)
        assert len(other) == 1000
        assert other.on == ["k"]
        assert other.placement is Placement.DISTRIBUTED
        with second.as_current():
            probes = pd.DataFrame({"k": [3, 299, 300]})
            assert_same(other.merge(probes).compute(), probes.merge(frame, on="k"))
        assert other.insert(pd.DataFrame({"k": [300], "v": [0]})) == 1
        assert index.lookup([300])["v"].tolist() == [0]
        assert index.epoch == 2
        assert index.contains([300]).tolist() == [True]
        assert index.insert(frame[:2]) == 2
        assert other.erase([300]) == 1
        assert len(other) == 1002
    for verb in (other.refresh, other.stats, lambda: len(other), lambda: other.find([1])):
        with pytest.raises(IndexNotFound, match="closed"):
            verb()
    with pytest.raises(IndexNotFound, match="no index 'numbers'"):
        DistributedIndex.open("numbers", second)


READS = {
    "lookup": lambda index: index.lookup([300])["v"].tolist() == [0],
    "contains": lambda index: index.contains([300, 301]).tolist() == [True, False],
    "find": lambda index: index.find([300]).found.tolist() == [True],
    "merge": lambda index: len(index.merge(pd.DataFrame({"k": [300]})).compute()) == 1,
    "persist": lambda index: len(index.merge(pd.DataFrame({"k": [300]}), persist=True)) == 1,
    "len": lambda index: len(index) == 1001,
    "stats": lambda index: index.stats()["rows"].sum() == 1001,
    "in a task": lambda index: index._client.submit(
        lambda given: given.lookup([300])["v"].tolist() == [0], index, pure=False
    ).result(timeout=60),
}


@pytest.mark.parametrize("read", READS)
def test_reads_with_an_outdated_handle_answer(threads, frame, read):
    with DistributedIndex.build(frame, on="k", client=threads) as index:
        other = DistributedIndex.open(index.name, threads)
        index.insert(pd.DataFrame({"k": [300], "v": [0]}))
        assert other.epoch == 1
        assert READS[read](other)
        assert other.epoch == (1 if read == "in a task" else 2)


@pytest.mark.parametrize("read", READS)
def test_reads_say_that_another_client_closed_the_index(threads, frame, read):
    index = DistributedIndex.build(frame, on="k", client=threads, name="numbers")
    other = DistributedIndex.open("numbers", threads)
    index.close()
    with pytest.raises(IndexNotFound, match="another client closed it"):
        READS[read](other)
    with (
        DistributedIndex.build(frame, on="k", client=threads, name="numbers"),
        pytest.raises(IndexNotFound, match="another index has its name"),
    ):
        READS[read](other)


def test_a_read_gives_up_where_the_index_is_changed_all_the_time(threads, frame, monkeypatch):
    answers = Lookups.contains
    with DistributedIndex.build(frame, on="k", client=threads) as index:
        other = DistributedIndex.open(index.name, threads)

        def changing(self, keys):
            other.insert(frame[:1])
            return answers(self, keys)

        monkeypatch.setattr(Lookups, "contains", changing)
        monkeypatch.setitem(dask.config.get("dgpuhash.retries"), "read", 2)
        with pytest.raises(IndexChanged, match="2 times"):
            index.contains([1])
        assert index.epoch == other.epoch == 3


UPKEEP = {
    "save": lambda index: index.save(index._descriptor.log),
    "rebalance": lambda index: index.rebalance(list(index._descriptor.workers[:1])),
    "rebuild": lambda index: index.rebuild(whole=True),
}


@pytest.mark.parametrize("verb", UPKEEP)
def test_upkeep_says_that_another_client_closed_the_index_or_goes_on_with_it(
    threads, frame, tmp_path, monkeypatch, verb
):
    index = DistributedIndex.build(frame, on="k", client=threads, durable=str(tmp_path / "log"))
    other, publish = DistributedIndex.open(index.name, threads), Registry.publish

    def late(registry, *args, **options):
        registry.begin(index.name)
        return publish(registry, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Registry, "publish", late)
        with pytest.raises(IndexChanged, match="repeat it"):
            UPKEEP[verb](other)
    assert len(other) == len(frame) and other.epoch == index.epoch == 1
    index.close()
    with pytest.raises(IndexNotFound, match="another client closed it"):
        UPKEEP[verb](other)
    for error in ("IndexChanged", "IndexNotFound"):
        assert error in getattr(DistributedIndex, verb).__doc__


def test_clients_that_insert_at_once_wait_for_each_other(client, second, frame):
    with DistributedIndex.build(frame, on="k", client=client, name="shared") as index:
        handles = [index, DistributedIndex.open("shared", second)]
        errors = []

        def insert(handle: DistributedIndex, number: int) -> None:
            try:
                for turn in range(3):
                    handle.insert(pd.DataFrame({"k": [1000 * number + turn], "v": [turn]}))
            except Exception as error:
                errors.append(error)

        threads = [
            threading.Thread(target=insert, args=(handle, number))
            for number, handle in enumerate(handles, start=1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        index.refresh()
        assert len(index) == 1006
        assert index.contains([1000, 1001, 1002, 2000, 2001, 2002]).all()
        assert index.epoch == 7


def test_many_merges_and_indexes_and_other_tasks_at_once(client, second, frame):
    probes = dd.from_pandas(pd.DataFrame({"k": np.arange(500)}), npartitions=6)
    indexes = [
        DistributedIndex.build(frame[start:], on="k", client=client) for start in (0, 500, 900)
    ]
    busy = client.map(lambda n: sum(i * n for i in range(10_000)), range(40), pure=False)
    merges = [index.merge(probes, how="left") for index in indexes]
    results = [client.compute(merged) for merged in merges]
    with second.as_current():
        opened = DistributedIndex.open(indexes[1].name, second)
        more = second.compute(opened.merge(probes))
        assert_same(more.result(timeout=120), probes.compute().merge(frame[500:], on="k"))
    for start, result in zip((0, 500, 900), results, strict=True):
        wanted = merged_lazily(probes.compute(), frame[start:], "left", on="k")
        assert_same(result.result(timeout=120), wanted)
    assert len(client.gather(busy)) == 40
    for index in indexes:
        index.close()


def test_failed_inserts_change_nothing(client, frame):
    unique = frame.drop_duplicates("k")
    with DistributedIndex.build(unique, on="k", unique=True, client=client) as index:
        with pytest.raises(ColumnError, match="unique"):
            index.insert(pd.DataFrame({"k": [800, 801, 5], "v": [1, 2, 3]}))
        with pytest.raises(ColumnError, match="unique"):
            index.insert(pd.DataFrame({"k": [800, 800], "v": [1, 2]}))
        with pytest.raises(KeyTypeError):
            index.insert(pd.DataFrame({"k": [800.5], "v": [1]}))

        def broken(number: int) -> pd.DataFrame:
            if number == 2:
                raise OSError("no such file")
            return pd.DataFrame({"k": [900 + number], "v": [0]})

        with pytest.raises(OSError, match="no such file"):
            index.insert(dd.from_map(broken, range(4), meta=unique[:0]))
        assert index.epoch == 1
        assert len(index) == 300
        assert not index.contains([800, 801, 900, 901, 903]).any()
        assert index.insert(pd.DataFrame({"k": [800], "v": [1]})) == 1


def test_a_kept_error_of_a_failed_insert_keeps_no_claim_on_tasks(threads, frame):
    with DistributedIndex.build(frame, on="k", unique=False, client=threads) as index:
        with pytest.raises(ColumnError) as kept:
            index.insert(frame.assign(v="text"))
        until(lambda: not any("dgpuhash-insert" in str(key) for key in list(threads.refcount)))
        assert kept.type is ColumnError


def test_rebuild_replays_the_changes(client, frame):
    with DistributedIndex.build(frame, on="k", client=client) as index:
        index.insert(pd.DataFrame({"k": [700, 701], "v": [1, 2]}))
        index.erase([701, 3])
        index.insert(pd.DataFrame({"k": [3], "v": [-3]}))
        wanted = index.find(np.arange(800)).frame
        done = index.rebuild(whole=True)
        assert (done.kept, done.rows) == ((), len(index))
        assert_same(index.find(np.arange(800)).frame, wanted)
        opened = DistributedIndex.open(index.name, client)
        with pytest.raises(IndexLost, match="never saved"):
            opened.rebuild(whole=True)


def test_closed(client, frame):
    index = DistributedIndex.build(frame, on="k", client=client)
    lazy = index.merge(frame)
    assert index.name in repr(index)
    assert "<table" in index._repr_html_()
    index.close()
    index.close()
    assert "closed" in repr(index)
    assert "closed" in index._repr_html_()
    for verb in (
        lambda: index.merge(frame),
        lambda: index.lookup([1]),
        lambda: index.contains([1]),
        lambda: index.find([1]),
        lambda: index.insert(frame),
        lambda: index.erase([1]),
        lambda: index.stats(),
        lambda: index.save("nowhere"),
        lambda: index.rebuild(),
        lambda: len(index),
    ):
        with pytest.raises(ClosedError, match="closed"):
            verb()
    with pytest.raises(IndexLost):
        lazy.compute()


def test_a_merge_that_is_computed_without_the_cluster_says_so(threads, frame):
    with (
        DistributedIndex.build(frame, on="k", client=threads) as index,
        pytest.raises(UnsupportedError, match="client"),
    ):
        index.merge(frame).compute(scheduler="sync")


def test_handles_travel_into_tasks_that_hold_all_threads(client, frame):
    def found(index: DistributedIndex, key: int) -> tuple[int, int]:
        return len(index), len(index.lookup([key, key]))

    with DistributedIndex.build(frame, on="k", client=client) as index:
        tasks = client.map(found, [index] * 8, range(8))
        wanted = [(1000, 2 * int((frame["k"] == key).sum())) for key in range(8)]
        assert client.gather(tasks) == wanted
        twin = pickle.loads(pickle.dumps(index))
        with client.as_current():
            assert twin.insert(frame[:1]) == 1
            with pytest.raises(IndexLost, match="cannot be rebuilt"):
                twin.rebuild(whole=True)
        assert len(index) == 1001


def test_a_rebuild_reads_the_rows_that_were_given(threads):
    frame = pd.DataFrame({"k": [1, 2], "v": [3, 4]})
    rows, more = frame.copy(), frame + 10
    wanted = pd.concat([rows, more], ignore_index=True)
    with DistributedIndex.build(rows, on="k", client=threads) as index:
        index.insert(more)
        for given in (rows, more):
            given["v"] = 0
            given.loc[:, "k"] = 7
        index.rebuild(whole=True)
        assert_same(index.merge(wanted[["k"]]).compute(), wanted)


def test_rows_of_another_cluster_are_refused(threads, frame):
    lazy = dd.from_pandas(frame, npartitions=2)
    build = functools.partial(DistributedIndex.build, on="k", client=threads)
    with cluster_of(1, processes=False) as elsewhere, build(frame) as index:
        held = elsewhere.persist(lazy)
        at_once = functools.partial(index.merge, persist=True)
        for verb in (index.insert, build, index.merge, at_once):
            with pytest.raises(UnsupportedError, match="another cluster"):
                verb(held)
        assert len(index) == len(frame)


def test_nothing_of_a_closed_index_stays_with_the_scheduler(threads, frame):
    def kept(name, dask_scheduler):
        locks = dask_scheduler.extensions["semaphores"]
        published = dask_scheduler.extensions["publish"].datasets
        names = {*published, *dask_scheduler.clients, *locks.max_leases, *locks.leases}
        return {each for each in names if name in each}

    # A lock whose name a user gave is there for who gives it again.
    for name, left in ((None, set()), ("hangars", {"dgpuhash-index-hangars"})):
        index = DistributedIndex.build(frame, on="k", client=threads, name=name)
        index.insert(frame[:2])
        assert len(threads.run_on_scheduler(kept, index.name)) == 3
        index.close()
        assert threads.run_on_scheduler(kept, index.name) == left


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("verb", ["insert", "erase", "save"])
def test_what_the_scheduler_has_forgotten_meanwhile_stays_forgotten(
    threads, frame, tmp_path, monkeypatch, verb, taken
):
    """It was started anew, or another client closed the index, and perhaps built another."""
    publish, others = Registry.publish, []

    def published(self, descriptor, **options):
        if options["after"] is not None:
            DistributedIndex.open("planes", threads).close()
            if taken:
                rows = frame[:10]
                others.append(DistributedIndex.build(rows, "k", client=threads, name="planes"))
        return publish(self, descriptor, **options)

    index = DistributedIndex.build(frame, on="k", client=threads, name="planes")
    given = str(tmp_path / "saved") if verb == "save" else frame[:5]
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Registry, "publish", published)
        meanwhile.setattr(Registry, "changing", lambda *_: contextlib.nullcontext())
        # What was written is whole all the same.
        refused = pytest.raises(IndexLost, match="'planes' is not known to the cluster")
        with contextlib.nullcontext() if verb == "save" else refused:
            getattr(index, verb)(given)
    assert Registry(threads).names() == ["planes"] * taken
    with pytest.raises(IndexLost, match="not known"):
        index.refresh()
    for other in others:
        assert len(other) == 10
        other.close()
    if verb == "save":
        with DistributedIndex.load(given, threads, name="planes") as loaded:
            assert len(loaded) == len(frame)
    with DistributedIndex.build(frame, "k", client=threads, name="planes") as again:
        assert len(again) == len(frame)


def test_a_closed_client_says_so(threads, frame):
    with Client(threads.scheduler.address, set_as_default=False) as first:
        index = DistributedIndex.build(frame, on="k", client=first, name="left behind")
    for verb in (index.refresh, index.stats, index.close, lambda: index.lookup([1])):
        with pytest.raises(ClosedError, match="open"):
            verb()
    other = DistributedIndex.open("left behind", threads)
    assert len(other) == 1000
    other.close()


def test_a_lost_scheduler_is_reported(frame, monkeypatch):
    # So long a client tries to come back, and a new comm to begin.
    monkeypatch.setitem(dask.config.get("distributed.comm.timeouts"), "connect", "4s")
    with cluster_of(1, processes=False) as client:
        index = DistributedIndex.build(frame, on="k", client=client)
        client.cluster.sync(client.cluster.scheduler.close)
        for verb in (index.refresh, index.stats, lambda: index.lookup([1]), index.close):
            with pytest.raises((IndexLost, ClosedError), match=r"scheduler|closed"):
                verb()


def test_rows_that_no_worker_takes_change_nothing(threads, frame, monkeypatch):
    monkeypatch.setattr(threads, "_timeout", 0.2)
    with DistributedIndex.build(frame, on="k", client=threads) as index:
        threads.run(set_status, Status.paused)
        running = threads.cluster.scheduler.running
        try:
            until(lambda: not running)
            for verb in (lambda: index.insert(frame), lambda: DistributedIndex.build(frame, "k")):
                with pytest.raises(OutOfMemoryError, match="pauses workers whose memory"):
                    verb()
        finally:
            threads.run(set_status, Status.running)
            until(lambda: len(running) == 3)
        assert index.insert(frame[:5]) == 5
        assert len(index) == len(frame) + 5


def test_an_asynchronous_client_is_refused(frame):
    async def build() -> None:
        async with Client(processes=False, asynchronous=True, dashboard_address=":0") as client:
            DistributedIndex.build(frame, on="k", client=client)

    with pytest.raises(UnsupportedError, match="asynchronous"):
        asyncio.run(build())


def test_a_worker_that_has_no_plugin_yet(threads, frame):
    """The scheduler tells of a worker before it has what it is given."""

    async def late(dask_worker) -> None:
        host = dask_worker.plugins.pop(NAME)
        asyncio.get_running_loop().call_later(0.4, dask_worker.plugins.update, {NAME: host})

    with DistributedIndex.build(frame, on="k", client=threads) as index:
        threads.run(late, workers=index.workers[:1])
        assert len(index) == 1000


def test_a_worker_that_lost_all_shards_fails_one_build(frame):
    def forget(dask_worker) -> None:
        host = dask_worker.plugins[NAME]
        host.shards = type(host.shards)()

    with cluster_of(2, processes=False) as client:
        DistributedIndex.build(frame, on="k", client=client).close()
        client.run(forget)
        with pytest.raises(IndexLost, match="call it again"):
            DistributedIndex.build(frame, on="k", client=client)
        with DistributedIndex.build(frame, on="k", client=client) as index:
            assert len(index) == 1000


def test_workers_that_come_late_take_part_in_merges(frame):
    with (
        cluster_of(1, processes=False) as client,
        DistributedIndex.build(frame, on="k", client=client) as index,
    ):
        client.cluster.scale(3)
        client.wait_for_workers(3, timeout=120)
        probes = dd.from_pandas(frame, npartitions=12)
        assert_same(index.merge(probes).compute(), frame.merge(frame, on="k"))
        assert len(index.workers) == 1
        assert index.rebalance() > 0
        assert len(index.workers) == 3
