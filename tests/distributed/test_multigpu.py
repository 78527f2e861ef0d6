"""Index on several GPUs of one host: CuPy arrays and cuDF over UCXX."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from clusters import assert_same_rows, device_frame, gpu_cluster, joined, lazy
from distributed import Client

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.ingest.commit import drop_shards, open_change, shard_addresses
from dgpuhash.distributed.partition.change import Change
from dgpuhash.errors import IndexLost
from dgpuhash.frames import KeyEncoder

pytestmark = [pytest.mark.gpu, pytest.mark.multigpu, pytest.mark.cluster, pytest.mark.timeout(180)]

needs_cudf = pytest.mark.skipif(
    importlib.util.find_spec("cudf") is None, reason="cuDF is not installed"
)

# Dask's comm over TCP moves 1.4 GB/s of device arrays on this kind of machine.
TCP_GBYTES = 1.4


@pytest.fixture(scope="module", params=[2, 4])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with gpu_cluster(request.param) as client:
        yield client


@pytest.fixture
def left() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame({"k": rng.integers(0, 300_000, 400_000), "x": rng.random(400_000)})


@pytest.fixture
def right() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    return pd.DataFrame({"k": rng.integers(100_000, 400_000, 200_000), "y": np.arange(200_000)})


def open_boxes(client: Client) -> Change:
    """Open a build on all workers, to put parcels into, and return it."""
    meta = pd.DataFrame({"k": np.zeros(0, np.int64)})
    change = Change(
        uid=uuid.uuid4().hex,
        transaction=uuid.uuid4().hex,
        verb="build",
        epoch=1,
        shards=shard_addresses(client),
        encoder=KeyEncoder.for_frame(meta, "k"),
        meta=meta,
        unique=None,
        device=None,
    )
    run_on_workers(client, [shard.worker for shard in change.shards], open_change, change)
    return change


def all_to_all(client: Client, kind: str, rows: int) -> float:
    """Measure the GB/s that leave each GPU in an all-to-all exchange.

    Each GPU sends `rows` int64 to all others; contents are checked.
    """
    change = open_boxes(client)

    async def send(change, kind, rows, turn, dask_worker):
        import time

        import cupy

        from dgpuhash.distributed.ingest.shuffle_tasks import CommExchange
        from dgpuhash.distributed.shards.inbox import Parcel

        addresses = [shard.worker for shard in change.shards]
        rank = addresses.index(dask_worker.address)

        def payload(part):
            array = cupy.arange(rows, dtype=cupy.int64) + rank * 1000 + part
            if kind == "cupy":
                return array
            import cudf

            return cudf.DataFrame({"k": array})

        parcels = [
            [] if part == rank else [Parcel(rank, f"turn {turn}", 0, rows, payload(part))]
            for part in range(len(addresses))
        ]
        cupy.cuda.Device().synchronize()
        exchange = CommExchange(dask_worker, change.shards, change.uid, change.transaction)
        start = time.perf_counter()
        await exchange.put_segments(parcels)
        return time.perf_counter() - start

    def check(change, kind, rows, turn, dask_worker):
        import cupy

        from dgpuhash.distributed.shards.inbox import Receipt

        addresses = [shard.worker for shard in change.shards]
        rank = addresses.index(dask_worker.address)
        inbox = dask_worker.plugins["dgpuhash"].shards._staged[change.uid].inbox
        others = [other for other in range(len(addresses)) if other != rank]
        receipts = [Receipt(other, f"turn {turn}", (rows,) * len(addresses)) for other in others]
        for other, payload in zip(others, inbox.collect(receipts), strict=True):
            assert type(payload).__module__.partition(".")[0] == kind
            array = payload if kind == "cupy" else payload["k"].values
            assert bool((array == cupy.arange(rows) + other * 1000 + rank).all())

    seconds = []
    for turn in range(3):
        seconds.append(max(client.run(send, change, kind, rows, turn).values()))
        client.run(check, change, kind, rows, turn)
    return rows * 8 * (len(change.shards) - 1) / min(seconds) / 1e9


@pytest.mark.parametrize("kind", ["cupy", pytest.param("cudf", marks=needs_cudf)])
def test_device_memory_travels_without_the_host(client, kind, record_property):
    speed = all_to_all(client, kind, (256 << 20) // 8)
    record_property(f"{kind}_all_to_all_gbytes", round(speed, 1))
    print(f"{kind}, {len(client.nthreads())} workers: {speed:.1f} GB/s left each")
    assert speed > 5 * TCP_GBYTES


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_host_rows_with_keys_on_the_gpus(client, left, right, how):
    source = lazy(right, 5)
    probes = lazy(left, 6)
    with DistributedIndex.build(source, on="k", client=client, device="cuda") as index:
        assert set(index.stats()["device"]) == {"cuda"}
        result = index.merge(probes, how=how).compute()
    wanted = joined(left, right, ["k"], how).reset_index(drop=True)
    pd.testing.assert_frame_equal(result.reset_index(drop=True), wanted)


@needs_cudf
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_cudf_frames(client, left, right, how):
    with DistributedIndex.build(device_frame(right, 5), on="k", client=client) as index:
        assert set(index.stats()["frames"]) == {"cudf"}
        merged = index.merge(device_frame(left, 6), how=how)
        assert type(merged._meta).__module__.startswith("cudf")
        result = merged.compute()
        assert type(result).__module__.startswith("cudf")
    assert_same_rows(result, joined(left, right, ["k"], how))


@needs_cudf
def test_a_key_with_half_of_the_rows(client):
    rng = np.random.default_rng(3)
    keys = np.where(rng.random(400_000) < 0.5, 7, rng.integers(0, 400_000, 400_000))
    right = pd.DataFrame({"k": keys, "y": np.arange(400_000)})
    left = pd.DataFrame({"k": np.r_[0:2000, 500_000:500_100], "x": np.arange(2100)})
    with DistributedIndex.build(
        device_frame(right, 5), on="k", unique=False, client=client, mode="distributed"
    ) as index:
        rows = index.stats()["rows"]
        assert rows.max() <= 1.3 * rows.mean()
        for how in ("inner", "left", "semi", "anti"):
            result = index.merge(device_frame(left, 4), how=how).compute()
            assert_same_rows(result, joined(left, right, ["k"], how))
        few = device_frame(left[["k"]][:10], 1).compute()
        assert index.erase(few) == int(np.isin(keys, np.arange(10)).sum())
        assert not bool(index.contains(few).any())


@needs_cudf
def test_cudf_strings_and_several_keys(client):
    rng = np.random.default_rng(0)
    cities = np.array(["Oslo", "Rome", "Bonn", None], dtype=object)

    def frame(rows: int, value: str) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "city": pd.Series(cities[rng.integers(0, 4, rows)], dtype="str"),
                "day": rng.integers(0, 50, rows),
                value: np.arange(rows),
            }
        )

    left, right = frame(3000, "x"), frame(500, "y")
    with DistributedIndex.build(device_frame(right, 3), on=["city", "day"], client=client) as index:
        result = index.merge(device_frame(left, 4)).compute()
    wanted = left.merge(right, on=["city", "day"])
    pairs = result[["x", "y"]].to_pandas().sort_values(["x", "y"], ignore_index=True)
    assert pairs.equals(wanted[["x", "y"]].sort_values(["x", "y"], ignore_index=True))


@needs_cudf
def test_cupy_arrays_insert_erase_lookup_save_and_load(client, tmp_path):
    import cudf
    import cupy

    keys = cupy.random.permutation(cupy.arange(200_000))
    with DistributedIndex.build({"k": keys, "v": keys * 2}, on="k", client=client) as index:
        asked = cupy.asarray([5, 250_000, 199_999, 5])
        values, there = index.lookup(asked), index.contains(asked)
        assert isinstance(values, cupy.ndarray)
        assert isinstance(there, cupy.ndarray)
        assert there.tolist() == [True, False, True, True]
        assert cupy.nan_to_num(values, nan=-1).tolist() == [10, -1, 399_998, 10]
        labelled = index.lookup(cudf.Series(asked, index=[3, 1, 3, 2]))
        assert labelled.index.to_pandas().tolist() == [3, 1, 3, 2]
        assert labelled.to_pandas().fillna(-1).tolist() == [10, -1, 399_998, 10]
        many = cupy.arange(200_000)
        assert bool((index.lookup(many) == many * 2).all())
        assert bool(index.contains(many).all())
        stale = index.merge(device_frame(pd.DataFrame({"k": [1]}), 1))
        assert index.insert({"k": cupy.asarray([250_000]), "v": cupy.asarray([7])}) == 1
        assert index.erase(cupy.asarray([5])) == 1
        with pytest.raises(IndexLost):
            stale.compute()
        assert index.contains(asked).tolist() == [False, True, True, False]
        index.save(tmp_path / "saved")
        with DistributedIndex.load(tmp_path / "saved", client, device="cuda") as loaded:
            assert set(loaded.stats()["frames"]) == {"cudf"}
            assert loaded.contains(asked).tolist() == [False, True, True, False]
        with DistributedIndex.load(tmp_path / "saved", client, device="cpu") as loaded:
            assert len(loaded) == 200_000
            assert loaded.contains([5, 250_000]).tolist() == [False, True]


@needs_cudf
def test_shards_move_and_come_back_from_a_log(client, right, tmp_path):
    import cupy

    probes = device_frame(pd.DataFrame({"k": np.arange(100_000, 400_000)}), 4)
    log = tmp_path / "log"
    with DistributedIndex.build(
        device_frame(right[:150_000], 6),
        on="k",
        client=client,
        workers=sorted(client.nthreads())[1:],
        durable=log,
    ) as index:
        assert index.insert(device_frame(right[150_000:], 3)) == 50_000
        erased = right["k"].isin(right["k"][:1000])
        assert index.erase(cupy.asarray(right["k"][:1000])) == int(erased.sum())
        wanted = right[~erased]
        assert index.rebalance() > 0
        assert len(index.workers) == len(client.nthreads())
        assert_same_rows(index.merge(probes).compute(), wanted)
        drop_shards(client, index._descriptor.uid, index.workers[:1])
        done = index.rebuild()
        assert (done.parts, len(done.kept)) == ((0,), len(index.workers) - 1)
        assert_same_rows(index.merge(probes).compute(), wanted)
        index.save(log)
        assert index.insert(device_frame(right[:1000], 2)) == 1000
    with DistributedIndex.load(log, client, device="cuda") as loaded:
        assert_same_rows(loaded.merge(probes).compute(), pd.concat([wanted, right[:1000]]))
