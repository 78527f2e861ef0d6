"""Tasks of a groupby: aggregate partitions, exchange states, finalize each hash range."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from dask.sizeof import sizeof
from distributed import Client

from dgpuhash import backend
from dgpuhash.distributed.cluster.broadcast import run_on_workers
from dgpuhash.distributed.cluster.client import task_client
from dgpuhash.distributed.cluster.dask_internals import sync
from dgpuhash.distributed.cluster.host import current_worker, plugin_of
from dgpuhash.distributed.cluster.rpc import call_handler, encode_call
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.groupby.asked import Shown
from dgpuhash.distributed.groupby.categories import PartCategories, UnknownCategories
from dgpuhash.distributed.groupby.digest import digest_of
from dgpuhash.distributed.groupby.heavy.held import Held
from dgpuhash.distributed.groupby.heavy.rounds import found_by_counts, of_range
from dgpuhash.distributed.groupby.owners import (
    FOLD,
    HOLD,
    RESULT,
    FoldReceipt,
    GroupOwners,
    drop_groups,
)
from dgpuhash.distributed.groupby.spilling import SpillingStates
from dgpuhash.distributed.partition.descriptor import ShardAddress
from dgpuhash.distributed.partition.hash_partition import cut_into_chunks
from dgpuhash.distributed.partition.skew import HeavyKeys, heavy_candidates
from dgpuhash.distributed.runs.phases import (
    RESULT_NBYTES,
    BufferedRows,
    RunTask,
    finalize,
    source,
)
from dgpuhash.distributed.runs.results import together
from dgpuhash.distributed.runs.run import Run, end_run
from dgpuhash.distributed.shards.inbox import Parcel, ParcelExchange
from dgpuhash.distributed.shards.secession import SecessionBudget
from dgpuhash.frames import frames_of
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.tables.memory_errors import memory_errors_of


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run whose owners accept states of partitions.

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
class SealedStates:
    """A sealed run, with the states of all partitions; `key` is its seal task.

    Where owners have none of them, `result` is the answer, all of which is the first hash range's.
    """

    uid: str
    key: Any
    workers: tuple[str, ...]
    result: Any = None

    def __sizeof__(self) -> int:
        return RESULT_NBYTES + sizeof(self.result)


@dataclass(frozen=True, slots=True)
class GroupTask(RunTask):
    """Common arguments of a groupby's tasks.

    Attributes
    ----------
    plan : GroupPlan
    ranges : int
        The number of hash ranges.
    unknown : UnknownCategories, optional
    ranked : tuple of int
        Positions of the columns of which only order statistics are needed; the rows of heavy keys
        then stay on their workers. Empty if the plan needs anything else.
    few, few_nbytes : int
        Largest number of states or rows of a partition, and of their bytes, that the task returns
        as its result. They go to owners only if another partition has more.
    """

    verb: ClassVar[str] = "groupby"
    copies: ClassVar[int] = 5
    plan: GroupPlan
    ranges: int
    unknown: UnknownCategories | None = None
    ranked: tuple[int, ...] = ()
    few: int = 0
    few_nbytes: int = 0

    def opening(
        self, uid: str, there: Sequence[ShardAddress], packed: CachedPickle[GroupTask]
    ) -> tuple[Run, Sequence[Any]]:
        workers = tuple(there[part % len(there)].worker for part in range(self.ranges))
        holders = tuple(each.worker for each in there) if self.ranked else ()
        opened = OpenRun(uid, workers, holders)
        owners = tuple(dict.fromkeys([*workers, *holders]))
        run = Run(uid, owners, encode_call(drop_groups, uid), opened, homes=workers)
        return run, (begin_states, packed, opened)

    def sink(self, frame: Any, number: int) -> tuple[BufferedRows, Any]:
        categories = PartCategories.of(self.plan, self.unknown, frame)
        states, codes = self.plan.reduce_part(frame, number, self.few)
        return BufferedRows(number, states, categories), codes

    def are_few(self, rows: Any) -> bool:
        return len(rows) <= self.few and frames_of(rows).rows_nbytes(rows) <= self.few_nbytes

    def sender(
        self, opened: OpenRun, buffered: BufferedRows, codes: Any, frame: Any
    ) -> Callable[[], FoldReceipt]:
        # States on a host are few for their rows, and the same whenever these are.
        told = frame if hasattr(buffered.rows, "hash_values") else buffered.rows
        exchange = FoldExchange(self, opened, buffered, codes, digest_of(told))
        return partial(exchange.receipt, frame)

    def finalize(
        self, client: Client, key: Any, opened: OpenRun, receipts: list[FoldReceipt]
    ) -> SealedStates:
        owners = tuple(dict.fromkeys(opened.workers))
        run_on_workers(client, owners, with_states, "seal", opened.uid, receipts)
        if any(receipt.held is not None for receipt in receipts):
            rank_heavy(client, self, opened, receipts)
        return SealedStates(opened.uid, key, opened.workers)

    def finalize_buffered(self, key: Any, buffered: Sequence[BufferedRows]) -> SealedStates:
        return SealedStates("", key, (), self.answer(buffered))

    def answer(self, buffered: Sequence[BufferedRows]) -> Any:
        """Return the answer of the states of all partitions."""
        standing = SpillingStates(self.plan, 1, None)
        for each in buffered:
            standing.fold(each.rows)
        return standing.result(self.unknown, [each.categories for each in buffered])


def begin_states(host: Any, packed: CachedPickle[GroupTask], opened: OpenRun) -> None:
    """Create the states of the hash ranges that a worker owns."""
    task, own = packed.opened(), host.worker.address
    parts = [part for part, worker in enumerate(opened.workers) if worker == own]
    host.service(GroupOwners).open(
        host, opened.uid, task.plan, task.unknown, task.ranges, parts, task.ranked
    )  # fmt: skip


class FoldExchange(ParcelExchange):
    """Exchange that sends the states of a partition to the owners of their hash ranges.

    It has a copy of them.
    """

    def __init__(
        self, task: GroupTask, opened: OpenRun, made: BufferedRows, codes: Any, digest: str
    ) -> None:
        self._worker, self._opened = current_worker(), opened
        self._made, self._digest = replace(made, rows=None), digest
        number, attempt, states = made.partition, uuid.uuid4().hex, made.rows
        plan, self._form = task.plan, task.plan.form_of(states)
        codes = plan.encoded(states).codes if codes is None else codes
        self._held: Held | None = None
        if opened.holders:
            self._held, light = hold_heavy(self._worker, opened, states, codes, number, attempt)
            if self._held is not None:
                states, codes = states.take(light).reset_index(drop=True), codes[light]
        owned = rows_of_ranges(plan.encoder.owners(codes, task.ranges), task.ranges)
        self._rows = tuple(map(len, owned))
        self._segments = [
            [
                Parcel(number, attempt, place, len(chosen), payload)
                for place, (chosen, payload) in enumerate(found)
                if len(chosen)
            ]
            for found in cut_into_chunks(states, owned, plan.forms[self._form].states_meta)
        ]
        self._nbytes = sizeof(states)

    @property
    def parts(self) -> int:
        return len(self._opened.workers)

    def receipt(self, frame: Any) -> FoldReceipt:
        """Send a frame's states, wait until they are merged, and return the receipt."""
        worker = self._worker
        putting = asyncio.run_coroutine_threadsafe(
            self.put_segments(self._segments), worker.loop.asyncio_loop
        )
        budget = plugin_of(worker).service(SecessionBudget)
        budget.result(putting, frame, worker, nbytes=self._nbytes)
        made = self._made
        return FoldReceipt(made.partition, self._digest, self._rows, made.categories, self._held)

    async def put(self, part: int, parcel: Parcel) -> None:
        await call_handler(
            self._worker, self._opened.workers[part], FOLD, {"payload": parcel.payload},
            uid=self._opened.uid, part=part, partition=parcel.partition, attempt=parcel.attempt,
            number=parcel.number, pieces=len(self._segments[part]), rows=self._rows[part],
            digest=self._digest, form=self._form,
        )  # fmt: skip


