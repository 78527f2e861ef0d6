"""Agree between ranks before a verb: space for rows, drafts, sums of counts, keys to send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.pipeline.rounds import PartitionedPiece, PipelinedRounds, partition_piece
from dgpuhash.distributed.pipeline.slices import Chunk, KeyPiece, RoundPlan
from dgpuhash.distributed.pruning.bloom_replica import BloomReplica, FilterVote
from dgpuhash.distributed.pruning.policy import PruningOptions
from dgpuhash.distributed.pruning.probe_keys import PrunedKeys
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

    def deal(piece: KeyPiece | None) -> PartitionedPiece:
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


def prune_keys(
    part: TableShard,
    collective: Collective,
    sparing: PruningOptions,
    keys: Sequence[Any],
    most_rows: int,
    rows: Any = None,
) -> tuple[PrunedKeys, Sequence[int]] | None:
    """Prune a rank's keys, and return them with all ranks' numbers of keys.

    None where all ranks shall send all of their keys.

    Parameters
    ----------
    part : TableShard
        The rank's own shard.
    collective : Collective
    sparing : PruningOptions
        The same on all ranks.
    keys : sequence of array
        The words of the rank's keys, chunk by chunk.
    most_rows : int
        Largest number of rows of a rank.
    rows : array of int64, optional
        Rows of `keys`, where some rows have no key; None: all.
    """
    backend = part.backend
    may_repeat = sparing.may_deduplicate(backend, most_rows)
    if collective.size == 1 or not (may_repeat or sparing.bloom_filter):
        return None
    repeats = may_repeat and sparing.deduplicates(backend, keys)

    def prune() -> PrunedKeys:
        replica = part.replica if sparing.bloom_filter else None
        bloom = None if replica is None else replica.filter
        return PrunedKeys(backend, keys, bloom, deduplicate=repeats, rows=rows)

    # Usually all ranks still have the same filter: then keys can be pruned before the only gather.
    early = prune() if repeats or (sparing.bloom_filter and part.replica is not None) else None
    asking = sum(map(len, keys)) if early is None else len(early.keys)
    standing = FilterVote.of(part.replica, part.n_keys, backend)
    told, repeating, counts = zip(*collective.gather((standing, repeats, asking)), strict=True)
    if sparing.bloom_filter:
        part.replica = BloomReplica.agreed(
            part.replica, told, sparing, collective, backend,
            lambda: _owned_words(part, collective), part.owner_seed,
        )  # fmt: skip
        name = None if part.replica is None else part.replica.name
        if {each.name for each in told} != {name}:
            early = prune()
            return early, collective.gather(len(early.keys))
        if part.replica is not None:
            return early or prune(), counts
    return (early or prune(), counts) if any(repeating) else None


def _owned_words(part: TableShard, collective: Collective) -> Any:
    """Return the words of the stored keys that this rank owns by their hash."""
    words = part.store.items()[0]
    if not part.mode.independent:
        return words
    deal = part.backend.deal(words, parts=collective.size, seed=part.owner_seed)
    starts = part.backend.to_host(deal.starts).astype(np.int64)
    return collective.all_to_all([deal.keys], np.diff(starts)).columns[0]
