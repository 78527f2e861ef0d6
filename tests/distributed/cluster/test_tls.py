"""TLS between two worker processes: who may join, and what others see on the wire."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from clusters import assert_same, fork_workers, lazy
from distributed import Client, Nanny, Scheduler, SpecCluster, Worker
from distributed.security import Security

from dgpuhash.distributed import DistributedIndex, DistributedMap
from dgpuhash.distributed.collective import group as groups

pytestmark = pytest.mark.cluster

# Within keys of text, and the seven upper bytes of keys of eight.
TEXT, WORD = "a marker within a key of text", b"iremark"


class Wire:
    """A port of this host that passes everything on to another one, and keeps what passed."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.behind = free.getsockname()[1]
        self._seen: list[bytes] = []
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        listening = asyncio.start_server(self._connected, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]

    def seen(self) -> bytes:
        return b"".join(self._seen)

    async def _connected(self, reader: Any, writer: Any) -> None:
        try:
            behind, ahead = await asyncio.open_connection("127.0.0.1", self.behind)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pass_on(reader, ahead), self._pass_on(behind, writer))

    async def _pass_on(self, reader: Any, writer: Any) -> None:
        try:
            while data := await reader.read(1 << 20):
                self._seen.append(data)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


@contextmanager
def cluster_behind_wires(security: Security | None) -> Iterator[tuple[Client, list[Wire]]]:
    """Yield a client of two worker processes; every byte to a worker or the scheduler is kept."""
    fork_workers()
    protocol = "tcp" if security is None else "tls"
    wires = [Wire() for _ in range(3)]
    contacts = [f"{protocol}://127.0.0.1:{wire.port}" for wire in wires]
    shared = {"host": "127.0.0.1", "protocol": protocol, "security": security}
    workers = {
        number: {
            "cls": Nanny,
            "options": shared
            | {"nthreads": 1, "worker_port": wire.behind, "contact_address": contact}
            | {"preload": ["dgpuhash.distributed"]},
        }
        for number, (wire, contact) in enumerate(zip(wires[1:], contacts[1:], strict=True))
    }
    listening = {"port": wires[0].behind, "contact_address": contacts[0], "dashboard_address": ":0"}
    settings = {
        "distributed.worker.multiprocessing-method": "forkserver",
        "distributed.comm.compression": None,
        "dataframe.convert-string": False,
        "scheduler": dask.config.get("scheduler", None),
    }
    with ExitStack() as stack:
        for wire in wires:
            stack.callback(wire.close)
        stack.enter_context(dask.config.set(settings))
        scheduler = {"cls": Scheduler, "options": shared | listening}
        cluster = SpecCluster(workers, scheduler, security=security)
        stack.enter_context(cluster)
        client = stack.enter_context(Client(contacts[0], security=security))
        client.wait_for_workers(2, timeout=120)
        yield client, wires


def work(client: Client) -> None:
    """Keys of an index and of a table travel between the workers, with the right answers."""
    assert len({address.rpartition(":")[2] for address in client.nthreads()}) == 2
    planes = pd.DataFrame({"k": [f"{TEXT} {n % 300}" for n in range(900)], "v": range(900)})
    flights = pd.DataFrame({"k": planes["k"][::-3].to_numpy(), "x": np.arange(300) / 4})
    with DistributedIndex.build(lazy(planes, 4), on="k", client=client) as index:
        assert len(index.workers) == 2
        assert_same(index.merge(lazy(flights, 2)).compute(), flights.merge(planes, on="k"))
        index.insert(planes.head(5))
        assert len(index.lookup(planes["k"].head(1))) == 4
    first = int.from_bytes(b"\0" + WORD, "little")
    keys = np.arange(first, first + 256)
    with DistributedMap.from_arrays(keys, keys % 7, client=client) as table:
        values, found = table.find(keys)
        assert found.all()
        assert values.tolist() == (keys % 7).tolist()


@pytest.fixture(scope="module")
def security() -> Security:
    return Security.temporary()


def test_without_tls_the_keys_are_seen():
    """So that the next test would see them."""
    with cluster_behind_wires(None) as (client, wires):
        work(client)
        for wire in wires[1:]:
            assert TEXT.encode() in wire.seen()
            assert WORD in wire.seen()


def test_with_tls_no_key_is_seen_and_no_stranger_joins(security):
    with cluster_behind_wires(security) as (client, wires):
        work(client)
        for stranger in (Security.temporary(), None):
            with pytest.raises((OSError, RuntimeError)):
                asyncio.run(join(client.scheduler.address, stranger))
        assert len(client.nthreads()) == 2
        for wire in wires:
            assert len(wire.seen()) > 1000
            for known in (TEXT.encode(), WORD, b"dgpuhash", b"register-worker"):
                assert known not in wire.seen()


async def join(address: str, security: Security | None) -> None:
    """Start a worker in this process, with another certificate or none."""
    given = address if security else address.replace("tls://", "tcp://")
    async with Worker(given, security=security, nthreads=1, death_timeout="2 s", dashboard=False):
        raise AssertionError("the scheduler took the worker")


def test_what_is_not_encrypted_is_left_out():
    """NCCL has no encryption: between hosts it is not taken by itself."""
    apart = [groups.WorkerInfo(host, number, "cuda") for number, host in enumerate("ab")]
    together = [groups.WorkerInfo("a", number, "cuda") for number in range(2)]
    assert "nccl" not in groups.transports_of("auto", ["tls://a:1", "tls://b:1"], apart)
    assert "nccl" in groups.transports_of("auto", ["tcp://a:1", "tcp://b:1"], apart)
    assert groups.transports_of("nccl", ["tls://a:1", "tls://b:1"], apart) == ["nccl"]
    assert "nccl" in groups.transports_of("auto", ["tls://a:1", "tls://a:2"], together)
