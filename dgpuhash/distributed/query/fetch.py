"""Probe remote shards: send keys to their owners, return matches in key order."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any

from dask.sizeof import sizeof

from dgpuhash.distributed.cluster.dask_internals import memory_limit, sync
from dgpuhash.distributed.cluster.device_thread import BlockingJob
from dgpuhash.distributed.cluster.host import plugin_of
from dgpuhash.distributed.cluster.rpc import call_handler
from dgpuhash.distributed.cluster.serialization import (
    Payload,
    chunk_nbytes,
    concat_payloads,
    is_plain,
    plain_arrays,
)
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement, ShardAddress
from dgpuhash.distributed.partition.hash_partition import (
    cut_arrays_into_chunks,
    cut_into_chunks,
)
from dgpuhash.distributed.partition.routing import nearest_shard, rows_to_query
from dgpuhash.distributed.partition.row_order import (
    ARRIVAL_COLUMN,
    combine_semi_joins,
    sort_matches,
)
from dgpuhash.distributed.pruning.policy import PruningOptions
from dgpuhash.distributed.pruning.probe_keys import PrunedKeys
from dgpuhash.distributed.shards.shard_store import Shard
from dgpuhash.distributed.shards.worker_memory import WorkerMemory, trim
from dgpuhash.errors import OutOfMemoryError
from dgpuhash.frames import POSITION_NBYTES, EncodedKeys, frames_of, sort_by_query_row
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.tables.select import gather_rows

# Rows that a partition may have.
MOST_ROWS = 2**31 - 1
# A result is there twice: the parts that shards answer, and what is put together from them.
COPIES = 2
# Part of a worker's memory that a result may always have: tasks begin only where as much is free.
LEAST = 8
# Seconds in which results of other tasks may go before one begins.
SPILL_SECONDS = 1.0
# Part that the answers for tasks which wait may have together.
WAITING = 16

# Requests to one shard under way at once: the next keys travel while earlier ones are probed.
AT_ONCE = 2
FINER = (
    "use finer partitions of the side that asks (.repartition(npartitions=…)), fewer columns, or "
    "workers with more memory"
)

# Query rows that have a match, and the payload with the index rows that they match.
Answer = tuple[Any, Payload]
# The first key that positions count from, the positions, and the payload of matched rows.
Pages = list[tuple[int, Any, Payload]]


def keys_within_memory(
    worker: Any, descriptor: Descriptor, columns: Sequence[Hashable], count: int, nbytes: int
) -> int:
    """Return the bytes of keys to look up at once, so that their results fit the memory.

    Parameters
    ----------
    worker : distributed.Worker
        The worker that asks. Its own shard tells how large answers are.
    descriptor : Descriptor
    columns : sequence of labels
        Stored columns that are wanted.
    count, nbytes : int
        How many keys have how many bytes.
    """
    limit = memory_limit(worker)
    shard = plugin_of(worker).shards.standing(descriptor.uid)
    if not limit or shard is None or frames_of(descriptor.meta).device != "cpu":
        return sys.maxsize
    row_nbytes = shard.index.store.row_nbytes(list(columns))
    return int(limit / WAITING * nbytes / max(1.0, count * row_nbytes))


class ResultLimit:
    """Expected rows of a result, checked against the memory of the task's worker.

    Parameters
    ----------
    worker : distributed.Worker
    beside : float
        Bytes of what comes beside a stored row.
    remedy : str
        What to do when there are too many.
    """

    def __init__(self, worker: Any, beside: float, remedy: str) -> None:
        memory: WorkerMemory | None = plugin_of(worker).shards.memory
        self._memory, self._beside, self._remedy = memory, beside, remedy
        self._least = memory_limit(worker) // LEAST
        self._room = None
        if memory is not None:
            memory.relieve()
            # Dask may be about to write results to the disk.
            memory.wait(lambda: memory.for_tasks() >= self._least, SPILL_SECONDS)
            self._room = memory.for_tasks()
        self._rows, self._nbytes = 0, 0.0
        self._lock = threading.Lock()

    def allows(self, rows: int, row_nbytes: float) -> bool:
        """Return whether more rows of an average size fit the memory."""
        return self._fits(self._rows + rows, self._nbytes + rows * (row_nbytes + self._beside))

    def expect(self, rows: int, row_nbytes: float) -> None:
        """Count rows of the future result.

        Raises
        ------
        OutOfMemoryError
            When these are too many rows, or too many bytes, together with those before.
        """
        with self._lock:
            self._rows += rows
            self._nbytes += rows * (row_nbytes + self._beside)
            if self._fits(self._rows, self._nbytes):
                return
            if self._memory is not None and self._rows <= MOST_ROWS:
                trim()
                self._room = self._memory.for_tasks()
                if self._fits(self._rows, self._nbytes):
                    return
        there, where = f"{MOST_ROWS:,} rows", "a partition"
        if self._rows <= MOST_ROWS and self._memory is not None:
            there, where = f"{max(0, self._room or 0):,} bytes", f"worker {self._memory.address}"
        raise OutOfMemoryError(
            f"a partition of the result has {self._rows:,} rows, which need "
            f"{COPIES * int(self._nbytes):,} bytes while they are put together, and {where} has "
            f"place for {there}; {self._remedy}"
        )

    def _fits(self, rows: int, nbytes: float) -> bool:
        room = max(self._room or 0, self._least)
        return rows <= MOST_ROWS and (self._room is None or COPIES * nbytes <= room)


class ShardReader:
    """Client of an index's shards that fetches matches page by page.

    A page says where the next one begins, and the answering worker keeps no state in between: an
    asker that dies leaves nothing behind, and after a change of the index the next page raises.

    Parameters
    ----------
    worker : distributed.Worker
        The worker that asks.
    descriptor : Descriptor
    how : str
    columns : sequence of labels
        Stored columns that are wanted.
    marks : str
        Name of a join whose marks the matched rows get; empty for none.
    limit : ResultLimit, optional
        How many rows the answers may have together.

    Attributes
    ----------
    columns : list of labels
    """

    def __init__(
        self, worker: Any, descriptor: Descriptor, how: str, columns: Sequence[Hashable],
        marks: str = "", limit: ResultLimit | None = None,
    ) -> None:  # fmt: skip
        self._worker, self._limit = worker, limit
        self._descriptor = descriptor
        self._how, self._marks = how, marks
        self.columns: list[Hashable] = list(columns)

    def probe_all(self, questions: Sequence[Sequence[tuple[Any, Payload]]]) -> list[Answer]:
        """Return the matches of all shards for their `questions`, in shard order.

        The questions come from `hash_partition.cut_into_chunks`. A shard on this worker is probed
        without a message, while others answer.

        Raises
        ------
        IndexLost
            When a shard is lost, or the index is changed before the last page.
        """
        workers, here = self._descriptor.workers, self._worker.address
        own = {
            part: [self.probe_here(part, keys) for _, keys in questions[part]]
            for part, worker in enumerate(workers)
            if worker == here
        }
        others = [part for part in range(len(workers)) if part not in own and questions[part]]
        found: dict[int, list[Pages]] = {}
        if others:
            found = sync(self._worker.loop, self._ask_others, others, questions)
        for part, asked in own.items():
            found[part] = [[(0, *each.outcome()[:2])] for each in asked]
        xp = frames_of(self._descriptor.meta).xp
        return [
            (rows[first:][xp.asarray(positions)], payload)
            for part in sorted(found)
            for (rows, _), pages in zip(questions[part], found[part], strict=True)
            for first, positions, payload in pages
            if len(positions)
        ]

    def probe_here(self, part: int, keys: Payload) -> BlockingJob:
        """Probe a shard on this worker in one page.

        Nothing is copied or sent.
        """
        shard, host = self._descriptor.shards[part], plugin_of(self._worker)
        return host.thread.submit(
            host.shards.match,
            self._descriptor.uid,
            self._descriptor.epoch,
            shard.incarnation,
            keys,
            self._how,
            self.columns,
            0,
            sys.maxsize,
            self._marks,
            self._limit,
        )

    async def _ask_others(
        self, parts: Sequence[int], questions: Sequence[Sequence[tuple[Any, Payload]]]
    ) -> dict[int, list[Pages]]:
        found: dict[int, list[Pages]] = {part: [[] for _ in questions[part]] for part in parts}

        async def ask(part: int, pending: list[int]) -> None:
            while pending:
                number = pending.pop(0)
                rows, keys = questions[part][number]
                found[part][number] = await self._ask(part, keys, len(rows))

        asks = []
        for part in parts:
            pending = list(range(len(questions[part])))
            asks += [asyncio.ensure_future(ask(part, pending)) for _ in pending[:AT_ONCE]]
        try:
            await asyncio.gather(*asks)
            return found
        finally:
            for each in asks:
                each.cancel()

    async def _ask(self, part: int, keys: Payload, count: int) -> Pages:
        """Return the pages of a shard's matches for `count` keys."""
        frames = frames_of(self._descriptor.meta)
        pages: Pages = []
        spans = [(0, count, 0)]
        while spans:
            first, end, skip = spans.pop()
            asked = keys
            if end - first < count and is_plain(keys):
                asked = tuple(column[first:end] for column in keys)
            elif end - first < count:
                # Off the event loop: this copies as much as a message carries.
                asked = await asyncio.to_thread(frames.take, keys, frames.xp.arange(first, end))
            query_rows, payload, rest = await self._page(part, asked, skip)
            if self._limit is not None and not pages:
                rows = len(query_rows)
                left = 0 if rest is None else rest[3]
                self._limit.expect(rows + left, sizeof(payload) / max(1, rows))
            pages.append((first, query_rows, payload))
            if rest is not None:
                key, skip, cuts, _ = rest
                ends = [first + position for position in (key, *cuts)]
                further = [(start, stop, 0) for start, stop in pairwise([*ends, end])]
                further[0] = (*further[0][:2], skip)
                spans += reversed(further)
        return pages

    async def _page(self, part: int, keys: Payload, skip: int) -> list[Any]:
        shard, device = self._descriptor.shards[part], frames_of(self._descriptor.meta).device
        return await call_handler(
            self._worker,
            shard.worker,
            "dgpuhash_match",
            {"keys": keys, "columns": self.columns},
            uid=self._descriptor.uid,
            epoch=self._descriptor.epoch,
            incarnation=shard.incarnation,
            how=self._how,
            skip=skip,
            nbytes=chunk_nbytes(device),
            marks=self._marks,
        )


