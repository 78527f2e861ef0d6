"""What a worker has among its data, for phases on its shard thread."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from distributed.utils import sync

__all__ = ["keep", "kept"]


def kept(worker: Any, keys: Sequence[Hashable]) -> list[Any]:
    """The values under `keys`, from the event loop, which alone touches the worker's data.

    Raises
    ------
    KeyError
        When one has left the worker.
    """

    async def fetch() -> list[Any]:
        return [worker.data[key] for key in keys]

    return list(sync(worker.loop, fetch)) if keys else []


def keep(worker: Any, data: Mapping[Any, Any]) -> None:
    """Put `data` among that of the worker, where a client that claims it finds it."""

    async def update() -> None:
        worker.update_data(dict(data))

    if data:
        sync(worker.loop, update)
