"""Side stream beside the current one, simulated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dgpuhash import backend
from dgpuhash.distributed.cluster.locality import LocalInputs
from dgpuhash.distributed.collective import streams
from dgpuhash.distributed.collective.local import LocalCollective
from dgpuhash.distributed.collective.streams import SideStream
from dgpuhash.distributed.pipeline.slices import Chunk
from dgpuhash.distributed.pipeline.verb import run_verb
from dgpuhash.distributed.shards import table_store
from dgpuhash.distributed.shards.table_shard import TableShard, Verb
from dgpuhash.spec import TableSpec
from dgpuhash.tables.open_addressing import batch_insert


class Paper:
    """Simulated stream, which others may wait for."""

    def __init__(self, **_: Any) -> None:
        self.waited: list[Any] = []

    def wait_event(self, event: Any) -> None:
        self.waited.append(event.recorded)

    def synchronize(self) -> None:
        self.waited.append("all")


class Event:
    """Simulated event: a place in a stream."""

    recorded: Any = None

    def __init__(self, **_: Any) -> None:
        return

    def record(self, stream: Any) -> None:
        self.recorded = stream


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a simulated backend with two devices and no streams yet."""
    monkeypatch.setattr(streams, "_streams", streams._Streams())
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


def test_an_error_waits_for_what_is_at_work(gpu: Any):
    side = SideStream(gpu)
    with pytest.raises(ZeroDivisionError), side.ended():
        raise ZeroDivisionError
    assert side.use().waited == ["all"]


def test_a_change_that_another_rank_refuses_lets_go_of_rows_when_they_have_moved(monkeypatch):
    """The first rank moves its rows by the time that the second one says it cannot take part."""
    monkeypatch.setitem(batch_insert._LEAST_NBYTES, "cpu", 1)
    rows = 1 << 18
    spec, keys = TableSpec.of("map", "u8", "u8"), np.arange(2 * rows, dtype="u8")
    chunks = [[Chunk(rank, (), rank * rows, rows)] for rank in range(2)]
    things: list[Any] = [[[keys[:rows], keys[:rows]]], KeyError("chunk 1")]
    ends, done = LocalCollective.group(2, limit=60), []

    class Told(SideStream):
        @contextlib.contextmanager
        def use(self) -> Iterator[None]:
            done.append("begun")
            yield

        @contextlib.contextmanager
        def ended(self) -> Iterator[None]:
            try:
                yield
            finally:
                done.append("ended")

    def work(rank: int) -> Any:
        part = TableShard(spec, 2 * rows, "cpu", 5)
        if rank == 0:
            part.side = Told(part.backend)
        tables, worker = (
            {"t": table_store.HostedShard(part, 0)},
            SimpleNamespace(address=f"worker {rank}"),
        )
        thread = SimpleNamespace(telling=contextlib.nullcontext)
        host: Any = SimpleNamespace(tables=tables, worker=worker, thread=thread)
        given = LocalInputs(chunks, rank, "token", things[rank])
        order = table_store.VerbRequest("t", 0, Verb("add"), False, None)
        made: Any = run_verb(host, ends[rank], order, given)
        return made.result.refused

    with ThreadPoolExecutor(2) as threads:
        refused = list(threads.map(work, range(2)))
    assert refused[0] is None and "chunk 1" in str(refused[1])
    assert done == ["begun", "ended"]


def test_a_cpu_has_none():
    side = SideStream(backend.get("cpu"))
    with side.use():
        array = np.arange(3)
    side.follow()
    side.rejoin()
    with side.ended():
        pass
    assert side.fetch(array)().tolist() == [0, 1, 2]