def query_keys(left: Any, descriptor: Descriptor, left_on: Sequence[Hashable]) -> Payload:
    """Return the columns of `left` to compare with the index's key columns.

    They are a tuple of arrays where possible.
    """
    names, frames = descriptor.encoder.names, frames_of(left)
    arrays = plain_arrays(left[list(left_on)], descriptor.meta[list(names)])
    if arrays is not None:
        return arrays
    return frames.make(dict(zip(names, (left[one] for one in left_on), strict=True)))


@function_translates_memory_errors
def probe_shards(
    worker: Any,
    keys: Payload,
    count: int,
    descriptor: Descriptor,
    how: str,
    columns: Sequence[Hashable],
    sparing: PruningOptions,
    marks: str = "",
    beside: float = 0.0,
) -> tuple[Any, Payload | None]:
    """Return the matches of `keys`, by RPCs to their owners.

    As `FrameIndex.match`; the matched rows are a tuple of arrays where possible.

    Parameters
    ----------
    worker : distributed.Worker
        The worker that asks.
    keys : tuple of arrays, or DataFrame
        From `query_keys`; or several results of it, concatenated.
    count : int
        Number of keys.
    descriptor : Descriptor
    how : {"inner", "left", "semi", "anti"}
    columns : sequence of labels
        Columns of the index that are wanted.
    sparing : PruningOptions
    marks : str
        Name of a join whose marks the matched rows get.
    beside : float
        Bytes that come beside a matched row in the result.
    """
    limit = None
    if how not in {"semi", "anti"} and frames_of(descriptor.meta).device == "cpu":
        limit = ResultLimit(worker, beside + POSITION_NBYTES, FINER)
    if descriptor.placement is Placement.REPLICATED and worker.address in descriptor.workers:
        part = nearest_shard(descriptor.shards, worker.address)
        rows, found, _ = (
            ShardReader(worker, descriptor, how, columns, marks, limit)
            .probe_here(part, keys)
            .outcome()
        )
        return rows, found
    shard = asked = None
    if descriptor.several_owners:
        shard, bloom = _local_shard(worker, descriptor), None
        if shard is not None:
            bloom = shard.sieve.filter(worker, descriptor, sparing, len(shard.index))
        asked = PrunedKeys.of(key_codes(keys, descriptor), bloom, sparing)
    questions = requests_by_shard(keys, count, descriptor, how, worker.address, asked)
    apart = descriptor.placement is Placement.INDEPENDENT
    asker = ShardReader(worker, descriptor, *_join_per_shard(how, columns, apart), marks, limit)
    answers = asker.probe_all(questions)
    frames = frames_of(descriptor.meta)
    xp = frames.xp
    query_rows = xp.concatenate([rows for rows, _ in answers] or [xp.zeros(0, dtype="int64")])
    payloads, found = [payload for _, payload in answers], None
    several = bool(answers)
    # What is put together from payloads is as large as they are.
    del answers
    if how in {"semi", "anti"}:
        if asked is not None:
            query_rows, _ = asked.expand_matches(query_rows, count)
        query_rows = combine_semi_joins(query_rows, count, how, xp)
        matched = len(query_rows) if how == "semi" else count - len(query_rows)
    elif not several:
        found, matched = descriptor.meta[list(columns)], 0
    elif apart:
        found = concat_payloads(payloads, descriptor.stored[asker.columns])
        names = descriptor.encoder.names
        return descriptor.conflict.settle(*sort_matches(query_rows, found), names)
    else:
        query_rows, found, matched = _in_query_order(
            query_rows, count, payloads, asker.columns, descriptor, asked
        )
    if shard is not None:
        shard.sieve.note(frames.device, count, count - matched, asked)
    return query_rows, found


