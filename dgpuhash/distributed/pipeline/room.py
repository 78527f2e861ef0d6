"""Room for a mixed batch on all ranks, before any row of it takes effect."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.pipeline.plan import Chunk, Piece, RoundPlan
from dgpuhash.distributed.pipeline.rounds import PartitionedPiece, PipelinedRounds, partition_piece
from dgpuhash.distributed.shards.table_shard import Answer, TableShard
from dgpuhash.tables.columns.distinct import deduplicated_rows
from dgpuhash.tables.memory_errors import memory_errors_of


def make_room(
    part: TableShard, collective: Collective, keys: Any, piece_rows: int, slice_rows: int
) -> tuple[bool, Exception | None]:
    """Make room on every rank for the keys of a mixed batch; `keys` are those of this rank.

    No content changes. All rows count as new keys at first. Where a shard would grow for them,
    owners count the keys that are new to them.

    Returns
    -------
    ready : bool
        Whether all ranks have room.
    error : Exception or None
        Why this rank has none.
    """
    store: Any = part.store
    rows = new_keys = _rows_of_owner(part, collective, keys)
    if not all(collective.gather(store.has_room(rows))):
        new_keys = _new_keys(part, collective, keys, piece_rows, slice_rows)
    error = None
    try:
        _grow(part, new_keys, rows)
    except MemoryError as short:
        error = short
    return all(collective.gather(error is None)), error


def _rows_of_owner(part: TableShard, collective: Collective, keys: Any) -> int:
    """Return how many rows of all ranks have keys of this rank."""
    ranks, backend = collective.size, part.backend
    counts = np.array([len(keys)])
    if ranks > 1:
        _, bounds = backend.split(keys, parts=ranks, seed=part.owner_seed)
        counts = np.diff(backend.to_host(bounds).astype(np.int64))
    return int(sum(each[collective.rank] for each in collective.gather(counts)))


@memory_errors_of("execute, before it changed anything,")
def _grow(part: TableShard, new_keys: int, rows: int) -> None:
    part.store.make_room(new_keys)
    if part.layout.value is not None:
        part.table._values.make_room(rows)


def _new_keys(
    part: TableShard, collective: Collective, keys: Any, piece_rows: int, slice_rows: int
) -> int:
    """Return the number of distinct keys of all ranks that belong to this shard and are new."""
    backend = part.backend
    counts = collective.gather(len(keys))
    new: list[Any] = [keys[:0]]

    def deal(piece: Piece | None) -> PartitionedPiece:
        first, rows = (0, 0) if piece is None else (piece.place, piece.rows)
        mine = [keys[first : first + rows]]
        return partition_piece(part.side, piece, mine, collective.size, part.owner_seed)

    def serve(columns: list[Any], counts: np.ndarray, to: list[list[Any]]) -> list[Answer]:
        (came,) = columns
        absent = came[~part.table.contains(came)]
        chosen = deduplicated_rows(backend, absent, last=False)
        new.append(absent if chosen is None else absent[chosen])
        return []

    chunks = [[Chunk(0, (), 0, count)] for count in counts]
    PipelinedRounds(
        backend,
        collective,
        RoundPlan(chunks, most_rows=piece_rows, in_order=False),
        part.side,
        deal=deal,
        serve=serve,
        deliver=lambda sent, came: None,
        like=list,
        slice_rows=slice_rows,
    ).run()
    together = backend.xp.concatenate(new)
    chosen = deduplicated_rows(backend, together, last=False)
    return len(together) if chosen is None else len(chosen)
