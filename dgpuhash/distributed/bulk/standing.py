"""Groups that stand from phase to phase, one for each set of workers that indexes are on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from distributed import Client

from dgpuhash.distributed.clients import asking_the_scheduler
from dgpuhash.distributed.descriptor import ShardAddress
from dgpuhash.distributed.group import Group, form_group
from dgpuhash.distributed.lock import locked
from dgpuhash.distributed.phase import GRACE, on_workers
from dgpuhash.distributed.plugin import ShardHost
from dgpuhash.errors import DgpuhashError, IndexLost

__all__ = ["run_together"]

Result = TypeVar("Result")
Shards = tuple[ShardAddress, ...]

PREFIX = "dgpuhash-group/"

# What the scheduler was asked for before; another client may have ended it since.
_known: WeakKeyDictionary[Client, dict[Shards, Group]] = WeakKeyDictionary()


def run_together(
    client: Client, shards: Shards, function: Callable[..., Result], *args: Any
) -> list[Result]:
    """As `Group.run`, on the workers of `shards`; the results in their order.

    A group that was of no use any more is formed anew, once, and `function` called again: it must
    bear that.

    Raises
    ------
    IndexLost
        When a worker is lost.
    UnsupportedError, DgpuhashError
        What `function` raised on a worker.
    """
    try:
        return _run(client, shards, function, args)
    except IndexLost:
        if not _all_answer(client, shards):
            raise
    return _run(client, shards, function, args)


def _run(
    client: Client, shards: Shards, function: Callable[..., Result], args: Sequence[Any]
) -> list[Result]:
    group = _standing(client, shards)
    try:
        return group.run(client, function, *args)
    except BaseException:
        _known[client].pop(shards, None)
        with suppress(DgpuhashError, OSError, RuntimeError):
            group.close(client)
            if client.get_dataset(_name(shards), default=None) == group:
                client.unpublish_dataset(_name(shards))
        raise


def _standing(client: Client, shards: Shards) -> Group:
    """The group of these workers, formed where there is none."""
    known = _known.setdefault(client, {})
    if shards not in known:
        name = _name(shards)
        with locked(client, name), asking_the_scheduler():
            group = client.get_dataset(name, default=None)
            if group is None:
                group = form_group(client, [shard.worker for shard in shards])
                client.publish_dataset(group, name=name)
            known[shards] = group
    return known[shards]


def _name(shards: Shards) -> str:
    """Of other workers, and of those that were started anew, it is another."""
    return PREFIX + hashlib.blake2b(repr(shards).encode(), digest_size=16).hexdigest()


def _all_answer(client: Client, shards: Shards) -> bool:
    """Whether the workers are there as they were, so that only their group was lost."""
    workers = [shard.worker for shard in shards]
    try:
        found = on_workers(client, workers, _incarnation, limit=GRACE)
    except IndexLost:
        return False
    return found == [shard.incarnation for shard in shards]


def _incarnation(host: ShardHost) -> str:
    return host.shards.incarnation
