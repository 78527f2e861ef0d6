"""Rebalance when workers join, leave or die; only lost shards are rebuilt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, cluster_of, kill, killer, lazy, until
from distributed import Client, futures_of
from gate import Gate

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.storage import arrow_files
from dgpuhash.errors import IndexChanged, IndexLost, UnsupportedError

pytestmark = pytest.mark.cluster

# Seconds from the kill to the error.
SOON = 30


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    n = 3000
    return pd.DataFrame(
        {
            "city": pd.Series(rng.choice(["Oslo", "Rome", None, "Bonn"], n), dtype="str"),
            "hour": np.arange(n) % 200,
            "v": np.arange(n),
        }
    )


@pytest.fixture
def probes() -> pd.DataFrame:
    cities = pd.DataFrame({"city": pd.Series(["Oslo", "Rome", None, "Bonn"], dtype="str")})
    return cities.merge(pd.DataFrame({"hour": np.arange(210)}), how="cross")


@pytest.fixture
def nannied() -> Iterator[Client]:
    """Yield a client of three worker processes with nannies."""
    with cluster_of(3, processes=True) as client:
        yield client


def rows_of(index: DistributedIndex, probes: pd.DataFrame) -> pd.DataFrame:
    found = index.merge(lazy(probes, 3)).compute()
    return found.sort_values("v", ignore_index=True)


def wanted_of(frame: pd.DataFrame, probes: pd.DataFrame) -> pd.DataFrame:
    return probes.merge(frame, on=["city", "hour"]).sort_values("v", ignore_index=True)


def tables_of(index: DistributedIndex, client: Client) -> dict[str, int]:
    """Return the id of each worker's shard, which a rebuild changes."""

    def identity(uid: str, dask_worker) -> int | None:
        shard = plugin_of(dask_worker).shards._shards.get(uid)
        return None if shard is None else id(shard.index)

    return client.run(identity, index._descriptor.uid)


def await_workers(client: Client, count: int) -> None:
    client.wait_for_workers(count, timeout=120)


def test_workers_join_and_leave(frame, probes):
    with (
        cluster_of(1, processes=False) as client,
        DistributedIndex.build(frame, on=["city", "hour"], client=client) as index,
    ):
        other = DistributedIndex.open(index.name, client)
        lazy = index.merge(probes)
        assert index.rebalance() == 0
        assert index.epoch == 1
        client.cluster.scale(3)
        await_workers(client, 3)
        moved = index.rebalance()
        stats = index.stats()
        assert (len(stats), stats["rows"].sum(), index.epoch) == (3, 3000, 2)
        assert 0 < moved < 3000
        assert_same(rows_of(index, probes), wanted_of(frame, probes))
        assert len(other) == 3000
        with pytest.raises(IndexChanged, match="again"):
            lazy.compute()
        assert other.insert(frame[:7]) == 7
        assert other.erase({"city": ["Oslo"], "hour": [3]}) > 0
        now = pd.concat([frame, frame[:7]])
        now = now[(now["city"] != "Oslo") | (now["hour"] != 3)]
        index.refresh()
        staying = index.workers[1:]
        index.rebalance(staying)
        assert sorted(index.workers) == sorted(staying)
        client.retire_workers(sorted(set(client.nthreads()) - set(staying)))
        assert len(client.nthreads()) == 2
        found = rows_of(index, probes).sort_values(list(now.columns), ignore_index=True)
        assert_same(found, now.sort_values(list(now.columns), ignore_index=True))
        holders = [worker for worker, table in tables_of(index, client).items() if table]
        assert sorted(holders) == sorted(staying)


def test_who_has_a_shard_keeps_it_when_another_worker_takes_over(threads, frame, probes):
    first, second, third = sorted(threads.nthreads())
    with DistributedIndex.build(
        frame, on=["city", "hour"], client=threads, workers=[first, second]
    ) as index:
        before, counts = tables_of(index, threads), index.stats()["rows"]
        moved = index.rebalance([third, second])
        until(lambda: tables_of(index, threads)[first] is None)
        after = tables_of(index, threads)
        assert index.workers == [third, second]
        assert moved == counts[0]
        assert list(index.stats()["rows"]) == list(counts)
        assert after[second] == before[second]
        assert_same(rows_of(index, probes), wanted_of(frame, probes))
        with pytest.raises(UnsupportedError, match="workers="):
            index.rebalance(["tcp://nobody:1"])
        assert index.rebalance([second, third]) == 0


