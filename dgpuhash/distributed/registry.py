"""The indexes of a cluster, by name: their descriptors, kept by the scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client, Lock
from distributed.protocol.pickle import dumps, loads

from dgpuhash.distributed.descriptor import Descriptor

__all__ = ["Registry"]


class Registry:
    """What is published about the indexes of one cluster.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def find(self, name: str) -> Descriptor | None:
        """The newest descriptor under `name`; None when there is none."""
        found = self._client.get_metadata(["dgpuhash", name], default=None)
        return None if found is None else loads(found)

    def names(self) -> list[str]:
        """The names of all indexes."""
        found = self._client.get_metadata(["dgpuhash"], default=None) or {}
        return sorted(name for name, descriptor in found.items() if descriptor is not None)

    def publish(self, descriptor: Descriptor) -> None:
        """Make `descriptor` the newest under its name."""
        self._client.set_metadata(["dgpuhash", descriptor.name], dumps(descriptor))

    def remove(self, name: str) -> None:
        """Forget an index."""
        self._client.set_metadata(["dgpuhash", name], None)

    @contextmanager
    def changing(self, name: str) -> Iterator[None]:
        """A block that one client at a time is in, for each name.

        Dask frees the lock of a client that died. Should two clients be in it nevertheless, the
        shards refuse the change that was begun first.
        """
        lock = Lock(
            f"dgpuhash-{name}", scheduler_rpc=self._client.scheduler, loop=self._client.loop
        )
        lock.acquire()
        try:
            yield
        finally:
            lock.release()
            # It would go on for as long as the client; absent where locks never time out.
            refresh = getattr(lock, "refresh_callback", None)
            if refresh is not None:
                lock.loop.add_callback(refresh.stop)
