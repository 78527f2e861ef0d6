"""Reads of a batch on a device, and slices of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend import Backend

__all__ = ["Reads", "slices"]

# What a CPU works at stays in its caches, and in memory that it had before.
_SLICE_LETTERS = 2**20


class Reads(NamedTuple):
    """Single reads, or the first or second mates.

    Attributes
    ----------
    letters : array of uint8
    offsets : array of int64
        Where each read begins, and the last one's end.
    qualities : array of uint8 or None
        Of each letter, as FASTQ writes them.
    """

    letters: Any
    offsets: Any
    qualities: Any

    def rows(self, first: int, last: int) -> Reads:
        """Return the reads [first, last)."""
        start, end = int(self.offsets[first]), int(self.offsets[last])
        return Reads(
            self.letters[start:end],
            self.offsets[first : last + 1] - start,
            None if self.qualities is None else self.qualities[start:end],
        )


def slices(
    backend: Backend, first: Reads, second: Reads | None
) -> Iterator[tuple[Reads, Reads | None]]:
    """Yield reads and their mates, on a CPU few at a time."""
    letters = len(first.letters) + (0 if second is None else len(second.letters))
    if backend.name != "cpu" or letters <= 2 * _SLICE_LETTERS:
        yield first, second
        return
    ends = first.offsets if second is None else first.offsets + second.offsets
    wanted = np.arange(_SLICE_LETTERS, letters, _SLICE_LETTERS)
    edges = np.unique(np.concatenate([[0], np.searchsorted(ends, wanted), [len(ends) - 1]]))
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        yield first.rows(start, end), None if second is None else second.rows(start, end)
