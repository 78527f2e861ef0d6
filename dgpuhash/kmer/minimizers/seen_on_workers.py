"""Minimizers that reads have, counted on the workers that call these."""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

import numpy as np
from distributed import Future

from dgpuhash.backend import Backend
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.cluster import Workers
from dgpuhash.kmer.databases.owners import part_numbers
from dgpuhash.kmer.minimizers.seen import Counting
from dgpuhash.kmer.taxonomy.tree import Tree

# Pieces that are made one at once.
_JOINED = 8


class SeenPiece(NamedTuple):
    """Distinct minimizers, ascending, and the numbers of their taxa, on the host."""

    minimizers: np.ndarray
    taxa: np.ndarray


class SeenOfBatch(Counting):
    """The minimizers that the reads of one batch have.

    Parameters
    ----------
    backend : Backend
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        xp = backend.xp
        self._minimizers, self._taxa = [xp.empty(0, np.uint64)], [xp.empty(0, np.uint32)]

    def _take(self, minimizers: Any, taxa: Any) -> None:
        self._minimizers.append(minimizers)
        self._taxa.append(taxa)

    def taxa(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of taxa that all minimizers have, and how many have each."""
        xp, host = self._backend.xp, self._backend.to_host
        taxa, counts = xp.unique(xp.concatenate(self._taxa), return_counts=True)
        return host(taxa), host(counts)

    def pieces(self, n: int) -> list[SeenPiece]:
        """Return the distinct minimizers for each of n owners."""
        xp, host = self._backend.xp, self._backend.to_host
        minimizers, rows = xp.unique(xp.concatenate(self._minimizers), return_index=True)
        minimizers, taxa = host(minimizers), host(xp.concatenate(self._taxa)[rows])
        owners = part_numbers(minimizers, n)
        return [SeenPiece(minimizers[own], taxa[own]) for own in (owners == at for at in range(n))]


def joined_pieces(pieces: list[SeenPiece]) -> SeenPiece:
    """Return the distinct minimizers of pieces, which are in any order."""
    minimizers, taxa = map(np.concatenate, zip(*pieces, strict=True))
    distinct, rows = np.unique(minimizers, return_index=True)
    return SeenPiece(distinct, taxa[rows])


def taxa_in(pieces: list[SeenPiece]) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of taxa of the distinct minimizers of pieces, and how many have each."""
    return np.unique(joined_pieces(pieces).taxa, return_counts=True)


class CountedCalls(NamedTuple):
    """Calls of a batch, the taxa of its minimizers, and how many have each; a task's result.

    `number` is that of its pieces, which stay on workers.
    """

    number: int
    calls: Calls
    taxa: np.ndarray
    counts: np.ndarray


class SeenOnWorkers:
    """Exact numbers of the minimizers that reads have, as `SeenMinimizers` counts them.

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
        """How many pieces a batch has."""
        return len(self._owners)

    def begun(self, made: Future, near: str | None) -> Future:
        """Return the task of the `CountedCalls` of a batch.

        `made` is a task that returns calls, what `SeenOfBatch.taxa` returns, and a piece for each
        owner, by choice on the worker `near`.
        """
        told, *pieces = self._workers.split(made, 1 + self.owners, near=near)
        number = next(self._numbers)
        self._begun[number] = pieces
        return self._workers.submit(counted_calls, number, told)

    def taken(self, found: CountedCalls) -> Calls:
        """Return the calls of a batch, whose minimizers are counted."""
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
    """Return the calls of a batch with the number of its pieces."""
    calls, (taxa, counts) = told
    return CountedCalls(number, calls, taxa, counts)
