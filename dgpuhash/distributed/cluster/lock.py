"""Blocks that one client at a time is in."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Any

from distributed import Client, Lock

from dgpuhash.distributed.cluster.client import asking_the_scheduler, connected, giving_way
from dgpuhash.distributed.cluster.rpc import ask_scheduler, handlers_of
from dgpuhash.errors import IndexLost, ReentranceError

__all__ = ["Alone", "forget_lock", "locked"]

# Seconds between two looks whether the client in the block is alive.
PATIENCE = 2.0

# The threads of this process that are in a block, or wait for it, for which client.
_inside: set[tuple[int, str, str]] = set()


class Alone:
    """A block that a thread which is in it may not enter again: it is in the middle of a phase.

    Other threads are kept out by a lock around it.

    Parameters
    ----------
    name : str
        Of the table.
    """

    def __init__(self, name: str) -> None:
        self._name, self._entered = name, False

    def __enter__(self) -> None:
        if self._entered:
            raise ReentranceError(
                f"a thread that waits for a verb of a {self._name} came to use the table (in a "
                "signal handler, or a finaliser): do so when that call has returned"
            )
        self._entered = True

    def __exit__(self, *_: object) -> None:
        self._entered = False


@contextmanager
def locked(client: Client, name: str) -> Iterator[None]:
    """A block that one client at a time is in, for each name.

    A task may be in it, or wait for it, without a thread of its worker. The place of a client that
    the scheduler has lost is free.

    Raises
    ------
    IndexLost
        When the scheduler is gone.
    ReentranceError
        When this thread is in the block, which it would wait for itself to leave.
    """
    place = get_ident(), client.id, name
    if place in _inside:
        raise ReentranceError(
            f"a thread that is changing {name} came to change it (in a signal handler, or a "
            "finaliser): keep what is to be changed, and change it when that call has returned"
        )
    try:
        _inside.add(place)
        with giving_way(client), _lock(client, name):
            yield
    finally:
        _inside.discard(place)


class ClientLock(Lock):
    """Dask's lock, with leases that tell their client: Dask itself waits for it half a minute."""

    def __init__(self, name: str, client: Client) -> None:
        super().__init__(name, scheduler_rpc=handlers_of(client), loop=client.loop)
        self._holder = client.id

    async def _acquire(self, timeout: float | None = None) -> bool:
        await self
        lease = f"{self._holder}/{uuid.uuid4().hex}"
        got = await self.scheduler.semaphore_acquire(
            name=self.name, timeout=timeout, lease_id=lease
        )
        if got:
            self._leases.append(lease)
        return bool(got)


@contextmanager
def _lock(client: Client, name: str) -> Iterator[None]:
    with asking_the_scheduler():
        lock = ClientLock(_known_as(name), client)
        while not lock.acquire(timeout=PATIENCE):
            ask_scheduler(client, free_of_the_dead, lock.name)
    try:
        yield
    finally:
        # A scheduler that is gone holds no lock, and what happened in the block is told by it.
        with suppress(IndexLost), asking_the_scheduler():
            lock.release()
        # It would go on for as long as the client; absent where locks never time out.
        refresh = getattr(lock, "refresh_callback", None)
        if refresh is not None:
            lock.loop.add_callback(refresh.stop)


def forget_lock(name: str, scheduler: Any) -> None:
    """On the scheduler: nothing of a lock stays there, unless somebody has it or waits for it."""
    locks, name = scheduler.extensions["semaphores"], _known_as(name)
    if not locks.leases.get(name) and not locks.metrics["pending"].get(name):
        locks.close(name)


def _known_as(name: str) -> str:
    return f"dgpuhash-{name}"


def free_of_the_dead(name: str, dask_scheduler: Any) -> None:
    """Runs on the scheduler: ends the leases of clients that it has lost."""
    semaphores = dask_scheduler.extensions["semaphores"]
    for lease in list(semaphores.leases.get(name, ())):
        if not connected(dask_scheduler, lease.partition("/")[0]):
            semaphores.release(name=name, lease_id=lease)
