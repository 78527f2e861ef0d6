"""Machine limits, measured on all workers at once."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence

from dgpuhash import backend
from dgpuhash.bench.floors import Floors, partition_rate
from dgpuhash.bench.workers.cluster import Workers
from dgpuhash.distributed.cluster.dask_internals import sync
from dgpuhash.distributed.cluster.host import current_worker
from dgpuhash.distributed.cluster.rpc import call_handler
from dgpuhash.distributed.ingest.commit import shard_addresses
from dgpuhash.typing import Device

_BITS = 64
_LOAD = 0.8
_PAIR_NBYTES = 2 * _BITS // 8
# Messages to time, and how many a worker has in flight to each other worker.
_MESSAGES, _AT_ONCE = 300, 4
# With their units: bytes or rows each second.
LIMITS = {"copy": "TB/s", "partition": "G/s", "insert": "G/s", "lookup": "G/s"}


def limits(workers: Workers, rows: int, repeats: int) -> dict[str, float]:
    """Return the slowest worker's rates while all workers run at once.

    Each works on `rows` pairs of 8 + 8 bytes. ``copy``: bytes read and written; ``partition``:
    pairs of one partition pass; ``insert`` and ``lookup``: the floors of a table that these pairs
    fill to a load of 0.8.
    """
    found = workers.gather_each(_limits, rows, repeats)
    return {name: min(each[name] for each in found) for name in LIMITS}


def _limits(device: Device, rank: int, rows: int, repeats: int) -> dict[str, float]:
    used = backend.get(device)
    floors = Floors(used, repeats)
    nbytes = _PAIR_NBYTES * rows
    slots = int(nbytes / _LOAD)
    return {
        "copy": floors.copy(nbytes),
        "partition": partition_rate(used, _BITS, nbytes, repeats),
        "insert": floors.insert(_BITS, rows, slots),
        "lookup": floors.lookup(_BITS, rows, slots),
    }


def message_seconds(workers: Workers, repeats: int) -> tuple[float, float]:
    """Return the seconds of an RPC without rows: alone, and among many.

    The message is of the kind that an index sends; its acknowledgement is in the seconds.

    Returns
    -------
    float, float
        ``latency``: of one message while nothing else runs; ``message``: of each message while all
        workers send as many to the others as they can.
    """
    shard_addresses(workers.client, workers.addresses)
    one, many, others = [], [], workers.addresses[1:]
    for _ in range(repeats + 1):
        sole = workers.client.submit(
            _send, workers.device, 0, workers.addresses, 1,
            workers=[workers.addresses[0]], allow_other_workers=False, pure=False,
        )  # fmt: skip
        one.append(sole.result())
        many.append(max(workers.gather_each(_send, workers.addresses, _AT_ONCE * len(others))))
    return statistics.median(one[1:]), statistics.median(many[1:])


def _send(device: Device, rank: int, addresses: Sequence[str], at_once: int) -> float:
    worker = current_worker()
    others = [address for address in addresses if address != worker.address]

    async def some(first: int) -> None:
        for number in range(first, _MESSAGES, at_once):
            await call_handler(worker, others[number % len(others)], "dgpuhash_ping", {})

    async def all_of_them() -> None:
        await asyncio.gather(*(some(first) for first in range(at_once)))

    start = time.perf_counter()
    sync(worker.loop, all_of_them)
    return (time.perf_counter() - start) / _MESSAGES
