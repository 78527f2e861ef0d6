"""RowStore: append-only row storage of an index, in memory or spilled to a file."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash import config
from dgpuhash.errors import ColumnError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.key_columns import to_float
from dgpuhash.frames.labels import stored_labels
from dgpuhash.frames.spill.file import SpillFile

# The numeric dtype of each column; None for non-numeric and Arrow columns, which never round.
NumericDtypes = list[np.dtype | None]


class RowStore:
    """Append-only rows of one frame; row numbers are stable until `kept`.

    Parameters
    ----------
    like : DataFrame
        A frame with the columns and dtypes of the rows; none of its rows is stored.
    """

    def __init__(self, like: Any) -> None:
        self._frames = frames_of(like)
        self.meta: Any = like.iloc[:0]
        self._chunks: list[Any] = []
        self._rows = 0
        self.paged = False
        """Whether there are several chunks, so that `in_pages` may be true."""
        # By column, cached until rows change: average bytes of a row, and the maximum where known.
        self._row_nbytes: dict[Hashable, float] = {}
        self._widest: dict[Hashable, int] = {}
        self._arrays: dict[Hashable, Any] = {}
        self._numbers: NumericDtypes = []

    @property
    def page_nbytes(self) -> int:
        """Limit in bytes for rows to gather at once."""
        return sys.maxsize

    def __len__(self) -> int:
        return self._rows

    def conform(self, frame: Any) -> Any:
        """Return the stored columns of `frame` in the stored dtypes.

        See `Frames.conform`.
        """
        return self._frames.conform(frame, self.meta)

    @property
    def numbers(self) -> NumericDtypes:
        """Numeric dtypes of the stored columns; an empty list if there is no row."""
        return self._numbers if self._rows else []

    def check_rounding(self, rows: Any) -> None:
        """Raise ColumnError if appending `rows` would round integers.

        This concerns the integers of `rows` and the stored ones. Beside floats, and as 64-bit
        integers beside those of the other sign, they are promoted to float64.
        """
        given = numeric_dtypes(rows) if len(rows) else []
        self._refuse_rounded(rows, given, self.numbers)
        self.check_promotion_with(given)

    def check_promotion_with(self, numbers: NumericDtypes) -> None:
        """Raise ColumnError if rows of dtypes `numbers` would round stored ones."""
        self._refuse_rounded(None, self.numbers, numbers)

    def _refuse_rounded(self, rows: Any, own: NumericDtypes, others: NumericDtypes) -> None:
        """Raise ColumnError if promotion to float64 rounds integers of `rows`.

        None means the stored rows. `own` are the dtypes of `rows`, `others` those of the rows
        beside them.
        """
        if own == others or not own or not others:
            return
        for label, one, other in zip(self.meta, own, others, strict=True):
            if one is not None and one != other and _promote(one, other) == np.float64:
                self._refuse_inexact(self._holding(label) if rows is None else rows, label, one)

    def _holding(self, label: Hashable) -> Any:
        """Return all rows as a frame that contains a column."""
        return self.frame()

    def _refuse_inexact(self, frame: Any, label: Hashable, dtype: np.dtype) -> None:
        if dtype.kind == "f" or dtype.itemsize < 8:
            return
        column = self._frames.key_column(frame[label], label)
        exact = to_float(column.values, 64, self._frames.xp)[1]
        if column.nulls is not None:
            exact |= column.nulls
        if not bool(exact.all()):
            one = int(column.values[~exact][0])
            raise ColumnError(
                f"column {label!r} holds integers such as {one}, which would be rounded to "
                f"{float(one):.0f} beside floats; insert integers of one dtype only, or convert "
                "the column with .astype('float64') before the index is built"
            )

    def free(self) -> None:
        """Free files of the rows, which cannot be read afterwards."""

    def append(self, frame: Any, arrays: Sequence[Any] | None = None) -> None:
        """Add the rows of `frame`.

        `frame` comes from `conform`, or from `Frames.from_arrays` on `arrays`.
        """
        if len(frame):
            self._row_nbytes, self._widest, self._arrays = {}, {}, {}
            added = numeric_dtypes(frame)
            if added != self._numbers:
                stored = self._numbers if self._rows else added
                self._numbers = list(map(_promote, stored, added))
            if arrays is not None and not self._chunks:
                self._arrays = dict(zip(frame, arrays, strict=True))
            self.paged = bool(self._chunks)
            self._chunks.append(frame)
            self._rows += len(frame)

    def appended(self, frame: Any, arrays: Sequence[Any] | None = None) -> RowStore:
        """Return a store with the rows of this one and of `frame` (see `append`).

        This store does not change.
        """
        made = copy.copy(self)
        made._chunks = list(self._chunks)
        made.append(frame, arrays)
        return made

    def frame(self) -> Any:
        """Return all rows as one frame, numbered from 0."""
        if not self._chunks:
            return self.meta
        if len(self._chunks) > 1:
            self._chunks, self.paged = [self._frames.concat(self._chunks)], False
        return self._chunks[0]

    def whole(self) -> Any:
        """Return all rows with all columns, numbered from 0."""
        return self.frame()

    def take(self, rows: Any, columns: Sequence[Hashable] | None = None) -> Any:
        """Return the given rows, numbered from 0, with `columns` (default: all)."""
        if self.paged and self.in_pages(len(rows)):
            labels = list(self.meta) if columns is None else stored_labels(columns, self.meta)
            return self._take_by_page(rows, labels)
        frame = self.frame()
        wanted = frame if columns is None else frame[stored_labels(columns, self.meta)]
        return self._frames.take(wanted, rows)

    def in_pages(self, rows: int) -> bool:
        """Return whether this many rows are read chunk by chunk.

        Each page has twice as many rows as the next at least, so that reading after an insert costs
        what was inserted, and what is read. Chunks of other dtypes are put together.
        """
        chunks = self._chunks
        if len(chunks) < 2 or 4 * rows > self._rows:
            return False
        first, later = len(chunks) - 1, len(chunks[-1])
        while first and len(chunks[first - 1]) < 2 * later:
            first -= 1
            later += len(chunks[first])
        if first < len(chunks) - 1:
            chunks = self._chunks = [*chunks[:first], self._frames.concat(chunks[first:])]
        like = self._frames.dtypes(chunks[0])
        return first > 0 and all(self._frames.dtypes(page) == like for page in chunks[1:])

    def _take_by_page(self, rows: Any, labels: Sequence[Hashable]) -> Any:
        """Return columns of rows, gathered chunk by chunk."""
        xp, chunks = self._frames.xp, self._chunks
        ends = np.cumsum([len(page) for page in chunks])
        pages = xp.searchsorted(xp.asarray(ends), rows, side="right")
        found, order = [], []
        for number, page in enumerate(chunks):
            here = xp.flatnonzero(pages == number)
            if len(here):
                first = int(ends[number]) - len(page)
                found.append(self._frames.take(page[labels], rows[here] - first))
                order.append(here)
        if len(found) < 2:
            return found[0] if found else self._frames.take(chunks[0][labels], rows)
        back = xp.empty(len(rows), np.int64)
        back[xp.concatenate(order)] = xp.arange(len(rows))
        return self._frames.take(self._frames.concat(found), back)

    def arrays(self, columns: Sequence[Hashable]) -> list[Any] | None:
        """Return all rows of `columns` as `Frames.arrays` does.

        None when a column cannot be an array, or its dtype changed since the first row.
        """
        found = []
        for label in columns:
            if label not in self._arrays:
                column, like = self.frame()[[label]], self.meta[[label]]
                same = self._frames.dtypes(column) == self._frames.dtypes(like)
                (self._arrays[label],) = (same and self._frames.arrays(column)) or [None]
            found.append(self._arrays[label])
        return None if not found or any(array is None for array in found) else found

    def kept(self, rows: Any) -> RowStore:
        """Return a store with only the given rows, in order, numbered from 0.

        This store does not change.
        """
        made = copy.copy(self)
        made._chunks, made._rows = [self.take(rows)] if len(rows) else [], len(rows)
        made.paged = False
        made._row_nbytes, made._widest, made._arrays = {}, {}, {}
        return made

    def row_nbytes(self, columns: Sequence[Hashable]) -> float:
        """Return the average bytes of a row with these columns."""
        for label in columns:
            if label not in self._row_nbytes:
                column = self.frame()[[label]]
                self._widest |= self._frames.widest(column)
                self._row_nbytes[label] = self._frames.rows_nbytes(column) / max(1, len(self))
        return sum(self._row_nbytes[label] for label in columns)

    def fits(self, taken: Any, nbytes: int) -> bool:
        """Return whether the rows `taken` have at most `nbytes` bytes.

        Bounds the columns whose bytes are slow to count by their widest value first.
        """
        slow = [label for label in taken if label in self._widest]
        most = len(taken) * sum(self._widest[label] for label in slow)
        quick = taken.drop(columns=slow) if slow else taken
        if most + self._frames.rows_nbytes(quick) <= nbytes:
            return True
        return bool(slow) and self._frames.rows_nbytes(taken) <= nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of the stored columns."""
        return sum(self._frames.nbytes(chunk) for chunk in self._chunks)


