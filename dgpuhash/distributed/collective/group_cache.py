"""Groups that the tables of a client share, one for each set of workers and way to exchange."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from distributed import Client

from dgpuhash.distributed.cluster.broadcast import GRACE, on_workers
from dgpuhash.distributed.cluster.locality import Elsewhere, Needed
from dgpuhash.distributed.cluster.lock import locked
from dgpuhash.distributed.cluster.rpc import ask_scheduler
from dgpuhash.distributed.collective.group import Attempt, Group, Transport, form_group
from dgpuhash.distributed.partition.descriptor import ShardAddress
from dgpuhash.errors import DgpuhashError, IndexChanged, IndexLost

if TYPE_CHECKING:
    from dgpuhash.distributed.shards.plugin import ShardHost

__all__ = ["Use", "joined", "run_together"]

Result = TypeVar("Result")
Shards = tuple[ShardAddress, ...]

# What each client has asked its scheduler for; another client may have ended it since.
_known: WeakKeyDictionary[Client, dict[Shards, Group]] = WeakKeyDictionary()
# Of each scheduler in this process.
_groups: WeakKeyDictionary[Any, dict[Shards, Group]] = WeakKeyDictionary()


def run_together(
    client: Client,
    shards: Shards,
    function: Callable[..., Result],
    *args: Any,
    needed: Needed | None = None,
) -> list[Result]:
    """As `Group.run`, on the workers of `shards`; the results in their order.

    A group that was of no use any more is formed anew, once, and `function` called again: it must
    bear that. Where what carried its columns failed, the comms of the cluster do from then on.

    Raises
    ------
    Elsewhere
        When what is needed does not lie where it must; nothing was done then.
    IndexLost
        When a worker is lost.
    UnsupportedError, DgpuhashError
        What `function` raised on a worker.
    """
    group = _standing(client, shards)
    try:
        return _run(client, shards, group, function, args, needed)
    except IndexChanged:
        # Any group would say so.
        raise
    except IndexLost as error:
        if not _all_answer(client, shards):
            raise
        exchange = group.exchange_after(client, error, "auto")
    # Another thread or client may be about to give the first one up, too, and still name it.
    group = _standing(client, shards, instead_of=group, exchange=exchange)
    return _run(client, shards, group, function, args, needed)


def _run(
    client: Client,
    shards: Shards,
    group: Group,
    function: Callable[..., Result],
    args: Sequence[Any],
    needed: Needed | None,
) -> list[Result]:
    attempt = Attempt()
    try:
        return group.run(client, function, *args, needed=needed, attempt=attempt)
    except Elsewhere:
        raise
    except BaseException:
        if not attempt.begun:
            raise
        if _known[client].get(shards) == group:
            _known[client].pop(shards, None)
        with suppress(DgpuhashError, OSError, RuntimeError):
            ask_scheduler(client, forget_group, shards, group)
            group.close(client)
        raise


def _standing(
    client: Client, shards: Shards, instead_of: Group | None = None, exchange: Transport = "auto"
) -> Group:
    """The group of these workers, formed where there is none, or only one that is of no use."""
    known = _known.setdefault(client, {})
    group = known.get(shards)
    if group in (None, instead_of):
        workers = [shard.worker for shard in shards]
        with locked(client, "group"):
            group = ask_scheduler(client, find_group, shards)
            if group in (None, instead_of):
                group = form_group(client, workers, exchange)
                ask_scheduler(client, keep_group, shards, group)
            known[shards] = group
    assert group is not None
    return group


def find_group(shards: Shards, dask_scheduler: Any) -> Group | None:
    """Runs on the scheduler."""
    return _groups.get(dask_scheduler, {}).get(shards)


def keep_group(shards: Shards, group: Group, dask_scheduler: Any) -> None:
    """Runs on the scheduler, which keeps one for workers as they were started."""
    groups = _groups.setdefault(dask_scheduler, {})
    gone = [
        each for each in groups if not {one.worker for one in each} <= set(dask_scheduler.workers)
    ]
    for each in gone:
        del groups[each]
    groups[shards] = group


def forget_group(shards: Shards, group: Group, dask_scheduler: Any) -> None:
    """Runs on the scheduler."""
    groups = _groups.get(dask_scheduler, {})
    if groups.get(shards) == group:
        del groups[shards]


def _all_answer(client: Client, shards: Shards) -> bool:
    """Whether the workers are there as they were, so that only their group was lost."""
    workers = [shard.worker for shard in shards]
    try:
        found = on_workers(client, workers, _incarnation, limit=2 * GRACE)
    except IndexLost:
        return False
    return found == [shard.incarnation for shard in shards]


def _incarnation(host: ShardHost) -> str:
    return host.shards.incarnation


Key = tuple[tuple[str, ...], Transport]


class Use:
    """One table's use of a group.

    Parameters
    ----------
    group : Group
    users : WeakSet of Use
        Of all who share the group; a table that was interrupted while it was made is none of them.
    """

    def __init__(self, group: Group, users: WeakSet[Use]) -> None:
        self.group, self._users = group, users
        with _lock:
            users.add(self)

    def leave(self) -> bool:
        """End it; whether it was the last one, who frees the group."""
        with _lock:
            self._users.discard(self)
            if self._users:
                return False
            self.give_up()
            return True

    def give_up(self) -> None:
        """Let no other table begin to use the group, which is of no use any more."""
        with _lock:
            # Lists, as a signal handler of this thread may come in between.
            for groups in list(_shared.values()):
                for key, (group, _) in list(groups.items()):
                    if group == self.group:
                        groups.pop(key, None)


# Tables end on their client's event loop.
_lock = threading.RLock()
_shared: WeakKeyDictionary[Client, dict[Key, tuple[Group, WeakSet[Use]]]] = WeakKeyDictionary()


def joined(client: Client, workers: Sequence[str], exchange: Transport) -> Use:
    """A use of the group of `workers` that other tables of the client have, or of a new one.

    To form one takes 40 ms between GPUs of one host, each of which gives it up to 1 GiB.

    Raises
    ------
    SpecError, UnsupportedError, IndexLost
        As `form_group` does.
    """
    key = tuple(workers), exchange
    with _lock:
        found = _shared.setdefault(client, {}).get(key)
        if found is not None:
            return Use(*found)
    # Where two form one at once, the second is for those that come.
    made = form_group(client, workers, exchange), WeakSet[Use]()
    with _lock:
        _shared.setdefault(client, {})[key] = made
        return Use(*made)
