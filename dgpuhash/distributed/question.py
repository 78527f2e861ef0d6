"""A question of a task to the owner of some keys, asked on until the answer is complete."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any

from dgpuhash.distributed import split
from dgpuhash.distributed.descriptor import Descriptor
from dgpuhash.distributed.payload import Payload, is_plain
from dgpuhash.distributed.request import request
from dgpuhash.frames import frames_of

__all__ = ["Asker"]


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

    async def ask(self, part: int, keys: Payload, count: int) -> list[tuple[int, Any, Payload]]:
        """The pages of a shard's answer to so many keys.

        Each is the key that its positions count from, the positions, and what was found there.

        Raises
        ------
        IndexLost
            When the shard is lost, or the index is changed before the last page.
        """
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
        # What stays on this worker is no message.
        here = shard.worker == self._worker.address
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
            nbytes=sys.maxsize if here else split.parcel_nbytes(device),
        )
