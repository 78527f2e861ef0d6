"""Import this library on the scheduler and the workers before the first call."""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import Awaitable
from functools import partial
from typing import Any
from weakref import WeakSet

from distributed import Client

from dgpuhash.distributed.cluster.broadcast import run_watched
from dgpuhash.distributed.cluster.client import workers_of
from dgpuhash.distributed.cluster.locality import watch_departures
from dgpuhash.distributed.cluster.rpc import call_scheduler
from dgpuhash.errors import UnsupportedError

# This module imports all that a process of a cluster ever needs.
_THERE = "dgpuhash.distributed.shards.plugin:NAME"

# Above this room. It does nothing where the scheduler has no dashboard.
_PAGE = "dgpuhash.distributed.dashboard.server:add_page"

_done: WeakSet[Client] = WeakSet()


def import_on_cluster(client: Client) -> None:
    """Import this library on the scheduler and all workers, once per client.

    Each process imports it in a thread. Otherwise the first message that names a function of this
    library makes the event loop import it, and the process does not answer for seconds.

    Raises
    ------
    UnsupportedError
        When a process of the cluster cannot import it.
    IndexLost
        When a worker is lost before it has imported it.
    """
    if client in _done:
        return
    # Its pickle names no function of ours.
    found = partial(asyncio.to_thread, pkgutil.resolve_name, _THERE)

    def begin() -> Awaitable[Any]:
        return asyncio.gather(
            client.run_on_scheduler(found, asynchronous=True),
            client.run(found, asynchronous=True),
        )

    try:
        # A heartbeat that names a function of ours would import it on the event loop.
        run_watched(client, workers_of(client), begin, look=list)
    except ImportError as error:
        raise UnsupportedError(
            f"a process of the cluster cannot import dgpuhash ({error}); install the same version "
            "for its scheduler and workers, and start them again"
        ) from error
    call_scheduler(client, prepare_scheduler)
    _done.add(client)


def prepare_scheduler(dask_scheduler: Any) -> None:
    """Install the scheduler plugins of indexes and tables; runs on the scheduler's event loop."""
    watch_departures(dask_scheduler)
    pkgutil.resolve_name(_PAGE)(dask_scheduler)
