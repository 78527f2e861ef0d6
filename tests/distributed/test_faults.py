"""Killed workers: a right answer or IndexLost in seconds, then recovery."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, cluster_of, kill, killer, merged_lazily, parts_held, until
from distributed import Client, Status, wait
from gate import Gate, read_halfway

from dgpuhash.distributed import DistributedIndex, DistributedMap
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.ingest.commit import drop_shards
from dgpuhash.errors import IndexLost

pytestmark = pytest.mark.cluster

# Seconds from the kill to the error.
SOON = 30


@pytest.fixture
def cluster(processes: Client) -> Client:
    """Return the client of two workers, alive."""
    await_nannies(processes)
    return processes


@pytest.fixture
def planes() -> pd.DataFrame:
    return pd.DataFrame({"k": np.arange(3000) % 800, "v": np.arange(3000)})


@pytest.fixture
def flights() -> pd.DataFrame:
    return pd.DataFrame({"k": np.arange(2000) % 900, "x": np.arange(2000) * 1.5})


def await_nannies(client: Client) -> None:
    """Wait until both workers and their nannies run.

    A nanny that is still starting a worker would not restart it.
    """
    nannies = client.cluster.workers
    until(
        lambda: (
            len(client.run(os.getpid, on_error="ignore")) == 2
            and all(each.status is Status.running for each in nannies.values())
        )
    )


def expect_lost(work: Callable[[], object]) -> None:
    start = time.monotonic()
    with pytest.raises(IndexLost, match=r"worker|nothing was changed"):
        work()
    assert time.monotonic() - start < SOON


def test_killed_between_build_and_merge_then_rebuilt(cluster, planes, flights):
    source = dd.from_pandas(planes, npartitions=4, sort=False)
    probes = dd.from_pandas(flights, npartitions=4, sort=False)
    with DistributedIndex.build(source, on="k", client=cluster) as index:
        index.insert(pd.DataFrame({"k": [850], "v": [-1]}))
        kill(cluster, index.workers[0], noticed=False)
        expect_lost(lambda: index.merge(probes).compute())
        expect_lost(lambda: index.lookup(np.arange(100)))
        expect_lost(lambda: index.contains(np.arange(100)))
        expect_lost(lambda: len(index))
        expect_lost(lambda: index.insert(planes[:5]))
        await_nannies(cluster)
        index.rebuild()
        wanted = flights.merge(pd.concat([planes, pd.DataFrame({"k": [850], "v": [-1]})]), on="k")
        assert_same(index.merge(probes).compute(), wanted)


def test_killed_and_loaded_again(cluster, planes, flights, tmp_path):
    index = DistributedIndex.build(planes, on="k", client=cluster, name="planes")
    index.save(tmp_path / "planes")
    lost = DistributedIndex.open("planes", cluster)
    kill(cluster, index.workers[1], noticed=False)
    expect_lost(lambda: lost.lookup(np.arange(100)))
    lost.rebuild()
    assert len(lost) == 3000
    lost.close()
    with DistributedIndex.load(tmp_path / "planes", cluster) as loaded:
        probes = dd.from_pandas(flights, npartitions=3, sort=False)
        assert_same(
            loaded.merge(probes, how="left").compute(),
            merged_lazily(flights, planes, "left", on="k"),
        )


def test_rebuilt_from_the_save_when_the_source_is_gone(cluster, planes, tmp_path):
    file = tmp_path / "planes.parquet"
    planes.to_parquet(file)
    with DistributedIndex.build(dd.read_parquet(file), on="k", client=cluster) as index:
        index.save(tmp_path / "saved")
        index.insert(pd.DataFrame({"k": [4000], "v": [1]}))
        file.unlink()
        cluster.restart()
        await_nannies(cluster)
        expect_lost(lambda: index.lookup([4000]))
        index.rebuild()
        assert len(index) == 3001
        assert index.contains([4000]).all()


@pytest.mark.parametrize("before", [0, 6])
def test_killed_in_the_middle_of_a_build(cluster, planes, tmp_path, before):
    gate, victim = Gate(tmp_path), sorted(cluster.nthreads())[0]
    source = read_halfway(planes, 12, gate, before)
    with gate.opened_after(killer(cluster, victim)):
        expect_lost(lambda: DistributedIndex.build(source, on="k", client=cluster, name="half"))
    await_nannies(cluster)
    with DistributedIndex.build(planes, on="k", client=cluster, name="half") as index:
        assert len(index) == 3000


@pytest.mark.parametrize("verb", ["insert", "upsert"])
def test_killed_in_the_middle_of_a_change(cluster, planes, tmp_path, verb):
    gate, rows = Gate(tmp_path), planes[:900].assign(k=np.arange(900))
    with DistributedIndex.build(planes, on="k", client=cluster) as index:
        change = getattr(index, verb)
        with gate.opened_after(killer(cluster, index.workers[1])):
            expect_lost(lambda: change(read_halfway(rows, 12, gate, 4)))
        await_nannies(cluster)
        index.rebuild()
        assert len(index) == 3000
        assert change(rows) == 900
        assert len(index) == (3900 if verb == "insert" else 900)
        assert index.find(np.arange(900)).frame["v"].isin(rows["v"]).all() == (verb == "upsert")


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_in_the_middle_of_a_merge(cluster, planes, flights, tmp_path, victim):
    gate = Gate(tmp_path)
    with DistributedIndex.build(planes, on="k", client=cluster) as index:
        merged = index.merge(read_halfway(flights, 16, gate, 6))
        with gate.opened_after(killer(cluster, index.workers[victim])):
            expect_lost(lambda: merged.compute())
        await_nannies(cluster)
        index.rebuild()
        assert_same(index.merge(flights).compute(), flights.merge(planes, on="k"))


def test_other_tasks_and_indexes_go_on(cluster, planes, flights, tmp_path):
    """A task of someone else is retried; an index on the other worker does not notice."""
    gate, (safe, lost) = Gate(tmp_path), sorted(cluster.nthreads())
    with DistributedIndex.build(planes, on="k", client=cluster, workers=[safe]) as index:
        with gate.opened_after(killer(cluster, lost)):
            other = read_halfway(flights, 8, gate, 2).x.sum().persist()
            merged = index.merge(read_halfway(flights, 8, gate, 3)).persist()
        wait(other, timeout=120)
        assert other.compute() == flights["x"].sum()
        assert_same(merged.compute(), flights.merge(planes, on="k"))


def test_workers_without_a_nanny(planes, flights, tmp_path):
    """One dies, comes back empty under its address, and stays away: the index moves."""
    with cluster_of(0, processes=False, protocol="tcp://", host="127.0.0.1") as client:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", client.scheduler.address]
        options = ["--no-nanny", "--no-dashboard", "--nthreads", "1"]
        # Or the first phase waits for it, and takes workers of a busy machine for silent.
        options += ["--preload", "dgpuhash.distributed"]

        def start(port: int = 0) -> subprocess.Popen:
            place = ["--local-directory", str(tmp_path), "--worker-port", str(port)]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            return subprocess.Popen([*command, *options, *place], **quiet)

        workers = [start() for _ in range(3)]
        try:
            client.wait_for_workers(3, timeout=120)
            with client.as_current():
                index = DistributedIndex.build(planes, on="k", client=client)
                pids = client.run(os.getpid)
                victim = index.workers[0]
                os.kill(pids[victim], signal.SIGKILL)
                expect_lost(lambda: index.merge(flights).compute())
                until(lambda: victim not in client.nthreads())
                workers.append(start(int(victim.rpartition(":")[2])))
                until(lambda: victim in client.nthreads())
                with pytest.raises(IndexLost, match=r"restarted|holds no"):
                    index.merge(flights).compute()
                kill(client, victim)
                index.rebuild()
                assert len(index.workers) == 2
                assert_same(index.merge(flights).compute(), flights.merge(planes, on="k"))
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


@pytest.fixture
def silent(cluster, monkeypatch) -> Callable[[str], AbstractContextManager[None]]:
    """Return a block that stops a worker with SIGSTOP.

    The process exists and the scheduler keeps the worker, but nothing answers. The time limit is
    short in the block only: on a busy machine other workers may take longer.
    """

    @contextmanager
    def stopped(worker: str) -> Iterator[None]:
        (pid,) = cluster.run(os.getpid, workers=[worker]).values()
        os.kill(pid, signal.SIGSTOP)
        try:
            with monkeypatch.context() as impatient:
                impatient.setitem(dask.config.get("dgpuhash.liveness"), "heartbeat", 0.5)
                impatient.setitem(dask.config.get("dgpuhash.liveness"), "timeout", 2.0)
                yield
        finally:
            os.kill(pid, signal.SIGCONT)

    return stopped


def test_a_worker_that_stops_answering(cluster, planes, silent):
    with DistributedIndex.build(planes, on="k", client=cluster) as index:
        with silent(index.workers[0]):
            expect_lost(lambda: len(index))
            expect_lost(lambda: index.lookup(np.arange(100)))
        assert len(index) == 3000


@pytest.mark.parametrize("lazy", [True, False])
def test_a_worker_without_a_shard_stops_answering(cluster, planes, silent, monkeypatch, lazy):
    """Tasks go to it as to any other."""
    first, second = sorted(cluster.nthreads())
    more = pd.concat([planes] * 4)
    rows = dd.from_pandas(more, npartitions=12, sort=False) if lazy else more
    monkeypatch.setitem(dask.config.get("dgpuhash.placement"), "piece", 40_000)
    with DistributedIndex.build(planes, on="k", client=cluster, workers=[first]) as index:
        with silent(second):
            start = time.monotonic()
            # Tasks whose rows lie elsewhere may go elsewhere.
            with suppress(IndexLost):
                index.insert(rows)
            assert time.monotonic() - start < SOON
        assert len(index) in {3000, 15_000}
        assert index.insert(planes) == 3000


def test_a_worker_stops_answering_before_the_rows_of_a_table_are_there(cluster, planes, silent):
    keys = planes["v"].to_numpy()
    slow = da.from_array(keys, 500).map_blocks(slow_chunk, dtype=keys.dtype)
    with DistributedMap.from_arrays(keys, keys, client=cluster) as table:
        with silent(table.workers[0]):
            expect_lost(lambda: table.contains(slow))
            expect_lost(lambda: table.contains(np.arange(20_000)))
            with pytest.raises(IndexLost, match="make the table again"):
                DistributedMap("int64", "int64", client=cluster)
        assert table.contains(keys).all()


@pytest.mark.parametrize("chunks", ["computed", "moved", "counted"])
def test_a_worker_without_a_part_stops_answering_that_has_the_rows(cluster, silent, chunks):
    first, second = sorted(cluster.nthreads())
    keys = cluster.persist(da.arange(100, chunks=10), workers=[second], allow_other_workers=False)
    wait(keys)
    if chunks == "counted":
        keys = cluster.persist(keys[keys >= 0], workers=[second], allow_other_workers=False)
        wait(keys)
    with DistributedMap.from_arrays(np.arange(100), np.arange(100), workers=[first]) as table:
        with silent(second):
            expect_lost(lambda: table.contains(keys + 1 if chunks == "computed" else keys))
        assert table.contains(keys).compute().all()


def test_a_lost_table_is_closed_without_waiting_for_a_worker_that_stops_answering(
    cluster, planes, silent, monkeypatch
):
    keys, before = planes["v"].to_numpy(), parts_held(cluster)
    table = DistributedMap.from_arrays(keys, keys, client=cluster)

    def ask() -> None:
        with table:
            table.contains(keys)

    with silent(table.workers[0]), monkeypatch.context() as patient:
        patient.setattr("dgpuhash.distributed.tables.base.LIMIT", 3600.0)
        expect_lost(ask)
    until(lambda: parts_held(cluster) == before)


def slow_chunk(chunk: np.ndarray) -> np.ndarray:
    time.sleep(0.2)
    return chunk


def has_shards(dask_worker) -> bool:
    return bool(plugin_of(dask_worker).shards._shards)


def test_freeing_shards_does_not_wait_for_a_worker_that_stops_answering(
    cluster, planes, monkeypatch
):
    with DistributedIndex.build(planes, on="k", client=cluster, name="freed") as index:
        (pid,) = cluster.run(os.getpid, workers=[index.workers[0]]).values()
        uid = index._descriptor.uid
        os.kill(pid, signal.SIGSTOP)
        try:
            monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "heartbeat", 3600.0)
            drop_shards(cluster, uid, index.workers)
        finally:
            os.kill(pid, signal.SIGCONT)
        until(lambda: not any(cluster.run(has_shards).values()))
        with pytest.raises(IndexLost, match="has no shard"):
            index.lookup([1])


def test_a_worker_that_does_not_answer_when_the_first_index_is_begun(planes, monkeypatch):
    with cluster_of(2, processes=True) as client:
        pid = next(iter(client.run(os.getpid).values()))
        os.kill(pid, signal.SIGSTOP)
        try:
            monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "heartbeat", 0.5)
            monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "timeout", 2.0)
            expect_lost(lambda: DistributedIndex.build(planes, on="k", client=client))
        finally:
            os.kill(pid, signal.SIGCONT)
        monkeypatch.undo()
        with DistributedIndex.build(planes, on="k", client=client) as index:
            assert len(index) == 3000
