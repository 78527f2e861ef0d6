"""What workers hold for the handles of each client, freed when the scheduler has lost it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distributed import Client, SchedulerPlugin
from distributed.protocol import pickle

from dgpuhash.distributed.cluster.calls import ask_scheduler, on_scheduler
from dgpuhash.distributed.cluster.client import connected
from dgpuhash.distributed.cluster.rpc import begun
from dgpuhash.distributed.collective.group import close_end
from dgpuhash.distributed.shards.plugin import NAME
from dgpuhash.distributed.shards.table_store import drop_part

__all__ = ["Lease", "forget", "give_back", "take"]

# Seconds that a client has to come back when its connection broke.
PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Lease:
    """The parts of a table, and the ends of an exchange that it may share with others, if any.

    Attributes
    ----------
    uid : str
        Of the table.
    group : str or None
        The name of the exchange.
    workers : sequence of str
        Addresses.
    """

    uid: str
    group: str | None
    workers: Sequence[str]


class Leases(SchedulerPlugin):
    """Those of all clients, by their ids."""

    name = "dgpuhash-leases"

    def __init__(self) -> None:
        self._held: defaultdict[str, dict[str, Lease]] = defaultdict(dict)

    def take(self, client: str, lease: Lease) -> None:
        """Remember it in the place of an earlier one of the table."""
        self._held[client][lease.uid] = lease

    def give_back(self, client: str, uid: str) -> None:
        """Forget it: its client has it freed."""
        self._held[client].pop(uid, None)

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Free what a client that does not come back had."""
        if self._held[client]:
            begun(self._end(scheduler, client))

    async def _end(self, scheduler: Any, client: str) -> None:
        await asyncio.sleep(PATIENCE)
        if connected(scheduler, client):
            return
        for lease in self._held.pop(client, {}).values():
            message = {
                "op": "run",
                "function": pickle.dumps(forget),
                "args": pickle.dumps((lease.uid, lease.group)),
                "kwargs": pickle.dumps({}),
                "wait": True,
            }
            there = sorted(set(lease.workers) & set(scheduler.workers))
            begun(scheduler.broadcast(msg=message, workers=there, on_error="ignore"))


def take(client: Client, lease: Lease) -> None:
    """Have the scheduler free it when `client` is gone.

    Raises
    ------
    IndexLost
        When the scheduler is.
    """
    ask_scheduler(client, _take, client.id, lease)


async def give_back(client: Client, uid: str) -> None:
    """Let the scheduler forget what `client` frees itself."""
    await on_scheduler(client, _give_back, client.id, uid)


def _take(client: str, lease: Lease, dask_scheduler: Any) -> None:
    _leases(dask_scheduler).take(client, lease)


def _give_back(client: str, uid: str, dask_scheduler: Any) -> None:
    _leases(dask_scheduler).give_back(client, uid)


def _leases(scheduler: Any) -> Leases:
    if Leases.name not in scheduler.plugins:
        scheduler.add_plugin(Leases())
    found: Leases = scheduler.plugins[Leases.name]
    return found


async def forget(uid: str | None, group: str | None, dask_worker: Any) -> None:
    """Runs on a worker: frees its part of a table, and its end of an exchange."""
    if group is not None:
        await close_end(group, dask_worker)
    host = dask_worker.plugins.get(NAME)
    if host is not None and uid is not None:
        await host.thread.run(drop_part, host, uid)
