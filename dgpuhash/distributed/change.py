"""How a client changes an index: all shards go to the next epoch, or none is seen to."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import dask
from distributed import Client

from dgpuhash.distributed.descriptor import Descriptor, ShardAddress
from dgpuhash.distributed.exchange import Receipt
from dgpuhash.distributed.phase import GRACE, installed, on_workers, watched
from dgpuhash.distributed.plugin import ShardHost
from dgpuhash.distributed.put import put_partition
from dgpuhash.distributed.shard import Change
from dgpuhash.errors import IndexLost, UnsupportedError

__all__ = ["carry_out", "change_to", "drop_shards", "places"]


def places(client: Client, workers: Sequence[str] | None = None) -> tuple[ShardAddress, ...]:
    """The workers of the cluster (or these) as places for shards; the plugin is started there.

    Raises
    ------
    UnsupportedError
        When the cluster has no workers, or not these.
    IndexLost
        When a worker is lost meanwhile.
    """
    there = sorted(client.nthreads())
    if not there:
        raise UnsupportedError(
            "the cluster has no workers; start some, and wait for them with "
            "client.wait_for_workers(1)"
        )
    chosen = there if workers is None else workers
    if (
        isinstance(chosen, str)
        or not chosen
        or len(set(chosen)) < len(chosen)
        or not set(chosen) <= set(there)
    ):
        raise UnsupportedError(
            f"workers={workers!r}; give a list of different addresses out of the cluster's, {there}"
        )
    installed(client, ShardHost())
    incarnations = on_workers(client, chosen, greet)
    return tuple(map(ShardAddress, chosen, incarnations))


def change_to(descriptor: Descriptor, verb: str) -> Change:
    """A change whose outcome is `descriptor`."""
    return Change(
        uid=descriptor.uid,
        transaction=uuid.uuid4().hex,
        verb=verb,
        epoch=descriptor.epoch,
        shards=descriptor.shards,
        encoder=descriptor.encoder,
        meta=descriptor.meta,
        unique=descriptor.unique,
        device=descriptor.device,
    )


def carry_out(
    client: Client,
    change: Change,
    partitions: Sequence[Any],
    publish: Callable[[], None] | None = None,
) -> int:
    """Put the rows of `partitions` into the shards, and make them visible.

    Parameters
    ----------
    client : distributed.Client
    change : Change
    partitions : sequence of Delayed or Future
        Frames, in the order of rows.
    publish : callable, optional
        Called once when every shard is ready: the moment at which the change has happened.

    Returns
    -------
    int
        Rows added or erased.

    Raises
    ------
    IndexLost
        When a worker is lost. Before `publish`, the shards that are there are as they were.
    """
    workers = [shard.worker for shard in change.shards]
    try:
        on_workers(client, workers, open_change, change)
        receipts = _put(client, workers, change, partitions)
        on_workers(client, workers, prepare_change, change, receipts)
        if publish is not None:
            publish()
    except BaseException:
        _on_those_there(client, workers, abandon_change, change)
        raise
    return sum(on_workers(client, workers, apply_change, change))


def drop_shards(client: Client, uid: str, workers: Sequence[str]) -> None:
    """Free the shards of an index on those of `workers` that are there."""
    _on_those_there(client, workers, drop_shard, uid)


def _put(
    client: Client, workers: Sequence[str], change: Change, partitions: Sequence[Any]
) -> list[Receipt]:
    put = dask.delayed(put_partition, pure=False)
    name = f"dgpuhash-{change.verb}-{change.transaction}"
    tasks = [
        put(partition, change, number, dask_key_name=f"{name}-{number}")
        for number, partition in enumerate(partitions)
    ]
    futures = client.compute(tasks)
    try:
        return watched(client, workers, futures)
    except BaseException:
        client.cancel(futures)
        # The error's traceback keeps them, and the client would go on to claim keys that are gone.
        for future in futures:
            future.release()
        raise


def _on_those_there(client: Client, workers: Sequence[str], function: Any, *args: Any) -> None:
    there = set(client.nthreads())
    reachable = [worker for worker in workers if worker in there]
    try:
        on_workers(client, reachable, function, *args, limit=GRACE)
    except IndexLost:
        # Whoever is lost holds nothing to be freed, and the others have done it, or will.
        return


def greet(host: ShardHost) -> str:
    return host.shards.incarnation


def open_change(host: ShardHost, change: Change) -> None:
    part = [shard.worker for shard in change.shards].index(host.worker.address)
    host.shards.open(change, part)


def prepare_change(host: ShardHost, change: Change, receipts: Sequence[Receipt]) -> int:
    return host.shards.prepare(change.uid, change.transaction, receipts)


def apply_change(host: ShardHost, change: Change) -> int:
    return host.shards.apply(change.uid, change.transaction)


def abandon_change(host: ShardHost, change: Change) -> None:
    host.shards.abandon(change.uid, change.transaction)


def drop_shard(host: ShardHost, uid: str) -> None:
    host.shards.drop(uid)
