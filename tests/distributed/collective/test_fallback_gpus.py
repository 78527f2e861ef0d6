"""Fallback to the comm when a GPU transport fails in the middle of a verb."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest
from clusters import gpu_cluster, gpus_apart, share_gpus
from distributed import Client

from dgpuhash.distributed import DistributedMap
from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.collective.group_cache import run_collective
from dgpuhash.distributed.ingest.commit import shard_addresses
from dgpuhash.errors import DeviceError

pytestmark = [pytest.mark.gpu, pytest.mark.multigpu, pytest.mark.cluster, pytest.mark.timeout(120)]

KEYS = np.random.default_rng(5).permutation(2_000_000)


@pytest.fixture(scope="module", params=["one host", "hosts"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with gpu_cluster() if request.param == "one host" else gpus_apart() as client:
        yield client


@pytest.fixture
def ways(client: Client) -> list[str]:
    """Return the transports between the workers that can fail."""
    together = len({worker.rpartition(":")[0] for worker in client.nthreads()}) == 1
    if not together:
        return ["nccl"]
    # NCCL does not allow that workers share GPUs.
    return ["peer"] if share_gpus(client) else ["peer", "nccl"]


def on_gpus(client: Client, host: np.ndarray) -> da.Array:
    return client.persist(da.from_array(host, len(host) // 5).map_blocks(to_gpu, dtype=host.dtype))


def to_gpu(chunk: np.ndarray) -> object:
    import cupy

    return cupy.asarray(chunk)


def break_the_way(client: Client) -> None:
    """Break the transport of one rank without notice to the others."""
    client.run(break_here, min(client.nthreads()))


def break_here(victim: str, dask_worker: Any) -> None:
    if dask_worker.address != victim:
        return
    for end in dask_worker.plugins["dgpuhash"].ends.values():
        if hasattr(end, "_nccl"):
            end._nccl.abort()
        if hasattr(end, "driver"):
            end.driver.copy = refuse


def refuse(*_: int) -> None:
    raise DeviceError("the link is down")


@pytest.mark.parametrize("verb", ["find", "insert"])
def test_verbs_go_on_over_the_comm(client, ways, verb):
    for way in ways:
        with DistributedMap("i8", "i8", client=client, exchange=way) as table:
            first, more = KEYS[:1_000_000], KEYS[1_000_000:]
            table.upsert(on_gpus(client, first), on_gpus(client, first * 2))
            assert f"exchange {way}" in repr(table)
            break_the_way(client)
            stored = first
            if verb == "insert":
                fresh = table.insert(on_gpus(client, more), on_gpus(client, more * 2))
                assert fresh.compute().get().all()
                stored = KEYS
            values, found = table.find(on_gpus(client, KEYS), default=-1)
            there = np.isin(KEYS, stored)
            assert (found.compute().get() == there).all()
            assert (values.compute().get() == np.where(there, 2 * KEYS, -1)).all()
            assert "exchange comm" in repr(table)


def exchange_here(host: Any, collective: Collective) -> str:
    import cupy

    came = collective.all_to_all([cupy.full(collective.size * 1000, collective.rank)], [1000] * 2)
    assert (came.columns[0].get() == np.repeat(np.arange(collective.size), 1000)).all()
    return type(collective).__name__


def test_standing_groups_go_on_over_the_comm(client, ways):
    shards = shard_addresses(client, sorted(client.nthreads())[:2])
    (first,) = set(run_collective(client, shards, exchange_here))
    assert first == {"peer": "PeerCollective", "nccl": "NcclCollective"}[ways[0]]
    break_the_way(client)
    for _ in range(2):
        assert set(run_collective(client, shards, exchange_here)) == {"CommCollective"}
