"""Bloom filters of key words: what says of most keys that are not stored that they are not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend import bloom_args as args

__all__ = ["BloomFilter"]

# 10.7 bits for each key: 0.9 of 100 other keys pass.
_BLOCK_KEYS = 24


class BloomFilter:
    """A split block Bloom filter, or those of its blocks that a range of hashes has.

    Of equal seed and size, the filters of the keys of consecutive owners (`Backend.owner_of`) make,
    one after the other, the filter of all their keys.

    Parameters
    ----------
    backend : Backend
    blocks : int
        Of the whole filter, 32 bytes each.
    seed : int
        Of the hash.
    first, held : int
        The first block that is here, and how many are; as many as there are when left out.

    Attributes
    ----------
    words : array of uint64
        The bits of the blocks that are here, `WORDS` for each.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> stored = np.arange(1000, dtype=np.uint64)
    >>> made = BloomFilter(backend.get("cpu"), BloomFilter.blocks_for(1000), seed=0)
    >>> made.add(stored)
    >>> bool(made.test(stored).all()), made.test(stored + 1000).mean() < 0.03
    (True, np.True_)
    """

    WORDS = args.BLOOM_WORDS

    def __init__(
        self, backend: Backend, blocks: int, *, seed: int, first: int = 0, held: int | None = None
    ) -> None:
        self._backend, self._blocks, self._seed, self._first = backend, blocks, seed, first
        held = blocks if held is None else held
        self.words = backend.zeros(held * self.WORDS, np.uint64)

    @staticmethod
    def blocks_for(keys: int) -> int:
        """Blocks for so many keys, of which about one in a hundred others passes."""
        return max(1, math.ceil(keys / _BLOCK_KEYS))

    @property
    def nbytes(self) -> int:
        """Of the blocks that are here."""
        return int(self.words.nbytes)

    def add(self, keys: Any) -> None:
        """Let keys (words) pass, whose blocks are here."""
        kernel = args.bloom_add(keys.dtype)
        self._backend.run(kernel, args.BLOOM_ADD, len(keys), filter=self._fields, keys=keys)

    def test(self, keys: Any) -> Any:
        """1 (uint8) for each key (words) that may have been added, 0 where it was not."""
        passed = self._backend.empty(len(keys), np.uint8)
        self._backend.run(
            args.bloom_test(keys.dtype), args.BLOOM_TEST, len(keys),
            filter=self._fields, keys=keys, passed=passed,
        )  # fmt: skip
        return passed

    @property
    def _fields(self) -> tuple[Any, int, int, int]:
        return self.words, self._first, self._blocks, self._seed