def hold_heavy(
    worker: Any, opened: OpenRun, rows: Any, codes: Any, number: int, attempt: str
) -> tuple[Held | None, Any]:
    """Keep a partition's rows of heavy keys on this worker; return their location and the rest.

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


def answer_of_one(frame: Any, packed: CachedPickle[GroupTask], shown: CachedPickle[Shown]) -> Any:
    """Return the final result of the only partition."""
    with raise_without_traceback(), memory_errors_of("groupby"):
        task = packed.opened()
        made, _ = task.sink(frame, 0)
        if task.unknown is not None or made.categories.others:
            return shown.opened()(task.answer([made]))
        return shown.opened()(task.plan.result(made.rows))


def rank_heavy(
    client: Client, task: GroupTask, opened: OpenRun, receipts: Sequence[FoldReceipt]
) -> None:
    """Compute the order statistics of heavy keys, and send them to the owners."""
    uid, holders, plan = opened.uid, opened.holders, task.plan
    attempts: dict[str, list[tuple[int, str]]] = {holder: [] for holder in holders}
    codes = set[int]()
    for receipt in receipts:
        if (held := receipt.held) is not None:
            attempts[held.worker].append((receipt.partition, held.attempt))
            codes.update(held.codes)
    heavy = HeavyKeys(tuple(sorted(codes)))
    keys = run_on_workers(client, holders, with_states, "choose", uid, attempts, heavy)
    found = found_by_counts(
        plan, task.ranked, dict(zip(holders, keys, strict=True)),
        lambda *asked: run_on_workers(client, holders, with_states, "counts", uid, *asked),
    )  # fmt: skip
    found_by_range = of_range(plan, found, task.ranges)
    run_on_workers(client, holders, with_states, "add_found", uid, found_by_range)


def with_states(host: Any, verb: str, uid: str, *args: Any) -> Any:
    """Return the result of a method of a worker's `GroupOwners`."""
    return getattr(host.service(GroupOwners), verb)(uid, *args)


