"""Rows by key in an array with a place for each number, where keys lie close together."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["DirectTable"]

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