def test_a_retired_worker_takes_its_shard_with_it(frame, probes):
    with (
        cluster_of(3, processes=False) as client,
        DistributedIndex.build(frame, on=["city", "hour"], client=client) as index,
    ):
        index.insert(frame[:10])
        index.erase(frame[["city", "hour"]][:5])
        gone = index.workers[1]
        client.retire_workers([gone])
        with pytest.raises(IndexLost):
            rows_of(index, probes)
        with pytest.raises(IndexLost):
            index.rebalance()
        done = index.rebuild()
        assert (len(index.workers), done.parts, done.kept) == (2, (0, 1), ())
        erased = frame[["city", "hour"]][:5]
        now = pd.concat([frame, frame[:10]]).merge(erased, how="left", indicator=True)
        now = now[now.pop("_merge") == "left_only"]
        found = rows_of(index, probes).sort_values(list(now.columns), ignore_index=True)
        assert_same(found, now.sort_values(list(now.columns), ignore_index=True))


def test_only_lost_shards_are_made_anew(nannied, frame, probes):
    source = lazy(frame[:2900], 5)
    with DistributedIndex.build(source, on=["city", "hour"], client=nannied) as index:
        index.insert(frame[2900:])
        before, counts = tables_of(index, nannied), list(index.stats()["rows"])
        assert index.rebuild().parts == ()
        kill(nannied, index.workers[1])
        await_workers(nannied, 3)
        done = index.rebuild()
        assert (done.parts, done.kept, done.rows) == ((1,), (0, 2), counts[1])
        assert list(index.stats()["rows"]) == counts
        after = tables_of(index, nannied)
        assert all(after[index.workers[part]] == before[index.workers[part]] for part in (0, 2))
        assert_same(rows_of(index, probes), wanted_of(frame, probes))


def test_persisted_rows_that_were_lost_too_are_made_again(nannied, frame, probes):
    def read(part):
        time.sleep(1)
        return part

    source = lazy(frame, 6).map_partitions(read, meta=frame[:0])
    source = nannied.persist(source)
    with DistributedIndex.build(source, on=["city", "hour"], client=nannied) as index:
        kill(nannied, index.workers[1])
        until(lambda: any(future.status == "lost" for future in futures_of(source)), pause=0.01)
        assert 1 in index.rebuild().parts
        assert_same(rows_of(index, probes), wanted_of(frame, probes))


def test_only_the_files_of_lost_shards_are_read(nannied, frame, probes, tmp_path):
    with DistributedIndex.build(frame[:2000], on=["city", "hour"], client=nannied) as built:
        built.save(tmp_path / "saved")
        index = DistributedIndex.open(built.name, nannied)
        index.insert(frame[2000:])
        for part, path in enumerate(sorted((tmp_path / "saved").glob("shard-*"))):
            if part != 0:
                path.write_bytes(bytes(path.stat().st_size))
        kill(nannied, index.workers[0])
        await_workers(nannied, 3)
        assert index.rebuild().parts == (0,)
        assert_same(rows_of(index, probes), wanted_of(frame, probes))


def hold_up(wait: Callable[[], None]) -> None:
    """Let this worker send nothing to others before the gate is open."""
    from dgpuhash.distributed.index import rebalance

    put = rebalance.parcels

    def late(*args, **options):
        wait()
        return put(*args, **options)

    rebalance.parcels = late


@pytest.mark.parametrize("victim", ["leaving", "joining", "staying"])
def test_killed_in_the_middle_of_a_rebalance(nannied, frame, probes, tmp_path, victim):
    gate = Gate(tmp_path)
    one, two, three = sorted(nannied.nthreads())
    with DistributedIndex.build(
        frame, on=["city", "hour"], client=nannied, workers=[one, two]
    ) as index:
        nannied.run(hold_up, gate.wait)
        strike = killer(nannied, {"leaving": one, "joining": three, "staying": two}[victim])
        start = time.monotonic()
        with gate.opened_after(strike), pytest.raises(IndexLost):
            index.rebalance([three, two])
        assert time.monotonic() - start < SOON
        await_workers(nannied, 3)
        assert index.epoch == 1
        assert len(index.rebuild().parts) == (victim != "joining")
        assert_same(rows_of(index, probes), wanted_of(frame, probes))
        assert index.rebalance() > 0
        assert_same(rows_of(index, probes), wanted_of(frame, probes))