def check_lossless_concat(frames: Sequence[Any], like: Any) -> None:
    """Raise ColumnError when concatenating `frames` would round integers.

    The result has the columns of `like`.
    """
    store = RowStore(like)
    for frame in frames:
        store.check_rounding(frame)
        store.append(frame)


def promote_dtypes(several: Sequence[NumericDtypes]) -> NumericDtypes:
    """Return the column dtypes of several frames after concatenation."""
    filled = [numbers for numbers in several if numbers]
    return [functools.reduce(_promote, column) for column in zip(*filled, strict=True)]


def numeric_dtypes(frame: Any) -> NumericDtypes:
    """Return the numeric dtype of each column of `frame` (see `NumericDtypes`)."""
    found: NumericDtypes = []
    for dtype in frames_of(frame).dtypes(frame):
        plain = dtype if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", None)
        # Arrow does not round.
        arrow = hasattr(dtype, "pyarrow_dtype")
        found.append(None if arrow or plain is None or plain.kind not in "iuf" else np.dtype(plain))
    return found


def _promote(one: np.dtype | None, other: np.dtype | None) -> np.dtype | None:
    return None if one is None or other is None else np.result_type(one, other)


class SpilledRowStore(RowStore):
    """Rows with key columns in memory and other columns in a file.

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
        """Limit in bytes for a page, which is in memory twice while gathered."""
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
        """Raise ColumnError if rows of the file would round others, as `check_rounding`."""
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
        """Return the positions of rows in the file."""
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
