"""Draft of a shard: execute a batch on a copy, and publish it once every rank has succeeded."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.shards.table_shard import Answer, TableShard, Verb
from dgpuhash.errors import CapacityError, CountOverflowError, OutOfMemoryError
from dgpuhash.tables.memory_errors import memory_errors_of

# What a table may refuse in the middle of a batch.
_REFUSALS = (CapacityError, CountOverflowError, MemoryError)


class ShardDraft:
    """Copy of a shard that carries out a verb; it replaces the shard if no rank refuses a row.

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
        """Copy the shards of all ranks, if rows of any rank change tables.

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
        """Carry out `verb` on the copy; rows that follow a refused one get empty answers."""
        if self._refusal is None:
            try:
                with memory_errors_of(verb.name):
                    return self._copy.serve(verb, columns, counts, [])
            except _REFUSALS as error:
                self._refusal = type(error), str(error)
        return self._part.empty_answers(verb, counts)

    def publish(self, collective: Collective) -> Exception | None:
        """Replace the shards of all ranks, or return why no rank does."""
        refusals = [each for each in collective.gather(self._refusal) if each is not None]
        if refusals:
            kind, text = refusals[0]
            return kind(f"{text} (no shard was changed)")
        self._part.written = True
        self._part.replica, self._part.table = None, self._copy.table
        return None
