"""Report a worker's shard sizes and bulk work to the dashboard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dgpuhash.distributed.cluster.host import NAME
from dgpuhash.distributed.cluster.rpc import fire_and_forget
from dgpuhash.distributed.shards.filter_shard import FilterShard
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.distributed.shards.stats import shard_size
from dgpuhash.distributed.shards.table_shard import TableShard
from dgpuhash.errors import IndexLost
from dgpuhash.frames import FrameIndex
from dgpuhash.frames.grouped.index import GroupIndex
from dgpuhash.frames.stats import table_name
from dgpuhash.tables import MultiMap

# Seconds to wait for the shard thread. A busy one tells later, and the last figures stand in.
PATIENCE = 0.2


@dataclass(frozen=True, slots=True)
class ShardFigures:
    """Figures of one shard, as `stats()` of its index or table has them.

    Attributes
    ----------
    uid : str
        Id of the index or table.
    kind : str
        ``"index"`` or ``"groups"``; of a distributed table, the class of its shards.
    stored : str
        Class and method of the table that has an index's keys; the dtypes of a distributed table.
    epoch : int
    rows : int
        Rows of an index, entries of a table, blocks of a filter.
    nbytes : int or None
        None where it is known only from each row.
    load : float or None
        Distinct keys, as a share of those that fit before the table grows.
    placement : str
        Of a distributed table. The scheduler knows that of an index.
    """

    uid: str
    kind: str
    stored: str
    epoch: int
    rows: int
    nbytes: int | None
    load: float | None
    placement: str = ""


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """Progress of bulk work on one worker, with the fields of `Progress`.

    `transaction` and `partitions` are of a change whose rows Dask tasks bring.
    """

    uid: str
    verb: str
    step: str
    rows: int
    done: int
    seconds: float
    transaction: str = ""
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """Figures of one worker's shards, and of its bulk work in progress."""

    shards: tuple[ShardFigures, ...] = ()
    phases: tuple[PhaseFigures, ...] = ()


@dataclass
class LastFigures:
    """Latest figures that a worker's shard thread reported, and a pending request."""

    shards: tuple[ShardFigures, ...] = ()
    reading: asyncio.Future[tuple[ShardFigures, ...]] | None = field(default=None, repr=False)


async def tell_figures(published: Mapping[str, int], dask_worker: Any) -> WorkerFigures:
    """Return this worker's figures, on its event loop.

    A shard thread that is busy is not waited for: its last figures stand in.

    Parameters
    ----------
    published : mapping
        The epoch of each index of the cluster, by its uid.
    """
    host = dask_worker.plugins.get(NAME)
    if host is None:
        return WorkerFigures()
    last = host.service(LastFigures)
    if last.reading is None:
        last.reading = fire_and_forget(host.thread.run(read_shards, host, published))
    await asyncio.wait([last.reading], timeout=PATIENCE)
    if last.reading.done():
        if last.reading.exception() is None:
            last.shards = last.reading.result()
        last.reading = None
    return WorkerFigures(last.shards, tuple(phases_of(host)))


def read_shards(host: ShardHost, published: Mapping[str, int]) -> tuple[ShardFigures, ...]:
    """Return the figures of all shards; runs on the shard thread."""
    found = []
    for uid, epoch in published.items():
        if host.shards.standing(uid) is None:
            # A build that no request has made visible yet; or this worker has no shard of it.
            with suppress(IndexLost):
                host.shards.at(uid, epoch, host.shards.incarnation)
        shard = host.shards.standing(uid)
        if shard is not None:
            found.append(index_figures(uid, shard.epoch, shard.index))
    for uid, hosted in host.tables.items():
        if hosted.broken is None:
            found.append(table_figures(uid, hosted.epoch, hosted.part))
    return tuple(found)


def index_figures(uid: str, epoch: int, index: FrameIndex) -> ShardFigures:
    rows, nbytes = shard_size(index)
    table = index.table
    keys = table.n_keys if isinstance(table, MultiMap) else len(table)
    kind = "groups" if isinstance(index, GroupIndex) else "index"
    load = keys / table.capacity if table.capacity else None
    return ShardFigures(uid, kind, table_name(table), epoch, rows, nbytes, load)


def table_figures(uid: str, epoch: int, part: TableShard) -> ShardFigures:
    table, dtypes = part.table, " → ".join(map(str, part.dtypes))
    keyed = not isinstance(part, FilterShard) and table.capacity
    load = part.n_keys / table.capacity if keyed else None
    mode = part.mode.placement.value
    return ShardFigures(
        uid, type(table).__name__, dtypes, epoch, part.size, table.nbytes, load, mode
    )


def phases_of(host: ShardHost) -> list[PhaseFigures]:
    """Return the bulk work in progress on this worker."""
    found, now, progress = [], time.monotonic(), host.thread.progress
    if progress is not None:
        done, seconds = min(progress.done, progress.rows), now - progress.since
        about = progress.uid, progress.verb, progress.step
        found.append(PhaseFigures(*about, progress.rows, done, seconds))
    for each in host.shards.open_changes():
        change = each.change
        if each.ready or (progress is not None and progress.uid == change.uid):
            continue
        brought = 0, each.inbox.arrived, now - each.opened, change.transaction, change.partitions
        found.append(PhaseFigures(change.uid, change.verb, "receive rows", *brought))
    return found
