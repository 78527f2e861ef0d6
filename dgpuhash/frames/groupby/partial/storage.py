"""Columns that grow: of numbers, and of any values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.frames.groupby.aggregates.values import taken
from dgpuhash.frames.groupby.assembly import series_of
from dgpuhash.frames.row_store import RowStore


class NumberColumn:
    """A NumPy array with room to grow.

    Examples
    --------
    >>> column = NumberColumn(np.array([1, 2]))
    >>> column.append(np.array([3]))
    >>> column.put(np.array([0]), np.array([7]))
    >>> column.take(np.array([0, 2])).tolist(), column.array.tolist()
    ([7, 3], [7, 2, 3])
    """

    def __init__(self, array: Any, *, copy: bool = True) -> None:
        self._room, self._length = np.array(array, copy=copy or None), len(array)

    def __len__(self) -> int:
        return self._length

    @property
    def array(self) -> Any:
        """All elements."""
        return self._room[: self._length]

    def cut(self, length: int) -> None:
        """Drop the elements from a position on."""
        self._length = min(self._length, length)

    def append(self, array: Any) -> None:
        """Add elements."""
        length = self._length + len(array)
        if length > len(self._room):
            room = np.empty(max(length, 2 * len(self._room)), self._room.dtype)
            room[: self._length] = self.array
            self._room = room
        self._room[self._length : length] = array
        self._length = length

    def take(self, rows: Any) -> Any:
        """Return the elements at positions."""
        return self._room[rows]

    def put(self, rows: Any, array: Any) -> None:
        """Replace the elements at positions."""
        self._room[rows] = array

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the elements take."""
        return int(self._room.nbytes)


class ValueColumn:
    """Values of any dtype: replacing some costs these, not the others.

    New values are written behind the others; the old ones are left out once they are the most.
    """

    def __init__(self, array: Any) -> None:
        self._rows: RowStore = RowStore(_frame(array).iloc[:0])
        self._places = NumberColumn(np.empty(0, np.int64))
        self.append(array)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def array(self) -> Any:
        """All values."""
        return self.take(np.arange(len(self)))

    def cut(self, length: int) -> None:
        """Drop the values from a position on."""
        self._places.cut(length)

    def append(self, array: Any) -> None:
        """Add values."""
        first = len(self._rows)
        self._rows.append(_frame(array))
        self._places.append(np.arange(first, first + len(array)))

    def take(self, rows: Any) -> Any:
        """Return the values at positions."""
        return plain(self._rows.take(self._places.take(rows))["value"])

    def put(self, rows: Any, array: Any) -> None:
        """Replace the values at positions."""
        first = len(self._rows)
        self._rows.append(_frame(array))
        self._places.put(rows, np.arange(first, first + len(array)))
        if len(self._rows) > 2 * len(self) + 1024:
            self._rows = self._rows.kept(self._places.array)
            self._places = NumberColumn(np.arange(len(self)))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the values take."""
        return self._rows.nbytes + self._places.nbytes


def _frame(array: Any) -> pd.DataFrame:
    return pd.DataFrame({"value": series_of(array, None)})


def column_of(array: Any) -> NumberColumn | ValueColumn:
    """Return a column that grows of an array."""
    numbers = isinstance(array, np.ndarray) and array.dtype != object
    return NumberColumn(array) if numbers else ValueColumn(array)


def plain(column: pd.Series) -> Any:
    """Return the values of a column as aggregates give them: of NumPy's dtypes as its arrays.

    They are not copied.
    """
    if isinstance(column.dtype, np.dtype) and column.dtype.kind not in "mM":
        return column.to_numpy()
    return column.array


def array_of(column: Any, rows: Any) -> Any:
    """Return the elements of an array or column at positions, 0 or null where one is -1.

    Examples
    --------
    >>> array_of(np.array([5, 6]), np.array([1, -1])).tolist()
    [6, 0]
    """
    if isinstance(column, np.ndarray) and column.dtype != object:
        made = np.zeros(len(rows), column.dtype)
        made[rows >= 0] = column[rows[rows >= 0]]
        return made
    return taken(series_of(column, None), rows)