def result_of(
    sealed: SealedStates, number: int, shown: CachedPickle[Shown], meta: CachedPickle[Any]
) -> Any:
    """Return the final result of a hash range.

    An empty hash range returns `meta` if there is one, since user functions give no dtypes for no
    rows.
    """
    with source(sealed, "groupby"):
        found, worker = sealed.result, current_worker()
        if found is None:
            (found,) = sync(
                worker.loop, call_handler, worker, sealed.workers[number], RESULT, {},
                uid=sealed.uid, part=number,
            )  # fmt: skip
        elif number:
            found = found.iloc[:0]
        known = meta.opened()
        return shown.opened()(found) if known is None or len(found) else known


def whole_groups(
    shown: CachedPickle[Shown], packed: CachedPickle[GroupTask], key: Any, *reduced: Any
) -> Any:
    """Seal the states, and return the final results of all hash ranges."""
    sealed = finalize(packed, key, *reduced)
    with source(sealed, "groupby"):
        answers, worker = [sealed.result], current_worker()
        if sealed.result is None:
            answers = sync(worker.loop, _results, worker, sealed)
            end_run(task_client(), key)
        return together([shown.opened()(each) for each in answers])


async def _results(worker: Any, sealed: SealedStates) -> list[Any]:
    calls = (
        call_handler(worker, owner, RESULT, {}, uid=sealed.uid, part=part)
        for part, owner in enumerate(sealed.workers)
    )
    return [answer for (answer,) in await asyncio.gather(*calls)]
