"""Freed memory that workers keep for the next arrays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dgpuhash.distributed.shards import spilling

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

    monkeypatch.setattr(spilling.ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    worker: Any = SimpleNamespace(nanny=nanny)
    assert spilling.keep_freed_memory(worker) is kept
    assert told == (spilling.KEPT_BY_MALLOC if kept else {})


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilling.ctypes, "CDLL", lambda _: SimpleNamespace())
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    assert not spilling.keep_freed_memory(SimpleNamespace(nanny=NANNY))