def _local_shard(worker: Any, descriptor: Descriptor) -> Shard | None:
    """Return the shard on this worker, if it has one at this epoch."""
    host = plugin_of(worker)
    shard = host.shards.standing(descriptor.uid)
    here = ShardAddress(worker.address, host.shards.incarnation)
    at = shard is not None and shard.epoch == descriptor.epoch and here in descriptor.shards
    return shard if at else None


def key_codes(keys: Payload, descriptor: Descriptor) -> EncodedKeys:
    """Return the codes of `keys`."""
    if is_plain(keys):
        return descriptor.encoder.encode_arrays(keys, frames_of(descriptor.meta))
    return descriptor.encoder.encode(keys)


def requests_by_shard(
    keys: Payload,
    count: int,
    descriptor: Descriptor,
    how: str,
    address: str,
    asked: PrunedKeys | None,
) -> list[list[tuple[Any, Payload]]]:
    """Return the requests to each shard, in pieces.

    A piece has the positions of the keys, and the keys.
    """
    if asked is None:
        owned = rows_to_query(count, lambda: key_codes(keys, descriptor), descriptor, how, address)
    else:
        sent = len(asked.keys)
        owned = rows_to_query(sent, lambda: asked.encoded, descriptor, how, address)
        if asked.rows is not None:
            owned = [asked.rows[each] for each in owned]
    # An answer may have a position for each key.
    nbytes = chunk_nbytes(frames_of(descriptor.meta).device)
    if is_plain(keys):
        return cut_arrays_into_chunks(keys, owned, nbytes, least_nbytes=POSITION_NBYTES)
    like = descriptor.meta[list(descriptor.encoder.names)]
    return cut_into_chunks(keys, owned, like, nbytes, least_nbytes=POSITION_NBYTES)


