"""Time each step of a build and an insert of lazy frames on the workers.

The index reports when a change is done, but not the times of its steps. Here a client runs the
steps of the tasks one by one, and every worker synchronizes its device and reads its clock in
between.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dgpuhash import backend
from dgpuhash.bench.figure import require
from dgpuhash.bench.workers.cluster import BenchWorkers
from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.cluster.dask_internals import sync
from dgpuhash.distributed.cluster.host import current_worker
from dgpuhash.distributed.ingest.commit import drop_shards, open_change, shard_addresses
from dgpuhash.distributed.ingest.shuffle_tasks import CommExchange, parcel_limit, parcels
from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.shards.inbox import Receipt
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.frames import KeyEncoder, frames_of


@dataclass(frozen=True, slots=True)
class Steps:
    """Seconds of the steps of one change, and its exchanged bytes.

    Attributes
    ----------
    seconds : dict
        ``partition`` (encode keys, order rows by their owner) and ``exchange`` of the worker that
        took longest for both; ``insert`` (concatenate received rows, insert them into the table) of
        the slowest worker; ``other``: the rest until the client knew that the change was done.
    exchanged_bytes : int
        Bytes of the rows sent to other workers.
    """

    seconds: dict[str, float]
    exchanged_bytes: int


def build_and_insert(
    workers: BenchWorkers, built: Sequence[Any], inserted: Sequence[Any], meta: Any
) -> list[Steps]:
    """Run the steps of a build and of an insert, then drop the shards.

    Each worker has one frame to build from, and one to insert; without `inserted` only the build is
    run.

    Parameters
    ----------
    workers : Workers
    built, inserted : sequence of Future
    meta : DataFrame
        An empty frame with the columns of the others.

    Raises
    ------
    DgpuhashError
        When rows were lost on the way.
    """
    change = Change(
        uid=uuid.uuid4().hex,
        transaction=uuid.uuid4().hex,
        verb="build",
        epoch=1,
        shards=shard_addresses(workers.client, workers.addresses),
        encoder=KeyEncoder.for_frame(meta, "key"),
        meta=meta,
        unique=None,
        device=None,
    )
    try:
        taken = [_run_steps(workers, change, built)]
        if inserted:
            change = replace(change, verb="insert", transaction=uuid.uuid4().hex, epoch=2)
            taken.append(_run_steps(workers, change, inserted))
        return taken
    finally:
        drop_shards(workers.client, change.uid, workers.addresses)


def _run_steps(workers: BenchWorkers, change: Change, frames: Sequence[Any]) -> Steps:
    client, addresses = workers.client, workers.addresses
    start = time.perf_counter()
    run_on_workers(client, addresses, open_change, change)
    puts = client.gather(
        [
            client.submit(timed_put, frame, change, number, workers=[address], pure=False)
            for number, (frame, address) in enumerate(zip(frames, addresses, strict=True))
        ]
    )
    receipts = [put[0] for put in puts]
    prepared = run_on_workers(client, addresses, timed_prepare, change, receipts)
    applied = run_on_workers(client, addresses, timed_apply, change)
    whole = time.perf_counter() - start
    rows = sum(sum(receipt.rows) for receipt in receipts)
    require(rows == sum(rows for rows, _ in applied), "rows were lost", verb=change.verb)
    parted, sent = max(((put[1], put[2]) for put in puts), key=sum)
    placed = max(a[1] + b[1] for a, b in zip(prepared, applied, strict=True))
    seconds = {"partition": parted, "exchange": sent, "insert": placed}
    seconds["other"] = max(0.0, whole - sum(seconds.values()))
    return Steps(seconds, sum(put[3] for put in puts))


def timed_put(frame: Any, change: Change, partition: int) -> tuple[Receipt, float, float, int]:
    """Run `shuffle_partition` in two timed steps on one partition.

    Return the receipt, the seconds to partition the rows and to send them, and the bytes sent to
    other workers.
    """
    worker = current_worker()
    exchange = CommExchange(worker, change.shards, change.uid, change.transaction)
    device = backend.get(frames_of(frame).device)
    start = time.perf_counter()
    segments, receipt = parcels(frame, change, partition, parcel_limit(change, worker))
    device.synchronize()
    parted = time.perf_counter()
    sync(worker.loop, exchange.put_segments, segments)
    sent = time.perf_counter()
    away = [
        sum(column.nbytes for column in parcel.payload)
        for shard, segment in zip(change.shards, segments, strict=True)
        if shard.worker != worker.address
        for parcel in segment
    ]
    return receipt, parted - start, sent - parted, sum(away)


def timed_prepare(
    host: ShardHost, change: Change, receipts: Sequence[Receipt]
) -> tuple[int, float]:
    start = time.perf_counter()
    rows = host.shards.prepare(change.uid, change.transaction, receipts)
    backend.get(frames_of(change.meta).device).synchronize()
    return rows, time.perf_counter() - start


def timed_apply(host: ShardHost, change: Change) -> tuple[int, float]:
    start = time.perf_counter()
    rows = host.shards.apply(change.uid, change.transaction)
    backend.get(frames_of(change.meta).device).synchronize()
    return rows, time.perf_counter() - start
