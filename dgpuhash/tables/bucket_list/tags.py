"""Which words number lists, among words that else are values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dgpuhash.backend import Backend

__all__ = ["Numbering"]

# Numbers beside values of four bytes; with more of them entries have eight.
_MOST_NARROW = 2**31
_LEAST = 2**12
# The words are cut into so many ranges, one of which has the numbers.
_RANGES_BITS = 8
_SAMPLE = 4096


@dataclass(frozen=True, slots=True)
class Numbering:
    """A range of the words that stand beside keys.

    A value from the range is right all the same, but takes a list of its own.
    """

    entry: np.dtype[Any]
    """The words."""
    base: int
    """That of the first number."""
    span: int
    """How many there are."""

    @classmethod
    def beside(cls, backend: Backend, values: Any, numbers: int) -> Self:
        """At least `numbers` numbers, half of them spare, where few of `values` are.

        Examples
        --------
        >>> from dgpuhash import backend
        >>> made = Numbering.beside(backend.get("cpu"), np.arange(9, dtype=np.uint32), 5000)
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
        # Far from zero, around which most numbers are.
        rare = np.flatnonzero(seen == seen.min())
        return cls(entry, int(rare[len(rare) // 2]) * width, span)
