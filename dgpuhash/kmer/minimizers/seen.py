"""Minimizers of an index that reads have, by taxon."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.databases.owners import part_numbers
from dgpuhash.kmer.minimizers.calling import FoundRuns
from dgpuhash.kmer.taxonomy.tree import Tree
from dgpuhash.tables import HashSet


class Counting(ABC):
    """What is told of the minimizers that reads have; equal neighbours in a read count once.

    Parameters
    ----------
    backend : Backend
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def add(self, found: FoundRuns) -> None:
        """Count the minimizers of the first, or of the second, mates of a batch."""
        xp, minimizers = self._backend.xp, found.runs.minimizers
        if not len(minimizers):
            return
        is_new = xp.ones(len(minimizers), bool)
        is_new[1:] = minimizers[1:] != minimizers[:-1]
        firsts = found.places[:-1]
        is_new[firsts[firsts < len(minimizers)]] = True
        rows = xp.flatnonzero(is_new & (found.taxa != 0))
        if len(rows):
            self._take(minimizers[rows], found.taxa[rows])

    @abstractmethod
    def _take(self, minimizers: Any, taxa: Any) -> None:
        """Count minimizers, at least one, whose taxa have these numbers."""


class SeenMinimizers(Counting):
    """Exact numbers of the minimizers that reads have, all and distinct ones.

    `MinimizerIndex.seen_minimizers` makes it, and `MinimizerIndex.call` adds to it. Equal ones
    that follow each other in a read count once.

    Parameters
    ----------
    backend : Backend
    tree : Tree
    """

    def __init__(self, backend: Backend, tree: Tree) -> None:
        super().__init__(backend)
        self._tree = tree
        self._all, self._distinct = (np.zeros(len(tree.taxids), np.int64) for _ in range(2))
        self._seen = HashSet(np.uint64, device=backend.name)

    def __len__(self) -> int:
        return len(self._seen)

    def by_clade(self) -> tuple[np.ndarray, np.ndarray]:
        """Return by number of the taxonomy the minimizers in each clade, and the distinct ones."""
        return self._tree.sums(self._all), self._tree.sums(self._distinct)

    def _take(self, minimizers: Any, taxa: Any) -> None:
        self._all += self._counts(taxa)
        self._distinct += self._counts(taxa[self._seen.insert(minimizers)])

    def _counts(self, taxa: Any) -> np.ndarray:
        n = len(self._tree.taxids)
        if not len(taxa):
            return np.zeros(n, np.int64)
        counts = self._backend.to_host(self._backend.xp.bincount(taxa, minlength=n))
        return counts.astype(np.int64, copy=False)


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
