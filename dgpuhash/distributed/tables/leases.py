"""Leases: free a client's shards and groups when the client is gone."""

from __future__ import annotations

import asyncio
import atexit
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client, SchedulerPlugin

from dgpuhash import config
from dgpuhash.distributed.cluster.client import is_from_parent_process
from dgpuhash.distributed.cluster.dask_internals import (
    is_client_connected,
    pickle,
    scheduler_plugin,
)
from dgpuhash.distributed.cluster.host import NAME
from dgpuhash.distributed.cluster.rpc import call_scheduler, call_scheduler_async, fire_and_forget
from dgpuhash.distributed.collective.group import close_end
from dgpuhash.distributed.collective.group_cache import GroupUse
from dgpuhash.distributed.events import log_loss
from dgpuhash.distributed.shards.table_store import drop_table_shard


@dataclass(frozen=True, slots=True)
class Lease:
    """A client's claim on a table's shards and an exchange's endpoints.

    There may be no exchange, and tables may share one.

    Attributes
    ----------
    uid : str
        Id of the table.
    group : str or None
        Name of the exchange's group.
    workers : sequence of str
        Addresses.
    """

    uid: str
    group: str | None
    workers: Sequence[str]


class Leases(SchedulerPlugin):
    """Scheduler plugin with the leases of all clients, by client id."""

    name = "dgpuhash-leases"

    def __init__(self) -> None:
        self._held: defaultdict[str, dict[str, Lease]] = defaultdict(dict)

    def take(self, client: str, lease: Lease) -> None:
        """Record a lease, replacing an earlier one of the table."""
        self._held[client][lease.uid] = lease

    def give_back(self, client: str, uid: str) -> None:
        """Forget the lease of a table that its client frees itself."""
        self._held[client].pop(uid, None)

    def workers(self) -> dict[str, Sequence[str]]:
        """Return the workers of each table, by its id."""
        return {lease.uid: lease.workers for held in self._held.values() for lease in held.values()}

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Free the leases of a client unless it reconnects."""
        if self._held[client]:
            fire_and_forget(self._end(scheduler, client))

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """Log an event for each table with a shard on a departed worker."""
        for held in self._held.values():
            for lease in held.values():
                if worker in lease.workers:
                    log_loss(scheduler, worker, table=lease.uid)

    async def _end(self, scheduler: Any, client: str) -> None:
        await asyncio.sleep(config.seconds("liveness.lost-client"))
        if is_client_connected(scheduler, client):
            return
        for lease in self._held.pop(client, {}).values():
            message = {
                "op": "run",
                "function": pickle.dumps(free_on_worker),
                "args": pickle.dumps((lease.uid, lease.group)),
                "kwargs": pickle.dumps({}),
                "wait": True,
            }
            there = sorted(set(lease.workers) & set(scheduler.workers))
            fire_and_forget(scheduler.broadcast(msg=message, workers=there, on_error="ignore"))


def take(client: Client, lease: Lease) -> None:
    """Make the scheduler free `lease` when `client` is gone.

    Raises
    ------
    IndexLost
        When the scheduler is gone.
    """
    call_scheduler(client, _take, client.id, lease)


async def give_back(client: Client, uid: str) -> None:
    """Make the scheduler forget the lease of a table that `client` frees."""
    await call_scheduler_async(client, _give_back, client.id, uid)


def _take(client: str, lease: Lease, dask_scheduler: Any) -> None:
    _leases(dask_scheduler).take(client, lease)


def _give_back(client: str, uid: str, dask_scheduler: Any) -> None:
    _leases(dask_scheduler).give_back(client, uid)


def leased_tables(scheduler: Any) -> dict[str, Sequence[str]]:
    """Return the workers of each distributed table, by its id; runs on the scheduler."""
    found = scheduler.plugins.get(Leases.name)
    return {} if found is None else found.workers()


def _leases(scheduler: Any) -> Leases:
    found: Leases = scheduler_plugin(scheduler, Leases.name, Leases)
    return found


async def free_on_worker(uid: str | None, group: str | None, dask_worker: Any) -> None:
    """Free a worker's shard of a table, and its endpoint of an exchange.

    Runs on the worker.
    """
    if group is not None:
        await close_end(group, dask_worker)
    host = dask_worker.plugins.get(NAME)
    if host is not None and uid is not None:
        await host.thread.run(drop_table_shard, host, uid)


# Seconds to wait for workers, which may be busy.
LIMIT = 10.0


class TableLease:
    """Handle's lease of a table's shards, and its use of a group.

    Parameters
    ----------
    client : distributed.Client
    uid : str
        Id of the table.
    workers : sequence of str
        Addresses.
    use : Use

    Attributes
    ----------
    use : Use or None
        None after the last group has failed.
    """

    def __init__(self, client: Client, uid: str, workers: Sequence[str], use: GroupUse) -> None:
        self._client, self._uid, self._workers = client, uid, list(workers)
        self.use: GroupUse | None = None
        self.renew(use)
        # Runs before Dask closes open clients: Dask, imported earlier, has registered that earlier.
        atexit.register(self.free)

    def renew(self, use: GroupUse) -> None:
        """Replace a failed group by another one.

        The scheduler has shards and group freed when the client is gone without notice.
        """
        take(self._client, Lease(self._uid, use.group.name, self._workers))
        self.use = use

    def free(self, seconds: float = LIMIT, *, parts: bool = True) -> None:
        """Free shards and group on reachable workers; wait `seconds` at most.

        Workers that are busy for longer do so later. Without the `parts`, which another holding has
        from now on, only the use of the group is given up.
        """

        async def wait() -> None:
            await asyncio.wait([fire_and_forget(self._tell(parts))], timeout=seconds)

        if is_from_parent_process(self._client):
            # A forked child gives up nothing that its parent has.
            return
        if self._client.asynchronous:
            # Its event loop cannot wait for itself.
            with suppress(RuntimeError):
                self.abandon()
            return
        atexit.unregister(self.free)
        if self._client.status == "running":
            # Its event loop may have ended all the same, as its process ends.
            with suppress(TimeoutError, RuntimeError):
                self._client.sync(wait, callback_timeout=2 * seconds)

    def abandon(self) -> None:
        """Free as `free` does, without waiting.

        The garbage collector may call it anywhere, on any thread.
        """

        def begin() -> None:
            fire_and_forget(self._tell(parts=True))

        if is_from_parent_process(self._client):
            return
        atexit.unregister(self.free)
        loop = self._client.loop
        if loop is not None and self._client.status == "running":
            loop.add_callback(begin)

    async def _tell(self, parts: bool) -> None:
        last = self.use is not None and self.use.leave()
        there = set(await self._client.scheduler.ncores()) & set(self._workers)
        await self._client.run(
            free_on_worker,
            self._uid if parts else None,
            self.use.group.name if self.use is not None and last else None,
            workers=sorted(there),
            on_error="ignore",
            asynchronous=True,
        )
        if parts:
            await give_back(self._client, self._uid)
