"""Cache the groups of workers, one for each set of workers and transport.

The tables and indexes of a client share them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from distributed import Client

from dgpuhash.distributed.cluster.broadcast import GRACE_SECONDS, run_on_workers
from dgpuhash.distributed.cluster.host import PluginHost
from dgpuhash.distributed.cluster.locality import DataNotLocal, InputSpec
from dgpuhash.distributed.cluster.lock import hold_lock
from dgpuhash.distributed.cluster.rpc import call_scheduler
from dgpuhash.distributed.collective.group import Attempt, Group, Transport, form_group
from dgpuhash.distributed.partition.descriptor import ShardAddress
from dgpuhash.errors import DgpuhashError, IndexChanged, IndexLost

Result = TypeVar("Result")
Shards = tuple[ShardAddress, ...]

# Groups that each client got from its scheduler; another client may have closed them since.
_known: WeakKeyDictionary[Client, dict[Shards, Group]] = WeakKeyDictionary()
# Groups on each scheduler in this process.
_groups: WeakKeyDictionary[Any, dict[Shards, Group]] = WeakKeyDictionary()


def run_collective(
    client: Client,
    shards: Shards,
    function: Callable[..., Result],
    *args: Any,
    needed: InputSpec | None = None,
) -> list[Result]:
    """Run `function` on the group of the workers of `shards`.

    As `Group.run`, with the results in the order of `shards`. If the group has failed, it is formed
    anew once and `function` is called again, which it must tolerate. Where the transport failed,
    the comms of the cluster are used from then on.

    Raises
    ------
    DataNotLocal
        When an input is not on the worker that needs it; nothing was run then.
    IndexLost
        When a worker is lost.
    UnsupportedError, DgpuhashError
        What `function` raised on a worker.
    """
    group = _cached_group(client, shards)
    try:
        return _run(client, shards, group, function, args, needed)
    except IndexChanged:
        # It would be the same with any group.
        raise
    except IndexLost as error:
        if not _all_answer(client, shards):
            raise
        exchange = group.transport_after(client, error, "auto")
    # Another thread or client may not have removed the failed group from the cache yet.
    group = _cached_group(client, shards, instead_of=group, exchange=exchange)
    return _run(client, shards, group, function, args, needed)


def _run(
    client: Client,
    shards: Shards,
    group: Group,
    function: Callable[..., Result],
    args: Sequence[Any],
    needed: InputSpec | None,
) -> list[Result]:
    attempt = Attempt()
    try:
        return group.run(client, function, *args, needed=needed, attempt=attempt)
    except DataNotLocal:
        raise
    except BaseException:
        if not attempt.begun:
            raise
        if _known[client].get(shards) == group:
            _known[client].pop(shards, None)
        with suppress(DgpuhashError, OSError, RuntimeError):
            call_scheduler(client, forget_group, shards, group)
            group.close(client)
        raise


def _cached_group(
    client: Client, shards: Shards, instead_of: Group | None = None, exchange: Transport = "auto"
) -> Group:
    """Return the cached group of these workers, or form one.

    A cached group that is `instead_of` has failed, and is replaced.
    """
    known = _known.setdefault(client, {})
    group = known.get(shards)
    if group in (None, instead_of):
        workers = [shard.worker for shard in shards]
        with hold_lock(client, "group"):
            group = call_scheduler(client, find_group, shards)
            if group in (None, instead_of):
                group = form_group(client, workers, exchange)
                call_scheduler(client, keep_group, shards, group)
            known[shards] = group
    assert group is not None
    return group


def find_group(shards: Shards, dask_scheduler: Any) -> Group | None:
    """Return the cached group of these shards; run on the scheduler."""
    return _groups.get(dask_scheduler, {}).get(shards)


def keep_group(shards: Shards, group: Group, dask_scheduler: Any) -> None:
    """Cache a group on the scheduler, and drop groups of lost workers.

    A group is cached for one incarnation of its workers.
    """
    groups = _groups.setdefault(dask_scheduler, {})
    gone = [
        each for each in groups if not {one.worker for one in each} <= set(dask_scheduler.workers)
    ]
    for each in gone:
        del groups[each]
    groups[shards] = group


def forget_group(shards: Shards, group: Group, dask_scheduler: Any) -> None:
    """Remove a group from the scheduler's cache; run on the scheduler."""
    groups = _groups.get(dask_scheduler, {})
    if groups.get(shards) == group:
        del groups[shards]


def _all_answer(client: Client, shards: Shards) -> bool:
    """Return whether no worker was restarted, so that only the group failed."""
    workers = [shard.worker for shard in shards]
    try:
        found = run_on_workers(client, workers, _incarnation, limit=2 * GRACE_SECONDS)
    except IndexLost:
        return False
    return found == [shard.incarnation for shard in shards]


def _incarnation(host: PluginHost) -> str:
    return host.shards.incarnation


Key = tuple[tuple[str, ...], Transport]


class GroupUse:
    """One table's use of a shared group.

    Parameters
    ----------
    group : Group
    users : WeakSet of Use
        All uses of the group; a table that was interrupted during its creation has none.
    """

    def __init__(self, group: Group, users: WeakSet[GroupUse]) -> None:
        self.group: Group = group
        self._users = users
        with _lock:
            users.add(self)

    def leave(self) -> bool:
        """End this use, and return whether it was the last one.

        The caller of the last one then closes the group.
        """
        with _lock:
            self._users.discard(self)
            if self._users:
                return False
            self.give_up()
            return True

    def give_up(self) -> None:
        """Remove a failed group from the cache, so that no table starts to use it."""
        with _lock:
            # Copies, as a signal handler on this thread may change the dicts meanwhile.
            for groups in list(_shared.values()):
                for key, (group, _) in list(groups.items()):
                    if group == self.group:
                        groups.pop(key, None)


# Tables are also freed on their client's event loop.
_lock = threading.RLock()
_shared: WeakKeyDictionary[Client, dict[Key, tuple[Group, WeakSet[GroupUse]]]] = WeakKeyDictionary()


def use_shared_group(client: Client, workers: Sequence[str], exchange: Transport) -> GroupUse:
    """Return a use of the client's shared group of `workers`, or a new one.

    Forming a group takes 40 ms between GPUs of one host, each of which reserves up to 1 GiB for it.

    Raises
    ------
    SpecError, UnsupportedError, IndexLost
        As `form_group` does.
    """
    key = tuple(workers), exchange
    with _lock:
        found = _shared.setdefault(client, {}).get(key)
        if found is not None:
            return GroupUse(*found)
    # If two threads form one at the same time, later tables use the second.
    made = form_group(client, workers, exchange), WeakSet[GroupUse]()
    with _lock:
        _shared.setdefault(client, {})[key] = made
        return GroupUse(*made)
