"""Blocks of a Bloom filter: bits by key word, sizes and false-positive rates."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.constants import BLOOM_WORDS

BLOCK_NBYTES = 8 * BLOOM_WORDS
# Words of 32 bits in a block; a key has one bit in each.
_BITS = BLOCK_NBYTES // 4
# Of the sum that the kernel makes of the blocks' rates.
_RATE_UNIT = 2.0**-28


def rate_at(load: float) -> float:
    """Return the expected false-positive rate at `load` keys per block.

    A block has a Poisson distributed number of keys *j*, each of which leaves each bit of a word
    unset with probability 31/32, so the rate is the mean of ``(1 - (31/32)**j)**8``. Summed over
    *j*, the powers of the binomial are exponentials.

    Examples
    --------
    >>> [f"{rate_at(load):.4f}" for load in (0, 13.24, 24.31, 57.594)]
    ['0.0000', '0.0005', '0.0100', '0.2500']
    """
    terms = (
        (-1) ** k * math.comb(_BITS, k) * math.exp(-load * (1 - (31 / 32) ** k))
        for k in range(_BITS + 1)
    )
    return max(0.0, math.fsum(terms))


def _load_at(rate: float) -> float:
    """Return the keys per block for an expected `rate`."""
    low, high = 0.0, 1024.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if rate_at(middle) < rate else (low, middle)
    return low


def blocks_for(keys: int, rate: float) -> int:
    """Return the fewest blocks for `keys` keys at an expected `rate`.

    Examples
    --------
    >>> [round(blocks_for(10**6, rate) * 256 / 10**6, 1) for rate in (0.0005, 0.01, 0.25)]
    [19.3, 10.5, 4.4]
    """
    return max(1, math.ceil(keys / _load_at(rate)))


def keys_for(blocks: int, rate: float) -> int:
    """Return the most keys for `blocks` blocks at an expected `rate`.

    Examples
    --------
    >>> keys_for(blocks_for(10**6, 0.01), 0.01) - 10**6 < 25
    True
    """
    return int(blocks * _load_at(rate))


class BloomBlocks:
    """Split-block Bloom filter of key words, for all hashes or a range of them.

    A `range` holds the keys of one owner (`Backend.owner_of`).

    Parameters
    ----------
    backend : Backend
    blocks : int
        Blocks of 32 bytes.
    seed : int
        Seed of the hash.
    part, parts : int
        Which of how many equal ranges of the hashes to hold. Where a bound lies inside of a block,
        both ranges hold the block, each with the bits of its own keys.

    Attributes
    ----------
    words : array of uint64
        The bits of the blocks.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> stored = np.arange(1000, dtype=np.uint64)
    >>> made = BloomBlocks(backend.get("cpu"), blocks_for(1000, 0.01), seed=0)
    >>> made.insert(stored)
    >>> bool(made.contains(stored).all()), made.contains(stored + 1000).mean() < 0.03
    (True, np.True_)
    """

    def __init__(
        self, backend: Backend, blocks: int, *, seed: int, part: int = 0, parts: int = 1
    ) -> None:
        self.backend: Backend = backend
        self.blocks: int = blocks
        self.seed: int = seed
        self.first: int
        self.first, end = bounds(blocks, part, parts)
        self.words: Any = backend.zeros((end - self.first) * BLOOM_WORDS, np.uint64)

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks."""
        return int(self.words.nbytes)

    def range(self, part: int, parts: int) -> BloomBlocks:
        """Return the filter of one of `parts` equal ranges of the hashes.

        It shares its blocks with this filter, which is of all hashes.
        """
        made = copy.copy(self)
        made.first, end = bounds(self.blocks, part, parts)
        made.words = self.words[made.first * BLOOM_WORDS : end * BLOOM_WORDS]
        return made

    def copy(self) -> BloomBlocks:
        """Return an independent filter with the same bits."""
        made = copy.copy(self)
        made.words = self.backend.empty(len(self.words), np.uint64)
        made.words[:] = self.words
        return made

    def insert(self, keys: Any) -> None:
        """Insert keys (words).

        A range leaves out keys whose hashes are not in it.
        """
        kernel = kernel_named("bloom_insert", keys.dtype)
        self.backend.run(kernel, len(keys), filter=self._fields, keys=keys)

    def contains(self, keys: Any) -> Any:
        """Return 1 (uint8) for each key (word) that may be stored, else 0."""
        passed = self.backend.empty(len(keys), np.uint8)
        self.backend.run(
            kernel_named("bloom_contains", keys.dtype), len(keys),
            filter=self._fields, keys=keys, passed=passed,
        )  # fmt: skip
        return passed

    def fill(self) -> tuple[int, float]:
        """Return the number of set bits, and the expected false-positive rate.

        The rate is that of the bits as they are: the mean over the blocks of the product of the
        shares of set bits in its words.
        """
        totals = self.backend.zeros(2, np.uint64)
        held = len(self.words) // BLOOM_WORDS
        self.backend.run(
            kernel_named("bloom_fill"), held, words=self.words, ones=totals[:1], passing=totals[1:],
        )  # fmt: skip
        ones, passing = self.backend.to_host(totals).tolist()
        return ones, passing * _RATE_UNIT / held

    @property
    def _fields(self) -> tuple[Any, int, int, int, int]:
        held = len(self.words) // BLOOM_WORDS
        return self.words, self.first, held, self.blocks, self.seed


def bounds(blocks: int, part: int, parts: int) -> tuple[int, int]:
    """Return the first and the end block of a range of hashes.

    Examples
    --------
    >>> [bounds(10, part, 3) for part in range(3)]
    [(0, 4), (3, 7), (6, 10)]
    """
    return part * blocks // parts, -(-(part + 1) * blocks // parts)
