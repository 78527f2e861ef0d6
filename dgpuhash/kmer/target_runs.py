"""Divide reference sequences into independently readable runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dgpuhash.kmer.cluster import Workers, seen_by_workers
from dgpuhash.kmer.masking import masked_batches
from dgpuhash.kmer.references import ReferenceBatch, References, Targets
from dgpuhash.kmer.sequences.batches import BATCH_LETTERS, batches_of_text, read_sequences
from dgpuhash.kmer.sequences.borders import Borders, Cut, text_of_cut
from dgpuhash.kmer.worker_reads import borders_of


class RunFile(NamedTuple):
    """A file of a run.

    Attributes
    ----------
    name : str
    first : int
        The number of the first record that is read.
    cut : Cut or None
        The records of the run, of a file that is read in part.
    """

    name: str
    first: int
    cut: Cut | None = None


@dataclass(frozen=True, slots=True)
class TargetRun:
    """Targets with consecutive numbers, and their places in files.

    Attributes
    ----------
    files : list of RunFile
    first, last : int
        Numbers of records from `first` to before `last`.
    before : int
        Targets before the first record of all files.
    mask : str
        What is masked, as for `References`.
    """

    files: list[RunFile]
    first: int
    last: int
    before: int
    mask: str

    def letters_of(self, targets: Targets) -> int:
        """Return the number of letters of the run, given all targets."""
        return int(targets.lengths[self.first : self.last].sum())

    def batches(
        self, *, overlap: int | None = None, stride: int = 1, batch_letters: int = BATCH_LETTERS
    ) -> Iterator[ReferenceBatch]:
        """Yield the letters of the targets as `References.batches` does."""
        yield from masked_batches(
            self.mask, lambda wider: self._batches(wider, stride, batch_letters), overlap, stride
        )

    def _batches(
        self, overlap: int | None, stride: int, batch_letters: int
    ) -> Iterator[ReferenceBatch]:
        """Yield batches as they are in the files."""
        for file in self.files:
            if file.cut is None:
                batches = read_sequences(
                    file.name, overlap=overlap, stride=stride, batch_letters=batch_letters
                )
            else:
                text = text_of_cut(file.cut)
                batches = batches_of_text(file.name, text, overlap, batch_letters, stride)
            for batch in batches:
                numbers = batch.numbers + file.first
                start, end = np.searchsorted(numbers, [self.first, self.last]).tolist()
                if start < end:
                    offsets = batch.offsets[start : end + 1]
                    yield ReferenceBatch(
                        batch.letters[offsets[0] : offsets[-1]],
                        offsets - offsets[0],
                        numbers[start:end] + self.before,
                        batch.starts[start:end],
                        batch.is_cut and end == len(numbers),
                    )
                if int(numbers[-1]) >= self.last:
                    break


def _edges_of(targets: Targets, n: int) -> list[int]:
    """Return the first targets of n runs of about equal size, and the number of all."""
    ends = np.cumsum(targets.lengths)
    total = int(ends[-1]) if len(ends) else 0
    # Each target is in the run in which its middle is.
    run_of = (ends - targets.lengths / 2) * n / max(total, 1)
    return [0, *np.searchsorted(run_of, np.arange(1, n)).tolist(), len(ends)]


def _split_files(targets: Targets, edges: Sequence[int]) -> list[int]:
    """Return the numbers of files with targets of several runs."""
    firsts = _firsts_of(targets)
    inside = np.searchsorted(firsts, edges, side="right") - 1
    is_inside = firsts[np.minimum(inside, len(targets.files))] != edges
    return np.unique(inside[is_inside]).tolist()


def _firsts_of(targets: Targets) -> np.ndarray:
    """Return the number of the first target of each file, and of all."""
    return np.searchsorted(targets.file_of, np.arange(len(targets.files) + 1))


def runs_of(
    references: References,
    named: Callable[[str], str],
    edges: Sequence[int],
    borders: Mapping[int, Borders] | None = None,
) -> list[TargetRun]:
    """Return runs of targets in the order of their numbers, possibly empty.

    Parameters
    ----------
    references : References
    named : callable
        Gives files the names by which they are read.
    edges : sequence of int
        The first target of each run, and the number of all.
    borders : mapping, optional
        Where records are in files, of which a run reads its own only; by the files' numbers.
    """
    targets = references.targets
    firsts = _firsts_of(targets).tolist()

    def part_of(file: int, first: int, last: int) -> RunFile:
        start, end = firsts[file : file + 2]
        name, known = named(targets.files[file]), (borders or {}).get(file)
        if known is None or (first <= start and last >= end):
            return RunFile(name, start)
        begin = max(first, start)
        return RunFile(name, begin, known.cut(begin - start, min(last, end) - start))

    return [
        TargetRun(
            [
                part_of(file, first, last)
                for file, (start, end) in enumerate(pairwise(firsts))
                if max(start, first) < min(end, last)
            ],
            first,
            last,
            references.first,
            references.mask,
        )
        for first, last in pairwise(edges)
    ]


def runs_on(workers: Workers, references: References, n: int) -> list[TargetRun]:
    """Return n runs of about equal size, one for each worker to read.

    Of a plain file, or one of BGZF, that has targets of several runs, each reads its own only.
    """
    targets = references.targets
    edges = _edges_of(targets, n)
    split = _split_files(targets, edges)
    found = borders_of(workers, [targets.files[file] for file in split])
    records = np.bincount(targets.file_of, minlength=len(targets.files))
    # Where lines between records were counted as such, runs read from the beginning.
    borders = {
        file: each
        for file, each in zip(split, found, strict=True)
        if each is not None and each.records_when_whole == records[file]
    }
    return runs_of(references, seen_by_workers, edges, borders)


def dealt_runs(
    workers: Workers, references: References, most_letters: int
) -> list[tuple[TargetRun, str]]:
    """Return runs of limited size, and a worker for each, equally many per worker.

    Tasks that are given the same result would else all go to the worker that has it.
    """
    addresses, letters = workers.addresses, int(references.targets.lengths.sum())
    n = len(addresses)
    of_each = max(-(-letters // (most_letters * n)), 1)
    runs = runs_on(workers, references, of_each * n)
    return [(run, addresses[number % n]) for number, run in enumerate(runs)]


def headers_of(file: str) -> tuple[list[str], list[int], str]:
    """Return the headers and lengths of a file's records, and the file's checksum."""
    return References(file, order="given").headers()
