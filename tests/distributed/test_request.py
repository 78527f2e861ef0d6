"""Requests of one worker to another."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from dgpuhash.distributed import request


def test_a_message_goes_on_when_its_sender_is_cancelled(monkeypatch):
    """A receive that is cancelled ends the process over UCXX."""
    came_of_it: list[str] = []

    async def slow(*message: Any) -> dict[str, Any]:
        try:
            await asyncio.sleep(0.2)
        except asyncio.CancelledError:
            came_of_it.append("cancelled")
            raise
        came_of_it.append("answered")
        return {"status": "OK", "answer": []}

    async def ask() -> None:
        worker = SimpleNamespace(address="tcp://here:1")
        asking = asyncio.ensure_future(request.request(worker, "tcp://there:1", "known", {}))
        await asyncio.sleep(0.05)
        asking.cancel()
        await asyncio.sleep(0.4)

    monkeypatch.setattr(request, "_round_trip", slow)
    asyncio.run(ask())
    assert came_of_it == ["answered"]
