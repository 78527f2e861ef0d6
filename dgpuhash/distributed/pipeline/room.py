"""Agree between ranks before a change: space for rows, drafts of shards, sums of counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.pipeline.rounds import PartitionedPiece, PipelinedRounds, partition_piece
from dgpuhash.distributed.pipeline.slices import Chunk, Piece, RoundPlan
from dgpuhash.distributed.shards.table_shard import Answer, TableShard, Verb
from dgpuhash.errors import CapacityError, CountOverflowError, OutOfMemoryError
from dgpuhash.tables.columns.block_counts import counted_by_block
from dgpuhash.tables.columns.distinct import deduplicated_rows
from dgpuhash.tables.count_map import sum_of
from dgpuhash.tables.memory_errors import memory_errors_of

# What a table may refuse in the middle of a batch.
_REFUSALS = (CapacityError, CountOverflowError, MemoryError)


class ShardDraft:
    """Copy of a shard to run a verb on; it replaces the shard if no rank refuses a row.

    Parameters
    ----------
    part : TableShard
        The shard, which stays as it is until `publish`.

    Raises
    ------
    OutOfMemoryError
        When there is no memory for the copy.
    """

    def __init__(self, part: TableShard) -> None:
        with memory_errors_of("the copy that a batch works on"):
            self._part, self._copy = part, part.copy()
        self._refusal: tuple[type[Exception], str] | None = None

    @classmethod
    def agreed(
        cls, part: TableShard, collective: Collective, *, changes: bool
    ) -> tuple[ShardDraft | None, bool, Exception | None]:
        """Copy the shards of all ranks if any rank's rows change tables.

        Returns
        -------
        draft : ShardDraft or None
            None where nothing changes.
        ready : bool
            Whether all ranks have memory for their copies.
        error : Exception or None
            Why this rank has none.
        """
        if not any(collective.gather(changes)):
            return None, True, None
        draft, error = None, None
        try:
            draft = cls(part)
        except OutOfMemoryError as short:
            error = short
        return draft, all(collective.gather(error is None)), error

    def serve(self, verb: Verb, columns: list[Any], counts: np.ndarray) -> list[Answer]:
        """Run `verb` on the copy; rows after a refused one get empty results."""
        if self._refusal is None:
            try:
                with memory_errors_of(verb.name):
                    return self._copy.serve(verb, columns, counts, [])
            except _REFUSALS as error:
                self._refusal = type(error), str(error)
        return self._part.empty_answers(verb, counts)

    def publish(self, collective: Collective) -> Exception | None:
        """Replace the shards of all ranks, or return the reason why no rank does."""
        refusals = [each for each in collective.gather(self._refusal) if each is not None]
        if refusals:
            kind, text = refusals[0]
            return kind(f"{text} (no shard was changed)")
        self._part.written = True
        self._part.replica, self._part.table = None, self._copy.table
        return None


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
    """Return the number of rows of all ranks with keys of this rank."""
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
    """Return the number of distinct new keys of all ranks that this shard owns."""
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


_COUNT = np.dtype(np.uint64)


class AddedRows(NamedTuple):
    """Key words and counts of a rank; keys may repeat."""

    columns: list[Any]
    total: int

    @classmethod
    def of(cls, part: TableShard, chunks: Sequence[list[Any]], term: int | None) -> AddedRows:
        """Return the rows of all chunks; without counts each row counts `term`."""
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
        """Return the chunks of all ranks, and a draft of the shard if a count may overflow."""
        told = collective.gather((len(self.columns[0]), self.total, part.table.most))
        wraps = sum(total for _, total, _ in told) + max(most for *_, most in told) >= 2**64
        chunks = [[Chunk(0, (), 0, rows)] for rows, *_ in told]
        return chunks, ShardDraft(part) if wraps else None
