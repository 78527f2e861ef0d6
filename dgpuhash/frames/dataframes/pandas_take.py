"""Rows taken of pandas frames, with nulls for -1: row numbers are checked once for all columns."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

__all__ = ["TakenRows"]

_FEW_ROWS, _FEW_COLUMNS = 1024, 16


class TakenRows:
    """Positions of the rows that are taken of columns; -1 gives a null.

    Parameters
    ----------
    rows : array of integers
    nulls : bool
        Whether there may be a -1.

    Examples
    --------
    >>> TakenRows(np.array([1, -1]), nulls=True).of(pd.Series([5, 6]))
    array([ 6., nan])
    """

    def __init__(self, rows: Any, *, nulls: bool) -> None:
        self._rows = np.asarray(rows, np.intp)
        self._absent: Any = None
        if nulls and len(self._rows) and self._rows.min() < 0:
            self._absent = self._rows < 0

    def frame(self, frame: Any) -> Any:
        """Return these rows of a frame, numbered from 0; all of them in order share its columns."""
        index = pd.RangeIndex(len(self._rows))
        if len(frame) == len(index) and (self._rows == np.arange(len(index))).all():
            return frame.set_axis(index, axis=0)
        if len(index) <= _FEW_ROWS and frame.shape[1] > _FEW_COLUMNS:
            # By blocks of columns: of few rows most of the time is that of each column.
            numbered = frame.set_axis(pd.RangeIndex(len(frame)), axis=0)
            numbered = numbered.set_flags(allows_duplicate_labels=True)
            return numbered.reindex(self._rows).set_axis(index, axis=0)
        columns = {}
        for place, (_, column) in enumerate(frame.items()):
            made = self.of(column)
            # A frame would make texts of objects.
            columns[place] = pd.Series(made, index, object) if made.dtype == object else made
        made = pd.DataFrame(columns, index=index, copy=False)
        made.columns = frame.columns
        return made

    def of(self, column: Any) -> Any:
        """Return these rows of a Series, as an array in the dtype that pandas gives them."""
        dtype = column.dtype
        if isinstance(dtype, np.dtype):
            return self._of_numpy(column.to_numpy())
        if isinstance(dtype, pd.ArrowDtype):
            return pd.arrays.ArrowExtensionArray(self._of_arrow(column))
        if isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow":
            return pd.array(self._of_arrow(column), dtype)
        return column.array.take(self._rows, allow_fill=self._absent is not None)

    def _of_numpy(self, values: Any) -> Any:
        if self._absent is None:
            return values.take(self._rows)
        kind = values.dtype.kind
        if kind not in "iufmM":
            return pd.api.extensions.take(values, self._rows, allow_fill=True)
        padded = np.empty(len(values) + 1, np.float64 if kind in "iu" else values.dtype)
        padded[:-1], padded[-1] = values, "NaT" if kind in "mM" else np.nan
        # -1 is the last place.
        return padded.take(self._rows, mode="wrap")

    def _of_arrow(self, column: Any) -> Any:
        return column.array.__arrow_array__().take(self._numbers)

    @functools.cached_property
    def _numbers(self) -> Any:
        return pa.array(self._rows, mask=self._absent)
