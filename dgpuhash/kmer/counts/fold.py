"""Equal k-mers folded into counts by a CountMap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.tables import CountMap, factorize

__all__ = ["CountedKmers", "Fold", "histogram", "numbered"]

# Slots for each k-mer: on a CPU, whose caches hold the table, searches are shorter with more.
_ROOM = {"cpu": 1.5, "cuda": 1}
# Counts below have a place each in a histogram.
_FEW = 2**16
_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)


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
    """K-mers that are counted together.

    K-mers of one word are keys of a `CountMap`. Those of two are numbered by each word, and the
    two numbers are its key.

    Parameters
    ----------
    backend : Backend
        Where the k-mers are.
    kmers : int
        How many are expected; the table has room for them.
    table : CountMap, optional
        The table of a fold whose result was read, to be used again.

    Attributes
    ----------
    table : CountMap
    inserts : int
        Calls of its insert.
    """

    def __init__(self, backend: Backend, kmers: int, table: CountMap | None = None) -> None:
        self._backend = backend
        room = int(kmers * _ROOM[backend.name])
        if table is None or table.capacity < room:
            table = CountMap(np.uint64, room, device=backend.name)
        else:
            table.clear()
        self.table = table
        self._expected = kmers
        self._waiting: list[CountedKmers] = []
        self._waiting_rows = 0
        self._held: CountedKmers | None = None
        self.inserts = 0

    def add(self, low: Any, high: Any, counts: Any = 1) -> None:
        """Count k-mers, each once, or as often as `counts` says."""
        if high is None:
            self._insert(self.table, low, counts)
            return
        if isinstance(counts, int):
            counts = self._backend.xp.full(len(low), counts, np.uint64)
        self._waiting.append(CountedKmers(low, high, counts))
        self._waiting_rows += len(low)
        # Each fold doubles what is held, so that the rows fold a few times only.
        if self._waiting_rows > max(self._expected, len(self._held or ())):
            self._fold_wide()

    def result(self) -> CountedKmers:
        """Return what was counted."""
        if self._waiting or self._held is not None:
            self._fold_wide()
            assert self._held is not None
            return self._held
        low, counts = self.table.items()
        return CountedKmers(low, None, counts)

    def _insert(self, table: CountMap, keys: Any, counts: Any) -> None:
        self.inserts += 1
        table.insert(keys, counts)

    def _fold_wide(self) -> None:
        xp = self._backend.xp
        parts = [*([] if self._held is None else [self._held]), *self._waiting]
        self._waiting, self._waiting_rows = [], 0
        keys, low, high = numbered(
            xp.concatenate([part.low for part in parts]),
            xp.concatenate([part.high for part in parts]),
        )
        table = CountMap(np.uint64, device=self._backend.name)
        self._insert(table, keys, xp.concatenate([part.counts for part in parts]))
        keys, counts = table.items()
        self._held = CountedKmers(
            low[(keys & _LOW).astype(np.int64)], high[(keys >> _HALF).astype(np.int64)], counts
        )


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


def numbered(low: Any, high: Any) -> tuple[Any, Any, Any]:
    """Return one key for each pair of words, and the distinct words by their halves of it."""
    lows, low = factorize(low)
    highs, high = factorize(high)
    return highs.astype(np.uint64) << _HALF | lows.astype(np.uint64), low, high
