"""Requests of one worker to another."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dgpuhash.distributed import request


def test_a_message_goes_on_when_its_sender_is_cancelled(monkeypatch):
    """A receive that is cancelled ends the process over UCXX."""
    came_of_it: list[str] = []
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(*message: Any) -> dict[str, Any]:
        begun.set()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            came_of_it.append("cancelled")
            raise
        finally:
            ended.set()
        came_of_it.append("answered")
        return {"status": "OK", "answer": []}

    async def ask() -> None:
        worker = SimpleNamespace(address="tcp://here:1")
        asking = asyncio.ensure_future(request.request(worker, "tcp://there:1", "known", {}))
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        go_on.set()
        await ended.wait()

    monkeypatch.setattr(request, "_round_trip", slow)
    asyncio.run(asyncio.wait_for(ask(), 20))
    assert came_of_it == ["answered"]
