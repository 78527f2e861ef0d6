"""Shuffle task: send one partition's rows to the inboxes of their owners."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from dgpuhash.distributed.cluster.host import current_worker, plugin_of
from dgpuhash.distributed.cluster.rpc import call_handler
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.descriptor import Placement, ShardAddress
from dgpuhash.distributed.partition.hash_partition import cut_into_chunks
from dgpuhash.distributed.partition.routing import (
    keys_to_replace,
    lost_rows,
    nearest_shard,
    rows_to_store,
)
from dgpuhash.distributed.partition.row_order import (
    ARRIVAL_COLUMN,
    add_arrival_column,
    arrival_number,
)
from dgpuhash.distributed.partition.skew import NO_COUNTS, heavy_candidates
from dgpuhash.distributed.shards.inbox import Parcel, ParcelExchange, Receipt
from dgpuhash.distributed.shards.secession import SecessionBudget
from dgpuhash.frames import frames_of, key_names
from dgpuhash.tables.memory_errors import function_translates_memory_errors


class CommExchange(ParcelExchange):
    """Exchange that sends parcels by acknowledged RPCs.

    Parameters
    ----------
    worker : distributed.Worker
        The worker that sends.
    shards : sequence of ShardAddress
        Addresses of the shards.
    uid, transaction : str
        Names of the index and the change that the parcels belong to.
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
        await call_handler(
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


@raise_without_traceback()
@function_translates_memory_errors
def shuffle_partition(
    frame: Any, sealed: CachedPickle[Change], partition: int, arrival: int
) -> Receipt:
    """Send the rows of a partition to their owners; return the receipt.

    Runs as a Dask task, perhaps more than once: each run is an attempt of its own.
    """
    worker, change = current_worker(), sealed.opened()
    exchange = CommExchange(worker, change.shards, change.uid, change.transaction)
    size = parcel_limit(change, worker)
    segments, receipt = parcels(
        frame, change, partition, size, address=worker.address, arrival=arrival
    )
    putting = exchange.put_segments(segments)
    going = asyncio.run_coroutine_threadsafe(putting, worker.loop.asyncio_loop)
    plugin_of(worker).service(SecessionBudget).result(going, frame, worker)
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
    """Return a partition's parcels for each shard, and their receipt.

    Each parcel has at most `nbytes`. The worker at `address` makes them. Rows that stay with the
    worker that reads them get the number `arrival`; default: the one of this change and partition.
    """
    columns = list(change.encoder.names if change.verb == "erase" else change.meta.columns)
    frames = frames_of(frame)
    key_names(frame, [label for label in columns if label != ARRIVAL_COLUMN])
    encode = change.encoder.encode if change.verb == "erase" else change.encoder.encode_rows
    near: int | None = nearest_shard(change.shards, address, partition)
    if change.placement is Placement.INDEPENDENT and change.verb != "erase":
        # Any worker reads batches of a save, so the arrival of each row tells its shard. A shard
        # that moves goes to one shard as a whole.
        if near in change.kept or (ARRIVAL_COLUMN in frame.columns and partition >= 0):
            near = None
        if arrival is None:
            arrival = arrival_number(change.revision, partition)
        frame = add_arrival_column(frame, arrival)
    if change.verb == "erase" and len(frame):
        rows = frame[columns]
    else:
        rows = frames.conform(frame, change.meta[columns])
    encoded = encode(rows)
    given = rows, encoded
    if change.lost is not None:
        rows = frames.take(rows, frames.xp.flatnonzero(lost_rows(rows, encoded, change)))
        encoded = encode(rows)
    tally = NO_COUNTS
    if change.heavy is None and change.verb in {"build", "insert"}:
        parts, seed = len(change.shards), change.encoder.seeds.owners
        tally = heavy_candidates(encoded.codes, parts, change.partitions, seed)
    attempt = uuid.uuid4().hex
    segments: list[list[Parcel]] = [[] for _ in change.shards]
    counts, keys = [0] * len(segments), [0] * len(segments)
    layers = rows_to_store(rows, encoded, change, near, tally)
    for first, owned in layers:
        for part, found in enumerate(cut_into_chunks(rows, owned, change.meta[columns], nbytes)):
            counts[part] += len(owned[part])
            segments[part] += [
                Parcel(partition, attempt, number, len(piece), payload)
                for number, (piece, payload) in enumerate(found, start=first)
            ]
    if change.verb == "upsert":
        ((_, owned),) = layers
        if change.lost is not None and change.placement is Placement.INDEPENDENT:
            # Lost shards may have had rows of keys whose new rows are not lost.
            rows, encoded = given
            owned = [each[:0] for each in owned]
        gone = keys_to_replace(encoded, change, owned)
        names = list(change.encoder.names)
        cut = cut_into_chunks(rows[names], gone, change.meta[names], nbytes)
        for part, found in enumerate(cut):
            keys[part] = len(gone[part])
            segments[part] += [
                Parcel(partition, attempt, -number, len(piece), payload)
                for number, (piece, payload) in enumerate(found, start=1)
            ]
    return segments, Receipt(partition, attempt, tuple(counts), tally, tuple(keys))


def parcel_limit(change: Change, worker: Any) -> int | None:
    """Return the limit of a parcel in bytes; None for the default.

    Rows that stay on this worker are not sent, and have no limit.
    """
    here = [shard.worker for shard in change.shards] == [worker.address]
    return sys.maxsize if here else None
