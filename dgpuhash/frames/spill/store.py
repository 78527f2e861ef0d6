"""Row storage whose columns beside the key are in a file."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash import config
from dgpuhash.frames.labels import stored_labels
from dgpuhash.frames.row_store import NumericDtypes, RowStore, numeric_dtypes, promote_dtypes
from dgpuhash.frames.spill.file import SpillFile


class SpilledRowStore(RowStore):
    """Rows whose key columns are in memory, and whose other columns are in a file.

    Parameters
    ----------
    like : DataFrame
        A frame with the columns and dtypes of the rows.
    file : SpillFile
    spans : sequence of (int, int)
        Where the rows are in the file, in their order here: the first of some, and how many.
    """

    @property
    def page_nbytes(self) -> int:
        """The most bytes of a page: rows are there twice while they are taken."""
        return config.nbytes("frames.spilled-page")

    def __init__(self, like: Any, file: SpillFile, spans: Sequence[tuple[int, int]]) -> None:
        super().__init__(like)
        self._file = file
        counts = np.array([count for _, count in spans], np.int64)
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])[:-1]
        self._firsts = np.array([first for first, _ in spans], np.int64)
        self._here = [label for label in self.meta if label not in set(file.meta)]

    def conform(self, frame: Any) -> Any:
        return self._frames.conform(frame, self.meta[self._here])

    @property
    def numbers(self) -> NumericDtypes:
        if not self._rows:
            return []
        known = dict(zip(self._here, self._numbers, strict=True))
        for label in self._file.meta:
            several = [numeric_dtypes(like) for like in self._file.likes(label)]
            (known[label],) = promote_dtypes(several)
        return [known[label] for label in self.meta]

    def check_file(self) -> None:
        """Raise ColumnError when rows of the file would round others, as `check_rounding`."""
        for label in self._file.meta:
            several = [numeric_dtypes(like) for like in self._file.likes(label)]
            if len(several) > 1 and promote_dtypes(several) == [np.dtype(np.float64)]:
                for column in self._file.columns(label):
                    (dtype,) = numeric_dtypes(column)
                    if dtype is not None:
                        self._refuse_inexact(column, label, dtype)

    def _holding(self, label: Hashable) -> Any:
        return self.take(np.arange(self._rows), [label])

    def whole(self) -> Any:
        return self.take(np.arange(self._rows))

    def take(self, rows: Any, columns: Sequence[Hashable] | None = None) -> Any:
        labels = list(self.meta) if columns is None else stored_labels(columns, self.meta)
        here = [label for label in labels if label in self._here]
        there = [label for label in labels if label not in self._here]
        if not there:
            return self._frames.take(self.frame()[here], rows)
        found = self._file.take(self._places(rows), there)
        if not here:
            return found
        beside = self._frames.take(self.frame()[here], rows)
        return pd.concat([beside, found], axis=1)[labels]

    def _places(self, rows: Any) -> Any:
        """Return where rows are in the file."""
        if len(self._starts) == 0:
            return rows
        span = np.searchsorted(self._starts, rows, side="right") - 1
        return rows - self._starts[span] + self._firsts[span]

    def arrays(self, columns: Sequence[Hashable]) -> list[Any] | None:
        if any(label not in self._here for label in columns):
            return None
        return super().arrays(columns)

    def kept(self, rows: Any) -> RowStore:
        made = copy.copy(self)
        made._chunks, made.paged = [self.take(rows, self._here)] if len(rows) else [], False
        made._rows, made._starts, made._firsts = len(rows), np.arange(len(rows)), self._places(rows)
        made._row_nbytes, made._widest, made._arrays = {}, {}, {}
        return made

    def row_nbytes(self, columns: Sequence[Hashable]) -> float:
        here = [label for label in columns if label in self._here]
        there = (self._file.row_nbytes(label) for label in columns if label not in self._here)
        return super().row_nbytes(here) + sum(there)

    def free(self) -> None:
        self._file.close()
