"""Argument structs and kernels of Bloom filters; conventions as in `core`."""

from __future__ import annotations

from numpy.typing import DTypeLike

from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.structs.packing import name_of_word as _word
from dgpuhash.backend.structs.packing import struct_of_words as _words

__all__ = [
    "BLOOM_BLOCKS",
    "BLOOM_CONTAINS",
    "BLOOM_FILL",
    "BLOOM_INSERT",
    "BLOOM_WORDS",
    "STRUCTS",
    "bloom_contains",
    "bloom_fill",
    "bloom_insert",
]

# Words (8 bytes) of a block, as in kernels/table/bloom.cuh.
BLOOM_WORDS = 4

BLOOM_BLOCKS = _words("words", "first", "blocks", "seed")
BLOOM_INSERT = _words("keys", "n", filter=BLOOM_BLOCKS)
BLOOM_CONTAINS = _words("keys", "passed", "n", filter=BLOOM_BLOCKS)
BLOOM_FILL = _words("words", "ones", "passing", "n")

# By the C++ name.
STRUCTS = {
    "BloomBlocks": BLOOM_BLOCKS,
    "BloomInsertArgs": BLOOM_INSERT,
    "BloomContainsArgs": BLOOM_CONTAINS,
    "BloomFillArgs": BLOOM_FILL,
}


def bloom_insert(key: DTypeLike) -> Kernel:
    """Return the kernel that inserts keys, one row per key."""
    return Kernel(f"dg::bloom_insert<{_word(key)},32>", "launch/bloom.cuh")


def bloom_contains(key: DTypeLike) -> Kernel:
    """Return the kernel that tells which keys may be stored, by key."""
    return Kernel(f"dg::bloom_contains<{_word(key)},32>", "launch/bloom.cuh")


def bloom_fill() -> Kernel:
    """Return the kernel that counts set bits, one row per block."""
    return Kernel("dg::bloom_fill", "launch/bloom.cuh")
