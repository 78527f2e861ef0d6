"""Questions of a task to the owners of its keys, asked on until the answers are complete."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any

from distributed.utils import sync

from dgpuhash.distributed.cluster.device_thread import Submitted
from dgpuhash.distributed.cluster.payload import Payload, is_plain
from dgpuhash.distributed.cluster.rpc import request
from dgpuhash.distributed.partition import hash_partition
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.shards.plugin import host_of
from dgpuhash.frames import frames_of

__all__ = ["Answer", "Asker"]

# Questions to a shard that are on their way at once: the next keys travel while some are found.
AT_ONCE = 2

# Rows that were asked about and have a match, and what a message carries of these matches.
Answer = tuple[Any, Payload]
# The first key that positions count from, the positions, and what was found there.
Pages = list[tuple[int, Any, Payload]]


class Asker:
    """Asks the shards of an index, page by page.

    A page says where the next one begins, and whoever answers keeps nothing in between: an asker
    that dies leaves nothing behind, and after a change of the index the next page raises.

    Parameters
    ----------
    worker : distributed.Worker
        The worker that asks.
    descriptor : Descriptor
    how : str
    columns : sequence of labels
        The stored columns that are wanted.

    Attributes
    ----------
    columns : list of labels
    """

    def __init__(
        self, worker: Any, descriptor: Descriptor, how: str, columns: Sequence[Hashable]
    ) -> None:
        self._worker = worker
        self._descriptor = descriptor
        self._how = how
        self.columns = list(columns)

    def ask_all(self, questions: Sequence[Sequence[tuple[Any, Payload]]]) -> list[Answer]:
        """The answers of all parts, in their order, to questions of `split.pieces`.

        A part on this worker is asked without a message, while others answer.

        Raises
        ------
        IndexLost
            When a shard is lost, or the index is changed before the last page.
        """
        workers, here = self._descriptor.workers, self._worker.address
        own = {
            part: [self.ask_here(part, keys) for _, keys in questions[part]]
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

    def ask_here(self, part: int, keys: Payload) -> Submitted:
        """The whole answer of a shard on this worker; nothing is copied or sent."""
        shard, host = self._descriptor.shards[part], host_of(self._worker)
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
        """The pages of a shard's answer to so many keys."""
        frames = frames_of(self._descriptor.meta)
        pages = []
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
            pages.append((first, query_rows, payload))
            if rest is not None:
                key, skip, cuts = rest
                ends = [first + position for position in (key, *cuts)]
                further = [(start, stop, 0) for start, stop in pairwise([*ends, end])]
                further[0] = (*further[0][:2], skip)
                spans += reversed(further)
        return pages

    async def _page(self, part: int, keys: Payload, skip: int) -> list[Any]:
        shard, device = self._descriptor.shards[part], frames_of(self._descriptor.meta).device
        return await request(
            self._worker,
            shard.worker,
            "dgpuhash_match",
            {"keys": keys, "columns": self.columns},
            uid=self._descriptor.uid,
            epoch=self._descriptor.epoch,
            incarnation=shard.incarnation,
            how=self._how,
            skip=skip,
            nbytes=hash_partition.parcel_nbytes(device),
        )
