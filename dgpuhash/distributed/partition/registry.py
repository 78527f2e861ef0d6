"""Registry of a cluster's indexes: the scheduler stores their descriptors."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from distributed import Client, SchedulerPlugin

from dgpuhash.distributed.cluster.client import sync_with_scheduler, translate_scheduler_errors
from dgpuhash.distributed.cluster.dask_internals import (
    Serialized,
    datasets_of,
    deserialize,
    pickle,
    scheduler_plugin,
    serialize,
    want_keys,
)
from dgpuhash.distributed.cluster.lock import forget_lock, hold_lock
from dgpuhash.distributed.cluster.rpc import call_scheduler
from dgpuhash.distributed.events import log_loss
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.errors import IndexChanged, IndexLost, IndexNotFound, SpecError

PREFIX = "dgpuhash/"


class Registry:
    """Registry of the indexes of one cluster, by name.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def find(self, name: str) -> Descriptor | None:
        """Return the newest descriptor under `name`, or None."""
        return self._find(name, None)

    def newest(self, descriptor: Descriptor, limit: float | None = None) -> Descriptor:
        """Return the newest descriptor of the index of `descriptor`.

        Returns the argument itself where it is the newest; the scheduler then sends no descriptor.

        Raises
        ------
        IndexNotFound
            When the index does not exist any more.
        IndexLost
            When the scheduler is gone, or has not answered for `limit` seconds.
        """
        asked = PREFIX + descriptor.name, descriptor.uid, descriptor.epoch
        found = call_scheduler(self._client, read_newer_dataset, *asked, limit=limit)
        return descriptor if found is True else check_same_index(descriptor, _unpack(found))

    def begin(self, name: str) -> Descriptor | None:
        """Start a change: return the newest descriptor under a new turn, or None.

        A client that began a change before can no longer publish it.
        """
        return self._find(name, uuid.uuid4().hex)

    def names(self) -> list[str]:
        """Return the names of all indexes, sorted."""
        with translate_scheduler_errors():
            published = sync_with_scheduler(self._client, self._client.scheduler.publish_list)
        return sorted(name.removeprefix(PREFIX) for name in published if _is_ours(name))

    def publish(self, descriptor: Descriptor, *, after: Descriptor | None) -> bool:
        """Publish `descriptor` if the newest is `after`; return whether it was.

        The newest is another one when the scheduler was restarted, or another client has changed or
        closed the index, or begun to change it. ``after=None``: no descriptor may be there.
        """
        # Published datasets outlive client.restart(), scheduler metadata does not. Dask's
        # publish_dataset() waits up to 10 ms until the client's other messages are sent.
        packed, name = pickle.dumps(descriptor), PREFIX + descriptor.name
        states = descriptor.state, None if after is None else after.state
        place = descriptor.placement.value, descriptor.workers
        return call_scheduler(self._client, put_dataset, name, packed, *states, *place)

    def outdated_error(self, descriptor: Descriptor) -> IndexLost | None:
        """Return the error of a change of an outdated `descriptor`, or None.

        None when `descriptor` is the newest under its name.
        """
        try:
            newest = check_same_index(descriptor, self.find(descriptor.name))
        except IndexNotFound as gone:
            return gone
        if newest.state == descriptor.state:
            return None
        return IndexChanged(
            f"index {descriptor.name!r} was or is changed by another client, as this one stood "
            "still in the middle of its change; that was not made: repeat it"
        )

    def remove(self, descriptor: Descriptor) -> Descriptor | None:
        """Remove an index; return its last descriptor.

        None where no index, or another one, has its name.
        """
        name = descriptor.name
        # A generated name is never used again: its lock can go with it.
        lock = _lock_of(name) if name == generated_name(descriptor.uid) else None
        packed = call_scheduler(self._client, drop_dataset, PREFIX + name, descriptor.uid, lock)
        return None if packed is None else pickle.loads(packed)

    @contextmanager
    def changing(self, name: str) -> Iterator[None]:
        """Hold the cluster-wide lock for changes of this name in a block.

        Should two clients hold it nevertheless, the shards refuse the change that began first.
        """
        with hold_lock(self._client, _lock_of(name)):
            yield

    def _find(self, name: str, turn: str | None) -> Descriptor | None:
        return _unpack(call_scheduler(self._client, read_dataset, PREFIX + name, turn))


def _unpack(found: tuple[bytes, str] | None) -> Descriptor | None:
    return None if found is None else replace(pickle.loads(found[0]), turn=found[1])


def read_dataset(name: str, turn: str | None, dask_scheduler: Any) -> tuple[bytes, str] | None:
    """Return the pickled descriptor under `name` and its turn, or None.

    Runs on the scheduler. `turn`, unless None, replaces the turn first.
    """
    found = datasets_of(dask_scheduler).get(name)
    if found is None:
        return None
    if turn is not None:
        found["state"] = (*found["state"][:-1], turn)
    return _pack(found), found["state"][-1]


