"""This library on workers and scheduler, before anybody waits for what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from distributed import Client, WorkerPlugin

from dgpuhash.distributed.clients import workers_of
from dgpuhash.distributed.phase import attended
from dgpuhash.errors import IndexLost, UnsupportedError

__all__ = ["bring_library", "installed"]

# A function of ours would have it imported on the event loop, which then answers nobody.
IMPORT: Any = (asyncio.to_thread, exec, "import dgpuhash.distributed", {})

# The workers that have it, as far as each client knows.
_brought: WeakKeyDictionary[Client, set[str]] = WeakKeyDictionary()


def bring_library(client: Client, workers: Sequence[str]) -> None:
    """Have `workers` and the scheduler import this library, however long that takes.

    Raises
    ------
    IndexLost
        When a worker is lost meanwhile.
    UnsupportedError
        When one cannot import it.
    """
    known = _brought.setdefault(client, set())
    new = sorted(set(workers) - known)
    if not new:
        return

    async def bring() -> dict[str, Any]:
        found, _ = await asyncio.gather(
            client.run(*IMPORT, workers=new, on_error="return", asynchronous=True),
            client.run_on_scheduler(*IMPORT, asynchronous=True),
        )
        return found

    for worker, error in attended(client, new, bring, question=list).items():
        if isinstance(error, ImportError):
            raise UnsupportedError(
                f"worker {worker} cannot import dgpuhash ({error}); install the same version of it "
                "for all workers, the scheduler and the client"
            ) from error
    known.update(new)


def installed(client: Client, plugin: WorkerPlugin) -> None:
    """Register `plugin` on all workers of the cluster, and on those that come later.

    Raises
    ------
    IndexLost
        When a worker is lost meanwhile.
    """
    workers = workers_of(client)
    bring_library(client, workers)
    try:
        attended(client, workers, lambda: client.register_plugin(plugin))
    except OSError as error:
        raise IndexLost(
            f"a worker of the cluster was lost before the index was begun ({error}); call it again"
        ) from error
