"""Detect heavy keys, and spread their rows over all shards.

The rows of a *heavy* key are spread over all shards; its owner has some as well. Each task of a
build finds candidates among the rows that it sees, and spreads their rows at once, in chunks of
their own. When all tasks have reported, the keys that are heavy in the whole input stay spread.
Rows of other candidates, such as keys that are frequent in one partition of a sorted input only,
are redistributed to their owners (`skew_repair`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash import backend

# A key is heavy if it has more than this share of a shard's average rows. Shards of Zipf 1.2, whose
# other keys are hashed to owners, then stay within 1.25 of the average; there are at most 16 heavy
# keys a shard.
HEAVY_SHARE = 1 / 16
# A heavy key has at least this many rows, a sixteenth of a shard of 65,536: fewer are no load, and
# stay in pandas' row order if they are not spread.
LEAST_ROWS = 4096
# A candidate has half that share of a partition's rows, and at least this many rows in it.
LEAST_CANDIDATE_ROWS = 64
# Sample rows for each shard: a heavy key is expected 64 times among them.
SAMPLE_ROWS = 1024


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Row counts of some keys in one partition, by the keys' codes."""

    codes: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, slots=True)
class HeavyKeys:
    """Heavy keys of an index: their codes, ascending.

    Examples
    --------
    >>> heavy = HeavyKeys((3, 7))
    >>> heavy.among(np.array([7, 1, 3], dtype="uint64"))
    array([ True, False,  True])
    """

    codes: tuple[int, ...] = ()

    @classmethod
    def of_all(cls, codes: Any) -> HeavyKeys:
        """Return all of these keys as heavy."""
        return cls(tuple(np.unique(backend.get(None, codes).to_host(codes)).tolist()))

    def __len__(self) -> int:
        return len(self.codes)

    def among(self, codes: Any) -> Any:
        """Return a mask of the codes that are heavy."""
        return self._numbers(codes) < len(self)

    def _numbers(self, codes: Any) -> Any:
        """Return each code's position among the heavy codes.

        For other codes, the number of heavy codes.
        """
        xp = backend.get(None, codes).xp
        if not self.codes:
            return xp.zeros(len(codes), dtype=np.int64)
        known = xp.asarray(np.array(self.codes, dtype=codes.dtype))
        numbers = xp.searchsorted(known, codes)
        numbers[known[xp.minimum(numbers, len(known) - 1)] != codes] = len(known)
        return numbers

    def spread(self, owners: Any, codes: Any, parts: int) -> Any:
        """Return `owners` with the rows of heavy keys spread over all shards.

        The rows of a key go to all shards in turn, in blocks.

        The first block of a key goes to its owner, which so always has rows of the key; the other
        blocks follow in row order.

        Examples
        --------
        >>> owners, codes = np.full(6, 1, "uint32"), np.array([5, 5, 8, 5, 5, 5], "uint64")
        >>> HeavyKeys((5,)).spread(owners, codes, 3)
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


NO_HEAVY = HeavyKeys()
NO_COUNTS = KeyCounts()


def heavy_candidates(codes: Any, parts: int, partitions: int, seed: int) -> KeyCounts:
    """Return row counts of a partition's heavy-key candidates.

    `partitions` is the number of partitions; `seed` is for the sample of the rows.
    """
    fewest = max(LEAST_CANDIDATE_ROWS, 4 * parts, LEAST_ROWS // (2 * partitions))
    if parts == 1 or len(codes) < fewest:
        return NO_COUNTS
    device = backend.get(None, codes)
    fewest = max(fewest, int(len(codes) * HEAVY_SHARE / (2 * parts)))
    sample, share = codes, 1.0
    if len(codes) > SAMPLE_ROWS * parts:
        share = SAMPLE_ROWS * parts / len(codes)
        # Random, as rows may have a pattern; seeded, so that each attempt finds the same keys.
        rows = np.random.default_rng(seed).integers(0, len(codes), SAMPLE_ROWS * parts)
        sample = codes[device.xp.asarray(rows)]
    seen, times = np.unique(device.to_host(sample), return_counts=True)
    likely = HeavyKeys(tuple(seen[times > max(2, fewest * share / 2)].tolist()))
    if not likely:
        return NO_COUNTS
    counts = device.to_host(device.xp.bincount(likely._numbers(codes), minlength=len(likely) + 1))
    found = [pair for pair in zip(likely.codes, counts.tolist(), strict=False) if pair[1] >= fewest]
    return KeyCounts(tuple(code for code, _ in found), tuple(count for _, count in found))


def consensus(tallies: Iterable[KeyCounts], rows: int, parts: int) -> HeavyKeys:
    """Return the keys that are heavy among all `rows`, by their total counts."""
    totals: dict[int, int] = {}
    for tally in tallies:
        for code, count in zip(tally.codes, tally.rows, strict=True):
            totals[code] = totals.get(code, 0) + count
    fewest = max(LEAST_ROWS, rows * HEAVY_SHARE / parts)
    return HeavyKeys(tuple(sorted(code for code, count in totals.items() if count >= fewest)))
