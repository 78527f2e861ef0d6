"""MinimizerIndex on the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np
from distributed import Future

from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.cluster import LettersDone, Workers
from dgpuhash.kmer.minimizers.calling import SeenPiece
from dgpuhash.kmer.minimizers.index import MinimizerFigures, MinimizerIndex
from dgpuhash.kmer.minimizers.read_windows import counted_windows, dealt_windows, distributions_of
from dgpuhash.kmer.references import References
from dgpuhash.kmer.target_runs import TargetRun, dealt_runs
from dgpuhash.kmer.taxonomy.tree import Tree
from dgpuhash.kmer.worker_index import WorkerIndex

# Pieces that are made one at once.
_JOINED = 8
# Letters of references whose reads a task counts.
_COUNTED_LETTERS = 2**24


class DistributedMinimizerIndex(MinimizerFigures, WorkerIndex):
    """A `MinimizerIndex` on the workers of a Dask cluster; `MinimizerIndex.build` makes it.

    Calls are those of the index on one device. For its modes see `WorkerIndex`.
    """

    local = MinimizerIndex

    def seen_minimizers(self) -> SeenOnWorkers:
        """Return a counter of the minimizers that calls find, for a report."""
        return SeenOnWorkers(self._workers, self.taxonomy.tree)

    def _count_reads(
        self, lengths: Sequence[int], progress: Callable[[int], object] | None = None
    ) -> None:
        """Count the calls of all read-length windows of the references.

        `lengths` are ascending. Workers read the files once more. `progress` is called with numbers
        of letters, on other threads.
        """
        workers, targets, query = self._workers, self.targets, self._rule.query({})
        references = References(targets.files, order="given", mask=self.settings.mask)
        edges = np.searchsorted(targets.file_of, np.arange(1, len(targets.files)))
        sizes = [array.tolist() for array in np.split(targets.lengths, edges)]
        names = [targets.names[start:end] for start, end in pairwise([0, *edges, None])]
        references.know(names, sizes)
        done = LettersDone(progress, int(targets.lengths.sum()))

        def begin(number: int, run: TargetRun) -> list[Future]:
            dealt = dealt_windows, run, lengths
            task = self._through_parts(number, dealt, counted_windows, query)
            return [done.of(task, run.letters_of(targets))]

        runs = [run for run, _ in dealt_runs(workers, references, _COUNTED_LETTERS)]
        counts = (take()[0] for _, take in workers.in_order(runs, begin))
        self._distributions = distributions_of(self._rule, lengths, counts)
        done.finish()


def joined_pieces(pieces: list[SeenPiece]) -> SeenPiece:
    """Return the distinct minimizers of pieces in any order."""
    minimizers, taxa = map(np.concatenate, zip(*pieces, strict=True))
    distinct, rows = np.unique(minimizers, return_index=True)
    return SeenPiece(distinct, taxa[rows])


def taxa_in(pieces: list[SeenPiece]) -> tuple[np.ndarray, np.ndarray]:
    """Return the taxon numbers of the distinct minimizers of pieces, and the count of each."""
    return np.unique(joined_pieces(pieces).taxa, return_counts=True)


class CountedCalls(NamedTuple):
    """Calls of a batch with the counts of its minimizers by taxon; a task's result.

    `number` is that of its pieces, which stay on workers.
    """

    number: int
    calls: Calls
    taxa: np.ndarray
    counts: np.ndarray


class SeenOnWorkers:
    """Exact counts of reads' minimizers on workers, as `SeenMinimizers` on one device.

    Each worker has the distinct ones of some hashes. Those of a batch count once its calls were
    taken, however often they were made.

    Parameters
    ----------
    workers : Workers
    tree : Tree
    """

    def __init__(self, workers: Workers, tree: Tree) -> None:
        self._workers, self._tree = workers, tree
        self._owners = workers.addresses
        self._all = np.zeros(len(tree.taxids), np.int64)
        self._numbers = count()
        self._begun: dict[int, list[Future]] = {}
        # Pieces of each owner; those of a level are made of as many of the one before.
        self._levels: list[list[list[Future]]] = []

    @property
    def owners(self) -> int:
        """Number of pieces of a batch."""
        return len(self._owners)

    def begun(self, made: Future, near: str | None) -> Future:
        """Return the task that computes the `CountedCalls` of a batch.

        `made` is a task that returns calls, what `SeenOfBatch.taxa` returns, and a piece for each
        owner, by choice on the worker `near`.
        """
        told, *pieces = self._workers.split(made, 1 + self.owners, near=near)
        number = next(self._numbers)
        self._begun[number] = pieces
        return self._workers.submit(counted_calls, number, told)

    def taken(self, found: CountedCalls) -> Calls:
        """Return the calls of a batch, and count its minimizers."""
        self._all[found.taxa] += found.counts
        self._add(self._begun.pop(found.number), 0)
        return found.calls

    def _add(self, pieces: list[Future], level: int) -> None:
        if level == len(self._levels):
            self._levels.append([])
        held = self._levels[level]
        held.append(pieces)
        if len(held) == _JOINED:
            self._levels[level] = []
            submit = self._workers.submit
            made = [
                submit(joined_pieces, list(own), near=address)
                for own, address in zip(zip(*held, strict=True), self._owners, strict=True)
            ]
            self._add(made, level + 1)

    def by_clade(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what `SeenMinimizers.by_clade` returns.

        Raises
        ------
        IndexLost
            When workers are lost, and what they had cannot be made anew.
        """
        held = [pieces for level in self._levels for pieces in level]
        distinct = np.zeros_like(self._all)
        tasks = [
            self._workers.submit(taxa_in, list(own), near=address)
            for own, address in zip(zip(*held, strict=True), self._owners, strict=False)
        ]
        for taxa, counts in self._workers.results(tasks):
            distinct[taxa] += counts
        return self._tree.sums(self._all), self._tree.sums(distinct)


def counted_calls(number: int, told: tuple[Calls, tuple[np.ndarray, np.ndarray]]) -> CountedCalls:
    """Return the calls of a batch and its number of pieces."""
    calls, (taxa, counts) = told
    return CountedCalls(number, calls, taxa, counts)
