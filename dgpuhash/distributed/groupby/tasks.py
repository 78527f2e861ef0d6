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

from dgpuhash import backend
from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.cluster.dask_internals import sync
from dgpuhash.distributed.cluster.host import current_worker, plugin_of
from dgpuhash.distributed.cluster.rpc import call_handler
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.groupby.asked import called
from dgpuhash.distributed.groupby.categories import UnknownCategories
from dgpuhash.distributed.groupby.digest import digest_of
from dgpuhash.distributed.groupby.heavy.held import Held, Target
from dgpuhash.distributed.groupby.heavy.rounds import Found, found_by_counts, of_range
from dgpuhash.distributed.groupby.owners import (
    FOLD,
    HOLD,
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
from dgpuhash.distributed.partition.skew import HeavyKeys, heavy_candidates
from dgpuhash.distributed.shards.inbox import Exchange, Parcel
from dgpuhash.distributed.shards.secession import SecessionBudget
from dgpuhash.errors import IndexLost
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.frames.groupby.partial.rows import key_codes, mostly_distinct_rows
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
    ranked : tuple of int
        The positions of the columns of which only values at some places are asked for; none where
        the plan needs something else. Rows of heavy keys stay where they are then.
    by_rows : GroupPlan, optional
        That of partitions which have few rows of each key, and give them in place of states.
    few : int
        The most rows of a partition that gives them in any case.
    """

    plan: GroupPlan
    ranges: int
    unknown: UnknownCategories | None = None
    ranked: tuple[int, ...] = ()
    by_rows: GroupPlan | None = None
    few: int = 0

    def rows_of(self, part: Any, number: int) -> tuple[Any, Any] | None:
        """Return the rows of a partition and their codes, where they go in place of states."""
        if self.by_rows is None:
            return None
        if len(part) > self.few:
            return mostly_distinct_rows(self.by_rows, part, number)
        rows = self.by_rows.reduce(part, number)
        return rows, key_codes(self.by_rows, rows)


@dataclass(frozen=True, slots=True)
class Opened:
    """A run whose states wait for partitions.

    Attributes
    ----------
    uid : str
    workers : tuple of str
        The owner of each hash range.
    holders : tuple of str
        All workers, where rows may stay with each; none otherwise.
    """

    uid: str
    workers: tuple[str, ...]
    holders: tuple[str, ...] = ()


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
    holders = tuple(each.worker for each in there) if task.ranked else ()
    opened, owners = Opened(uid, workers, holders), tuple(dict.fromkeys([*workers, *holders]))
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
    host.service(GroupOwners).open(
        host, opened.uid, task.plan, task.unknown, task.ranges, parts, task.ranked, task.by_rows
    )  # fmt: skip


class FoldExchange(Exchange):
    """Exchange that puts the states of a partition to the owners of their hash ranges."""

    def __init__(
        self, worker: Any, opened: Opened, digest: str, rows: Sequence[int], *, by_rows: bool
    ) -> None:
        self._worker, self._opened = worker, opened
        self._digest, self._rows, self._by_rows = digest, rows, by_rows
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
            digest=self._digest, by_rows=self._by_rows,
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
        digest, attempt = digest_of(frame), uuid.uuid4().hex
        held, found = None, task.rows_of(frame, number)
        if found is not None:
            states, codes = found
        else:
            states = task.plan.reduce(frame, number)
            codes = key_codes(task.plan, states)
        if opened.holders:
            held, light = hold_heavy(worker, opened, states, codes, number, attempt)
            if held is not None:
                states, codes = states.take(light).reset_index(drop=True), codes[light]
        plan = task.plan if found is None or task.by_rows is None else task.by_rows
        owned = rows_of_ranges(plan.encoder.owners(codes, task.ranges), task.ranges)
        rows = tuple(map(len, owned))
        segments = [
            [
                Parcel(number, attempt, place, len(chosen), payload)
                for place, (chosen, payload) in enumerate(chunks)
                if len(chosen)
            ]
            for chunks in cut_into_chunks(states, owned, plan.states_meta)
        ]
        nbytes = sizeof(states)
        # What is sent is a copy.
        del states, owned, found
        by_rows = plan is not task.plan
        putting = FoldExchange(worker, opened, digest, rows, by_rows=by_rows).put_segments(segments)
        going = asyncio.run_coroutine_threadsafe(putting, worker.loop.asyncio_loop)
        plugin_of(worker).service(SecessionBudget).result(going, frame, worker, nbytes=nbytes)
        unknown = task.unknown
        categories = () if unknown is None else unknown.categories(frame)
        return FoldReceipt(number, digest, rows, categories, held)


def hold_heavy(
    worker: Any, opened: Opened, rows: Any, codes: Any, number: int, attempt: str
) -> tuple[Held | None, Any]:
    """Keep a partition's rows of heavy keys on this worker; return where, and the other rows.

    A worker that came later than the run gives them to one that is part of it.
    """
    holders = opened.holders
    heavy = HeavyKeys(heavy_candidates(codes, len(holders), 1, seed=number).codes)
    if not heavy:
        return None, None
    among = heavy.among(codes)
    holder = worker.address if worker.address in holders else holders[number % len(holders)]
    kept = rows.take(np.flatnonzero(among)).reset_index(drop=True)
    sync(
        worker.loop, call_handler, worker, holder, HOLD, {"payload": kept},
        uid=opened.uid, partition=number, attempt=attempt,
    )  # fmt: skip
    return Held(holder, attempt, heavy.codes), np.flatnonzero(~among)


def rows_of_ranges(owners: Any, ranges: int) -> list[Any]:
    """Return the positions of the rows of each hash range, ascending."""
    device = backend.get(None, owners)
    if ranges == 1:
        return [device.xp.arange(len(owners))]
    order, counts = device.multisplit(owners, ranges)
    ends = np.cumsum(counts)
    return [order[end - count : end] for end, count in zip(ends, counts, strict=True)]


def seal_groups(
    opened: Opened, packed: CachedPickle[GroupTask], key: Any, *receipts: FoldReceipt
) -> Standing:
    """Return the run once the states hold every partition."""
    with raise_without_traceback(), lost_runs_again(key, opened.uid):
        workers, client = tuple(dict.fromkeys(opened.workers)), client_of(None)
        run_on_workers(client, workers, seal_states, opened.uid, list(receipts))
        if any(receipt.held is not None for receipt in receipts):
            rank_heavy(client, packed.opened(), opened, receipts)
        return Standing(opened.uid, key, opened.workers)


def rank_heavy(
    client: Client, task: GroupTask, opened: Opened, receipts: Sequence[FoldReceipt]
) -> None:
    """Have the owners know what heavy keys have at the places that are asked for."""
    uid, holders, plan = opened.uid, opened.holders, task.plan
    attempts: dict[str, list[tuple[int, str]]] = {holder: [] for holder in holders}
    codes = set[int]()
    for receipt in receipts:
        if (held := receipt.held) is not None:
            attempts[held.worker].append((receipt.partition, held.attempt))
            codes.update(held.codes)
    heavy = HeavyKeys(tuple(sorted(codes)))
    keys = run_on_workers(client, holders, choose_held, uid, attempts, heavy)
    found = found_by_counts(
        plan, task.ranked, dict(zip(holders, keys, strict=True)),
        lambda *asked: run_on_workers(client, holders, count_held, uid, *asked),
    )  # fmt: skip
    run_on_workers(client, holders, add_found, uid, of_range(plan, found, task.ranges))


def choose_held(
    host: Any, uid: str, attempts: dict[str, list[tuple[int, str]]], heavy: HeavyKeys
) -> Any:
    """Return the keys of the rows that stayed on a worker."""
    return host.service(GroupOwners).choose(uid, attempts[host.worker.address], heavy)


def count_held(
    host: Any, uid: str, numbers: dict[str, Any], targets: list[Target], bits: int
) -> Any:
    """Return how many words of the rows that stayed on a worker there are for each target."""
    return host.service(GroupOwners).counts(uid, numbers[host.worker.address], targets, bits)


def add_found(host: Any, uid: str, found: dict[int, Found]) -> None:
    """Tell a worker the answers for heavy keys of its hash ranges."""
    host.service(GroupOwners).add_found(uid, found)


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
