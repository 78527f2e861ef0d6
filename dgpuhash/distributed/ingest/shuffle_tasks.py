"""The task of a bulk phase: one partition's rows into the inboxes of their owners."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from dgpuhash.distributed.cluster.host import host_of, hosting_worker
from dgpuhash.distributed.cluster.rpc import request
from dgpuhash.distributed.cluster.serialization import Sealed
from dgpuhash.distributed.cluster.user_errors import refusing
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.descriptor import Placement, ShardAddress
from dgpuhash.distributed.partition.hash_partition import pieces
from dgpuhash.distributed.partition.routing import lost_rows, part_near, stored_layers
from dgpuhash.distributed.partition.row_order import ARRIVAL, arrival_of, with_arrival
from dgpuhash.distributed.partition.skew import NO_TALLY, candidates
from dgpuhash.distributed.shards.inbox import Exchange, Parcel, Receipt
from dgpuhash.distributed.shards.secession import Ahead
from dgpuhash.frames import frames_of, key_names
from dgpuhash.tables.memory_errors import call_says_memory

__all__ = ["CommExchange", "largest", "parcels", "put_partition"]


class CommExchange(Exchange):
    """Puts parcels into the inboxes of other workers by request and acknowledgement.

    Parameters
    ----------
    worker : distributed.Worker
        The worker that sends.
    shards : sequence of ShardAddress
        Where the parts live.
    uid, transaction : str
        The index and the bulk phase that the parcels belong to.
    """

    def __init__(
        self, worker: Any, shards: Sequence[ShardAddress], uid: str, transaction: str
    ) -> None:
        self._worker = worker
        self._shards = shards
        self._phase = {"uid": uid, "transaction": transaction}

    @property
    def parts(self) -> int:
        return len(self._shards)

    async def put(self, part: int, parcel: Parcel) -> None:
        await request(
            self._worker,
            self._shards[part].worker,
            "dgpuhash_put",
            {"payload": parcel.payload},
            partition=parcel.partition,
            attempt=parcel.attempt,
            number=parcel.number,
            rows=parcel.rows,
            **self._phase,
        )


@refusing()
@call_says_memory
def put_partition(frame: Any, sealed: Sealed[Change], partition: int, arrival: int) -> Receipt:
    """Runs as a Dask task, perhaps more than once: each run is an attempt of its own."""
    worker, change = hosting_worker(), sealed.opened()
    exchange = CommExchange(worker, change.shards, change.uid, change.transaction)
    size = largest(change, worker)
    segments, receipt = parcels(
        frame, change, partition, size, address=worker.address, arrival=arrival
    )
    putting = exchange.put_segments(segments)
    going = asyncio.run_coroutine_threadsafe(putting, worker.loop.asyncio_loop)
    host_of(worker).service(Ahead).result(going, frame, worker)
    return receipt


def parcels(
    frame: Any,
    change: Change,
    partition: int,
    nbytes: int | None = None,
    *,
    address: str = "",
    arrival: int | None = None,
) -> tuple[list[list[Parcel]], Receipt]:
    """The parcels for each part, of `nbytes` at most, and the receipt for them.

    They are made by the worker at `address`. Rows that stay with who reads them came at `arrival`;
    default: with this change.
    """
    columns = list(change.encoder.names if change.verb == "erase" else change.meta.columns)
    frames = frames_of(frame)
    key_names(frame, [label for label in columns if label != ARRIVAL])
    encode = change.encoder.encode if change.verb == "erase" else change.encoder.encode_rows
    near: int | None = part_near(change.shards, address, partition)
    if change.placement is Placement.INDEPENDENT and change.verb != "erase":
        # Rows of a save come in batches that any worker reads, those of a shard that moves in one.
        if near in change.kept or (ARRIVAL in frame.columns and partition >= 0):
            near = None
        if arrival is None:
            arrival = arrival_of(change.revision, partition)
        frame = with_arrival(frame, arrival)
    if change.verb == "erase" and len(frame):
        rows = frame[columns]
    else:
        rows = frames.conform(frame, change.meta[columns])
    encoded = encode(rows)
    if change.lost is not None:
        rows = frames.take(rows, frames.xp.flatnonzero(lost_rows(rows, encoded, change)))
        encoded = encode(rows)
    tally = NO_TALLY
    if change.heavy is None and change.verb != "erase":
        parts, seed = len(change.shards), change.encoder.seeds.owners
        tally = candidates(encoded.codes, parts, change.partitions, seed)
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
