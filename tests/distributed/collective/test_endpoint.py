"""Throttled event loop while another thread works on a GPU."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from clusters import until

from dgpuhash.distributed.collective import endpoint
from dgpuhash.distributed.collective.cuda_ipc import PeerCollective
from dgpuhash.distributed.collective.dask_comm import CommCollective
from dgpuhash.distributed.collective.nccl import NcclCollective
from dgpuhash.distributed.collective.two_level.layout import HostLayout


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield an event loop that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the seconds of each nap."""
    naps: list[float] = []

    class Over(threading.Event):
        def wait(self, seconds: float | None = None) -> bool:
            assert seconds is not None
            naps.append(seconds)
            return self.is_set()

    monkeypatch.setattr(endpoint, "threading", SimpleNamespace(Event=Over))
    return naps


async def answer() -> str:
    return "there"


def asked(loop: asyncio.AbstractEventLoop) -> str:
    return asyncio.run_coroutine_threadsafe(answer(), loop).result(60)


def test_a_loop_rests_and_answers_until_the_block_ends(loop, naps):
    with pytest.raises(ZeroDivisionError), endpoint.throttle_loop(loop, "cuda"):
        until(lambda: len(naps) > 2, pause=0.001)
        assert asked(loop) == "there"
        raise ZeroDivisionError
    # The nap that was due may still come.
    asked(loop)
    asked(loop)
    count = len(naps)
    asked(loop)
    assert len(naps) == count


def test_a_nap_ends_with_the_block(loop, monkeypatch):
    monkeypatch.setattr(endpoint, "SLEEP", 300)
    asked(loop)
    with endpoint.throttle_loop(loop, "cuda"):
        pending = asyncio.run_coroutine_threadsafe(answer(), loop)
        with pytest.raises(TimeoutError):
            pending.result(0.05)
    assert pending.result(60) == "there"


def end_of(kind: type[Any], loop: asyncio.AbstractEventLoop) -> Any:
    return kind(SimpleNamespace(rank=0, size=1, loop=loop, layout=None))


@pytest.mark.parametrize(
    ("kind", "device"),
    [(PeerCollective, "cpu"), (CommCollective, "cuda"), (NcclCollective, "cuda")],
)
def test_a_loop_that_carries_columns_or_values_does_not_rest(loop, naps, kind, device):
    with end_of(kind, loop).with_quiet_loop(device):
        asked(loop)
        asked(loop)
    assert not naps


@pytest.mark.parametrize("kind", [PeerCollective, NcclCollective])
def test_a_loop_rests_while_gpus_of_a_host_exchange(loop, naps, kind):
    end = end_of(kind, loop)
    end._mailbox = SimpleNamespace()
    with end.with_quiet_loop("cuda"):
        until(lambda: len(naps) > 2, pause=0.001)


def test_a_loop_that_carries_values_between_hosts_does_not_rest(loop, naps):
    end = end_of(NcclCollective, loop)
    end._mailbox, end.membership.layout = SimpleNamespace(), HostLayout.of(["a", "a", "b"])
    with end.with_quiet_loop("cuda"):
        asked(loop)
        asked(loop)
    assert not naps
