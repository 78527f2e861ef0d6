"""Two-phase commit of a change: all shards reach the next epoch, or none."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

import dask
from distributed import Client, Future

from dgpuhash.distributed.cluster.broadcast import (
    ensure_plugin,
    gather_watched,
    run_on_event_loops,
    run_on_workers,
)
from dgpuhash.distributed.cluster.client import holders_of, worker_ids
from dgpuhash.distributed.cluster.device_thread import ThreadProgress
from dgpuhash.distributed.cluster.host import NAME
from dgpuhash.distributed.cluster.preload import import_on_cluster
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.cluster.survivors import run_best_effort
from dgpuhash.distributed.ingest.history import RowOperation
from dgpuhash.distributed.ingest.shuffle_collective import shuffle_together
from dgpuhash.distributed.ingest.shuffle_tasks import shuffle_partition
from dgpuhash.distributed.ingest.skew_repair import receipts_after, repair_heavy_keys
from dgpuhash.distributed.ingest.uniqueness import refuse_duplicates
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement, ShardAddress
from dgpuhash.distributed.partition.skew import HeavyKeys
from dgpuhash.distributed.shards.inbox import Receipt
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.distributed.shards.stats import IndexSize, ShardSize, shard_size
from dgpuhash.errors import IndexLost, UnsupportedError
from dgpuhash.frames import NumericDtypes, numeric_dtypes, promote_dtypes

# For each client, incarnations of the worker processes it has asked, until something fails.
_incarnations: WeakKeyDictionary[Client, dict[str, str]] = WeakKeyDictionary()


def shard_addresses(
    client: Client, workers: Sequence[str] | None = None, *, known: bool = False
) -> tuple[ShardAddress, ...]:
    """Start the plugin on workers; return their addresses for shards.

    By default on all workers of the cluster. With `known`, workers in processes that this client
    has asked before are not asked again: if they hold other shards by now, the change fails, and
    later calls ask.

    Raises
    ------
    UnsupportedError
        When the cluster has no workers, or lacks some of `workers`, or a worker does not have this
        library.
    IndexLost
        When a worker is lost meanwhile.
    """
    import_on_cluster(client)
    there = worker_ids(client)
    if not there:
        raise UnsupportedError(
            "the cluster has no workers; start some, and wait for them with "
            "client.wait_for_workers(1)"
        )
    chosen = sorted(there) if workers is None else workers
    if (
        not isinstance(chosen, Collection)
        or isinstance(chosen, str)
        or not chosen
        or not all(isinstance(worker, str) for worker in chosen)
        or len(set(chosen)) < len(chosen)
        or not set(chosen) <= set(there)
    ):
        raise UnsupportedError(
            f"workers={workers!r}; give a list of different addresses out of the cluster's, "
            f"{sorted(there)}"
        )
    said = _incarnations.get(client, {}) if known else {}
    if not said.keys() >= {there[worker] for worker in chosen}:
        found = run_on_event_loops(client, chosen, incarnation)
        if None in found:
            ensure_plugin(client)
            found = run_on_workers(client, chosen, greet)
        said = {there[worker]: str(each) for worker, each in zip(chosen, found, strict=True)}
        _incarnations[client] = said
    return tuple(ShardAddress(worker, said[there[worker]]) for worker in chosen)


def change_to(descriptor: Descriptor, verb: str) -> Change:
    """Return a change whose outcome is `descriptor`; a build finds heavy keys."""
    apart = descriptor.placement is Placement.DISTRIBUTED and len(descriptor.shards) > 1
    searched = verb == "build" and apart and not descriptor.unique
    return Change(
        uid=descriptor.uid,
        transaction=uuid.uuid4().hex,
        verb=verb,
        epoch=descriptor.epoch,
        revision=descriptor.revision,
        shards=descriptor.shards,
        encoder=descriptor.encoder,
        meta=descriptor.stored if descriptor.groups is None else descriptor.groups.states,
        unique=descriptor.unique if descriptor.conflict is Conflict.ERROR else None,
        device=descriptor.device,
        method=descriptor.method,
        placement=descriptor.placement,
        heavy=None if searched else descriptor.heavy,
        groups=descriptor.groups,
    )


def commit_change(
    client: Client,
    change: Change,
    acts: Sequence[RowOperation],
    publish: Callable[[HeavyKeys], None],
    told: Callable[[IndexSize], None],
    moved: Callable[[], list[Receipt]] | None = None,
) -> int:
    """Put the rows of `acts` into the shards, and make them visible.

    Parameters
    ----------
    client : distributed.Client
    change : Change
    acts : sequence of RowOperation
        The first has the change's verb; inserts, upserts and erases may follow a build.
    publish : callable
        Called once when every shard is ready, with the heavy keys: at that moment the change has
        happened. If it raises, the shards stay ready: the caller finds out whether the change has
        happened, and calls `abandon` where it has not.
    told : callable
        Called with the size of the index after the change.
    moved : callable, optional
        Sends further rows of the first act, which precede its others; returns their receipts.

    Returns
    -------
    int
        Rows added or erased; 0 where the shards of a new index apply the change when they are first
        asked, which saves a broadcast.

    Raises
    ------
    IndexLost
        When a worker is lost. Before `publish`, the surviving shards are unchanged; after it, the
        change has happened, and the message says so.
    """
    workers = change.workers
    try:
        put = None if moved else shuffle_together(client, change, acts)
        applied_when_asked = put is not None and change.epoch == 1
        heavy = _prepare(client, change, acts, moved or list) if put is None else put[0]
        new = change.verb in {"build", "insert"} and any(
            act.verb != "erase" and act.partitions for act in acts
        )
        if change.placement is Placement.INDEPENDENT and change.unique and new:
            refuse_duplicates(client, change)
    except BaseException:
        abandon(client, change)
        raise
    publish(heavy)
    replicated = change.placement is Placement.REPLICATED
    if put is not None and applied_when_asked:
        told(IndexSize.of(change.epoch, replicated, put[1]))
        return 0
    try:
        # Its name, not the change: to pickle its empty frame on a GPU takes a millisecond.
        found = run_on_workers(client, workers, apply_change, change.uid, change.transaction)
    except IndexLost as lost:
        if change.verb == "build":
            raise
        raise IndexLost(f"the {change.verb} was made, do not repeat it, but then {lost}") from lost
    told(IndexSize.of(change.epoch, replicated, [measure for _, measure in found]))
    counts = [count for count, _ in found]
    return max(counts) if replicated else sum(counts)


def abandon(client: Client, change: Change) -> None:
    """Drop an unpublished change on all reachable workers."""
    _incarnations.pop(client, None)
    run_best_effort(client, change.workers, abandon_change, change.uid, change.transaction)


def drop_shards(client: Client, uid: str, workers: Sequence[str], epoch: int | None = None) -> None:
    """Free the shards of an index on the reachable ones of `workers`.

    Only shards up to `epoch`, if given.
    """
    run_best_effort(client, workers, drop_shard, uid, epoch)


def _prepare(
    client: Client, change: Change, acts: Sequence[RowOperation], moved: Callable[[], list[Receipt]]
) -> HeavyKeys:
    """Prepare the change by Dask tasks; return the heavy keys."""
    workers = change.workers
    partitions = sum(len(act.partitions) for act in acts)
    run_on_workers(client, workers, open_change, replace(change, partitions=partitions))
    stored = moved()
    first, *others = _put(client, change, acts)
    later = [(act.verb, put) for act, put in zip(acts[1:], others, strict=True)]
    if any(verb != "insert" for verb, _ in later):
        # Stored rows reflect these changes already, and some may have been inserted after them.
        later.append(("insert", stored))
    else:
        first = [*stored, *first]
    return prepare_shards(client, change, first, later)


def prepare_shards(
    client: Client,
    change: Change,
    first: Sequence[Receipt],
    later: Sequence[tuple[str, Sequence[Receipt]]] = (),
) -> HeavyKeys:
    """Prepare a change from rows in the shards' inboxes; return the heavy keys.

    Parameters
    ----------
    first : sequence of Receipt
        For the rows of the change's verb.
    later : sequence of (str, sequence of Receipt)
        Verbs that follow a build in the same change, with the receipts for their rows.
    """
    workers, heavy = change.workers, change.heavy
    if heavy is None:
        added = [one for verb, put in later if verb != "erase" for one in put]
        heavy, moves = repair_heavy_keys(client, change, [*first, *added])
        first = receipts_after(first, moves)
        later = [(verb, receipts_after(put, moves)) for verb, put in later]
    found = run_on_workers(client, workers, prepare_change, change, first, later)
    planned = numeric_dtypes(change.meta)
    if any(numbers not in ([], planned) for numbers in found):
        numbers = promote_dtypes(found)
        run_on_workers(client, workers, accept_numbers, change.uid, change.transaction, numbers)
    return heavy


def _put(client: Client, change: Change, acts: Sequence[RowOperation]) -> list[list[Receipt]]:
    put = dask.delayed(shuffle_partition, pure=False)
    name = f"dgpuhash-{change.verb}-{change.transaction}"
    parts = [
        (seal, one, arrival)
        for act in acts
        for seal in [
            CachedPickle.of(replace(change, verb=act.verb, partitions=len(act.partitions)))
        ]
        for one, arrival in zip(act.partitions, act.arrivals, strict=True)
    ]
    homes = _homes(client, change, [partition for _, partition, _ in parts])
    tasks = []
    for number, ((part, partition, arrival), home) in enumerate(zip(parts, homes, strict=True)):
        with dask.annotate(workers=home, allow_other_workers=False) if home else nullcontext():
            key = f"{name}-{number}"
            tasks.append(put(partition, part, number, arrival, dask_key_name=key))
    futures = client.compute(tasks)
    try:
        receipts = iter(gather_watched(client, change.workers, futures))
        return [list(islice(receipts, len(act.partitions))) for act in acts]
    except BaseException:
        client.cancel(futures)
        # The error's traceback keeps the futures, and the client would still claim their keys.
        for future in futures:
            future.release()
        raise


def _homes(client: Client, change: Change, partitions: Sequence[Any]) -> list[list[str]]:
    """Return for each partition the workers that must read it, if any.

    Only partitions of independent indexes must not move: a worker with a shard that holds the
    partition reads it.
    """
    if change.placement is not Placement.INDEPENDENT:
        return [[] for _ in partitions]
    futures = [partition for partition in partitions if isinstance(partition, Future)]
    holders = holders_of(client, futures) if futures else {}
    return [
        [
            worker
            for worker in holders.get(getattr(each, "key", None), ())
            if worker in change.workers
        ]
        for each in partitions
    ]


def incarnation(dask_worker: Any) -> str | None:
    """Return the incarnation of a worker with the plugin, or None."""
    host = dask_worker.plugins.get(NAME)
    return None if host is None else greet(host)


def greet(host: ShardHost) -> str:
    return host.shards.incarnation


def open_change(host: ShardHost, change: Change) -> None:
    host.shards.open(change, change.workers.index(host.worker.address))


def prepare_change(
    host: ShardHost,
    change: Change,
    receipts: Sequence[Receipt],
    later: Sequence[tuple[str, Sequence[Receipt]]],
) -> NumericDtypes:
    part = change.workers.index(host.worker.address)
    told = [one for put in (receipts, *(put for _, put in later)) for one in put]
    rows = sum(one.rows[part] for one in told if one.rows)
    with host.thread.telling(ThreadProgress(change.uid, change.verb, "store rows", rows)):
        host.shards.prepare(change.uid, change.transaction, receipts, later)
    return host.shards.numbers(change.uid, change.transaction)


def accept_numbers(host: ShardHost, uid: str, transaction: str, numbers: NumericDtypes) -> None:
    host.shards.accept_numbers(uid, transaction, numbers)


def apply_change(host: ShardHost, uid: str, transaction: str) -> tuple[int, ShardSize]:
    opened = {each.change.transaction: each for each in host.shards.open_changes()}
    verb = opened[transaction].change.verb if transaction in opened else "change"
    with host.thread.telling(ThreadProgress(uid, verb, "make rows visible")):
        count = host.shards.apply(uid, transaction)
    shard = host.shards.standing(uid)
    assert shard is not None
    return count, shard_size(shard.index)


def abandon_change(host: ShardHost, uid: str, transaction: str) -> None:
    host.shards.abandon(uid, transaction)


def drop_shard(host: ShardHost, uid: str, epoch: int | None) -> None:
    host.shards.drop(uid, epoch)
