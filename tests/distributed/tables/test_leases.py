"""Leases: tables of clients that end first leave nothing on the workers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import dask
import numpy as np
import pytest
from clusters import parts_held, until
from distributed import Client

from dgpuhash.distributed import DistributedMap, DistributedSet
from dgpuhash.distributed.tables import leases

pytestmark = pytest.mark.cluster

PROGRAM = """
import sys
from distributed import Client
from dgpuhash.distributed import DistributedSet

if __name__ == "__main__":
    client = Client(sys.argv[1])
    tables = [DistributedSet.from_keys(range(1000)) for _ in range(2)]
    print(len(tables[0]), flush=True)
    sys.stdin.read()
"""

# Of an index, a map and a multimap, with what they answered, all there when the cluster ends.
ENDING = """
import sys
import dask.array as da, dask.dataframe as dd, numpy as np, pandas as pd
from distributed import Client, LocalCluster
from dgpuhash.distributed import DistributedIndex, DistributedMap, DistributedMultiMap

if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, processes=False, dashboard_address=None)
    client = Client(cluster)
    host, lying = np.arange(20_000), da.arange(1000, chunks=100)
    table = DistributedMap.from_arrays(host, host)
    table.insert(lying + 20_000, lying)
    answers = table.find(host), table.find(lying), table.items()
    lists = DistributedMultiMap.from_arrays(lying, lying)
    answers += lists.find(lying), lists.find(host)
    index = DistributedIndex.build(pd.DataFrame({"k": host}), on="k")
    answers += (index.lookup(host),)
    kept = client.scatter("theirs") if "theirs" in sys.argv else None
    if "close" in sys.argv:
        cluster.close()
    print("end", flush=True)
"""


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Shorten the wait for lost clients."""
    monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "lost-client", 0.2)


def test_a_client_that_is_closed_before_its_tables(processes):
    before = parts_held(processes)
    with Client(processes.scheduler.address, set_as_default=False) as other:
        filled = DistributedMap.from_arrays(np.arange(9), np.arange(9), client=other)
        empty = DistributedSet("int64", client=other)
        assert parts_held(processes) == [before[0] + 2, before[1] + 2]
    until(lambda: parts_held(processes) == before)
    for table in (filled, empty):
        table.close()


def test_a_program_that_is_killed(processes):
    before = parts_held(processes)
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, processes.scheduler.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout.readline() == "1000\n"
    assert parts_held(processes) == [before[0] + 4, before[1] + 2]
    program.kill()
    program.communicate()
    until(lambda: parts_held(processes) == before)


def test_a_client_that_is_named_after_its_end(processes, monkeypatch):
    """As by a scatter that ends after its client was lost."""
    end = leases.Leases._end

    async def end_when_it_is_named(self, scheduler, client: str) -> None:
        assert client not in scheduler.clients
        scheduler.client_desires_keys((), client)
        await end(self, scheduler, client)

    monkeypatch.setattr(leases.Leases, "_end", end_when_it_is_named)
    before = parts_held(processes)
    with Client(processes.scheduler.address, set_as_default=False) as other:
        table = DistributedSet.from_keys(np.arange(9), client=other)
    until(lambda: parts_held(processes) == before)
    table.close()


def test_a_client_whose_connection_broke_comes_back(processes, monkeypatch):
    end, ended = leases.Leases._end, threading.Event()

    async def end_when_it_is_back(self, scheduler, client: str) -> None:
        while client not in scheduler.clients:
            await asyncio.sleep(0.05)
        await end(self, scheduler, client)
        ended.set()

    def hang_up(client: str, dask_scheduler) -> None:
        dask_scheduler.client_comms[client].abort()

    monkeypatch.setattr(leases.Leases, "_end", end_when_it_is_back)
    with Client(processes.scheduler.address, set_as_default=False) as other:
        table = DistributedSet.from_keys(np.arange(9), client=other)
        processes.run_on_scheduler(hang_up, other.id)
        assert ended.wait(60)
        until(lambda: other.status == "running")
        assert table.contains([8, 9]).tolist() == [True, False]
        table.close()


def test_tables_that_are_closed_are_forgotten(processes):
    def held(dask_scheduler) -> int:
        plugin = dask_scheduler.plugins[leases.Leases.name]
        return sum(map(len, plugin._held.values()))

    with DistributedSet.from_keys([1]) as table:
        before = processes.run_on_scheduler(held)
        with DistributedSet.from_keys([1]):
            assert processes.run_on_scheduler(held) == before + 1
        until(lambda: processes.run_on_scheduler(held) == before)
        table.close()
        until(lambda: processes.run_on_scheduler(held) == before - 1)


@pytest.mark.parametrize("how", [["exit"], ["close", "theirs"]])
def test_a_cluster_that_ends_first_reports_no_loss_of_ours(how):
    program = subprocess.run(
        [sys.executable, "-c", ENDING, *how], capture_output=True, text=True, timeout=120
    )
    assert (program.returncode, program.stdout) == (0, "end\n")
    lines = [line for line in program.stderr.splitlines() if " ERROR " in line]
    # Folders of workers go in the order in which these end.
    lines = [line for line in lines if "distributed.diskutils" not in line]
    # What users have scattered themselves is theirs to hear of.
    assert len(lines) == ("theirs" in how)
    assert "dgpuhash" not in program.stderr
