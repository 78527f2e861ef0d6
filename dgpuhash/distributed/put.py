"""The task of a bulk phase: one partition's rows into the inboxes of their owners."""

from __future__ import annotations

import sys
import uuid
from typing import Any

from distributed.utils import sync

from dgpuhash.distributed.arrival import with_arrival
from dgpuhash.distributed.descriptor import Placement
from dgpuhash.distributed.exchange import CommExchange, Exchange, Parcel, Receipt
from dgpuhash.distributed.plugin import hosting_worker
from dgpuhash.distributed.routes import part_near, stored_layers
from dgpuhash.distributed.sealed import Sealed
from dgpuhash.distributed.shard import Change
from dgpuhash.distributed.skew import NO_TALLY, candidates
from dgpuhash.distributed.split import pieces, split
from dgpuhash.frames import frames_of
from dgpuhash.tables.scarcity import call_says_memory

__all__ = ["largest", "parcels", "put_partition", "put_rows"]


@call_says_memory
def put_partition(frame: Any, sealed: Sealed[Change], partition: int) -> Receipt:
    """Runs as a Dask task, perhaps more than once: each run is an attempt of its own."""
    worker, change = hosting_worker(), sealed.opened()
    exchange = CommExchange(worker, change.shards, change.uid, change.transaction)
    size = largest(change, worker)
    segments, receipt = parcels(frame, change, partition, size, address=worker.address)
    sync(worker.loop, exchange.put_segments, segments)
    return receipt


async def put_rows(frame: Any, change: Change, partition: int, exchange: Exchange) -> Receipt:
    """As `put_partition`, over any exchange."""
    segments, receipt = parcels(frame, change, partition)
    await exchange.put_segments(segments)
    return receipt


def parcels(
    frame: Any,
    change: Change,
    partition: int,
    nbytes: int | None = None,
    *,
    address: str = "",
) -> tuple[list[list[Parcel]], Receipt]:
    """The parcels for each part, of `nbytes` at most, and the receipt for them.

    They are made by the worker at `address`.
    """
    columns = list(change.encoder.names if change.verb == "erase" else change.meta.columns)
    frames = frames_of(frame)
    encode = change.encoder.encode if change.verb == "erase" else change.encoder.encode_rows
    if change.placement is Placement.INDEPENDENT and change.verb != "erase":
        frame = with_arrival(frame, change.revision, partition)
    rows = frame[columns] if change.verb == "erase" else frames.conform(frame, change.meta)
    encoded = encode(rows)
    if change.lost is not None:
        owned = split(encoded, change.encoder, change.lost.parts)
        gone = [owned[part] for part in sorted(change.lost.gone)]
        rows = frames.take(rows, frames.xp.sort(frames.xp.concatenate(gone)))
        encoded = encode(rows)
    tally = NO_TALLY
    if change.heavy is None and change.verb != "erase":
        tally = candidates(encoded.codes, len(change.shards), change.partitions)
    near = part_near(change.shards, address, partition)
    attempt = uuid.uuid4().hex
    segments: list[list[Parcel]] = [[] for _ in change.shards]
    counts = [0] * len(segments)
    for first, owned in stored_layers(rows, encoded, change, near, tally):
        for part, found in enumerate(pieces(rows, owned, change.meta[columns], nbytes)):
            counts[part] += len(owned[part])
            segments[part] += [
                Parcel(partition, attempt, number, len(piece), payload)
                for number, (piece, payload) in enumerate(found, start=first)
            ]
    return segments, Receipt(partition, attempt, tuple(counts), tally)


def largest(change: Change, worker: Any) -> int | None:
    """What a parcel may have; what stays on this worker is no message."""
    here = [shard.worker for shard in change.shards] == [worker.address]
    return sys.maxsize if here else None
