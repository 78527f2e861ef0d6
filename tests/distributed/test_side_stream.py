"""The stream beside the current one, on paper."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dgpuhash import backend
from dgpuhash.distributed.arrays import side_stream
from dgpuhash.distributed.arrays.side_stream import SideStream


class Paper:
    """A stream, which others may wait for."""

    def __init__(self, **_: Any) -> None:
        self.waited: list[Any] = []

    def wait_event(self, event: Any) -> None:
        self.waited.append(event.recorded)


class Event:
    """A place in a stream."""

    recorded: Any = None

    def __init__(self, **_: Any) -> None:
        return

    def record(self, stream: Any) -> None:
        self.recorded = stream


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A backend with two devices, and no streams yet."""
    monkeypatch.setattr(side_stream, "_streams", side_stream._Streams())
    current, runtime = Paper(), SimpleNamespace(device=0)
    runtime.getDevice = lambda: runtime.device
    cuda = SimpleNamespace(
        Stream=Paper, Event=Event, get_current_stream=lambda: current, runtime=runtime
    )
    return SimpleNamespace(name="cuda", xp=SimpleNamespace(cuda=cuda))


def test_tables_of_a_thread_have_one_stream_of_a_device(gpu: Any):
    first, second = SideStream(gpu), SideStream(gpu)
    assert first.use() is second.use()
    gpu.xp.cuda.runtime.device = 1
    third = SideStream(gpu)
    assert third.use() is not first.use() and SideStream(gpu).use() is third.use()
    with ThreadPoolExecutor(1) as other:
        assert other.submit(SideStream, gpu).result().use() not in (first.use(), third.use())


def test_one_waits_for_the_other_only_when_told(gpu: Any):
    side, another = SideStream(gpu), SideStream(gpu)
    current, stream = gpu.xp.cuda.get_current_stream(), side.use()
    side.follow()
    assert stream.waited[-1] is current and not current.waited
    another.rejoin()
    assert current.waited == [stream]


def test_a_cpu_has_none():
    side = SideStream(backend.get("cpu"))
    with side.use():
        array = np.arange(3)
    side.follow()
    side.rejoin()
    assert side.fetch(array)().tolist() == [0, 1, 2]
