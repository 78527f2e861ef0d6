"""Ranked lineages of targets, as kernels take them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.taxonomy.ranks import SLOTS
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy


class TargetLineages:
    """What each target is at each rank.

    Parameters
    ----------
    backend : Backend
        Where the arrays are.
    taxonomy : Taxonomy or None
    taxids : array of int64
        Of each target, 0 of those without a place.

    Attributes
    ----------
    numbers : array of uint32
        Of shape (targets, 21): numbers of taxa, 0 where there is none; that of the sequence is the
        target's own, from 1.
    taxids : array of int64
        The taxid of each number of a taxon; that of 0 is 0.
    """

    def __init__(self, backend: Backend, taxonomy: Taxonomy | None, taxids: np.ndarray) -> None:
        self._backend = backend
        n = len(taxids)
        if taxonomy is None:
            ranked = np.zeros((n, len(SLOTS)), np.int64)
        else:
            distinct, places = np.unique(taxids, return_inverse=True)
            ranked = taxonomy.ranked(distinct)[places]
        ranked[:, 0] = 0
        found, places = np.unique(np.append(0, ranked), return_inverse=True)
        numbers = places[1:].reshape(n, len(SLOTS)).astype(np.uint32)
        numbers[:, 0] = np.arange(1, n + 1)
        self._numbers = numbers
        self.numbers: Any = backend.from_host(numbers)
        self.taxids: Any = backend.from_host(found)
        self._taxa: dict[int, Any] = {}

    def taxa(self, lowest: int) -> Any:
        """Return each target's number at the first rank, from `lowest` on, that it has, or 0."""
        if lowest not in self._taxa:
            above = self._numbers[:, lowest:]
            first = np.argmax(above != 0, axis=1)
            found = np.ascontiguousarray(above[np.arange(len(above)), first])
            self._taxa[lowest] = self._backend.from_host(found)
        return self._taxa[lowest]

    def taxids_of(self, taxa: Any, lowest: int) -> Any:
        """Return the taxids of numbers that `taxa` gave; below 0 those of targets, from 1."""
        return -taxa.astype(np.int64) if lowest == 0 else self.taxids[taxa.astype(np.int64)]
