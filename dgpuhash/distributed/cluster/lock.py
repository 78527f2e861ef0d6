"""Named cluster-wide locks, and a guard against re-entrance by a thread."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Any

from distributed import Client, Lock

from dgpuhash.distributed.cluster.client import (
    seceding,
    sync_with_scheduler,
    translate_scheduler_errors,
)
from dgpuhash.distributed.cluster.dask_internals import is_client_connected, semaphores_of
from dgpuhash.distributed.cluster.rpc import call_scheduler, rpc_of_scheduler
from dgpuhash.errors import IndexLost, ReentranceError

# Seconds between two checks that the client which holds the lock is alive.
RETRY_SECONDS = 2.0

# (thread, client, lock name) of each holder or waiter in this process.
_inside: set[tuple[int, str, str]] = set()


class ReentranceGuard:
    """Guard that raises when a thread re-enters its block.

    A re-entering thread would be in the middle of a broadcast. A lock around the guard keeps other
    threads out.

    Parameters
    ----------
    name : str
        Of the table, for the message.
    """

    def __init__(self, name: str) -> None:
        self._name, self._entered = name, False

    def __enter__(self) -> None:
        if self._entered:
            raise ReentranceError(
                f"a thread that waits for a verb of a {self._name} tried to use the table again "
                f"(in a signal handler or a finaliser): use it after the first call has returned"
            )
        self._entered = True

    def __exit__(self, *_: object) -> None:
        self._entered = False


@contextmanager
def hold_lock(client: Client, name: str) -> Iterator[None]:
    """Hold the cluster-wide lock of this name in a block.

    A task that holds the lock, or waits for it, occupies no thread of its worker. The lease of a
    client that the scheduler has lost is released.

    Raises
    ------
    IndexLost
        When the scheduler is gone.
    ReentranceError
        When this thread holds the lock already: it would wait for itself.
    """
    place = get_ident(), client.id, name
    if place in _inside:
        raise ReentranceError(
            f"a thread that is changing {name} tried to change it again (in a signal handler or "
            f"a finaliser): make the second change after the first call has returned"
        )
    try:
        _inside.add(place)
        with seceding(client), _lock(client, name):
            yield
    finally:
        _inside.discard(place)


class ClientLock(Lock):
    """Dask lock whose leases name their client.

    So a lost client's lease is released at once; Dask itself waits half a minute.
    """

    def __init__(self, name: str, client: Client) -> None:
        super().__init__(name, scheduler_rpc=rpc_of_scheduler(client), loop=client.loop)
        self._holder = client.id
        self._is_over = False

    async def _acquire(self, timeout: float | None = None) -> bool:
        await self
        lease = f"{self._holder}/{uuid.uuid4().hex}"
        got = await self.scheduler.semaphore_acquire(
            name=self.name, timeout=timeout, lease_id=lease
        )
        if got:
            self._leases.append(lease)
        if self._is_over:
            await self.end()
        return bool(got)

    async def end(self) -> None:
        """Release the lock, even if the scheduler grants it later.

        A client that was interrupted, or gave up a silent scheduler, does not wait for the answer.
        """
        self._is_over = True
        while self._leases:
            await self._release(self._leases.popleft())


@contextmanager
def _lock(client: Client, name: str) -> Iterator[None]:
    with translate_scheduler_errors():
        lock = ClientLock(_known_as(name), client)
    try:
        with translate_scheduler_errors():
            while not sync_with_scheduler(client, lock._acquire, RETRY_SECONDS):
                call_scheduler(client, release_dead_leases, lock.name)
        yield
    finally:
        # A lost scheduler holds no lock, and the block reports the loss by itself.
        with suppress(IndexLost), translate_scheduler_errors():
            sync_with_scheduler(client, lock.end)
        # Otherwise it runs until the client closes; absent where locks never time out.
        refresh = getattr(lock, "refresh_callback", None)
        if refresh is not None:
            lock.loop.add_callback(refresh.stop)


def forget_lock(name: str, scheduler: Any) -> None:
    """Remove a lock from the scheduler, unless a client holds or awaits it.

    Runs on the scheduler.
    """
    locks, name = semaphores_of(scheduler), _known_as(name)
    if not locks.leases.get(name) and not locks.metrics["pending"].get(name):
        locks.close(name)


def _known_as(name: str) -> str:
    return f"dgpuhash-{name}"


def release_dead_leases(name: str, dask_scheduler: Any) -> None:
    """Release the leases of clients that the scheduler has lost.

    Runs on the scheduler.
    """
    semaphores = semaphores_of(dask_scheduler)
    for lease in list(semaphores.leases.get(name, ())):
        if not is_client_connected(dask_scheduler, lease.partition("/")[0]):
            semaphores.release(name=name, lease_id=lease)
