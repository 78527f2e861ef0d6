"""Skew: keys with so many rows that whoever owns them would hold far more than others.

The rows of such a *heavy* key are spread over all parts; its owner has some as well. Each task of a
build finds candidates among the rows that it sees, and spreads those at once, in parcels of their
own. When all have reported, the keys that are heavy in all stay spread, and rows of others, such as
keys that are frequent in one partition of a sorted source only, go on to their owners (`settling`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash import backend

__all__ = ["NO_HEAVY", "NO_TALLY", "Heavy", "Tally", "agreed", "candidates"]

# A key is heavy that has more than this share of the rows that a part has on average. The parts of
# Zipf 1.2, whose other keys are owned by chance, then stay within 1.25 of the average; there are
# 16 heavy keys a part at most.
SHARE = 1 / 16
# And at least so many rows, a sixteenth of a part's from 65,536 on: fewer are no load, and keep the
# order of rows that pandas has.
LEAST_ROWS = 4096
# Of a partition, a key is a candidate with half the share, and this many rows in it.
LEAST_SEEN = 64
# Rows of a sample for each part: a heavy key is expected 64 times in it.
SAMPLED = 1024


@dataclass(frozen=True, slots=True)
class Tally:
    """How many rows of some keys one partition has, by their codes."""

    codes: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, slots=True)
class Heavy:
    """The heavy keys of an index, by their codes, ascending.

    Examples
    --------
    >>> heavy = Heavy((3, 7))
    >>> heavy.among(np.array([7, 1, 3], dtype="uint64"))
    array([ True, False,  True])
    """

    codes: tuple[int, ...] = ()

    @classmethod
    def of_all(cls, codes: Any) -> Heavy:
        """All of these keys."""
        return cls(tuple(np.unique(backend.get(None, codes).to_host(codes)).tolist()))

    def __len__(self) -> int:
        return len(self.codes)

    def among(self, codes: Any) -> Any:
        """Mask of the codes that are heavy."""
        return self._numbers(codes) < len(self)

    def _numbers(self, codes: Any) -> Any:
        """The number of each code among the heavy ones; of others, how many those are."""
        xp = backend.get(None, codes).xp
        if not self.codes:
            return xp.zeros(len(codes), dtype=np.int64)
        known = xp.asarray(np.array(self.codes, dtype=codes.dtype))
        numbers = xp.searchsorted(known, codes)
        numbers[known[xp.minimum(numbers, len(known) - 1)] != codes] = len(known)
        return numbers

    def spread(self, owners: Any, codes: Any, parts: int) -> Any:
        """`owners` with a part for each row of a heavy key: all parts in turn, in blocks.

        The first block of a key goes to its owner, so that one always has rows of it, and the
        others follow in the order of rows.

        Examples
        --------
        >>> owners, codes = np.full(6, 1, "uint32"), np.array([5, 5, 8, 5, 5, 5], "uint64")
        >>> Heavy((5,)).spread(owners, codes, 3)
        array([1, 1, 1, 2, 2, 0], dtype=uint32)
        """
        device = backend.get(None, codes)
        xp = device.xp
        numbers = self._numbers(codes).astype(np.uint32)
        order, counts = device.multisplit(numbers, len(self) + 1)
        rows = order[: len(codes) - int(counts[-1])]
        numbers = numbers[rows]
        starts = xp.asarray(np.cumsum(counts) - counts)
        block = (xp.arange(len(rows)) - starts[numbers]) * parts // xp.asarray(counts)[numbers]
        spread = owners.copy()
        spread[rows] = ((owners[rows].astype(np.int64) + block) % parts).astype(owners.dtype)
        return spread


NO_HEAVY = Heavy()
NO_TALLY = Tally()


def candidates(codes: Any, parts: int, partitions: int, seed: int) -> Tally:
    """The keys of one partition, out of so many, that may be heavy, with their rows in it.

    `seed` is that of a sample of the rows.
    """
    fewest = max(LEAST_SEEN, 4 * parts, LEAST_ROWS // (2 * partitions))
    if parts == 1 or len(codes) < fewest:
        return NO_TALLY
    device = backend.get(None, codes)
    fewest = max(fewest, int(len(codes) * SHARE / (2 * parts)))
    sample, share = codes, 1.0
    if len(codes) > SAMPLED * parts:
        share = SAMPLED * parts / len(codes)
        # The same for each attempt, and no pattern that rows could have as well.
        rows = np.random.default_rng(seed).integers(0, len(codes), SAMPLED * parts)
        sample = codes[device.xp.asarray(rows)]
    seen, times = np.unique(device.to_host(sample), return_counts=True)
    likely = Heavy(tuple(seen[times > max(2, fewest * share / 2)].tolist()))
    if not likely:
        return NO_TALLY
    counts = device.to_host(device.xp.bincount(likely._numbers(codes), minlength=len(likely) + 1))
    found = [pair for pair in zip(likely.codes, counts.tolist(), strict=False) if pair[1] >= fewest]
    return Tally(tuple(code for code, _ in found), tuple(count for _, count in found))


def agreed(tallies: Iterable[Tally], rows: int, parts: int) -> Heavy:
    """The keys that are heavy among all `rows`."""
    totals: dict[int, int] = {}
    for tally in tallies:
        for code, count in zip(tally.codes, tally.rows, strict=True):
            totals[code] = totals.get(code, 0) + count
    fewest = max(LEAST_ROWS, rows * SHARE / parts)
    return Heavy(tuple(sorted(code for code, count in totals.items() if count >= fewest)))
