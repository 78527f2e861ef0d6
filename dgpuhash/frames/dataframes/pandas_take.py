"""Rows taken of pandas frames, with nulls for -1: row numbers are checked once for all columns."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.frames.dataframes.promotion import check_promoted, first_rounded

_FEW_ROWS = 2**12
_FLOAT = np.dtype(np.float64)


class TakenRows:
    """Positions of the rows that are taken of columns; -1 gives a null.

    Parameters
    ----------
    rows : array of integers
    nulls : bool
        Whether there may be a -1.
    rounded : list, optional
        Gets the labels of columns of which integers were rounded to float64, as by pandas; without
        it they raise ColumnError.
    remedy : str, optional
        What the error advises, beside converting the column.

    Examples
    --------
    >>> TakenRows(np.array([1, -1]), nulls=True).of(pd.Series([5, 6]))
    array([ 6., nan])
    """

    def __init__(
        self, rows: Any, *, nulls: bool, rounded: list[Any] | None = None, remedy: str = ""
    ) -> None:
        self._rows, self._rounded, self._remedy = np.asarray(rows, np.intp), rounded, remedy
        self._absent: Any = None
        if nulls and len(self._rows) and self._rows.min() < 0:
            self._absent = self._rows < 0

    def frame(self, frame: Any) -> Any:
        """Return these rows of a frame, numbered from 0; all of them in order share its columns."""
        index = pd.RangeIndex(len(self._rows))
        if len(frame) == len(index) and (self._rows == np.arange(len(index))).all():
            return frame.set_axis(index, axis=0)
        if len(index) <= _FEW_ROWS:
            # By blocks of columns: of few rows most of the time is that of each column.
            made = self._by_blocks(frame)
            made.index = index
            return made
        columns = {}
        for place, (_, column) in enumerate(frame.items()):
            made = self.of(column)
            # A frame would make texts of objects.
            columns[place] = pd.Series(made, index, object) if made.dtype == object else made
        made = pd.DataFrame(columns, index=index, copy=False)
        made.columns = frame.columns
        return made

    def _by_blocks(self, frame: Any) -> Any:
        if not frame.flags.allows_duplicate_labels:
            frame = frame.set_flags(allows_duplicate_labels=True)
        if self._absent is None:
            return frame.take(self._rows)
        for label, column in frame.items():
            dtype = column.dtype
            if isinstance(dtype, np.dtype) and dtype.kind in "iu":
                self._check(column.to_numpy(), label)
            elif isinstance(dtype, pd.IntervalDtype | pd.SparseDtype):
                self._check_others(column)
        positions = pd.RangeIndex(len(frame))
        if not positions.equals(frame.index):
            frame = frame.set_axis(positions, axis=0)
        return frame.reindex(self._rows)

    def of(self, column: Any) -> Any:
        """Return these rows of a Series, as an array in the dtype that pandas gives them."""
        dtype = column.dtype
        if isinstance(dtype, np.dtype):
            return self._of_numpy(column.to_numpy(), column.name)
        if isinstance(dtype, pd.ArrowDtype):
            return pd.arrays.ArrowExtensionArray(self._of_arrow(column))
        if isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow":
            return pd.array(self._of_arrow(column), dtype)
        made = column.array.take(self._rows, allow_fill=self._absent is not None)
        if made.dtype != dtype:
            self._check_others(column)
        return made

    def _check(self, values: Any, label: Any, cast: str = "") -> None:
        """Find integers of the rows that a float64 cannot hold."""
        if values.dtype.kind not in "iu" or first_rounded(values, _FLOAT) is None:
            return
        taken = values.take(self._rows[~self._absent])
        remedy = "" if cast else self._remedy
        check_promoted(taken, _FLOAT, label, cast=cast, remedy=remedy, rounded=self._rounded)

    def _check_others(self, column: Any) -> None:
        """Find integers of intervals and sparse columns that a float64 cannot hold."""
        array = column.array
        if isinstance(array, pd.arrays.IntervalArray):
            for ends in (array.left, array.right):
                self._check(ends.to_numpy(), column.name, "object")
        elif isinstance(array, pd.arrays.SparseArray):
            self._check(np.asarray(array), column.name, "object")

    def _of_numpy(self, values: Any, label: Any) -> Any:
        if self._absent is None:
            return values.take(self._rows)
        kind = values.dtype.kind
        if kind not in "iufmM":
            return pd.api.extensions.take(values, self._rows, allow_fill=True)
        if kind in "iu":
            self._check(values, label)
        padded = np.empty(len(values) + 1, np.float64 if kind in "iu" else values.dtype)
        padded[:-1], padded[-1] = values, "NaT" if kind in "mM" else np.nan
        # -1 is the last place.
        return padded.take(self._rows, mode="wrap")

    def _of_arrow(self, column: Any) -> Any:
        return column.array.__arrow_array__().take(self._numbers)

    @functools.cached_property
    def _numbers(self) -> Any:
        return pa.array(self._rows, mask=self._absent)


def take_rows(column: Any, rows: Any) -> pd.Series:
    """Return rows of a Series, numbered from 0; a copy, also of all of them in order.

    Examples
    --------
    >>> take_rows(pd.Series([5, 6]), np.array([1, 1])).tolist()
    [6, 6]
    """
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biufc":
        return pd.Series(column.to_numpy().take(rows), copy=False)
    return pd.Series(column.array.take(rows), dtype=column.dtype, copy=False)
