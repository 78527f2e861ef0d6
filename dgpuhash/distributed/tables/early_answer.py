"""Answers of a verb as users see them, made while workers compute them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from distributed import Client, Future

from dgpuhash.distributed.cluster.locality import InputSpec
from dgpuhash.distributed.shards.table_store import answer_name, answer_of
from dgpuhash.distributed.tables.batch import AnswerColumn, Batch, DaskBatch, StoredColumn


class EarlyAnswer:
    """Answers to a batch, made before they are computed if shapes are known.

    Each attempt to compute them has names of its own.

    Parameters
    ----------
    client : distributed.Client
    batch : Batch
    verb : str
    shown : sequence of Shown
        Columns of the answer.
    """

    def __init__(
        self, client: Client, batch: Batch, verb: str, shown: Sequence[AnswerColumn]
    ) -> None:
        self._client, self._batch, self._verb, self._shown = client, batch, verb, shown
        self._token = ""
        self._made: list[tuple[StoredColumn, Any]] = []

    def needed(self) -> InputSpec:
        """Return the data that the next attempt needs."""
        self._token = uuid.uuid4().hex
        return replace(self._batch.needed, token=self._token)

    def make(self) -> None:
        """Make the answers that have one row for each row of the batch.

        Call it while workers compute them. If it fails, `answers` makes them.
        """
        if not isinstance(self._batch, DaskBatch) or not all(each.by_row for each in self._shown):
            return
        answer, rows = answer_of(self._verb, self._token), self._batch.rows
        with suppress(Exception):
            for number, column in enumerate(self._shown):
                name = answer_name(answer, number)
                futures: list[Future] = [
                    Future((name, chunk), self._client) for chunk in range(len(rows))
                ]
                kept = StoredColumn(name, futures, [(each,) for each in rows])
                self._made.append((kept, self._batch.answer(self._client, column, kept)))

    def forget(self) -> None:
        """Drop the answers that were made for a failed attempt.

        The attempt's error may keep this object alive for long.
        """
        self._made.clear()

    def answers(self, kept: Sequence[StoredColumn]) -> tuple[Any, ...]:
        """Return the answers, whose columns `kept` workers have by now."""
        made = [(foreseen.name, foreseen.shapes) for foreseen, _ in self._made]
        # Two threads may have made the first future of a chunk at once: the client tracks one.
        ready = all(
            future.status == "finished" for foreseen, _ in self._made for future in foreseen.futures
        )
        if ready and made == [(each.name, each.shapes) for each in kept]:
            return tuple(array for _, array in self._made)
        columns = zip(self._shown, kept, strict=True)
        return tuple(self._batch.answer(self._client, *column) for column in columns)
