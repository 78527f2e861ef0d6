"""Register and look up this library's plugin on each worker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from distributed import WorkerPlugin, get_worker

from dgpuhash.errors import IndexLost, UnsupportedError

NAME = "dgpuhash"

# Seconds between two checks for a plugin, and how many checks.
POLL_SECONDS = 0.05
POLLS = 100

_Plugin = TypeVar("_Plugin", bound=type[WorkerPlugin])
_classes: list[Callable[[], WorkerPlugin]] = []


class PluginHost(Protocol):
    """Plugin as lower rooms see it: `shards.plugin.ShardHost`."""

    worker: Any
    thread: Any
    shards: Any
    ends: dict[str, Any]
    left: deque[str]


def plugin_class(cls: _Plugin) -> _Plugin:
    """Register `cls` as the plugin class that `new_plugin` instantiates."""
    _classes[:] = [cls]
    return cls


def new_plugin() -> WorkerPlugin:
    """Return a new plugin of the registered class."""
    return _classes[0]()


def plugin_of(worker: Any) -> Any:
    """Return the plugin of `worker`.

    Raises
    ------
    IndexLost
        When the worker has no plugin: no index was ever made on this cluster.
    """
    host = worker.plugins.get(NAME)
    if host is None:
        raise IndexLost(f"worker {worker.address} has no index; build or load one first")
    return host


async def wait_for_plugin(worker: Any) -> Any:
    """Return the plugin of `worker`, which may still be installing it.

    Waits up to 5 s for a worker that has just joined; raises as `plugin_of` then.
    """
    for _ in range(POLLS):
        if NAME in worker.plugins:
            break
        await asyncio.sleep(POLL_SECONDS)
    return plugin_of(worker)


def current_worker() -> Any:
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
            "an index can be queried only by tasks on the workers of its cluster; compute the "
            "merge with its "
            "client, not with scheduler='threads' or 'sync'"
        ) from error
    plugin_of(worker)
    return worker
