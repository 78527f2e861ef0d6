"""Spill the partial states of a hash range to a file when memory is short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash import backend
from dgpuhash.distributed.groupby.categories import PartCategories, UnknownCategories
from dgpuhash.distributed.groupby.heavy.rounds import Found
from dgpuhash.distributed.partition.skew import NO_HEAVY, HeavyKeys
from dgpuhash.distributed.shards.spilling import range_of
from dgpuhash.distributed.shards.worker_memory import Spillable, WorkerMemory, release_arrow
from dgpuhash.errors import IndexLost, OutOfMemoryError
from dgpuhash.frames import frames_of
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.frames.groupby.partial.cudf.host import on_device, on_host
from dgpuhash.frames.groupby.partial.fold import folding
from dgpuhash.frames.groupby.partial.keys import recoded, unite_categories
from dgpuhash.frames.groupby.partial.result import result_of_places
from dgpuhash.frames.groupby.partial.rows import in_pieces, result_of_pieces
from dgpuhash.frames.spill.file import SpillFile

# Sub-ranges of a hash range that was written to a file; the result is made of one after the other.
PIECES = 16
# States or rows of a sub-range are in memory this often while its result is made.
TIMES = 2
# States that are read at once: they are folded when they are as many.
READ_AT_ONCE = 2**18


class SpillingStates(Spillable):
    """States or rows of one hash range, in memory and in a spill file.

    They are written as they stand, and later ones are folded into new states. Each write has the
    rows of one sub-range side by side, so that sub-ranges can be read one by one.

    Parameters
    ----------
    plan : GroupPlan
    ranges : int
        The number of hash ranges of the run.
    memory : WorkerMemory, optional
        None where the states stay in memory.
    """

    def __init__(
        self,
        plan: GroupPlan,
        ranges: int,
        memory: WorkerMemory | None,
    ) -> None:
        self._plan, self._ranges = plan, ranges
        self._standing = folding(plan)
        self._spans: list[list[tuple[int, int]]] = [[] for _ in range(PIECES)]
        # Rows of keys with these codes are not here any more, and the answer for them.
        self._taken_out, self._found = NO_HEAVY, list[Found]()
        super().__init__(memory)

    @property
    def on_gpu(self) -> bool:
        return self._plan.on_gpu

    @property
    def nbytes(self) -> int:
        return self._standing.nbytes

    @property
    def is_spilled(self) -> bool:
        """Whether some states are in a file."""
        return self._file is not None

    def fold(self, states: pd.DataFrame) -> None:
        """Add the states of a partition."""
        self._standing.fold(states)

    def spill(self) -> None:
        with self.with_file():
            if len(self._standing) and not self._freed:
                self._write(self._standing.frame(), self._memory.folder)
            self._standing = folding(self._plan)
        release_arrow()

    def _write(self, states: pd.DataFrame, folder: str) -> None:
        # Owners are equal shares of the hashes: each is that of the run, and of a sub-range in it.
        owners = self._plan.owners(states, self._ranges * PIECES) % PIECES
        device = backend.get(None, owners)
        order, counts = device.multisplit(owners.astype(np.uint32), PIECES)
        if self._file is None:
            self._file = SpillFile(self._written(self._plan.states_meta), folder)
        first = self._file.append(self._written(states.take(order)))
        for spans, count in zip(self._spans, counts.tolist(), strict=True):
            if count:
                spans.append((first, count))
            first += count

    def _written(self, states: pd.DataFrame) -> pd.DataFrame:
        """Return states as the file stores them, in host memory."""
        return on_host(states) if self.on_gpu else states

    def take_out(self, heavy: HeavyKeys) -> pd.DataFrame:
        """Remove and return the rows of keys with some codes."""
        frames = frames_of(self._plan.states_meta)
        if self._file is None:
            rows = self._standing.frame()
            among = heavy.among(self._plan.encoded(rows).codes)
            if not among.any():
                return self._plan.states_meta
            self._standing = folding(self._plan)
            self._standing.fold(rows.take(np.flatnonzero(~among)).reset_index(drop=True))
            return rows.take(np.flatnonzero(among)).reset_index(drop=True)
        self.spill()
        encoder = self._plan.encoder
        codes = np.array(heavy.codes, self._plan.encoded(self._plan.states_meta).codes.dtype)
        pieces = np.unique(encoder.owners(codes, self._ranges * PIECES) % PIECES)
        found = [self._plan.states_meta]
        for piece in pieces.tolist():
            rows = self._read(self._spans[piece])
            found.append(rows.take(np.flatnonzero(heavy.among(self._plan.encoded(rows).codes))))
        self._taken_out = heavy
        whole: pd.DataFrame = frames.concat(found)
        return whole

    def add_found(self, found: Found) -> None:
        """Add the result of groups whose rows were never here, or were removed."""
        self._found.append(found)

    def result(
        self, unknown: UnknownCategories | None, categories: Sequence[PartCategories]
    ) -> Any:
        """Return the result; it is repeatable if a file has the states.

        A file is read by sub-range, and aggregates are made of each alone. Other verbs, as
        ``head``, and categories that only partitions know have all of the range in memory.

        Raises
        ------
        OutOfMemoryError
            When the worker has no memory for a sub-range, or for the result.
        IndexLost
            When the file was given back.
        """
        plan = unite_categories(self._plan, [each.others for each in categories])
        dtypes = plan.states_meta.dtypes.to_dict() if plan is not self._plan else {}
        recode = partial(recoded, dtypes=dtypes) if dtypes else _as_it_is
        told = [result_of_places(plan, recode(each.keys), each.known) for each in self._found]
        if self._file is None:
            if told:
                return result_of_pieces(plan, [recode(self._standing.frame())], told)
            if unknown is None and plan is self._plan:
                return self._standing.result()
            return _result(plan, recode(self._standing.frame()), unknown, categories)
        self.spill()
        try:
            if unknown is None and in_pieces(plan):
                rows = map(self._read, self._spans) if plan.needs_rows else self._folded()
                return result_of_pieces(plan, map(recode, rows), told, self._require)
            if plan.needs_rows:
                whole = self._read([span for spans in self._spans for span in spans])
            else:
                whole = self._together(self._folded())
            return _result(plan, recode(whole), unknown, categories)
        finally:
            release_arrow()

    def _folded(self) -> Iterator[pd.DataFrame]:
        """Yield the merged states of each sub-range, with distinct keys."""
        for spans in self._spans:
            standing = folding(self._plan)
            self._require(TIMES * self._nbytes(spans))
            for some in _batches(spans):
                standing.fold(self._taken(some))
            yield standing.frame()

    def _read(self, spans: Sequence[tuple[int, int]]) -> pd.DataFrame:
        """Return the rows of some spans, without the removed ones."""
        self._require(TIMES * self._nbytes(spans))
        rows = self._taken(spans)
        if not self._taken_out:
            return rows
        among = self._taken_out.among(self._plan.encoded(rows).codes)
        return rows.take(np.flatnonzero(~among)).reset_index(drop=True)

    def _taken(self, spans: Sequence[tuple[int, int]]) -> pd.DataFrame:
        assert self._file is not None
        if self._freed:
            raise IndexLost("the states of the groups are gone from a worker; compute them again")
        rows = [range_of(first, count) for first, count in spans]
        found = self._file.take(np.concatenate([np.empty(0, np.int64), *rows]))
        return on_device(found, self._plan.states_meta) if self.on_gpu else found

    def _nbytes(self, spans: Sequence[tuple[int, int]]) -> int:
        assert self._file is not None
        row = sum(map(self._file.row_nbytes, self._plan.states_meta))
        return int(row * sum(count for _, count in spans))

    def _together(self, pieces: Iterator[pd.DataFrame]) -> pd.DataFrame:
        frames = frames_of(self._plan.states_meta)
        made = [each for each in pieces if len(each)]
        self._require(TIMES * sum(map(frames.rows_nbytes, made)))
        whole: pd.DataFrame = frames.concat(made) if made else self._plan.states_meta
        return whole

    def _require(self, needed: int) -> None:
        """Raise OutOfMemoryError unless a step of the result has this much memory."""
        memory = self._memory
        assert memory is not None
        if self.on_gpu:
            # Who allocates there says what lacks.
            return
        if memory.wait(lambda: self._freed or needed <= memory.for_tasks()):
            return
        raise OutOfMemoryError(
            f"the groups of one of {self._ranges:,} hash ranges need {needed:,} bytes on worker "
            f"{memory.address}, and {max(0, memory.for_tasks()):,} are there; give the groupby a "
            "greater npartitions=, or use workers with more memory"
        )


def _as_it_is(states: pd.DataFrame) -> pd.DataFrame:
    return states


def _result(
    plan: GroupPlan,
    whole: pd.DataFrame,
    unknown: UnknownCategories | None,
    categories: Sequence[PartCategories],
) -> Any:
    """Return the result of all states, or rows, of a hash range."""
    if unknown is not None:
        return unknown.result(plan, whole, [each.unknown for each in categories])
    return plan.result(whole)


def _batches(spans: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield spans of rows in order, grouped to about `READ_AT_ONCE` rows."""
    batch, rows = list[tuple[int, int]](), 0
    for span in spans:
        batch.append(span)
        rows += span[1]
        if rows >= READ_AT_ONCE:
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch
