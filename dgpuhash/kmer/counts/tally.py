"""Check and tally the letters of an input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import SequenceError, SpecError
from dgpuhash.kmer.sequences.batches import SequenceBatch

WIDEST = 64


def check_k(k: int) -> None:
    """Raise SpecError unless k-mers can have `k` letters."""
    if not 1 <= k <= WIDEST:
        raise SpecError(f"k={k}; use 1 to {WIDEST}")


def checked_letters(backend: Backend, letters: Any, offsets: Any) -> tuple[Any, Any]:
    """Return letters (uint8) and offsets (int64) of records as arrays of the backend.

    Raises
    ------
    SequenceError
        When the offsets are not those of records in the letters.
    """
    letters = backend.asarray(letters, np.uint8)
    offsets = backend.asarray(offsets, np.int64)
    ends = backend.to_host(offsets[[0, -1]]).tolist() if len(offsets) else None
    if ends != [0, len(letters)] or bool((offsets[1:] < offsets[:-1]).any()):
        raise SequenceError(
            f"offsets do not divide {len(letters):,} letters into records; begin with 0, end "
            f"with the number of letters, and never decrease"
        )
    return letters, offsets


def slices(
    backend: Backend, letters: Any, offsets: Any, k: int, size: int
) -> Iterator[tuple[Any, Any]]:
    """Yield slices of letters and offsets with a number of k-mers, each k-mer in one slice."""
    xp = backend.xp
    for start in range(0, len(letters), size):
        end = min(start + size + k - 1, len(letters))
        edges = xp.searchsorted(offsets, xp.asarray([start, end - 1]), side="right")
        first, last = backend.to_host(edges).tolist()
        yield letters[start:end], xp.clip(offsets[first - 1 : last + 1], start, end) - start


class Tally:
    """Numbers of records and letters read.

    Parameters
    ----------
    k : int
        Letters of a k-mer.
    min_quality : int
        Letters of a lower quality are masked.
    progress : callable, optional
        Is told the number of letters of each batch.
    """

    def __init__(
        self, k: int, min_quality: int = 0, progress: Callable[[int], object] | None = None
    ) -> None:
        self.k = k
        self.records: int = 0
        self.letters: int = 0
        self._min_quality, self._progress = min_quality, progress
        self._longest = 0

    def add(self, records: int, letters: int, sizes: Any) -> None:
        """Count records and letters; `sizes` are those of records or pieces."""
        self.records += records
        self.letters += letters
        self._longest = max(self._longest, int(sizes.max()) if len(sizes) else 0)
        if self._progress is not None:
            self._progress(letters)

    def letters_of(
        self, batches: Iterable[SequenceBatch]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield masked letters and offsets of batches, and count them."""
        for batch in batches:
            self.add(
                len(batch) - batch.continues,
                len(batch.letters) - batch.repeated,
                np.diff(batch.offsets),
            )
            yield batch.masked(self._min_quality), batch.offsets

    def check(self) -> None:
        """Raise SequenceError if every record is shorter than a k-mer."""
        if self._longest < self.k:
            raise SequenceError(
                f"k={self.k} and the longest record has {self._longest:,} letters; use a smaller k"
            )
