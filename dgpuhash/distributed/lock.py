"""Blocks that one client at a time is in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client, Lock

from dgpuhash.distributed.clients import asking_the_scheduler, giving_way

__all__ = ["locked"]


@contextmanager
def locked(client: Client, name: str) -> Iterator[None]:
    """A block that one client at a time is in, for each name.

    A task may be in it, or wait for it, without a thread of its worker. Dask frees the lock of a
    client that died.

    Raises
    ------
    IndexLost
        When the scheduler is gone.
    """
    with giving_way(client), _lock(client, name):
        yield


@contextmanager
def _lock(client: Client, name: str) -> Iterator[None]:
    lock = Lock(f"dgpuhash-{name}", scheduler_rpc=client.scheduler, loop=client.loop)
    with asking_the_scheduler():
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
        # It would go on for as long as the client; absent where locks never time out.
        refresh = getattr(lock, "refresh_callback", None)
        if refresh is not None:
            lock.loop.add_callback(refresh.stop)