def _in_query_order(
    query_rows: Any,
    count: int,
    payloads: list[Payload],
    columns: list[Hashable],
    descriptor: Descriptor,
    asked: PrunedKeys | None,
) -> tuple[Any, Payload, int]:
    """Return query rows and matches in query order, and the matched count.

    That is the number of query rows that have a match.
    """
    frames = frames_of(descriptor.meta)
    order = None
    if len(payloads) > 1 or bool((query_rows[1:] < query_rows[:-1]).any()):
        query_rows, order, matched = sort_by_query_row(query_rows, count, frames.xp)
    else:
        matched = _distinct(query_rows)
    if asked is not None and asked.repeated:
        query_rows, matches = asked.expand_matches(query_rows, count)
        order, matched = matches if order is None else order[matches], _distinct(query_rows)
    if not all(map(is_plain, payloads)):
        found = concat_payloads(payloads, descriptor.meta[columns])
        payloads.clear()
        return query_rows, found if order is None else frames.take(found, order), matched
    arrays = [
        column[0] if len(column) == 1 else frames.xp.concatenate(column)
        for column in zip(*payloads, strict=True)
    ]
    if order is not None:
        arrays = [gather_rows(each, order) for each in arrays]
    return query_rows, tuple(arrays), matched


def _distinct(ascending: Any) -> int:
    return min(1, len(ascending)) + int((ascending[1:] != ascending[:-1]).sum())


def _join_per_shard(
    how: str, columns: Sequence[Hashable], ordered: bool
) -> tuple[str, list[Hashable]]:
    """Return the kind of join and the columns to request from each shard.

    The answers of all shards can then be combined.
    """
    if how in {"semi", "anti"}:
        return "semi", list(columns)
    return how, [*columns, *([ARRIVAL_COLUMN] if ordered else [])]
