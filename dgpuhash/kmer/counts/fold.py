"""Equal k-mers folded into counts by a CountMap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.tables import CountMap

WIDE_KMER = np.dtype([("high", "<u8"), ("low", "<u8")])
"""K-mers of more than 32 bases."""

# Slots for each k-mer: on a CPU, whose caches hold the table, searches are shorter with more.
_ROOM = {"cpu": 1.5, "cuda": 1}
# Counts below have a place each in a histogram.
_FEW = 2**16
_WORD_BASES = 32


@dataclass(slots=True)
class CountedKmers:
    """Distinct k-mers and their counts, in no order.

    Attributes
    ----------
    low : array of uint64
        The last 32 bases, or all.
    high : array of uint64 or None
        Those before; None for k of at most 32.
    counts : array of uint8, uint16, uint32 or uint64
    """

    low: Any
    high: Any
    counts: Any

    def __len__(self) -> int:
        return len(self.low)

    def rows(self, chosen: Any) -> CountedKmers:
        """Return some rows, by a mask, positions or a slice."""
        high = None if self.high is None else self.high[chosen]
        return CountedKmers(self.low[chosen], high, self.counts[chosen])

    def narrow(self) -> CountedKmers:
        """Return the same with counts no wider than the highest needs."""
        most = int(self.counts.max()) if len(self) else 0
        counts = self.counts.astype(np.min_scalar_type(most), copy=False)
        return CountedKmers(self.low, self.high, counts)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        high = 0 if self.high is None else int(self.high.nbytes)
        return int(self.low.nbytes + self.counts.nbytes) + high


class Fold:
    """K-mers that are counted together, as keys of one word or of two of a `CountMap`.

    Parameters
    ----------
    backend : Backend
        Where the k-mers are.
    kmers : int
        How many are expected; the table has room for them.
    k : int
        Their bases.
    table : CountMap, optional
        The table of a fold of the same `k` whose result was read, to be used again.

    Attributes
    ----------
    table : CountMap
    inserts : int
        Calls of its insert.
    """

    def __init__(self, backend: Backend, kmers: int, k: int, table: CountMap | None = None) -> None:
        self._backend = backend
        room = int(kmers * _ROOM[backend.name])
        if table is None or table.capacity < room:
            table = CountMap(key_dtype(k), room, device=backend.name)
        else:
            table.clear()
        self.table = table
        self.inserts: int = 0

    def add(self, low: Any, high: Any, counts: Any = 1) -> None:
        """Count k-mers, each once, or as often as `counts` says."""
        self.inserts += 1
        self.table.insert(keys_of(self._backend, low, high), counts)

    def result(self) -> CountedKmers:
        """Return what was counted."""
        keys, counts = self.table.items()
        return CountedKmers(*words_of(keys), counts)


def histogram(backend: Backend, groups: Sequence[CountedKmers]) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts that occur (uint64), ascending, and how many k-mers have each (int64)."""
    xp = backend.xp
    by_count = xp.zeros(_FEW, np.int64)
    higher: Counter[int] = Counter()
    for group in groups:
        if group.counts.dtype.itemsize <= 2:
            by_count += xp.bincount(group.counts, minlength=_FEW)
            continue
        is_few = group.counts < np.uint64(_FEW)
        by_count += xp.bincount(group.counts[is_few].astype(np.int64), minlength=_FEW)
        found, times = np.unique(backend.to_host(group.counts[~is_few]), return_counts=True)
        higher.update(dict(zip(found.tolist(), times.tolist(), strict=True)))
    numbers = backend.to_host(by_count)
    low, high = np.flatnonzero(numbers), sorted(higher)
    return (
        np.concatenate([low.astype(np.uint64), np.array(high, np.uint64)]),
        np.concatenate([numbers[low], np.array([higher[each] for each in high], np.int64)]),
    )


def key_dtype(k: int) -> np.dtype[Any]:
    """Return the dtype of k-mers as keys of tables.

    Examples
    --------
    >>> key_dtype(31), key_dtype(33).itemsize
    (dtype('uint64'), 16)
    """
    return np.dtype(np.uint64) if k <= _WORD_BASES else WIDE_KMER


def keys_of(backend: Backend, low: Any, high: Any) -> Any:
    """Return k-mers as keys of tables: on a GPU, records are rows of bytes."""
    if high is None:
        return low
    words = backend.empty((len(low), 2), np.uint64)
    words[:, 0], words[:, 1] = high, low
    if backend.xp is np:
        return words.view(WIDE_KMER).reshape(len(low))
    return words.view(np.uint8)


def words_of(keys: Any) -> tuple[Any, Any]:
    """Return the last 32 bases, and those before or None, of k-mers that are keys of tables."""
    if keys.dtype == np.uint64:
        return keys, None
    words = keys.view(np.uint64).reshape(len(keys), 2)
    return words[:, 1].copy(), words[:, 0].copy()
