"""Distributed tables on several GPUs of one host."""

from __future__ import annotations

from collections.abc import Iterator

import dask.array as da
import numpy as np
import pytest
from clusters import gpu_cluster, share_gpus
from distributed import Client, futures_of

from dgpuhash import Op
from dgpuhash.distributed import (
    DistributedBloomFilter,
    DistributedMap,
    DistributedMultiMap,
    DistributedSet,
)
from dgpuhash.distributed.collective.group import form_group
from dgpuhash.errors import DeviceError, IndexLost, UnsupportedError
from dgpuhash.tables import MultiMap

pytestmark = [pytest.mark.gpu, pytest.mark.multigpu, pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(scope="module", params=[2, 4])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with gpu_cluster(request.param) as client:
        yield client


@pytest.fixture(params=["comm", "nccl", "peer"])
def exchange(client: Client, request: pytest.FixtureRequest) -> str:
    """Return each transport between the workers in turn."""
    if request.param == "nccl" and share_gpus(client):
        with pytest.raises(UnsupportedError, match="share a GPU"):
            form_group(client, sorted(client.nthreads()), "nccl")
        pytest.skip("workers share GPUs, which NCCL does not allow; it takes a GPU for each")
    return request.param


def on_gpus(client: Client, host: np.ndarray, chunks: int = 70_000) -> da.Array:
    """Return an array with CuPy chunks on the workers."""
    return client.persist(da.from_array(host, chunks).map_blocks(_to_gpu, dtype=host.dtype))


def _to_gpu(chunk: np.ndarray) -> object:
    import cupy

    return cupy.asarray(chunk)


@pytest.mark.parametrize("piece_rows", [None, 30_000])
def test_map(client, exchange, piece_rows):
    random = np.random.default_rng(1)
    keys, asked = random.integers(0, 400_000, 500_000), random.integers(0, 800_000, 300_000)
    with DistributedMap.from_arrays(
        on_gpus(client, keys), on_gpus(client, keys * 3),
        client=client, exchange=exchange, piece_rows=piece_rows,
    ) as table:  # fmt: skip
        assert table.device == "cuda"
        assert len(table) == len(np.unique(keys))
        questions = on_gpus(client, asked)
        values, found = table.find(questions, default=-1)
        assert type(values._meta).__module__.startswith("cupy")
        held = [
            {key[1]: list(where) for key, where in client.who_has(futures_of(one)).items()}
            for one in (questions, values)
        ]
        assert held[0] == held[1]
        there = np.isin(asked, keys)
        assert (found.compute().get() == there).all()
        assert (values.compute().get() == np.where(there, asked * 3, -1)).all()
        fresh = table.insert(questions, questions).compute().get()
        assert fresh.sum() == len(np.unique(asked[~there]))
        table.upsert(questions, -questions)
        assert (table.find(questions)[0].compute().get() == -asked).all()
        assert table.erase(questions).compute().get().sum() == len(np.unique(asked))
        assert not table.contains(asked).any()


@pytest.mark.parametrize("piece_rows", [None, 30_000])
@pytest.mark.parametrize("method", ["slab", "supernode"])
def test_mixed_batches(client, exchange, method, piece_rows):
    random = np.random.default_rng(2)
    keys = random.permutation(300_000)
    ops = random.integers(0, 4, len(keys)).astype("u1")
    stored = np.arange(0, 300_000, 2)
    with DistributedMap(
        "i8", "i8", client=client, exchange=exchange, piece_rows=piece_rows, method=method
    ) as table:
        table.upsert(on_gpus(client, stored), on_gpus(client, stored * 3))
        given = (on_gpus(client, each) for each in (ops, keys, -keys))
        values, flags = table.execute(*given, default=-7)
        there = keys % 2 == 0
        storing = (ops == Op.INSERT) | (ops == Op.UPSERT)
        assert (flags.compute().get() == (there ^ storing)).all()
        found = np.where(there & (ops == Op.FIND), keys * 3, -7)
        assert (values.compute().get() == found).all()
        values, flags = table.find(on_gpus(client, keys), default=0)
        left = storing | (there & (ops == Op.FIND))
        wanted = np.where(there & (ops != Op.UPSERT), keys * 3, -keys)
        assert (flags.compute().get() == left).all()
        assert (values.compute().get() == np.where(left, wanted, 0)).all()
        assert len(table) == left.sum()


def test_questions_that_need_not_travel(client, exchange):
    keys, numbers = np.arange(300_000), np.random.default_rng(3).integers(0, 400_000, 1_000_000)
    with DistributedMap.from_arrays(
        on_gpus(client, keys), on_gpus(client, keys * 3), client=client, exchange=exchange
    ) as table:
        for asked in (numbers, numbers % 1000 + 299_500, keys + 300_000):
            there = asked < 300_000
            for sparing in ({"bloom_filter": True}, {"deduplicate": True}, {}):
                values, found = table.find(on_gpus(client, asked), default=-1, **sparing)
                assert (found.compute().get() == there).all()
                assert (values.compute().get() == np.where(there, asked * 3, -1)).all()
        assert not table.contains(on_gpus(client, asked), bloom_filter=True).any()
        assert table.stats()["absent_rows"].sum() > 290_000
        table.insert(on_gpus(client, keys + 300_000), on_gpus(client, keys))
        assert table.contains(on_gpus(client, keys + 300_000), bloom_filter=True).all()


@pytest.mark.parametrize("method", ["auto", "cops"])
def test_rows_that_stay(client, exchange, method):
    keys, asked = np.random.default_rng(2).integers(0, 100_000, 300_000), np.arange(120_000)
    options = {"client": client, "exchange": exchange, "mode": "independent", "method": method}
    stored, there = on_gpus(client, keys), np.isin(asked, keys)
    with DistributedMap.from_arrays(stored, stored * 3, conflict="max", **options) as table:
        assert len(table) > there.sum()
        for sparing in ({}, {"bloom_filter": True, "deduplicate": True}):
            values, found = table.find(on_gpus(client, asked), default=-1, **sparing)
            assert (found.compute().get() == there).all()
            assert (values.compute().get() == np.where(there, asked * 3, -1)).all()
        assert len(table.keys()) == there.sum()
        assert table.erase(on_gpus(client, asked)).compute().get().sum() == there.sum()
        assert len(table) == 0
    rows = on_gpus(client, np.arange(300_000))
    with DistributedMultiMap.from_arrays(stored, rows, **options) as table:
        values, offsets = table.find(asked)
        assert (np.diff(offsets) == np.bincount(keys, minlength=120_000)).all()
        assert (keys[values] == np.repeat(asked, np.diff(offsets))).all()


def test_filters(client, exchange):
    keys = np.random.default_rng(5).integers(0, 2**62, 1_000_000)
    with DistributedBloomFilter("i8", 500_000, client=client, exchange=exchange) as made:
        made.insert(on_gpus(client, keys[:500_000]))
        assert made.device == "cuda"
        assert made.contains(on_gpus(client, keys[:500_000])).all().compute()
        passed = made.contains(on_gpus(client, keys[500_000:])).mean().compute()
        assert float(passed) == pytest.approx(0.01, rel=0.1)
        assert made.rate == pytest.approx(0.01, rel=0.05)
        with made.copy() as copied:
            copied.insert(on_gpus(client, keys[500_000:]))
            made |= copied
        assert made.contains(on_gpus(client, keys)).all().compute()


def numbers(rank: int, rows: int, repeat: int) -> object:
    """Return keys on a GPU, each `repeat` times, distinct for each rank."""
    import cupy

    numbers = cupy.arange(rows, dtype=np.int64) // repeat + rank * rows
    return numbers * 0x1E3779B97F4A7C15 % 2**62


@pytest.mark.parametrize("repeat", [1, 2])
def test_new_keys_range_by_range(client, repeat):
    workers, rows = sorted(client.nthreads()), 2**25 + 12_345
    futures = [
        client.submit(numbers, rank, rows, repeat, workers=[worker], pure=False)
        for rank, worker in enumerate(workers)
    ]
    name = f"keys-{repeat}-{len(workers)}"
    graph = {(name, rank): future for rank, future in enumerate(futures)}
    keys = da.Array(graph, name, ((rows,) * len(futures),), dtype=np.int64, meta=_to_gpu([0]))
    distinct = (rows + repeat - 1) // repeat * len(workers)
    with DistributedMap(
        "int64", "int64", rows * len(workers), client=client, device="cuda"
    ) as table:
        assert len(table) == 0
        fresh = table.insert(keys, ~keys)
        assert int(fresh.sum().compute()) == len(table) == distinct
        values, found = table.find(keys)
        assert bool(found.all().compute())
        assert bool((values == ~keys).all().compute())
        assert not bool(table.insert(keys, keys).any().compute())


def test_multi_map(client):
    random = np.random.default_rng(2)
    keys, asked = random.integers(0, 50_000, 400_000), random.integers(0, 60_000, 100_000)
    wanted, offsets = MultiMap.from_arrays(keys, np.arange(400_000)).find(asked)
    with DistributedMultiMap.from_arrays(
        on_gpus(client, keys), on_gpus(client, np.arange(400_000)), client=client
    ) as table:
        values, ends = table.find(on_gpus(client, asked))
        assert (values.compute().get() == wanted).all()
        lengths = [np.diff(chunk.compute().get()) for chunk in ends.blocks]
        assert (np.concatenate(lengths) == np.diff(offsets)).all()
        assert (table.count(asked) == np.diff(offsets)).all()


def test_arrays_of_the_client(client):
    import cupy

    days = np.arange(20_000).astype("datetime64[D]")
    words = np.array([f"{number:05}" for number in range(20_000)], "S5")
    with DistributedMap(days.dtype, words.dtype, client=client, device="cuda") as table:
        assert table.insert(days, words).all()
        values, found = table.find(days[::-1])
        assert values.dtype == words.dtype
        assert (values == words[::-1]).all()
        assert found.all()
        on_device = table.contains(cupy.arange(19_990, 20_010))
        assert isinstance(on_device, cupy.ndarray)
        assert on_device.sum() == 10
        with pytest.raises(DeviceError, match=r"map_blocks\(cupy.asarray\)"):
            table.contains(da.from_array(days, 5000))


def test_arrays_on_another_device(client):
    import cupy

    numbers = da.arange(100, chunks=25)
    with DistributedSet("int64", client=client, device="cuda") as table:
        table.insert(cupy.arange(10))
        with pytest.raises(DeviceError, match=r"map_blocks\(cupy.asarray\)"):
            table.insert(numbers)
        table.insert(numbers.map_blocks(cupy.asarray))
        assert len(table) == 100


def test_floats(client):
    with DistributedSet("float32", client=client, device="cuda") as table:
        assert table.insert(np.array([np.nan, -0.0, np.nan, 0.0], "f4")).sum() == 2
        assert table.contains(np.array([np.nan, 0.0, 1.0], "f4")).tolist() == [True, True, False]


def test_contents_copies_and_saves(client, tmp_path):
    random = np.random.default_rng(3)
    keys = random.integers(0, 100_000, 150_000)
    with DistributedMap.from_arrays(
        on_gpus(client, keys), on_gpus(client, keys * 3), client=client
    ) as table:
        stored, values = table.items()
        assert type(values._meta).__module__.startswith("cupy")
        assert (np.sort(stored.compute().get()) == np.unique(keys)).all()
        assert bool((values == stored * 3).all().compute())
        asked = random.integers(0, 200_000, 100_000)
        rows, found = table.match(on_gpus(client, asked))
        assert (rows.compute().get() == np.flatnonzero(np.isin(asked, keys))).all()
        assert (found.compute().get() == asked[np.isin(asked, keys)] * 3).all()
        table.reserve(400_000)
        table.save(tmp_path / "saved")
        with table.copy() as copied:
            assert copied.erase(stored).sum().compute() == len(np.unique(keys))
            assert (len(copied), len(table)) == (0, len(np.unique(keys)))
        for device in ("cpu", "cuda"):
            with DistributedMap.load(
                tmp_path / "saved", client=client, device=device, workers=table.workers[:-1]
            ) as loaded:
                assert loaded.device == device
                values, there = loaded.find(keys)
                assert there.all()
                assert (values == keys * 3).all()
        client.run(lambda dask_worker: dask_worker.plugins["dgpuhash"].tables.clear(),
                   workers=table.workers[:1])  # fmt: skip
        with pytest.raises(IndexLost, match="rebuild"):
            table.find(keys)
        assert table.rebuild() == (0,)
        assert (table.find(keys)[0] == keys * 3).all()


def test_contents_that_gpus_have_no_dtype_for(client, tmp_path):
    days = np.arange(20_000).astype("datetime64[D]")
    words = np.array([f"{number:05}" for number in range(20_000)], "S5")
    with DistributedMultiMap.from_arrays(days, words, client=client, device="cuda") as table:
        assert table.n_keys == 20_000
        keys, values = table.items()
        assert (keys.dtype, values.shape) == (np.int64, (20_000, 5))
        found = values.compute().get().view("S5").ravel()
        assert (found == words[keys.compute().get()]).all()
        table.save(tmp_path / "saved")
        with DistributedMultiMap.load(tmp_path / "saved", client=client) as loaded:
            assert loaded.device == "cpu"
            assert (loaded.find(days)[0] == words).all()
            assert (np.sort(loaded.keys().compute()) == days).all()
