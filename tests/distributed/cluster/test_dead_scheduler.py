"""Calls of a client whose scheduler is dead or stands still end soon, in an error of ours."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from distributed.core import CommClosedError

import dgpuhash
from dgpuhash import DistributedIndex
from dgpuhash.distributed import DistributedMap
from dgpuhash.distributed.cluster import broadcast
from dgpuhash.distributed.cluster import client as clients
from dgpuhash.distributed.cluster.broadcast import run_on_event_loops
from dgpuhash.distributed.cluster.client import (
    holders_of,
    identity_of,
    unpaused_workers,
    worker_ids,
    workers_of,
)
from dgpuhash.distributed.cluster.lock import hold_lock
from dgpuhash.distributed.cluster.rpc import call_scheduler
from dgpuhash.errors import IndexLost
from dgpuhash.kmer.cluster import Workers

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def nothing(dask_scheduler: object) -> None:
    pass


def held(client: Client) -> None:
    with hold_lock(client, "one"):
        pass


def started(stack: ExitStack, module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a process of Dask's that the stack kills, also one that stands still."""
    command = [sys.executable, "-m", f"distributed.cli.{module}", "--no-dashboard", *arguments]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **quiet)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


@pytest.fixture
def cluster() -> Iterator[tuple[Client, subprocess.Popen[bytes], str]]:
    """Yield a client, the process of its scheduler, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    with ExitStack() as stack:
        place = ["--host", "127.0.0.1", "--port", str(port)]
        scheduler = started(stack, "dask_scheduler", *place)
        client = stack.enter_context(Client(address, timeout=60, set_as_default=False))
        # A scheduler that stands still would hold up the client's end.
        stack.callback(scheduler.send_signal, signal.SIGCONT)
        call_scheduler(client, nothing)
        yield client, scheduler, address


def kill(scheduler: subprocess.Popen[bytes]) -> None:
    scheduler.kill()
    scheduler.wait()


def stop(scheduler: subprocess.Popen[bytes]) -> None:
    scheduler.send_signal(signal.SIGSTOP)


def patience(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setitem(dask.config.get("dgpuhash.liveness"), "timeout", seconds)
    for module in (broadcast, clients):
        monkeypatch.setattr(module, "POLL_SECONDS", 0.2)


def assert_lost(call: Callable[[], Any], seconds: float = 20) -> None:
    start = time.monotonic()
    with pytest.raises(IndexLost):
        call()
    assert time.monotonic() - start < seconds


@pytest.mark.parametrize("fail", [kill, stop])
def test_every_call_ends_soon(cluster, monkeypatch, fail):
    """Dask would try for half a minute at each call, or wait for ever."""
    client, scheduler, _ = cluster
    fail(scheduler)
    patience(monkeypatch, 1.0)
    for call in (
        lambda: held(client),
        lambda: call_scheduler(client, nothing),
        lambda: workers_of(client),
        lambda: worker_ids(client),
        lambda: identity_of(client),
        lambda: unpaused_workers(client, []),
        lambda: holders_of(client, []),
        lambda: run_on_event_loops(client, ["tcp://127.0.0.1:1"], nothing),
        lambda: Workers(client),
    ):
        assert_lost(call)


def test_verbs_end_soon_while_the_scheduler_stands_still(cluster, monkeypatch):
    """The process is stopped, and its connections stay; the verbs answer when it goes on."""
    client, scheduler, address = cluster
    rows = pd.DataFrame({"k": np.arange(100), "v": np.arange(100)})
    frame = dd.from_pandas(rows, npartitions=2)
    with ExitStack() as stack, client.as_current():
        started(stack, "dask_worker", address, "--nthreads", "1", "--no-nanny")
        client.wait_for_workers(1, timeout=60)
        index = DistributedIndex.build(rows, on="k")
        table = DistributedMap("int64", "int64", client=client)
        table.insert(rows["k"].to_numpy(), rows["v"].to_numpy())
        stop(scheduler)
        patience(monkeypatch, 1.0)
        for call in (
            lambda: index.insert(rows + 100),
            lambda: index.lookup([1]),
            lambda: len(index),
            lambda: index.merge(frame, on="k"),
            lambda: DistributedIndex.open(index.name),
            lambda: dgpuhash.merge(frame, frame, on="k"),
            lambda: table.find(rows["k"].to_numpy()),
            lambda: table.find(da.from_array(rows["k"].to_numpy(), chunks=50)),
            lambda: len(table),
        ):
            assert_lost(call)
        scheduler.send_signal(signal.SIGCONT)
        patience(monkeypatch, 20.0)
        assert len(index) == index.contains(np.arange(200)).sum() == 100
        assert index.insert(rows + 100) == 100


def test_a_client_that_stood_still_has_not_waited(cluster, monkeypatch):
    """Its clock goes on where a terminal stops it, and answers come when it goes on."""
    client, scheduler, _ = cluster
    stop(scheduler)
    now = time.monotonic()

    def check(seconds: int) -> None:
        clock = SimpleNamespace(monotonic=lambda: now + seconds)
        monkeypatch.setattr(clients, "time", clock)
        clients.check_connected(client)

    for seconds in (0, 1, 600, 601):
        check(seconds)
    with pytest.raises(CommClosedError, match="has not answered for 20 s"):
        for seconds in range(602, 630):
            check(seconds)
