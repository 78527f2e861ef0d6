"""Look up the counts of given k-mers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import SequenceError
from dgpuhash.kmer.counts.fold import CountedKmers, key_dtype, keys_of
from dgpuhash.kmer.counts.partitions import single_kmers
from dgpuhash.tables import CountMap


class KmerLookup:
    """Lookup of k-mers in groups of partitions.

    Parameters
    ----------
    backend : Backend
        Where the groups are.
    k, canonical
        Of their k-mers.
    edges : sequence of int
        The first part of each group, and the number of parts.
    groups : sequence of CountedKmers
    """

    def __init__(
        self,
        backend: Backend,
        k: int,
        canonical: bool,
        edges: Sequence[int],
        groups: Sequence[CountedKmers],
    ) -> None:
        self._backend, self._k, self._canonical = backend, k, canonical
        self._edges = np.asarray(edges)
        self._groups = [_Group(backend, group, k) for group in groups]

    def counts_of(self, kmers: Iterable[str | bytes]) -> np.ndarray:
        """Return the count of each k-mer (uint64), 0 if absent.

        Raises
        ------
        SequenceError
            When one is no k-mer.
        """
        given = [each.encode() if isinstance(each, str) else bytes(each) for each in kmers]
        if wrong := [each for each in given if not _is_kmer(each, self._k)]:
            raise SequenceError(
                f"{wrong[0].decode(errors='replace')!r} is not a k-mer of these counts; pass "
                f"{self._k} letters A, C, G or T"
            )
        backend = self._backend
        letters = backend.from_host(np.frombuffer(b"".join(given), np.uint8))
        parts, low, high = single_kmers(backend, letters, self._k, canonical=self._canonical)
        asked = CountedKmers(low, high, parts)
        numbers = np.searchsorted(self._edges, backend.to_host(parts), side="right") - 1
        counts = np.zeros(len(given), np.uint64)
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            chosen = asked.rows(backend.from_host(rows))
            counts[rows] = backend.to_host(self._groups[number].counts_of(chosen))
        return counts


class _Group:
    """Lookup in the counted k-mers of one group.

    Parameters
    ----------
    backend : Backend
        Where both are.
    group : CountedKmers
    k : int
        Of the k-mers of both.
    """

    def __init__(self, backend: Backend, group: CountedKmers, k: int) -> None:
        self._backend, self._group, self._k = backend, group, k
        self._table: CountMap | None = None

    def counts_of(self, asked: CountedKmers) -> Any:
        """Return the count of each k-mer (uint64), 0 if absent."""
        group, backend = self._group, self._backend
        if self._table is None:
            keys = keys_of(backend, group.low, group.high)
            self._table = CountMap(key_dtype(self._k), len(keys), device=backend.name)
            self._table.insert(keys, group.counts)
        return self._table.count(keys_of(backend, asked.low, asked.high))


def _is_kmer(text: bytes, k: int) -> bool:
    return len(text) == k and not set(text.upper()) - set(b"ACGT")
