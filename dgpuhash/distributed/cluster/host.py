"""This library's plugin on each worker: registration and lookup."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from distributed import WorkerPlugin, get_worker

from dgpuhash.errors import IndexLost, UnsupportedError

__all__ = ["NAME", "arriving_host_of", "host_of", "hosting_worker", "new_plugin", "the_plugin"]

NAME = "dgpuhash"

# Seconds between two checks for a plugin, and how many checks.
MOMENT = 0.05
MOMENTS = 100

_Plugin = TypeVar("_Plugin", bound=type[WorkerPlugin])
_classes: list[Callable[[], WorkerPlugin]] = []


def the_plugin(cls: _Plugin) -> _Plugin:
    """Register `cls` as the plugin class that `new_plugin` instantiates."""
    _classes[:] = [cls]
    return cls


def new_plugin() -> WorkerPlugin:
    """Return a new plugin of the registered class."""
    return _classes[0]()


def host_of(worker: Any) -> Any:
    """Return the plugin of `worker`.

    Raises
    ------
    IndexLost
        When the worker has no plugin: no index was ever made on this cluster.
    """
    host = worker.plugins.get(NAME)
    if host is None:
        raise IndexLost(f"worker {worker.address} holds no index; build or load one first")
    return host


async def arriving_host_of(worker: Any) -> Any:
    """Return the plugin of `worker`, which may still be installing it.

    Waits up to 5 s for a worker that has just joined; raises as `host_of` then.
    """
    for _ in range(MOMENTS):
        if NAME in worker.plugins:
            break
        await asyncio.sleep(MOMENT)
    return host_of(worker)


def hosting_worker() -> Any:
    """Return the worker that runs this task.

    Raises
    ------
    UnsupportedError
        When this code does not run in a task on a worker.
    IndexLost
        When the worker has no plugin.
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