def read_newer_dataset(
    name: str, uid: str, epoch: int, dask_scheduler: Any
) -> tuple[bytes, str] | bool | None:
    """Return True if this epoch is the newest, else as `read_dataset`."""
    found = datasets_of(dask_scheduler).get(name)
    if found is not None and found["state"][:2] == (uid, epoch):
        return True
    return read_dataset(name, None, dask_scheduler)


def put_dataset(
    name: str,
    packed: bytes,
    state: Hashable,
    after: Hashable,
    placement: str,
    workers: list[str],
    dask_scheduler: Any,
) -> bool:
    """Store a pickled descriptor if the stored state is `after`.

    Beside it stands what the scheduler is to know of the index: it unpickles no descriptor, which
    may take a GPU. Runs on the scheduler; returns whether it was stored.
    """
    datasets = datasets_of(dask_scheduler)
    if datasets.get(name, {}).get("state") != after:
        return False
    data = Serialized(*serialize(packed))
    want_keys(dask_scheduler, f"published-{name}", ())
    place = {"placement": placement, "workers": workers}
    datasets[name] = {"data": data, "keys": (), "state": state, **place}
    scheduler_plugin(dask_scheduler, LossReport.name, LossReport)
    return True


@dataclass(frozen=True, slots=True)
class PublishedIndex:
    """Published facts of an index: name, epoch, placement and workers."""

    name: str
    uid: str
    epoch: int
    placement: str
    workers: list[str]


def published_indexes(dask_scheduler: Any) -> list[PublishedIndex]:
    """Return the indexes of a cluster by name; runs on the scheduler."""
    datasets = datasets_of(dask_scheduler)
    found = []
    for name in sorted(filter(_is_ours, datasets)):
        kept = datasets[name]
        uid, epoch, *_ = kept["state"]
        place = kept["placement"], kept["workers"]
        found.append(PublishedIndex(name.removeprefix(PREFIX), uid, epoch, *place))
    return found


class LossReport(SchedulerPlugin):
    """Scheduler plugin that logs the loss of a worker with a shard of an index."""

    name = "dgpuhash-losses"

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """Log an event for each index with a shard on a worker that has left."""
        for index in published_indexes(scheduler):
            if worker in index.workers:
                log_loss(scheduler, worker, index=index.name, uid=index.uid, epoch=index.epoch)


def drop_dataset(name: str, uid: str, lock: str | None, dask_scheduler: Any) -> bytes | None:
    """Remove an index and its lock; return its pickled descriptor, or None.

    Runs on the scheduler. Dask's unpublish would leave the client entry that holds the dataset.
    """
    datasets = datasets_of(dask_scheduler)
    if name not in datasets or datasets[name]["state"][0] != uid:
        return None
    found = datasets.pop(name)
    dask_scheduler.clients.pop(f"published-{name}", None)
    if lock is not None:
        forget_lock(lock, dask_scheduler)
    return _pack(found)


def _pack(found: dict[str, Any]) -> bytes:
    packed: bytes = deserialize(found["data"].header, found["data"].frames)
    return packed


def unknown_index_error(name: str) -> IndexNotFound:
    """Return the error of a handle whose index the scheduler does not know."""
    return IndexNotFound(
        f"index {name!r} is not known to the cluster: another client closed it, or the scheduler "
        "was started anew; build or load it again"
    )


def check_same_index(descriptor: Descriptor, newest: Descriptor | None) -> Descriptor:
    """Return `newest` if it is the same index as `descriptor`.

    `newest` was found under the name of `descriptor`.

    Raises
    ------
    IndexNotFound
        When it is another index, or None.
    """
    name = descriptor.name
    if newest is None:
        raise unknown_index_error(name)
    if newest.uid != descriptor.uid:
        raise IndexNotFound(
            f"index {name!r} is not known to the cluster: another client closed it, and another "
            f"index has its name; go on with DistributedIndex.open({name!r}), or build or load "
            "the first one again"
        )
    return newest


def name_taken_error(name: str) -> SpecError:
    """Return the error of a new index whose name is in use."""
    return SpecError(
        f"the cluster already has an index {name!r}; choose another name, or free it with "
        f"DistributedIndex.open({name!r}).close()"
    )


def generated_name(uid: str) -> str:
    """Return a generated name for an unnamed index."""
    return f"index-{uid}"


def check_name(name: object) -> None:
    """Raise SpecError if `name` is not a valid index name.

    None is valid: a name is generated.
    """
    if name is not None and (not isinstance(name, str) or not name):
        raise SpecError(
            f"name={name!r}; give a non-empty string, or leave name= out for a generated one"
        )


def _lock_of(name: str) -> str:
    return f"index-{name}"


def _is_ours(name: object) -> bool:
    return isinstance(name, str) and name.startswith(PREFIX)
