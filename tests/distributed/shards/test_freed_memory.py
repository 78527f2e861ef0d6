"""Freed memory that workers keep for the next arrays."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from clusters import lazy
from distributed import Client

import dgpuhash
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.shards import worker_memory

NANNY = "tcp://127.0.0.1:1"


@pytest.mark.parametrize(
    ("nanny", "env", "kept"),
    [
        (NANNY, {"MALLOC_TRIM_THRESHOLD_": "65536"}, True),
        # Several workers, or a client, may share this process.
        (None, {"MALLOC_TRIM_THRESHOLD_": "65536"}, False),
        # A user's own settings.
        (NANNY, {"MALLOC_TRIM_THRESHOLD_": "65535"}, False),
        (NANNY, {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "131072"}, False),
        (NANNY, {}, False),
    ],
)
def test_only_what_dask_has_set_is_changed(
    monkeypatch: pytest.MonkeyPatch, nanny: str | None, env: dict[str, str], kept: bool
) -> None:
    told: dict[int, int] = {}

    def mallopt(number: int, nbytes: int) -> int:
        told[number] = nbytes
        return 1

    monkeypatch.setattr(worker_memory.ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert worker_memory.keep_freed_memory(worker(nanny, 0)) is kept
    assert told == (worker_memory.KEPT_BY_MALLOC if kept else {})
    # Each thread's heap keeps as much: that is a small part of the worker's limit.
    assert worker_memory.keep_freed_memory(worker(nanny, 512 << 20)) is kept
    assert told == ({-1: 8 << 20, -3: 4 << 20} if kept else {})


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_memory.ctypes, "CDLL", lambda _: SimpleNamespace())
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    assert not worker_memory.keep_freed_memory(worker(NANNY, 0))


@pytest.mark.parametrize(("left", "gained", "trims"), [(-50, 40, 3), (-50, 0, 1), (50, 0, 0)])
def test_freed_memory_is_given_back_before_dask_pauses_a_worker(
    monkeypatch: pytest.MonkeyPatch, left: int, gained: int, trims: int
) -> None:
    calls: list[int] = []

    def trim() -> None:
        calls.append(gained)

    filled = [0]
    memory: Any = SimpleNamespace(limit=512, below_spill=lambda: left + sum(calls[filled[0] :]))
    monkeypatch.setattr(worker_memory, "trim", trim)

    async def looks() -> None:
        freed = worker_memory.FreedMemory(memory)
        for _ in range(3):
            await freed.look()
            # It fills again.
            filled[0] = len(calls)

    asyncio.run(looks())
    # Where nothing was gained, it waits for longer.
    assert len(calls) == trims


@pytest.mark.cluster
def test_a_worker_is_watched_while_it_has_the_plugin(threads: Client) -> None:
    dgpuhash.groupby(lazy(pd.DataFrame({"k": [1, 2]}), 2), "k").size().compute()
    hosts = [plugin_of(each) for each in threads.cluster.workers.values()]
    assert all(host.freed._callback.is_running() for host in hosts)


def worker(nanny: str | None, limit: int) -> Any:
    return SimpleNamespace(nanny=nanny, memory_manager=SimpleNamespace(memory_limit=limit))
