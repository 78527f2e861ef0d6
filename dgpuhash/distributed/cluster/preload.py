"""Bringing this library into the processes of a cluster before they are asked for anything."""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import Awaitable
from functools import partial
from typing import Any
from weakref import WeakSet

from distributed import Client

from dgpuhash.distributed.cluster.broadcast import attended
from dgpuhash.distributed.cluster.client import workers_of
from dgpuhash.distributed.cluster.locality import watch_departures
from dgpuhash.distributed.cluster.rpc import ask_scheduler
from dgpuhash.errors import UnsupportedError

__all__ = ["import_there"]

# What a process of a cluster ever asks for hangs on this module.
_THERE = "dgpuhash.distributed.shards.plugin:NAME"

_done: WeakSet[Client] = WeakSet()


def import_there(client: Client) -> None:
    """Let the scheduler and the workers that are there import this library, once for each client.

    They do so in threads: the first message that names a function of ours would make the event
    loop import it, with all that it needs, and answer nobody for seconds.

    Raises
    ------
    UnsupportedError
        When it is not installed there.
    IndexLost
        When a worker is lost meanwhile.
    """
    if client in _done:
        return
    # Nothing of ours travels with it.
    found = partial(asyncio.to_thread, pkgutil.resolve_name, _THERE)

    def begin() -> Awaitable[Any]:
        return asyncio.gather(
            client.run_on_scheduler(found, asynchronous=True),
            client.run(found, asynchronous=True),
        )

    try:
        # A look that names a function of ours would wait for the import on the event loop.
        attended(client, workers_of(client), begin, look=list)
    except ImportError as error:
        raise UnsupportedError(
            f"a process of the cluster cannot import dgpuhash ({error}); install the same version "
            "for its scheduler and workers, and start them again"
        ) from error
    ask_scheduler(client, watch_departures)
    _done.add(client)
