"""Tagging of entry words: list numbers among words that are values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dgpuhash.backend import Backend

# Most list numbers beside values of four bytes; with more, entries have eight bytes.
_MOST_NARROW = 2**31
_LEAST = 2**12
# Log2 of the ranges into which the words are cut; one range has the list numbers.
_RANGES_BITS = 8
_SAMPLE = 4096


@dataclass(frozen=True, slots=True)
class ListNumberRange:
    """Range of entry words that are list numbers instead of values.

    Entries are the words beside keys in the table.

    A value in the range is stored in a list of its own, so it stays correct.
    """

    entry: np.dtype[Any]
    """The dtype of the words."""
    base: int
    """The word of the first list number."""
    span: int
    """List numbers in the range."""

    @classmethod
    def beside(cls, backend: Backend, values: Any, numbers: int) -> Self:
        """Return at least `numbers` list numbers in a range with few of `values`.

        Half of the numbers are spare.

        Examples
        --------
        >>> from dgpuhash import backend
        >>> made = ListNumberRange.beside(backend.get("cpu"), np.arange(9, dtype=np.uint32), 5000)
        >>> made.entry, made.span, made.base > 9
        (dtype('uint32'), 16384, True)
        """
        span = 1 << (2 * max(numbers, _LEAST) - 1).bit_length()
        entry = values.dtype if span <= _MOST_NARROW else np.dtype(np.uint64)
        bits = 8 * entry.itemsize
        width = max(span, 2 ** (bits - _RANGES_BITS))
        stride = max(len(values) // _SAMPLE, 1)
        sample = backend.to_host(backend.xp.ascontiguousarray(values[::stride]))
        ranges = (sample.astype(np.uint64) // np.uint64(width)).astype(np.int64)
        seen = np.bincount(ranges, minlength=2**bits // width)
        # The middle one of the rarest ranges: far from zero, near which most values are.
        rare = np.flatnonzero(seen == seen.min())
        return cls(entry, int(rare[len(rare) // 2]) * width, span)
