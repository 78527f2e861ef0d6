"""Order of rows by their keys, in linear time where keys are integers of few bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgpuhash.frames.keys.direct import DirectTable

__all__ = ["sorted_rows"]

# Fewer rows are compared with each other. More bits take as many passes as a sort by comparison.
_FEW_ROWS, _MOST_BITS = 2**12, 48
# NumPy sorts numbers of 16 bits by their digits.
_DIGIT = 16


def sorted_rows(columns: Sequence[Any]) -> Any:
    """Return the positions of rows in the order of several columns, the first of which counts most.

    Rows that are equal in all columns stay in order, as by ``numpy.lexsort(columns[::-1])``.

    Examples
    --------
    >>> sorted_rows([np.array([2, 1, 2, 1]), np.array([0.5, 7, 0.25, 7])])
    array([1, 3, 2, 0])
    """
    if len(columns[0]) < _FEW_ROWS:
        return np.lexsort(columns[::-1])
    if len(columns) == 1:
        found = _placed(columns[0])
        if found is not None:
            return found
    order = None
    for column in reversed(columns):
        for digit in _digits(column):
            step = np.argsort(digit if order is None else digit[order], kind="stable")
            order = step if order is None else order[step]
    return order


def _placed(column: Any) -> Any | None:
    """Return the order of integers that differ and lie close together; None for others."""
    if column.dtype.kind not in "iu" or column.dtype.itemsize < 4:
        return None
    offsets = _above_least(column)
    if int(offsets.max()) >> _MOST_BITS:
        return None
    table = DirectTable.rows_of(offsets, asked=0)
    return None if table is None else table.rows


def _above_least(column: Any) -> Any:
    """Return integers less the least of them, which are not negative."""
    return (column - column.min()).view(np.dtype(f"u{column.dtype.itemsize}"))


def _digits(column: Any) -> list[Any]:
    """Return numbers by which a column is sorted, one after the other, the last counts most."""
    if column.dtype.kind == "b":
        return [column.view(np.uint8)]
    if column.dtype.kind not in "iu" or column.dtype.itemsize <= 2:
        return [column]
    offsets = _above_least(column)
    bits = int(offsets.max()).bit_length()
    if bits > _MOST_BITS:
        return [column]
    digits = range(0, max(bits, 1), _DIGIT)
    return [(offsets >> offsets.dtype.type(shift)).astype(np.uint16) for shift in digits]
