"""Minimizers of an index that reads have, by taxon."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
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
