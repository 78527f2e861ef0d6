"""Rows by key in an array with a place for each number, where keys lie close together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

__all__ = ["CloseKeys", "DirectTable"]

# Places that may stand empty for each key, and places that are few whatever the number of keys.
_PLACES_OF_A_KEY, _FEW_PLACES = 4, 2**18
# Codes that are asked for at once: what is computed of them stays in the cache.
_BATCH = 2**14


class DirectTable:
    """Rows of integer codes, in an array with a place for each number from the least code on.

    Codes need no hash there, and a lookup reads one number.

    Examples
    --------
    >>> table = DirectTable.rows_of(np.array([7, 9], np.uint32), asked=3)
    >>> table.find(np.array([9, 8, 7], np.uint32))
    array([ 1, -1,  0])
    """

    def __init__(self, first: Any, places: Any) -> None:
        self._first, self._places = first, places

    @classmethod
    def rows_of(cls, codes: Any, asked: int, rows: Any = None) -> DirectTable | None:
        """Return the table of the rows of codes, for so many codes to be asked for.

        None where codes repeat, or lie so far apart that a hash table is faster. Without `rows`
        they are numbered from 0.
        """
        span = _span(codes, asked)
        if span is None:
            return None
        first, size = span
        last = len(codes) - 1 if rows is None else int(rows.max())
        places: Any = np.full(size + 1, -1, np.int32 if last < 2**31 else np.int64)
        rows = np.arange(len(codes), dtype=places.dtype) if rows is None else rows
        places[_offsets(codes, first)] = rows
        if np.count_nonzero(places >= 0) < len(codes):
            return None
        return cls(first, places)

    @classmethod
    def set_of(cls, codes: Any, asked: int) -> DirectTable | None:
        """Return the table that tells of a code whether it is there; None where they lie far apart.

        Codes may repeat.
        """
        span = _span(codes, asked)
        if span is None:
            return None
        first, size = span
        places = np.zeros(size + 1, bool)
        places[_offsets(codes, first)] = True
        return cls(first, places)

    @property
    def rows(self) -> Any:
        """The rows in the order of their codes."""
        return self._places[self._places >= 0].astype(np.int64, copy=False)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the table holds."""
        return int(self._places.nbytes)

    def find(self, codes: Any) -> Any:
        """Return the row of each code, -1 where there is none; of a set, whether it is there."""
        places, made = self._places, np.empty(len(codes), self._places.dtype)
        last = codes.dtype.type(min(len(places) - 1, np.iinfo(codes.dtype).max))
        for start in range(0, len(codes), _BATCH):
            batch = slice(start, start + _BATCH)
            offsets = codes[batch] - self._first
            np.minimum(offsets, last, out=offsets)
            places.take(offsets.astype(np.intp, copy=False), out=made[batch], mode="clip")
        return made if made.dtype == bool else made.astype(np.int64, copy=False)


def _span(codes: Any, asked: int) -> tuple[Any, int] | None:
    """Return the least code and the number of places from it on; None for too many places."""
    if not len(codes):
        return None
    # Negative numbers are large codes, which stand before the others.
    signed = codes.view(np.dtype(f"i{codes.dtype.itemsize}"))
    least = signed.min()
    size = int(signed.max()) - int(least) + 1
    if size > max(_PLACES_OF_A_KEY * len(codes), min(asked, _FEW_PLACES)):
        return None
    return least.view(codes.dtype), size


def _offsets(codes: Any, first: Any) -> Any:
    return (codes - first).astype(np.int64, copy=False)


class CloseKeys:
    """Integer keys of one column or several, for all combinations of which an array has places.

    Parameters
    ----------
    columns : list of arrays
        Of integers or truth values, the first of which counts most.
    leasts : list of int
        The least value of each column.
    spans : list of int
        How many values there may be in each column from the least one on.

    Examples
    --------
    >>> keys = CloseKeys.of([np.array([7, 9, 7, 9]), np.array([1, 1, 1, 2])])
    >>> keys.numbered()
    (array([0, 1, 0, 2]), array([0, 1, 3]))
    >>> keys.counts()
    array([1, 0, 2])
    """

    def __init__(self, columns: Sequence[Any], leasts: list[int], spans: list[int]) -> None:
        self._columns, self._leasts, self._spans = columns, leasts, spans
        self._size = math.prod(spans)

    @classmethod
    def of(cls, columns: Sequence[Any], places: int = _PLACES_OF_A_KEY) -> CloseKeys | None:
        """Return the keys of columns; None where they are no integers, or lie too far apart.

        There are at most so many `places` for each row.
        """
        rows = len(columns[0])
        if not rows or any(
            not isinstance(each, np.ndarray) or each.dtype.kind not in "iub" for each in columns
        ):
            return None
        taken, leasts, spans = [], [], []
        for column in columns:
            column = column.view(np.uint8) if column.dtype.kind == "b" else column
            least = int(column.min())
            taken.append(column)
            leasts.append(least)
            spans.append(int(column.max()) - least + 1)
            if math.prod(spans) > places * rows:
                return None
        return cls(taken, leasts, spans)

    def numbered(self, *, of_rows: bool = True) -> tuple[Any, Any]:
        """Return the number of each row's key, and the first row of each key.

        Keys are numbered in order of first appearance. Without `of_rows` the first is None.
        """
        rows = len(self._columns[0])
        places = np.full(self._size, -1, np.int32 if rows < 2**31 else np.int64)
        numbers = np.empty(rows, np.int64) if of_rows else None
        first = [np.empty(0, np.int64)]
        found = 0
        for start, at in self._places():
            if found < self._size:
                known = places.take(at)
                new = np.flatnonzero(known < 0)
                if len(new):
                    fresh = at[new]
                    # Of several rows of a key the one written last stays: the first.
                    places[fresh[::-1]] = new[::-1]
                    new = new[places.take(fresh) == new]
                    places[at[new]] = np.arange(found, found + len(new), dtype=places.dtype)
                    first.append(start + new)
                    found += len(new)
                elif numbers is not None:
                    numbers[start : start + len(at)] = known
                    continue
            elif numbers is None:
                break
            if numbers is not None:
                numbers[start : start + len(at)] = places.take(at)
        return numbers, np.concatenate(first)

    def counts(self) -> Any:
        """Return how many keys there are of each value of the first column, the least one first."""
        there = np.zeros(self._size, bool)
        for _, at in self._places():
            there[at] = True
        return np.count_nonzero(there.reshape(self._spans[0], -1), axis=1)

    def _places(self) -> Iterator[tuple[int, Any]]:
        """Yield the places of the keys of some rows in turn, and the number of the first one."""
        for start in range(0, len(self._columns[0]), _BATCH):
            total: Any = None
            for column, least, span in zip(self._columns, self._leasts, self._spans, strict=True):
                batch = column[start : start + _BATCH]
                above = (batch - batch.dtype.type(least)).view(f"u{batch.dtype.itemsize}")
                above = above.astype(np.intp)
                total = above if total is None else total * span + above
            yield start, total
