"""One rank's part of a collective merge: the keys it sends and the matches it returns."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.distributed.cluster.locality import LocalInputs
from dgpuhash.distributed.cluster.serialization import is_plain, plain_arrays
from dgpuhash.distributed.collective.base import Received
from dgpuhash.distributed.partition.hash_partition import (
    PartitionedColumns,
    partition_columns,
    partition_rows_with_heavy,
)
from dgpuhash.distributed.partition.row_order import combine_semi_joins
from dgpuhash.distributed.partition.skew import NO_HEAVY
from dgpuhash.distributed.pruning.bloom_replica import BloomReplica
from dgpuhash.distributed.pruning.policy import NO_PRUNING
from dgpuhash.distributed.pruning.probe_keys import PrunedKeys
from dgpuhash.distributed.query.merge_tasks import Probe
from dgpuhash.frames import FrameIndex, Matches, frames_of, sort_by_query_row
from dgpuhash.tables.select import gather_rows

# Positions of keys that one rank sends to another one travel in 32 bits.
_MOST_ROWS = 2**32


def all_matches(
    index: FrameIndex, keys: Any, how: str, columns: Sequence[Hashable], *, named: bool = True
) -> Matches:
    """Return all matches of `keys`, a frame or a tuple of arrays, in an index.

    The matched rows are a tuple of arrays, not a frame, where their columns are plain. Unless all
    are `named`, `query_rows` may be None where each key matches, in order.
    """
    if how in {"semi", "anti"}:
        return index.match(keys, how=how)
    page = index.page(keys, nbytes=sys.maxsize, columns=columns, plain=True, named=named)
    return page.matches


class RankProbe:
    """Partitions of one rank, and their keys for the shards.

    Attributes
    ----------
    probe : Probe
    refused : str
        Why tasks must do the merge.
    matched : int
        Rows that have a match, known after `results`.
    """

    def __init__(self, probe: Probe, given: LocalInputs) -> None:
        self.probe = probe
        self._frames = frames_of(probe.descriptor.meta)
        lefts: list[Any] = []
        self.refused: str = ""
        try:
            lefts = [left for (left,) in given.things]
        except KeyError as error:
            self.refused = f"partition {error} has left its worker"
        self._partitions = [probe.asking(left) for left in lefts]
        self._lengths = list(map(len, lefts))
        self.matched: int = 0
        if not all(is_plain(each.keys) for each in self._partitions):
            self.refused = "a key column has nulls, or another dtype than the index"
        elif self.rows >= _MOST_ROWS:
            self.refused = "a worker has too many rows"
        self._keys = [each.keys for each in self._partitions]
        if self.refused or not lefts:
            like = probe.descriptor.meta[list(probe.descriptor.encoder.names)]
            self._keys = [plain_arrays(like, like)]

    @property
    def rows(self) -> int:
        """Rows of all partitions."""
        return sum(self._lengths)

    def asked(self, replica: BloomReplica | None) -> tuple[PartitionedColumns, int]:
        """Return the keys by shard, and the number of pruned keys.

        Pruned keys are absent, as the Bloom filter says.
        """
        probe, xp = self.probe, self._frames.xp
        descriptor = probe.descriptor
        encoder, parts = descriptor.encoder, len(descriptor.shards)
        columns = [
            column[0] if len(column) == 1 else xp.concatenate(column)
            for column in zip(*self._keys, strict=True)
        ]
        encoded, pruned = encoder.encode_arrays(columns, self._frames), None
        if replica is not None:
            pruned = PrunedKeys.of(encoded, replica.filter, NO_PRUNING)
            columns = [gather_rows(column, pruned.rows) for column in columns]
            encoded = pruned.encoded
        only_owners = encoder.exact and probe.how in {"semi", "anti"}
        heavy = NO_HEAVY if only_owners else descriptor.heavy
        owned: Any = partition_rows_with_heavy(encoded, encoder, parts, heavy) if heavy else parts
        key = 0 if encoder.codes_are_keys else None
        made = partition_columns(
            columns, key, encoded, owned, owner_seed=encoder.seeds.owners, numbered=True
        )
        if pruned is None:
            return made, 0
        return replace(made, numbers=gather_rows(pruned.rows, made.numbers)), pruned.absent

    def results(self, asked: PartitionedColumns, back: Received) -> list[Any]:
        """Return the merged frame of each partition."""
        probe, frames = self.probe, self._frames
        xp = frames.xp
        rows, *payload = back.columns
        rows = gather_rows(asked.numbers, _shift_rows(rows, back.counts, _firsts(asked.counts), xp))
        if probe.how in {"semi", "anti"}:
            rows = combine_semi_joins(rows, self.rows, probe.how, xp)
            self.matched = len(rows) if probe.how == "semi" else self.rows - len(rows)
        else:
            rows, order, self.matched = sort_by_query_row(rows, self.rows, xp)
            payload = [gather_rows(column, order) for column in payload]
        whole = len(rows) == self.matched == self.rows
        if len(self._partitions) == 1:
            return [self._result(self._partitions[0], rows, payload, whole)]
        firsts = np.concatenate([[0], np.cumsum(self._lengths)])
        cuts = backend.get(frames.device).to_host(xp.searchsorted(rows, xp.asarray(firsts)))
        return [
            self._result(
                one, rows[start:end] - int(first), [each[start:end] for each in payload], whole
            )
            for one, first, (start, end) in zip(
                self._partitions, firsts, pairwise(cuts.tolist()), strict=False
            )
        ]

    def _result(self, partition: Any, rows: Any, payload: Sequence[Any], whole: bool) -> Any:
        found = None if self.probe.how in {"semi", "anti"} else tuple(payload)
        return self.probe.put_together(partition, rows, found, whole=whole)


def shard_matches(
    index: FrameIndex, came: Received, probe: Probe
) -> tuple[PartitionedColumns, str]:
    """Return the matches for each rank, and the reason if tasks must do the merge.

    The matches are positions of the rank's keys, and the index rows that match.
    """
    frames, refused = frames_of(index.meta), ""
    xp, moved = frames.xp, list(probe.moved)
    how = "semi" if probe.how in {"semi", "anti"} else probe.how
    rows, found = all_matches(index, tuple(came.columns), how, moved)
    if found is None:
        found = ()
    elif not is_plain(found):
        refused = "a stored column has nulls"
        like = index.meta[moved]
        rows, found = rows[:0], plain_arrays(like, like)
    ends = xp.asarray(np.cumsum(came.counts))
    ends = backend.get(frames.device).to_host(xp.searchsorted(rows, ends))
    counts = np.diff(ends, prepend=0).astype(np.int64)
    positions = _shift_rows(rows, counts, -_firsts(came.counts), xp).astype(np.uint32)
    return PartitionedColumns([positions, *found], None, counts), refused


def _firsts(counts: np.ndarray) -> np.ndarray:
    return np.cumsum(counts) - counts


def _shift_rows(rows: Any, counts: np.ndarray, firsts: np.ndarray, xp: Any) -> Any:
    """Return row numbers with each rank's first row added.

    The numbers of a rank, `counts` of them, are shifted by its entry in `firsts`.
    """
    shifted = xp.empty(len(rows), np.int64)
    stops = np.cumsum(counts)
    for first, start, stop in zip(firsts, stops - counts, stops, strict=True):
        xp.add(rows[start:stop], int(first), out=shifted[start:stop], dtype=np.int64)
    return shifted
