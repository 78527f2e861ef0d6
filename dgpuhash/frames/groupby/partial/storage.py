"""Columns that grow: of numbers, of any values, and pages of rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.frames.groupby.aggregates.values import taken
from dgpuhash.frames.groupby.assembly import series_of
from dgpuhash.frames.labels import stored_labels
from dgpuhash.frames.row_store import RowStore


class PagedRows(RowStore):
    """Rows in pages, of which each is twice as long as the next: appending costs what is appended.

    Reading some rows costs these rows, and takes from at most as many pages as the number of rows
    has bits.
    """

    def append(self, frame: Any, arrays: Sequence[Any] | None = None) -> None:
        """Add the rows of `frame`."""
        super().append(frame, arrays)
        pages = self._chunks
        while len(pages) > 1 and len(pages[-2]) < 2 * len(pages[-1]):
            pages[-2:] = [self._frames.concat(pages[-2:])]

    def arrays(self, columns: Sequence[Hashable]) -> list[Any] | None:
        """Return None: pages are no arrays."""
        return None

    def take(self, rows: Any, columns: Sequence[Hashable] | None = None) -> Any:
        """Return the given rows, numbered from 0, with `columns` (default: all)."""
        if len(self._chunks) < 2 or len(rows) >= len(self):
            return super().take(rows, columns)
        labels = list(self.meta) if columns is None else stored_labels(columns, self.meta)
        ends = np.cumsum([len(page) for page in self._chunks])
        pages = np.searchsorted(ends, rows, side="right")
        found, order = [], []
        for number, page in enumerate(self._chunks):
            here = np.flatnonzero(pages == number)
            if len(here):
                first = ends[number] - len(page)
                found.append(self._frames.take(page[labels], rows[here] - first))
                order.append(here)
        if not found:
            return self._frames.take(self.meta[labels], np.empty(0, np.int64))
        made = found[0] if len(found) == 1 else self._frames.concat(found)
        back = np.empty(len(rows), np.int64)
        back[np.concatenate(order)] = np.arange(len(rows))
        return made if len(found) == 1 else self._frames.take(made, back)


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

    def __init__(self, array: Any) -> None:
        self._room, self._length = np.array(array), len(array)

    def __len__(self) -> int:
        return self._length

    @property
    def array(self) -> Any:
        """All elements."""
        return self._room[: self._length]

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
        self._rows: RowStore = PagedRows(_frame(array).iloc[:0])
        self._places = NumberColumn(np.empty(0, np.int64))
        self.append(array)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def array(self) -> Any:
        """All values."""
        return self.take(np.arange(len(self)))

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
