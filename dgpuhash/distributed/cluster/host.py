"""The plugin of this library on each worker: installed by a client, found by a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from distributed import WorkerPlugin, get_worker

from dgpuhash.errors import IndexLost, UnsupportedError

__all__ = ["NAME", "arriving_host_of", "host_of", "hosting_worker", "new_plugin", "the_plugin"]

NAME = "dgpuhash"

# Seconds between two looks for a plugin, and how many looks.
MOMENT = 0.05
MOMENTS = 100

_Plugin = TypeVar("_Plugin", bound=type[WorkerPlugin])
_classes: list[Callable[[], WorkerPlugin]] = []


def the_plugin(cls: _Plugin) -> _Plugin:
    """Register `cls` as the plugin that `new_plugin` makes."""
    _classes[:] = [cls]
    return cls


def new_plugin() -> WorkerPlugin:
    """One of the registered class."""
    return _classes[0]()


def host_of(worker: Any) -> Any:
    """The plugin of `worker`.

    Raises
    ------
    IndexLost
        When it has none, which means that no index was ever made on this cluster.
    """
    host = worker.plugins.get(NAME)
    if host is None:
        raise IndexLost(f"worker {worker.address} holds no index; build or load one first")
    return host


async def arriving_host_of(worker: Any) -> Any:
    """As `host_of`, for a worker that may just have joined, and get its plugin in a moment."""
    for _ in range(MOMENTS):
        if NAME in worker.plugins:
            break
        await asyncio.sleep(MOMENT)
    return host_of(worker)


def hosting_worker() -> Any:
    """The worker that runs this task.

    Raises
    ------
    UnsupportedError
        When no worker of a cluster does.
    IndexLost
        When it has no plugin.
    """
    try:
        worker = get_worker()
    except ValueError as error:
        raise UnsupportedError(
            "an index answers tasks on the workers of its cluster only; compute the merge with its "
            "client, not with scheduler='threads' or 'sync'"
        ) from error
    host_of(worker)
    return worker
