"""The task of a merge: one partition's keys to their owners, and the answers into one frame."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from distributed.utils import sync

from dgpuhash.distributed.descriptor import Descriptor
from dgpuhash.distributed.plugin import hosting_worker
from dgpuhash.distributed.request import request
from dgpuhash.distributed.split import pieces, split
from dgpuhash.frames import (
    Lookup,
    Matches,
    assemble,
    frames_of,
    lookup_rows,
    merge_meta,
    moved_columns,
)

__all__ = ["Probe", "lookup_partition"]


@dataclass(frozen=True, slots=True)
class Probe:
    """The merge of a partition with the index; Dask calls it for each partition.

    Attributes
    ----------
    descriptor : Descriptor
    left_on : tuple of labels
        The columns of the partition that are compared with the index's key columns.
    how : str
    columns : tuple of labels or None
        The columns of the index that are wanted.
    suffixes : tuple
    """

    __name__: ClassVar[str] = "dgpuhash-merge"

    descriptor: Descriptor
    left_on: tuple[Hashable, ...]
    how: str
    columns: tuple[Hashable, ...] | None
    suffixes: tuple[str | None, str | None]

    def __call__(self, left: Any) -> Any:
        encoder, index_meta = self.descriptor.encoder, self.index_meta
        moved = moved_columns(index_meta, encoder, self.left_on, self.columns)
        matches = match(left, self.descriptor, self.left_on, self.how, moved)
        return assemble(
            left,
            matches.query_rows,
            matches.frame,
            index_meta=index_meta,
            left_on=self.left_on,
            right_on=encoder.names,
            how=self.how,
            suffixes=self.suffixes,
        )

    def meta(self, left_meta: Any) -> Any:
        """An empty frame like the results."""
        return merge_meta(
            left_meta,
            self.index_meta,
            left_on=self.left_on,
            right_on=self.descriptor.encoder.names,
            how=self.how,
            suffixes=self.suffixes,
        )

    @property
    def index_meta(self) -> Any:
        """An empty frame with the columns of the index that take part."""
        meta, encoder = self.descriptor.meta, self.descriptor.encoder
        moved = moved_columns(meta, encoder, self.left_on, self.columns)
        wanted = {*moved, *encoder.names}
        return meta[[label for label in meta.columns if label in wanted]]

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return (
            self.descriptor.__dask_tokenize__(),
            self.left_on,
            self.how,
            self.columns,
            self.suffixes,
        )


def lookup_partition(keys: Any, descriptor: Descriptor) -> Lookup:
    """Runs as a Dask task: the lookup of some keys."""

    def found(asked: Any, columns: Sequence[Hashable]) -> Matches:
        return match(asked, descriptor, list(descriptor.encoder.names), "inner", columns)

    return lookup_rows(keys, descriptor.encoder, descriptor.meta, found)


def match(
    left: Any,
    descriptor: Descriptor,
    left_on: Sequence[Hashable],
    how: str,
    columns: Sequence[Hashable],
) -> Matches:
    """As `FrameIndex.match`, by requests to the owners of the keys.

    The task waits for answers of shard threads, which wait for nobody, so it ends.
    """
    worker = hosting_worker()
    encoder = descriptor.encoder
    frames = frames_of(left)
    encoded = encoder.encode(left, list(left_on))
    owned = split(encoded, encoder, len(descriptor.shards))
    keys = frames.make(
        {name: left[label] for name, label in zip(encoder.names, left_on, strict=True)}
    )

    questions = pieces(keys, owned, encoder.names)

    async def ask(part: int) -> list[Matches]:
        shard = descriptor.shards[part]
        found = []
        for rows, piece in questions[part]:
            query_rows, frame = await request(
                worker,
                shard.worker,
                "dgpuhash_match",
                {"keys": piece, "columns": list(columns)},
                uid=descriptor.uid,
                epoch=descriptor.epoch,
                incarnation=shard.incarnation,
                how=how,
            )
            found.append(Matches(rows[frames.xp.asarray(query_rows)], frame))
        return found

    async def ask_all() -> list[list[Matches]]:
        return await asyncio.gather(*(ask(part) for part in range(len(owned))))

    answers = [matches for found in sync(worker.loop, ask_all) for matches in found]
    filled = [matches for matches in answers if len(matches.query_rows)]
    if not filled:
        nothing = frames.xp.zeros(0, dtype="int64")
        return Matches(nothing, descriptor.meta[list(columns)])
    query_rows = frames.xp.concatenate([matches.query_rows for matches in filled])
    if how in {"semi", "anti"}:
        return Matches(query_rows, None)
    return Matches(query_rows, frames.concat([matches.frame for matches in filled]))
