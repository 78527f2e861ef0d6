"""Tasks of a groupby: open, reduce, seal and result."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.sizeof import sizeof
from distributed import Client
from distributed.utils import sync

from dgpuhash import backend
from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.cluster.host import current_worker, plugin_of
from dgpuhash.distributed.cluster.rpc import call_handler
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.groupby.asked import called
from dgpuhash.distributed.groupby.categories import UnknownCategories
from dgpuhash.distributed.groupby.digest import digest_of
from dgpuhash.distributed.groupby.owners import (
    FOLD,
    RESULT,
    FoldReceipt,
    GroupOwners,
    drop_groups,
)
from dgpuhash.distributed.ingest.commit import shard_addresses
from dgpuhash.distributed.merge.runs import (
    Run,
    begin_run,
    current_run,
    free_call,
    free_run,
    lost_runs_again,
    open_run,
)
from dgpuhash.distributed.partition.hash_partition import cut_into_chunks
from dgpuhash.distributed.shards.inbox import Exchange, Parcel
from dgpuhash.distributed.shards.secession import SecessionBudget
from dgpuhash.errors import IndexLost
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.tables.memory_errors import memory_errors_of

__all__ = ["GroupTask", "open_groups", "reduce_partition", "result_of", "seal_groups"]


@dataclass(frozen=True, slots=True)
class GroupTask:
    """What the tasks of a groupby have in common.

    Attributes
    ----------
    plan : GroupPlan
    ranges : int
        The number of hash ranges.
    unknown : UnknownCategories, optional
    """

    plan: GroupPlan
    ranges: int
    unknown: UnknownCategories | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A run whose states wait for partitions.

    Attributes
    ----------
    uid : str
    workers : tuple of str
        The owner of each hash range.
    """

    uid: str
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """States of a run that hold all partitions; `key` is the task that made this."""

    uid: str
    key: Any
    workers: tuple[str, ...]


def open_groups(task: CachedPickle[GroupTask], key: Any) -> Opened:
    """Choose the owners of the hash ranges, and begin their states."""
    return open_run(_open_states, task, key)


def _open_states(client: Client, task: GroupTask, key: Any) -> Opened:
    """Return the run of the key, which is begun on the workers that are there.

    Raises IndexLost when one of them leaves meanwhile.
    """
    found: Opened | None = current_run(client, key)
    if found is not None:
        return found
    uid, there = uuid.uuid4().hex, shard_addresses(client)
    workers = tuple(there[part % len(there)].worker for part in range(task.ranges))
    opened, owners = Opened(uid, workers), tuple(dict.fromkeys(workers))
    made = Run(uid, owners, free_call(drop_groups, uid), opened)
    try:
        run_on_workers(client, owners, begin_states, CachedPickle.of(task), opened)
        return begin_run(client, key, made)  # type: ignore[no-any-return]
    except IndexLost:
        free_run(client, made)
        raise


def begin_states(host: Any, packed: CachedPickle[GroupTask], opened: Opened) -> None:
    """Begin the states of the hash ranges that a worker owns."""
    task, own = packed.opened(), host.worker.address
    parts = [part for part, worker in enumerate(opened.workers) if worker == own]
    host.service(GroupOwners).open(host, opened.uid, task.plan, task.unknown, task.ranges, parts)


class FoldExchange(Exchange):
    """Exchange that puts the states of a partition to the owners of their hash ranges."""

    def __init__(self, worker: Any, opened: Opened, digest: str, rows: Sequence[int]) -> None:
        self._worker, self._opened = worker, opened
        self._digest, self._rows = digest, rows
        self._pieces: list[int] = []

    @property
    def parts(self) -> int:
        return len(self._opened.workers)

    async def put_segments(self, segments: Sequence[Any]) -> None:
        self._pieces = [len(parcels) for parcels in segments]
        await super().put_segments(segments)

    async def put(self, part: int, parcel: Parcel) -> None:
        await call_handler(
            self._worker, self._opened.workers[part], FOLD, {"payload": parcel.payload},
            uid=self._opened.uid, part=part, partition=parcel.partition, attempt=parcel.attempt,
            number=parcel.number, pieces=self._pieces[part], rows=self._rows[part],
            digest=self._digest,
        )  # fmt: skip


def reduce_partition(
    frame: Any, opened: Opened, packed: CachedPickle[GroupTask], number: int, key: Any
) -> FoldReceipt:
    """Reduce a partition, and have its states folded by their owners; return the receipt.

    It may run more than once: each run is an attempt of its own.
    """
    with (
        raise_without_traceback(),
        memory_errors_of("groupby"),
        lost_runs_again(key, opened.uid),
    ):
        task, worker = packed.opened(), current_worker()
        digest = digest_of(frame)
        states = task.plan.reduce(frame, number)
        owned = rows_of_ranges(task.plan.owners(states, task.ranges), task.ranges)
        rows, attempt = tuple(map(len, owned)), uuid.uuid4().hex
        segments = [
            [
                Parcel(number, attempt, place, len(chosen), payload)
                for place, (chosen, payload) in enumerate(found)
                if len(chosen)
            ]
            for found in cut_into_chunks(states, owned, task.plan.states_meta)
        ]
        nbytes = sizeof(states)
        # What is sent is a copy.
        del states, owned
        putting = FoldExchange(worker, opened, digest, rows).put_segments(segments)
        going = asyncio.run_coroutine_threadsafe(putting, worker.loop.asyncio_loop)
        plugin_of(worker).service(SecessionBudget).result(going, frame, worker, nbytes=nbytes)
        unknown = task.unknown
        categories = () if unknown is None else unknown.categories(frame)
        return FoldReceipt(number, digest, rows, categories)


def rows_of_ranges(owners: Any, ranges: int) -> list[Any]:
    """Return the positions of the rows of each hash range, ascending."""
    device = backend.get(None, owners)
    if ranges == 1:
        return [device.xp.arange(len(owners))]
    order, counts = device.multisplit(owners, ranges)
    ends = np.cumsum(counts)
    return [order[end - count : end] for end, count in zip(ends, counts, strict=True)]


def seal_groups(opened: Opened, key: Any, *receipts: FoldReceipt) -> Standing:
    """Return the run once the states hold every partition."""
    with raise_without_traceback(), lost_runs_again(key, opened.uid):
        workers = tuple(dict.fromkeys(opened.workers))
        run_on_workers(client_of(None), workers, seal_states, opened.uid, list(receipts))
        return Standing(opened.uid, key, opened.workers)


def seal_states(host: Any, uid: str, receipts: list[FoldReceipt]) -> None:
    """Check and close the states of a run on a worker."""
    host.service(GroupOwners).seal(uid, receipts)


def result_of(
    sealed: Standing, number: int, names: dict[Hashable, Hashable], meta: CachedPickle[Any]
) -> Any:
    """Return the answer of a hash range, with what its keys are called.

    Functions of a user tell nothing of no rows: `meta` does.
    """
    with (
        raise_without_traceback(),
        memory_errors_of("groupby"),
        lost_runs_again(sealed.key, sealed.uid),
    ):
        worker = current_worker()
        (found,) = sync(
            worker.loop, call_handler, worker, sealed.workers[number], RESULT, {},
            uid=sealed.uid, part=number,
        )  # fmt: skip
        known = meta.opened()
        return called(found, names) if known is None or len(found) else known
