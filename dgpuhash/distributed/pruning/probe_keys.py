"""Prune absent and duplicate keys from a query, and expand its results again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from dgpuhash import backend
from dgpuhash.backend import Backend
from dgpuhash.distributed.pruning.policy import PruningOptions, gather_lists, list_positions
from dgpuhash.frames import EncodedKeys
from dgpuhash.frames.keys.encoding import same_keys
from dgpuhash.tables.bloom.blocks import BloomBlocks
from dgpuhash.tables.columns.distinct import Factorization
from dgpuhash.tables.select import select_found


class PrunedKeys:
    """Pruned keys of a query, and the way back to all of its rows.

    Parameters
    ----------
    backend : Backend
    keys : sequence of array
        The words of the keys, chunk by chunk; those of an index are the codes of `encoded`.
    bloom : BloomBlocks or None
        Filter that drops absent keys.
    deduplicate : bool
    rows : array of int64, optional
        Rows of `keys`; None: all.
    encoded : EncodedKeys, optional
        For an index: the keys of all rows, of which only some may be valid, and which may differ
        where their codes do not.

    Attributes
    ----------
    keys : array
        Keys to send.
    rows : array of int64 or None
        With `encoded`, the rows that `keys` stand for, ascending; None: all.
    absent, repeated : int
        Rows that were dropped: by the filter or as invalid, and as duplicates of another row.
    """

    def __init__(
        self, backend: Backend, keys: Sequence[Any], bloom: BloomBlocks | None, *,
        deduplicate: bool, rows: Any = None, encoded: EncodedKeys | None = None,
    ) -> None:  # fmt: skip
        self._backend = backend
        # Rows that pass the filter (None: all), and for each the position of its key in `keys`
        # (None: `keys` has all of them).
        self._rows, self._codes = rows, None
        # Codes of invalid keys have no meaning, and may equal codes of valid ones.
        valid = None if encoded is None or not (deduplicate or bloom) else encoded.valid
        plain = bloom is None and valid is None
        passed = _concatenate(backend, keys) if plain else self._filter(keys, bloom, valid)
        self.keys: Any = passed
        self.rows: Any = self._rows
        if deduplicate:
            self._deduplicate(encoded)
        self.absent: int = sum(map(len, keys)) - len(passed)
        self.repeated: int = len(passed) - len(self.keys)

    @classmethod
    def of(cls, encoded: EncodedKeys, bloom: BloomBlocks | None, sparing: PruningOptions) -> Self:
        """Return the pruned keys of an index's query."""
        used, keys = backend.get(None, encoded.codes), [encoded.codes]
        repeats = sparing.deduplicates(used, keys)
        return cls(used, keys, bloom, deduplicate=repeats, encoded=encoded)

    @property
    def encoded(self) -> EncodedKeys:
        """The keys to send, as codes that choose their owners."""
        return EncodedKeys(self.keys, None, True, ())

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays in memory until the results arrive."""
        return sum(each.nbytes for each in (self.keys, self._rows, self._codes) if each is not None)

    def _filter(self, keys: Sequence[Any], bloom: BloomBlocks | None, valid: Any) -> Any:
        """Return the keys that pass the filter and are valid, and note their rows."""
        numbers, passed, first = [], [], 0
        for chunk in keys:
            good = valid.view(np.uint8) if bloom is None else bloom.contains(chunk)
            if bloom is not None and valid is not None:
                good &= valid.view(np.uint8)
            chosen, words = select_found(self._backend, good, chunk)
            numbers.append(chosen + first if first else chosen)
            passed.append(words)
            first += len(chunk)
        found = _concatenate(self._backend, numbers)
        self._rows = found if self._rows is None else self._rows[found]
        return _concatenate(self._backend, passed)

    def _deduplicate(self, encoded: EncodedKeys | None) -> None:
        groups = Factorization(self._backend, self.keys)
        if encoded is not None:
            firsts = groups.first_rows if self._rows is None else self._rows[groups.first_rows]
            if encoded.ambiguous is not False:
                columns, like = encoded.columns, firsts[groups.codes]
                if not bool(same_keys(columns, self._rows, columns, like).all()):
                    return
            self.rows = firsts
        self._codes, self.keys = groups.codes, self.keys[groups.first_rows]

    def expand_matches(self, query_rows: Any, count: int) -> tuple[Any, Any]:
        """Expand the matches of `rows` to all `count` rows of the query.

        Returns the row of each match, and its position among the given matches, which stand
        together for a row; None in place of the positions where the matches are unchanged.
        """
        if self._codes is None:
            return query_rows, None
        xp = self._backend.xp
        groups = len(self.rows)
        number = xp.empty(count, dtype=np.int64)
        number[self.rows] = xp.arange(groups)
        counts = xp.bincount(number[query_rows], minlength=groups)
        starts = xp.cumsum(counts) - counts
        rows, matches = list_positions(self._backend, counts[self._codes], starts[self._codes])
        return rows if self._rows is None else self._rows[rows], matches

    def spread(self, answers: Sequence[Any], blank: list[Any]) -> list[Any]:
        """Expand the answers for the pruned keys to all rows.

        Parameters
        ----------
        answers : sequence of array
            Answers for `keys`.
        blank : list of array
            Answers for all rows as if all keys were absent; overwritten.
        """
        if self._codes is not None:
            answers = [column[self._codes] for column in answers]
        if self._rows is None:
            return list(answers)
        for column, place in zip(answers, blank, strict=True):
            place[self._rows] = column
        return blank

    def spread_lists(self, counts: Any, values: Any, blank: Any) -> tuple[Any, Any]:
        """Expand lists, given as lengths and values, to all rows; see `spread`."""
        if self._codes is not None:
            starts = self._backend.xp.cumsum(counts) - counts
            counts, starts = counts[self._codes], starts[self._codes]
            values = gather_lists(self._backend, counts, starts, values)
        if self._rows is None:
            return counts, values
        blank[self._rows] = counts
        return blank, values


def _concatenate(backend: Backend, arrays: Sequence[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else backend.xp.concatenate(arrays)
