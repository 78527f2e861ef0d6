"""Rebalance an index: assign shards to new owners, and move their rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain

from distributed import Client

from dgpuhash import backend
from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.cluster.client import workers_of
from dgpuhash.distributed.cluster.dask_internals import sync
from dgpuhash.distributed.ingest.shuffle_tasks import CommExchange, parcels
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement, ShardAddress
from dgpuhash.distributed.partition.row_order import ARRIVAL_COLUMN
from dgpuhash.distributed.shards.inbox import Receipt
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.frames import frames_of


def assign_owners(
    current: Sequence[ShardAddress], there: Sequence[ShardAddress]
) -> tuple[ShardAddress, ...]:
    """Return an owner for each shard.

    Where the number of shards stays, surviving workers keep theirs.

    Examples
    --------
    >>> a, b, c = (ShardAddress(name, "") for name in "abc")
    >>> [shard.worker for shard in assign_owners([a, b], [b, c])]
    ['c', 'b']
    """
    if len(current) != len(there):
        return tuple(there)
    new = iter([shard for shard in there if shard not in current])
    return tuple(shard if shard in there else next(new) for shard in current)


def kept_shards(
    descriptor: Descriptor, shards: Sequence[ShardAddress], there: Collection[int]
) -> frozenset[int]:
    """Return which of the new `shards` already have all rows of their keys.

    `there`: numbers of the old shards that survive.
    """
    if descriptor.placement is Placement.REPLICATED:
        copies = [descriptor.shards[part] for part in there]
        return frozenset(part for part, shard in enumerate(shards) if shard in copies)
    unmoved = len(shards) == len(descriptor.shards) and all(
        shards[part] == descriptor.shards[part] for part in there
    )
    return frozenset(there if unmoved else ())


def sending_shards(
    descriptor: Descriptor, there: Collection[int], kept: Collection[int]
) -> list[int]:
    """Return the surviving shards whose rows go to the others."""
    if descriptor.placement is Placement.REPLICATED:
        return sorted(there)[:1]
    return [part for part in sorted(there) if part not in kept]


def surviving_shards(client: Client, descriptor: Descriptor) -> frozenset[int]:
    """Return the shards that still exist at the epoch of `descriptor`."""
    reachable = workers_of(client)
    workers = [worker for worker in descriptor.workers if worker in reachable]
    found = run_on_workers(client, workers, holds, descriptor)
    there = {worker for worker, held in zip(workers, found, strict=True) if held}
    return frozenset(part for part, worker in enumerate(descriptor.workers) if worker in there)


def surviving_arrivals(
    client: Client, descriptor: Descriptor, there: Collection[int]
) -> frozenset[int]:
    """Return the arrival numbers of the rows in some shards of an independent index."""
    workers = [descriptor.workers[part] for part in sorted(there)]
    found = run_on_workers(client, workers, arrivals_in, descriptor)
    return frozenset(chain.from_iterable(found))


def move_shards(
    client: Client, descriptor: Descriptor, change: Change, parts: Collection[int]
) -> list[Receipt]:
    """Send rows of these shards of `descriptor` to their owners in `change`."""
    workers = [descriptor.workers[part] for part in sorted(parts)]
    return run_on_workers(client, workers, send_shard, descriptor, change)


def holds(host: ShardHost, descriptor: Descriptor) -> bool:
    shard = descriptor.shards[descriptor.workers.index(host.worker.address)]
    return host.shards.holds(descriptor.uid, descriptor.epoch, shard.incarnation)


def arrivals_in(host: ShardHost, descriptor: Descriptor) -> list[int]:
    shard = descriptor.shards[descriptor.workers.index(host.worker.address)]
    index = host.shards.at(descriptor.uid, descriptor.epoch, shard.incarnation).index
    arrivals = index.frame([ARRIVAL_COLUMN])[ARRIVAL_COLUMN].values
    device = backend.get(None, arrivals)
    found: list[int] = device.to_host(device.xp.unique(arrivals)).tolist()
    return found


def send_shard(host: ShardHost, descriptor: Descriptor, change: Change) -> Receipt:
    part = descriptor.workers.index(host.worker.address)
    shard = descriptor.shards[part]
    rows = host.shards.at(descriptor.uid, descriptor.epoch, shard.incarnation).index.frame()
    if change.lost is not None and change.lost.heavy:
        # Rows of heavy keys are read again from the source, whichever shard had them.
        frames = frames_of(rows)
        heavy = change.lost.heavy.among(change.encoder.encode_rows(rows).codes)
        rows = frames.take(rows, frames.xp.flatnonzero(~heavy))
    exchange = CommExchange(host.worker, change.shards, change.uid, change.transaction)
    # Smaller than the numbers of partitions that are read, so that stored rows come first.
    number = part - len(descriptor.shards)
    segments, receipt = parcels(
        rows, replace(change, lost=None), number, address=host.worker.address
    )
    sync(host.worker.loop, exchange.put_segments, segments)
    return receipt
