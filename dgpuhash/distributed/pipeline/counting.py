"""Counts of a rank's rows, added up before they travel, and checked before they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.pipeline.draft import ShardDraft
from dgpuhash.distributed.pipeline.plan import Chunk
from dgpuhash.distributed.shards.table_shard import TableShard
from dgpuhash.tables.columns.block_counts import counted_by_block
from dgpuhash.tables.count_map import sum_of

_COUNT = np.dtype(np.uint64)


class AddedRows(NamedTuple):
    """Key words and counts of a rank; a key may still have several rows."""

    columns: list[Any]
    total: int

    @classmethod
    def of(cls, part: TableShard, chunks: Sequence[list[Any]], term: int | None) -> AddedRows:
        """Return the rows of all chunks, which count `term` each where they have no counts."""
        backend = part.backend
        given = [
            each[0] if len(chunks) == 1 else backend.xp.concatenate(each)
            for each in zip(*chunks, strict=True)
        ] or list(part.no_rows)
        keys, *counts = given
        terms = counts[0] if counts else term
        total = int(term or 0) * len(keys) if term is not None else sum_of(terms)
        if total < 2**64:
            keys, terms = counted_by_block(backend, keys, terms, _COUNT)
        if isinstance(terms, int):
            terms = backend.full(len(keys), terms, _COUNT)
        return cls([keys, terms], total)

    def agreed(
        self, part: TableShard, collective: Collective
    ) -> tuple[list[list[Chunk]], ShardDraft | None]:
        """Return the chunks of all ranks, and a draft of the shard where a count may wrap."""
        told = collective.gather((len(self.columns[0]), self.total, part.table.most))
        wraps = sum(total for _, total, _ in told) + max(most for *_, most in told) >= 2**64
        chunks = [[Chunk(0, (), 0, rows)] for rows, *_ in told]
        return chunks, ShardDraft(part) if wraps else None
