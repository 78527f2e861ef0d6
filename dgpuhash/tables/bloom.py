"""Bloom filters of key words: fast tests for keys that are not stored."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.constants import BLOOM_WORDS

__all__ = ["BloomFilter"]

# 10.7 bits per key: 0.9 % false positives.
_BLOCK_KEYS = 24


class BloomFilter:
    """Split block Bloom filter of all hashes, or of a range of them.

    A `range` holds the keys of one owner (`Backend.owner_of`).

    Parameters
    ----------
    backend : Backend
    blocks : int
        Blocks of 32 bytes.
    seed : int
        Seed of the hash.

    Attributes
    ----------
    words : array of uint64
        The bits of the blocks.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> stored = np.arange(1000, dtype=np.uint64)
    >>> made = BloomFilter(backend.get("cpu"), BloomFilter.blocks_for(1000), seed=0)
    >>> made.add(stored)
    >>> bool(made.test(stored).all()), made.test(stored + 1000).mean() < 0.03
    (True, np.True_)
    """

    BLOCK_NBYTES = 8 * BLOOM_WORDS

    def __init__(self, backend: Backend, blocks: int, *, seed: int) -> None:
        self._backend, self._blocks, self._seed, self._first = backend, blocks, seed, 0
        self.words = backend.zeros(blocks * BLOOM_WORDS, np.uint64)

    @staticmethod
    def blocks_for(keys: int) -> int:
        """Return the blocks for `keys` keys at about 1 % false positives."""
        return max(1, math.ceil(keys / _BLOCK_KEYS))

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks."""
        return int(self.words.nbytes)

    def range(self, number: int, ranges: int) -> BloomFilter:
        """Return the filter of one of `ranges` equal ranges of the hashes.

        It shares its blocks with this filter.

        `ranges` divides the number of blocks.
        """
        made = copy.copy(self)
        held = self._blocks // ranges
        made._first = number * held
        first, size = made._first * BLOOM_WORDS, held * BLOOM_WORDS
        made.words = self.words[first : first + size]
        return made

    def add(self, keys: Any) -> None:
        """Add keys (words).

        A range adds only keys whose hashes are in it.
        """
        kernel = kernel_named("bloom_add", keys.dtype)
        self._backend.run(kernel, len(keys), filter=self._fields, keys=keys)

    def test(self, keys: Any) -> Any:
        """Return 1 (uint8) for each key (word) that may be present, else 0."""
        passed = self._backend.empty(len(keys), np.uint8)
        self._backend.run(
            kernel_named("bloom_test", keys.dtype), len(keys),
            filter=self._fields, keys=keys, passed=passed,
        )  # fmt: skip
        return passed

    @property
    def _fields(self) -> tuple[Any, int, int, int]:
        return self.words, self._first, self._blocks, self._seed
