"""The indexes of a cluster, by name: their descriptors, kept by the scheduler."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from distributed import Client
from distributed.protocol import Serialized, deserialize, pickle, serialize

from dgpuhash.distributed.cluster.client import asking_the_scheduler
from dgpuhash.distributed.cluster.lock import forget_lock, locked
from dgpuhash.distributed.cluster.rpc import ask_scheduler
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.errors import IndexChanged, IndexLost, IndexNotFound, SpecError

__all__ = ["Registry", "check_name", "drawn_name", "still", "taken", "unknown"]

PREFIX = "dgpuhash/"


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
        return self._found(name, None)

    def newest(self, descriptor: Descriptor, limit: float | None = None) -> Descriptor:
        """That of the index of `descriptor`; the same one, which does not travel, where it is.

        Raises
        ------
        IndexNotFound
            When there is no such index any more.
        IndexLost
            When the scheduler is gone, or has not answered for `limit` seconds.
        """
        asked = PREFIX + descriptor.name, descriptor.uid, descriptor.epoch
        found = ask_scheduler(self._client, packed_newer, *asked, limit=limit)
        return descriptor if found is True else still(descriptor, _unpacked(found))

    def begin(self, name: str) -> Descriptor | None:
        """As `find`, for a change: whoever has begun one before can publish it no more."""
        return self._found(name, uuid.uuid4().hex)

    def names(self) -> list[str]:
        """The names of all indexes."""
        with asking_the_scheduler():
            published = filter(_is_ours, self._client.list_datasets())
        return sorted(name.removeprefix(PREFIX) for name in published)

    def publish(self, descriptor: Descriptor, *, after: Descriptor | None) -> bool:
        """Make `descriptor` the newest under its name; whether the scheduler did.

        It does not where the newest is another one than `after`: it was started anew, or another
        client has changed or closed the index, or begun to change it. After None nothing is there.
        """
        # Published datasets outlive client.restart(), which scheduler metadata does not. The
        # client's own way to publish waits up to 10 ms for its other messages to be gone.
        packed, name = pickle.dumps(descriptor), PREFIX + descriptor.name
        states = descriptor.state, None if after is None else after.state
        return ask_scheduler(self._client, put_dataset, name, packed, *states)

    def outdated(self, descriptor: Descriptor) -> IndexLost | None:
        """The error of a change of `descriptor`; None when that is the newest under its name."""
        try:
            newest = still(descriptor, self.find(descriptor.name))
        except IndexNotFound as gone:
            return gone
        if newest.state == descriptor.state:
            return None
        return IndexChanged(
            f"index {descriptor.name!r} was or is changed by another client, as this one stood "
            "still in the middle of its change; that was not made: repeat it"
        )

    def remove(self, descriptor: Descriptor) -> Descriptor | None:
        """Forget an index; what it was at last, or None where another one has its name, or none."""
        name = descriptor.name
        # Nobody asks again for a lock whose name was drawn for what is gone.
        lock = _lock_of(name) if name == drawn_name(descriptor.uid) else None
        packed = ask_scheduler(self._client, drop_dataset, PREFIX + name, descriptor.uid, lock)
        return None if packed is None else pickle.loads(packed)

    @contextmanager
    def changing(self, name: str) -> Iterator[None]:
        """A block that one client at a time is in, for each name.

        Should two clients be in it nevertheless, the shards refuse the change that was begun first.
        """
        with locked(self._client, _lock_of(name)):
            yield

    def _found(self, name: str, turn: str | None) -> Descriptor | None:
        return _unpacked(ask_scheduler(self._client, packed_dataset, PREFIX + name, turn))


def _unpacked(found: tuple[bytes, str] | None) -> Descriptor | None:
    return None if found is None else replace(pickle.loads(found[0]), turn=found[1])


def packed_dataset(name: str, turn: str | None, dask_scheduler: Any) -> tuple[bytes, str] | None:
    """Runs on the scheduler, as `put_dataset` and `drop_dataset` do; the turn may be a new one."""
    found = dask_scheduler.extensions["publish"].datasets.get(name)
    if found is None:
        return None
    if turn is not None:
        found["state"] = (*found["state"][:-1], turn)
    return _packed(found), found["state"][-1]


def packed_newer(
    name: str, uid: str, epoch: int, dask_scheduler: Any
) -> tuple[bytes, str] | bool | None:
    """As `packed_dataset`; True where it is this epoch of this index."""
    found = dask_scheduler.extensions["publish"].datasets.get(name)
    if found is not None and found["state"][:2] == (uid, epoch):
        return True
    return packed_dataset(name, None, dask_scheduler)


def put_dataset(
    name: str, packed: bytes, state: Hashable, after: Hashable, dask_scheduler: Any
) -> bool:
    datasets = dask_scheduler.extensions["publish"].datasets
    if datasets.get(name, {}).get("state") != after:
        return False
    data = Serialized(*serialize(packed))
    dask_scheduler.client_desires_keys((), f"published-{name}")
    datasets[name] = {"data": data, "keys": (), "state": state}
    return True


def drop_dataset(name: str, uid: str, lock: str | None, dask_scheduler: Any) -> bytes | None:
    """Dask's own way leaves what stands for a client."""
    datasets = dask_scheduler.extensions["publish"].datasets
    if name not in datasets or datasets[name]["state"][0] != uid:
        return None
    found = datasets.pop(name)
    dask_scheduler.clients.pop(f"published-{name}", None)
    if lock is not None:
        forget_lock(lock, dask_scheduler)
    return _packed(found)


def _packed(found: dict[str, Any]) -> bytes:
    packed: bytes = deserialize(found["data"].header, found["data"].frames)
    return packed


def unknown(name: str) -> IndexNotFound:
    """The error of a handle whose index the scheduler does not know."""
    return IndexNotFound(
        f"index {name!r} is not known to the cluster: another client closed it, or the scheduler "
        "was started anew; build or load it again"
    )


def still(descriptor: Descriptor, newest: Descriptor | None) -> Descriptor:
    """`newest`, which was found under the name of `descriptor`, where it is the same index.

    Raises
    ------
    IndexNotFound
        When it is another one, or none.
    """
    name = descriptor.name
    if newest is None:
        raise unknown(name)
    if newest.uid != descriptor.uid:
        raise IndexNotFound(
            f"index {name!r} is not known to the cluster: another client closed it, and another "
            f"index has its name; go on with DistributedIndex.open({name!r}), or build or load "
            "the first one again"
        )
    return newest


def taken(name: str) -> SpecError:
    """The error of a new index whose name another one has."""
    return SpecError(
        f"there is an index {name!r} on this cluster; choose another name, or end it with "
        f"DistributedIndex.open({name!r}).close()"
    )


def drawn_name(uid: str) -> str:
    """The name of an index that its user has not named."""
    return f"index-{uid}"


def check_name(name: object) -> None:
    """Raise SpecError when an index cannot be called `name`; None stands for a new name."""
    if name is not None and (not isinstance(name, str) or not name):
        raise SpecError(f"name={name!r}; give a string that is not empty, or none for a new name")


def _lock_of(name: str) -> str:
    return f"index-{name}"


def _is_ours(name: object) -> bool:
    return isinstance(name, str) and name.startswith(PREFIX)
