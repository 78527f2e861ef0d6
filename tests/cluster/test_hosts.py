"""By-hand scripts on three hosts, one of which is cut off during a build."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, lazy, merged_lazily, prepare, until
from distributed import Client
from gate import Gate, read_halfway
from hosts import Hosts, why_no_hosts

from dgpuhash.distributed import DistributedIndex
from dgpuhash.errors import DgpuhashError, IndexLost

pytestmark = pytest.mark.cluster

# Seconds from the cut to the error or the answer.
SOON = 30

SETTINGS = {
    "INTERFACE": "eth0",
    # How long Dask keeps a host that is silent; its default is 30 s.
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "11s",
}


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    reason = why_no_hosts()
    if reason is not None:
        pytest.skip(reason)
    hosts = Hosts(3, bandwidth="1gbit", delay_ms=1)
    try:
        yield hosts
    finally:
        hosts.close()


@pytest.fixture(scope="module")
def cluster(
    hosts: Hosts,
    folder: Path,
    environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Client]:
    """Start a cluster with a worker on each host.

    The scheduler is on the first host, the client on none.
    """
    logs = tmp_path_factory.mktemp("hosts")
    scheduler = f"tcp://{hosts.address(1)}:8786"
    options = ["--no-nanny", "--no-dashboard", "--nthreads", "1"]
    settings = environment | SETTINGS
    hosts.start(1, [folder / "scheduler.sh", "--no-dashboard"], settings, logs / "scheduler")
    for host in (1, 2, 3):
        worker = [folder / "worker.sh", scheduler, *options]
        hosts.start(host, worker, settings, logs / f"worker{host}")
    with (
        dask.config.set({"dataframe.convert-string": False}),
        Client(scheduler, timeout=200) as client,
    ):
        client.wait_for_workers(3, timeout=120)
        prepare(client)
        yield client


@pytest.fixture
def planes() -> pd.DataFrame:
    return pd.DataFrame({"k": np.arange(30_000) % 8000, "v": np.arange(30_000)})


@pytest.fixture
def flights() -> pd.DataFrame:
    keys = np.arange(20_000) % 9000
    return pd.DataFrame({"k": keys, "note": [f"flight {key}" for key in keys]})


def worker_at(hosts: Hosts, host: int, client: Client) -> str:
    (address,) = [name for name in client.nthreads() if f"//{hosts.address(host)}:" in name]
    return address


def leftovers(client: Client, workers: list[str]) -> set[int]:
    """Return the numbers of shards and open changes on each of `workers`."""

    def count(dask_worker: Any) -> int:
        shards = dask_worker.plugins["dgpuhash"].shards
        return len(shards._shards) + len(shards._staged)

    return set(client.run(count, workers=workers).values())


def test_links_take_their_time(hosts, cluster):
    """Nothing is there and back in less than 1 ms each way."""
    if hosts.undelayed:
        pytest.skip(hosts.undelayed)
    for _ in range(5):
        start = time.perf_counter()
        with socket.create_connection((hosts.address(1), 8786)):
            assert time.perf_counter() - start > 0.002


def test_build_merge_and_lookup(cluster, planes, flights):
    source = lazy(planes, 6)
    probes = lazy(flights, 6)
    with DistributedIndex.build(source, on="k", client=cluster) as index:
        assert len({worker.rpartition(":")[0] for worker in index.workers}) == 3
        wanted = merged_lazily(flights, planes, "left", on="k")
        assert_same(index.merge(probes, how="left").compute(), wanted)
        assert index.contains([7999, 8000]).tolist() == [True, False]


def test_a_host_that_is_away_for_five_seconds_during_a_build(
    cluster, hosts, planes, flights, tmp_path
):
    """The build ends right, or with an error; either way the next one is right."""
    gate, mended = Gate(tmp_path), threading.Timer(5, hosts.mend, (3,))

    def cut_for_a_while() -> None:
        hosts.cut(3)
        mended.start()

    source, start = read_halfway(planes, 18, gate, 6), time.monotonic()
    try:
        with gate.opened_after(cut_for_a_while):
            index = DistributedIndex.build(source, on="k", client=cluster)
    except DgpuhashError as error:
        print(f"{type(error).__name__} after {time.monotonic() - start:.1f} s: {error}")
        assert time.monotonic() - start < SOON
        mended.join()
        index = DistributedIndex.build(planes, on="k", client=cluster)
    else:
        print(f"built in {time.monotonic() - start:.1f} s")
        assert time.monotonic() - start < SOON
        mended.join()
    with index:
        assert_same(index.merge(flights).compute(), flights.merge(planes, on="k"))


def test_a_host_that_is_cut_off_during_a_build(cluster, hosts, planes, flights, tmp_path):
    gate = Gate(tmp_path)
    here = [worker_at(hosts, host, cluster) for host in (1, 2)]
    source, start = read_halfway(planes, 18, gate, 6), time.monotonic()
    with (
        gate.opened_after(lambda: hosts.cut(3)),
        pytest.raises(IndexLost, match=r"gone|has not answered|was lost"),
    ):
        DistributedIndex.build(source, on="k", client=cluster, name="half")
    print(f"lost after {time.monotonic() - start:.1f} s")
    assert time.monotonic() - start < SOON
    until(lambda: leftovers(cluster, here) == {0})
    with pytest.raises(IndexLost, match="no index 'half'"):
        DistributedIndex.open("half", cluster)
    with DistributedIndex.build(planes, on="k", client=cluster, workers=here, name="half") as index:
        assert_same(index.merge(flights).compute(), flights.merge(planes, on="k"))
