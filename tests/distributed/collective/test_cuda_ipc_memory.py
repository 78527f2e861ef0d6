"""CUDA IPC destination buffers of threads with a simulated driver."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dgpuhash.distributed.collective.cuda_ipc_memory import (
    LANDING_SHARE,
    PAGE_NBYTES,
    PeerBuffers,
    landing_nbytes,
)
from dgpuhash.distributed.collective.local import LocalCollective

SIZE = 3
TOTAL = 1 << 40


class Runtime:
    """Simulated CUDA runtime that allocates addresses and records who opens."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.opened: list[bytes] = []
        self.short = 0
        self.freed_open = False
        self._addresses = itertools.count(1 << 20, 1 << 20)
        self.module = SimpleNamespace(
            malloc=self.malloc, free=self.free, memGetInfo=lambda: (0, TOTAL),
            ipcGetMemHandle=self.export, ipcOpenMemHandle=self.open, ipcCloseMemHandle=self.close,
        )  # fmt: skip

    def malloc(self, nbytes: int) -> int:
        if self.short:
            self.short -= 1
            raise RuntimeError("out of memory")
        address = next(self._addresses)
        self.held[address] = nbytes
        return address

    def free(self, address: int) -> None:
        self.freed_open |= b"%d" % address in self.opened
        del self.held[address]

    def export(self, address: int) -> bytes:
        return b"%d" % address

    def open(self, handle: bytes, flags: int) -> int:
        self.opened.append(handle)
        return int(handle)

    def close(self, address: int) -> None:
        self.opened.remove(b"%d" % address)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    made, cupy = Runtime(), ModuleType("cupy")
    pool = SimpleNamespace(free_all_blocks=lambda: None)
    cupy.__dict__.update(
        cuda=SimpleNamespace(runtime=made.module), get_default_memory_pool=lambda: pool
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    yield made
    assert not made.freed_open


@pytest.fixture
def landings(runtime: Runtime) -> list[PeerBuffers]:
    return [PeerBuffers(end, 1 << 30) for end in LocalCollective.group(SIZE, limit=20)]


def on_all(landings: Sequence[PeerBuffers], nbytes: Sequence[int]) -> bool:
    """Return the ranks' common answer."""
    with ThreadPoolExecutor(SIZE) as threads:
        said = list(threads.map(lambda each: each.fits(nbytes), landings))
    assert len(set(said)) == 1
    return said[0]


def test_memory_grows_and_is_kept(runtime: Runtime, landings: list[PeerBuffers]):
    assert on_all(landings, [0, 1000, 9 * PAGE_NBYTES])
    # An eighth more, in whole pages, of which a rank has one at least.
    assert sorted(runtime.held.values()) == [PAGE_NBYTES, PAGE_NBYTES, 11 * PAGE_NBYTES]
    assert len(runtime.opened) == SIZE * (SIZE - 1)
    places = {landing.address(2, 24) for landing in landings}
    assert len(places) == 1 and places.pop() - 24 in runtime.held
    before = dict(runtime.held)
    assert on_all(landings, [PAGE_NBYTES, 0, 10 * PAGE_NBYTES])
    assert runtime.held == before
    assert on_all(landings, [PAGE_NBYTES + 1, 0, 0])
    assert not runtime.held.keys() & before.keys()
    assert len(runtime.held) == SIZE and len(runtime.opened) == SIZE * (SIZE - 1)
    for landing in landings:
        landing.leave()
    for landing in landings:
        landing.free()
    assert runtime.held == {} and runtime.opened == []


@pytest.mark.parametrize("refused", ["malloc", "ipcGetMemHandle", "ipcOpenMemHandle"])
def test_where_one_rank_has_none_nobody_has(runtime, landings, monkeypatch, refused):
    """What needs less is tried again."""
    real, calls = getattr(runtime.module, refused), itertools.count()

    def refuse(*given: Any) -> Any:
        # Memory is asked for once more, when the pool has given back what it kept.
        if next(calls) in {1, 3, 4}:
            raise RuntimeError("refused")
        return real(*given)

    def always(*given: Any) -> Any:
        raise RuntimeError("refused")

    monkeypatch.setattr(runtime.module, refused, always if refused == "malloc" else refuse)
    assert not on_all(landings, [500, 1000, 1500])
    assert runtime.held == {} and runtime.opened == []
    monkeypatch.setattr(runtime.module, refused, real)
    assert not on_all(landings, [1500, 0, 0])
    assert runtime.held == {}
    assert on_all(landings, [1499, 0, 0])
    assert len(runtime.held) == SIZE


def test_memory_that_the_pool_kept(runtime: Runtime, landings: list[PeerBuffers]):
    runtime.short = 1
    assert on_all(landings, [10, 10, 10])
    assert len(runtime.held) == SIZE


def test_what_is_too_much_is_not_asked_for(runtime: Runtime, landings: list[PeerBuffers]):
    assert not on_all(landings, [10, (1 << 30) + 1, 10])
    assert runtime.held == {}
    assert landing_nbytes() == TOTAL // LANDING_SHARE
