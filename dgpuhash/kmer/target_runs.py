"""Runs of reference sequences, each read by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dgpuhash.kmer.references import ReferenceBatch, References, masked
from dgpuhash.kmer.sequences.batches import BATCH_LETTERS, read_sequences

__all__ = ["TargetRun", "headers_of", "runs_of"]


@dataclass(frozen=True, slots=True)
class TargetRun:
    """Targets with neighbouring numbers, and where they are read.

    Attributes
    ----------
    files : list of (str, int)
        Their files, and the number of each one's first record.
    first, last : int
        Numbers of records from `first` to before `last`.
    before : int
        Targets before the first record of all files.
    masks : bool
        Whether small letters are masked.
    """

    files: list[tuple[str, int]]
    first: int
    last: int
    before: int
    masks: bool

    def batches(
        self, *, overlap: int | None = None, stride: int = 1, batch_letters: int = BATCH_LETTERS
    ) -> Iterator[ReferenceBatch]:
        """Yield the letters of the targets as `References.batches` does."""
        for file, at in self.files:
            for batch in read_sequences(
                file, overlap=overlap, stride=stride, batch_letters=batch_letters
            ):
                numbers = batch.numbers + at
                start, end = np.searchsorted(numbers, [self.first, self.last]).tolist()
                if start < end:
                    offsets = batch.offsets[start : end + 1]
                    letters = batch.letters[offsets[0] : offsets[-1]]
                    yield ReferenceBatch(
                        masked(letters) if self.masks else letters,
                        offsets - offsets[0],
                        numbers[start:end] + self.before,
                        batch.starts[start:end],
                        batch.is_cut and end == len(numbers),
                    )
                if int(numbers[-1]) >= self.last:
                    break


def runs_of(references: References, named: Callable[[str], str], n: int) -> list[TargetRun]:
    """Return n runs of about as many letters, in the order of the targets' numbers.

    A target is in one run; runs may be empty. `named` gives files the names by which they are
    read.
    """
    targets = references.targets
    ends = np.cumsum(targets.lengths)
    total = int(ends[-1]) if len(ends) else 0
    # Each target is in the run in which its middle is.
    run_of = (ends - targets.lengths / 2) * n / max(total, 1)
    edges = [0, *np.searchsorted(run_of, np.arange(1, n)).tolist(), len(ends)]
    at_files = np.searchsorted(targets.file_of, np.arange(len(targets.files) + 1)).tolist()
    files = list(zip(targets.files, *(at_files[:-1], at_files[1:]), strict=True))
    return [
        TargetRun(
            [(named(file), at) for file, at, end in files if at < last and first < end],
            first,
            last,
            references.first,
            references.masks,
        )
        for first, last in pairwise(edges)
    ]


def headers_of(file: str) -> tuple[list[str], list[int]]:
    """Return the headers and the lengths of a file's records."""
    headers: list[str] = []
    lengths: list[int] = []
    for batch in read_sequences(file, overlap=0):
        sizes: list[int] = np.diff(batch.offsets).tolist()
        if batch.continues:
            lengths[-1] += sizes.pop(0) - batch.repeated
        headers.extend(map(batch.name, range(batch.continues, len(batch))))
        lengths.extend(sizes)
    return headers, lengths
