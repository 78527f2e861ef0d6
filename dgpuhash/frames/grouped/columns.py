"""Growable columns of partial states, on the host or on a GPU."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.frames.dataframes import cudf_columns, frames_of
from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.cudf.values import CudfValues
from dgpuhash.frames.groupby.partial.fold import NumberColumn, ValueColumn, plain


class HostColumns:
    """Columns of pandas frames.

    Parameters
    ----------
    meta : DataFrame
        An empty frame like the states.
    """

    at_once = 1 << 13
    """States to combine at once, few enough to stay in the caches of a core."""

    def __init__(self, meta: Any) -> None:
        self._meta = meta

    def read(self, frame: Any, label: Hashable) -> Any:
        """Return a column as an array, uncopied."""
        return plain(frame[label])

    def column(self, label: Hashable, array: Any) -> NumberColumn | ValueColumn | NullableColumn:
        """Return a growable column of an array that nobody else changes."""
        numbers = isinstance(array, np.ndarray) and array.dtype != object
        return NumberColumn(array, copy=False) if numbers else ValueColumn(array)

    def frame(self, arrays: Sequence[Any], labels: Sequence[Hashable], rows: int) -> Any:
        """Return arrays as a frame, numbered from 0."""
        names = self._meta.columns[[list(self._meta).index(label) for label in labels]]
        return frame_of(arrays, names, pd.RangeIndex(rows))

    def arrays(self, arrays: Sequence[Any], labels: Sequence[Hashable]) -> list[Any] | None:
        """Return all elements of columns as `Frames.arrays` does."""
        frame = self.frame(arrays, labels, len(arrays[0]))
        return frames_of(frame).arrays(frame)


class DeviceColumns(HostColumns):
    """Columns of cuDF frames: arrays on their GPU, with masks where there are nulls."""

    # All at once, with a few kernels a field.
    at_once = np.iinfo(np.int64).max

    def __init__(self, meta: Any, nullable: Sequence[Hashable]) -> None:
        super().__init__(meta)
        self._likes = {label: CudfValues(meta[label]) for label in meta}
        self._nullable = set(nullable)

    def read(self, frame: Any, label: Hashable) -> Any:
        values = CudfValues(frame[label])
        if label not in self._nullable:
            return values.numbers
        return NullableArray(values.numbers, values.nulls)

    def column(self, label: Hashable, array: Any) -> NumberColumn | ValueColumn | NullableColumn:
        if label in self._nullable:
            return NullableColumn(array)
        return NumberColumn(array, copy=False)

    def arrays(self, arrays: Sequence[Any], labels: Sequence[Hashable]) -> list[Any] | None:
        return [each.values if isinstance(each, NullableArray) else each for each in arrays]

    def frame(self, arrays: Sequence[Any], labels: Sequence[Hashable], rows: int) -> Any:
        import cudf

        columns = []
        for label, array in zip(labels, arrays, strict=True):
            whole = isinstance(array, NullableArray)
            given = (array.values, array.nulls) if whole else (array, None)
            columns.append((label, self._likes[label].ticks(*given)))
        return cudf_columns.frame_of(columns, cudf.RangeIndex(rows), like=self._meta)


@dataclass(frozen=True, slots=True)
class NullableArray:
    """Array on a GPU with a mask of its nulls.

    Attributes
    ----------
    values : array
    nulls : bool array or None
        None where there are none.
    """

    values: Any
    nulls: Any = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> NullableArray:
        nulls = None if self.nulls is None else self.nulls[rows]
        return NullableArray(self.values[rows], nulls)


class NullableColumn:
    """Growable array with a mask of its nulls.

    Examples
    --------
    >>> column = NullableColumn(NullableArray(np.array([1, 2])))
    >>> column.append(NullableArray(np.array([3]), np.array([True])))
    >>> column.array.nulls.tolist(), column.take(np.array([0])).values.tolist()
    ([False, False, True], [1])
    """

    def __init__(self, array: NullableArray) -> None:
        self._values = NumberColumn(array.values, copy=False)
        self._nulls = None if array.nulls is None else NumberColumn(array.nulls, copy=False)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def array(self) -> NullableArray:
        """All elements."""
        return NullableArray(self._values.array, None if self._nulls is None else self._nulls.array)

    @property
    def has_nulls(self) -> bool:
        """Whether an element may be null."""
        return self._nulls is not None

    def cut(self, length: int) -> None:
        """Drop the elements from a position on."""
        self._values.cut(length)
        if self._nulls is not None:
            self._nulls.cut(length)

    def append(self, array: NullableArray) -> None:
        """Add elements."""
        if (nulls := self._mask_of(array)) is not None:
            assert self._nulls is not None
            self._nulls.append(nulls)
        self._values.append(array.values)

    def take(self, rows: Any) -> NullableArray:
        """Return the elements at positions."""
        nulls = None if self._nulls is None else self._nulls.take(rows)
        return NullableArray(self._values.take(rows), nulls)

    def put(self, rows: Any, array: NullableArray) -> None:
        """Replace the elements at positions."""
        if (nulls := self._mask_of(array)) is not None:
            assert self._nulls is not None
            self._nulls.put(rows, nulls)
        self._values.put(rows, array.values)

    def _mask_of(self, array: NullableArray) -> Any:
        """Return a mask of the nulls of more elements, if these or those here have any."""
        if self._nulls is None and array.nulls is None:
            return None
        if self._nulls is None:
            self._nulls = NumberColumn(np.zeros_like(self._values.array, dtype=bool), copy=False)
        if array.nulls is None:
            return np.zeros_like(array.values, dtype=bool)
        return array.nulls

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the elements."""
        return self._values.nbytes + (0 if self._nulls is None else self._nulls.nbytes)