@pytest.mark.parametrize(
    ("mode", "way"),
    [
        ("independent", "source"), ("heavy", "save"),
        *(pytest.param(*each, marks=pytest.mark.exhaustive)
          for each in (("independent", "save"), ("heavy", "source"))),
    ],
)  # fmt: skip
def test_only_lost_rows_without_an_owner_are_read_again(tmp_path, frame, probes, mode, way):
    on = ["city", "hour"]
    if mode == "heavy":
        frame = pd.concat([frame, frame.loc[[7] * 27_000]], ignore_index=True)
        frame = frame.assign(v=np.arange(len(frame))).sample(frac=1, random_state=5)
    with cluster_of(3, processes=True) as client:
        index = DistributedIndex.build(
            lazy(frame, 7),
            on=on, client=client, mode="independent" if mode == "independent" else "distributed",
        )  # fmt: skip
        assert bool(index._descriptor.heavy) == (mode == "heavy")
        index.insert(lazy(frame[:900], 4))
        index.erase(frame[on][100:110])
        if way != "source":
            index.save(tmp_path / "saved")
            index = DistributedIndex.open(index.name, client)
        index.insert(frame[-100:])
        index.insert(frame[:5000][frame["hour"][:5000] == 7])
        asked = [frame[on][110:130], frame[on][105:107]]
        index.erase(asked[0])
        now = pd.concat([frame, frame[:900]])
        now = without(now, frame[on][100:110])
        now = pd.concat([now, frame[-100:], frame[:5000][frame["hour"][:5000] == 7]])
        now = without(now, asked[0])
        for victim, lose in ((1, kill), (0, drop), (1, drop)):
            before, counts = tables_of(index, client), index.stats()["rows"].tolist()
            lose(client, index.workers[victim])
            await_workers(client, 3)
            done = index.rebuild()
            kept = tuple(sorted({0, 1, 2} - {victim}))
            assert (done.parts, done.kept) == ((victim,), kept)
            after = tables_of(index, client)
            assert all(after[index.workers[part]] == before[index.workers[part]] for part in kept)
            if mode == "independent":
                assert index.stats()["rows"].tolist() == counts
                assert done.rows == counts[victim]
            else:
                assert len(index) == len(now)
                assert done.rows < len(now) * 0.6
            found = rows_of(index, probes)
            assert_same(in_order(found), in_order(wanted_of(now, probes)))
            index.insert(frame[victim : victim + 1])
            now = pd.concat([now, frame[victim : victim + 1]])
        # With two workers for three parts those that stay are spread over both.
        client.cluster.scale(2)
        until(lambda: len(client.nthreads()) == 2)
        index.rebuild()
        assert len(index.workers) == 2
        assert len(index) == len(now)
        assert_same(in_order(rows_of(index, probes)), in_order(wanted_of(now, probes)))
        index.close()


def test_rows_of_a_partition_stay_together_and_in_order(
    threads, frame, probes, tmp_path, monkeypatch
):
    on = ["city", "hour"]
    monkeypatch.setattr(arrow_files, "BATCH_NBYTES", 2000)
    wanted = probes.merge(frame, on=on)
    with DistributedIndex.build(lazy(frame, 2), on=on, client=threads, mode="independent") as index:
        index.save(tmp_path / "saved")
        assert_same(index.merge(probes).compute(), wanted)
    with DistributedIndex.load(tmp_path / "saved", threads) as index:
        assert_same(index.merge(probes).compute(), wanted)
        assert sorted(index.stats()["rows"]) == [0, 1500, 1500]


def drop(client: Client, worker: str) -> None:
    """Drop all shards of a worker, as a restart does."""

    def forget(dask_worker) -> None:
        host = plugin_of(dask_worker)
        host.shards = type(host.shards)()

    client.run(forget, workers=[worker])


def without(frame: pd.DataFrame, keys: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose keys are not among `keys`."""
    gone = frame.merge(keys.drop_duplicates(), on=list(keys), how="left", indicator=True)["_merge"]
    return frame[(gone == "left_only").to_numpy()]


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values(list(frame.columns), ignore_index=True)
