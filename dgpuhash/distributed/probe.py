"""The task of a merge: one partition's keys to their owners, and the answers into one frame."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from distributed.utils import sync

from dgpuhash.distributed.arrival import asked_of_several, in_order, of_any
from dgpuhash.distributed.descriptor import Descriptor, Placement
from dgpuhash.distributed.payload import Payload, joined, plain_arrays
from dgpuhash.distributed.plugin import host_of, hosting_worker
from dgpuhash.distributed.question import Asker
from dgpuhash.distributed.routes import asked_rows, part_near
from dgpuhash.distributed.sealed import Sealed
from dgpuhash.distributed.split import parcel_nbytes, pieces, pieces_of_arrays
from dgpuhash.frames import (
    POSITION_NBYTES,
    EncodedKeys,
    Matches,
    assemble,
    frames_of,
    merge_meta,
    moved_columns,
)
from dgpuhash.tables.scarcity import call_says_memory

__all__ = ["Probe", "SealedProbe", "match"]

# Questions to a shard that are on their way at once: the next keys travel while some are found.
AT_ONCE = 2

# The rows that were asked about and have a match, and what a message carries of these.
Answer = tuple[Any, Payload]


@dataclass(frozen=True, slots=True)
class Probe:
    """The merge of a partition with the index; it is called for each partition.

    Attributes
    ----------
    descriptor : Descriptor
    left_on : tuple of labels
        The columns of the partition that are compared with the index's key columns.
    how : str
    columns : tuple of labels or None
        The columns of the index that are wanted.
    suffixes : tuple
    moved : tuple of labels
        The columns of the index that are asked for.
    index_meta : DataFrame
        An empty frame with the columns of the index that take part.
    left_meta, meta : DataFrame
        Empty frames like the partitions, and like the results.
    """

    __name__: ClassVar[str] = "dgpuhash-merge"

    descriptor: Descriptor
    left_on: tuple[Hashable, ...]
    how: str
    columns: tuple[Hashable, ...] | None
    suffixes: tuple[str | None, str | None]
    moved: tuple[Hashable, ...]
    index_meta: Any
    left_meta: Any
    meta: Any

    @classmethod
    def of(
        cls,
        left_meta: Any,
        descriptor: Descriptor,
        left_on: tuple[Hashable, ...],
        how: str,
        columns: tuple[Hashable, ...] | None,
        suffixes: tuple[str | None, str | None],
    ) -> Probe:
        """That of partitions like `left_meta`."""
        names = descriptor.encoder.names
        moved = moved_columns(descriptor.meta, descriptor.encoder, left_on, columns)
        wanted = {*moved, *names}
        index_meta = descriptor.meta[[label for label in descriptor.meta if label in wanted]]
        meta = merge_meta(
            left_meta, index_meta, left_on=left_on, right_on=names, how=how, suffixes=suffixes
        )
        return cls(
            descriptor, left_on, how, columns, suffixes, tuple(moved), index_meta, left_meta, meta
        )

    def __call__(self, left: Any) -> Any:
        with host_of(hosting_worker()).ahead.task() as leave_thread:
            matches = match(left, self.descriptor, self.left_on, self.how, self.moved, leave_thread)
            return self.put_together(left, *matches)

    def put_together(self, left: Any, query_rows: Any, found: Any) -> Any:
        """The merge of a partition, out of its `Matches`."""
        return assemble(
            left,
            query_rows,
            found,
            index_meta=self.index_meta,
            left_on=self.left_on,
            right_on=self.descriptor.encoder.names,
            how=self.how,
            suffixes=self.suffixes,
            meta=self.meta if _alike(left, self.left_meta) else None,
        )

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return (
            self.descriptor.__dask_tokenize__(),
            self.left_on,
            self.how,
            self.columns,
            self.suffixes,
        )


@dataclass(frozen=True, slots=True)
class SealedProbe:
    """A probe as tasks carry it."""

    __name__: ClassVar[str] = Probe.__name__

    seal: Sealed[Probe]
    token: tuple[Any, ...]

    @classmethod
    def of(cls, probe: Probe) -> SealedProbe:
        """`probe`, with its token."""
        return cls(Sealed.of(probe), probe.__dask_tokenize__())

    def __call__(self, left: Any) -> Any:
        return self.seal.opened()(left)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return self.token


def _alike(left: Any, meta: Any) -> bool:
    frames = frames_of(left)
    return list(left) == list(meta) and frames.dtypes(left) == frames.dtypes(meta)


@call_says_memory
def match(
    left: Any,
    descriptor: Descriptor,
    left_on: Sequence[Hashable],
    how: str,
    columns: Sequence[Hashable],
    leave_thread: Callable[[], None] = lambda: None,
) -> Matches:
    """As `FrameIndex.match`, by requests to the owners of the keys.

    `leave_thread` is called before the task waits for the first answer. It waits for answers of
    shard threads, which wait for nobody, so it ends.
    """
    worker = hosting_worker()
    if descriptor.placement is Placement.REPLICATED and worker.address in descriptor.workers:
        leave_thread()
        return match_copy(worker, left, descriptor, left_on, how, columns)
    frames = frames_of(left)
    questions = questions_to(left, descriptor, left_on, how, worker.address)
    apart = descriptor.placement is Placement.INDEPENDENT
    asker = Asker(worker, descriptor, *asked_of_several(how, columns, apart))

    async def ask(part: int, answered: list[list[Answer]]) -> None:
        while questions[part]:
            rows, keys = questions[part].pop(0)
            answer: list[Answer] = []
            answered.append(answer)
            for first, positions, payload in await asker.ask(part, keys, len(rows)):
                if len(positions):
                    answer.append((rows[first:][frames.xp.asarray(positions)], payload))

    async def ask_all() -> list[list[list[Answer]]]:
        answered: list[list[list[Answer]]] = [[] for _ in questions]
        asks = [
            asyncio.ensure_future(ask(part, answered[part]))
            for part in range(len(questions))
            for _ in range(min(AT_ONCE, len(questions[part])))
        ]
        try:
            await asyncio.gather(*asks)
            return answered
        finally:
            for each in asks:
                each.cancel()

    leave_thread()
    answered = sync(worker.loop, ask_all)
    answers = [answer for part in answered for pages in part for answer in pages]
    xp = frames.xp
    query_rows = xp.concatenate([rows for rows, _ in answers] or [xp.zeros(0, dtype="int64")])
    if how in {"semi", "anti"}:
        return Matches(of_any(query_rows, len(left), how, xp), None)
    if not answers:
        return Matches(query_rows, descriptor.meta[list(columns)])
    found = joined([payload for _, payload in answers], descriptor.stored[asker.columns])
    if apart:
        names = descriptor.encoder.names
        return Matches(*descriptor.conflict.settle(*in_order(query_rows, found), names))
    return Matches(query_rows, found)


def match_copy(
    worker: Any,
    left: Any,
    descriptor: Descriptor,
    left_on: Sequence[Hashable],
    how: str,
    columns: Sequence[Hashable],
) -> Matches:
    """As `match`, by the copy of all rows on this worker: nothing is cut, copied or sent."""
    host = host_of(worker)
    shard = descriptor.shards[part_near(descriptor.shards, worker.address)]

    def matches() -> Matches:
        index = host.shards.at(descriptor.uid, descriptor.epoch, shard.incarnation)
        return index.match(left, how=how, on=list(left_on), columns=columns)

    return sync(worker.loop, host.thread.run, matches)


def questions_to(
    left: Any, descriptor: Descriptor, left_on: Sequence[Hashable], how: str, address: str
) -> list[list[tuple[Any, Payload]]]:
    """For each part the rows that it is asked about, in pieces: their positions, and their keys."""
    encoder = descriptor.encoder
    # The answer may be a position for each key.
    like, least = descriptor.meta[list(encoder.names)], {"least_nbytes": POSITION_NBYTES}
    frames, given = frames_of(left), left[list(left_on)]
    arrays = plain_arrays(given, like)

    def encode() -> EncodedKeys:
        if arrays is not None:
            return encoder.encode_arrays(arrays, frames)
        return encoder.encode(left, list(left_on))

    owned = asked_rows(left, encode, descriptor, how, address)
    if arrays is not None:
        return pieces_of_arrays(arrays, owned, parcel_nbytes(frames.device), **least)
    keys = frames.make(dict(zip(encoder.names, (left[one] for one in left_on), strict=True)))
    return pieces(keys, owned, like, **least)
