"""What workers hold for a handle, and the end of it."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Sequence
from contextlib import suppress

from distributed import Client

from dgpuhash.distributed.cluster.client import inherited
from dgpuhash.distributed.cluster.rpc import begun
from dgpuhash.distributed.collective.group_cache import Use
from dgpuhash.distributed.tables.leases import Lease, forget, give_back, take

__all__ = ["LIMIT", "Holding"]

# Seconds that workers are waited for, who may be busy.
LIMIT = 10.0


class Holding:
    """The parts of a table, and its use of a group.

    Parameters
    ----------
    client : distributed.Client
    uid : str
        Of the table.
    workers : sequence of str
        Addresses.
    use : Use

    Attributes
    ----------
    use : Use or None
        None when the last group failed.
    """

    def __init__(self, client: Client, uid: str, workers: Sequence[str], use: Use) -> None:
        self._client, self._uid, self._workers = client, uid, list(workers)
        self.use: Use | None = None
        self.renew(use)
        # Before Dask ends the clients that are still there, as it was imported earlier.
        atexit.register(self.free)

    def renew(self, use: Use) -> None:
        """Use another group in the place of one that failed.

        The scheduler has it all freed when the client is gone without a word.
        """
        take(self._client, Lease(self._uid, use.group.name, self._workers))
        self.use = use

    def free(self, seconds: float = LIMIT, *, parts: bool = True) -> None:
        """Let the workers that are there free it; who is busy for so many seconds does so later.

        Without the `parts`, which another holding has from now on, its use of the group alone.
        """

        async def wait() -> None:
            await asyncio.wait([begun(self._tell(parts))], timeout=seconds)

        if inherited(self._client):
            # A forked child gives up nothing that its parent has.
            return
        if self._client.asynchronous:
            # Its event loop cannot wait for itself.
            with suppress(RuntimeError):
                self.abandon()
            return
        atexit.unregister(self.free)
        if self._client.status == "running":
            # Its event loop may have ended even so, when its process does.
            with suppress(TimeoutError, RuntimeError):
                self._client.sync(wait, callback_timeout=2 * seconds)

    def abandon(self) -> None:
        """As `free`, and waits for nobody: the collector may call it anywhere, on any thread."""

        def begin() -> None:
            begun(self._tell(parts=True))

        if inherited(self._client):
            return
        atexit.unregister(self.free)
        loop = self._client.loop
        if loop is not None and self._client.status == "running":
            loop.add_callback(begin)

    async def _tell(self, parts: bool) -> None:
        last = self.use is not None and self.use.leave()
        there = set(await self._client.scheduler.ncores()) & set(self._workers)
        await self._client.run(
            forget,
            self._uid if parts else None,
            self.use.group.name if self.use is not None and last else None,
            workers=sorted(there),
            on_error="ignore",
            asynchronous=True,
        )
        if parts:
            await give_back(self._client, self._uid)
