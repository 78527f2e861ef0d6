"""Argument structs and kernels of Bloom filters; conventions as in `core`."""

from __future__ import annotations

from numpy.typing import DTypeLike

from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.structs.packing import name_of_word as _word
from dgpuhash.backend.structs.packing import struct_of_words as _words

__all__ = [
    "BLOOM_ADD",
    "BLOOM_BLOCKS",
    "BLOOM_TEST",
    "BLOOM_WORDS",
    "STRUCTS",
    "bloom_add",
    "bloom_test",
]

# Words (8 bytes) of a block, as in kernels/table/bloom.cuh.
BLOOM_WORDS = 4

BLOOM_BLOCKS = _words("words", "first", "blocks", "seed")
BLOOM_ADD = _words("keys", "n", filter=BLOOM_BLOCKS)
BLOOM_TEST = _words("keys", "passed", "n", filter=BLOOM_BLOCKS)

# By the C++ name.
STRUCTS = {
    "BloomBlocks": BLOOM_BLOCKS,
    "BloomAddArgs": BLOOM_ADD,
    "BloomTestArgs": BLOOM_TEST,
}


def bloom_add(key: DTypeLike) -> Kernel:
    """Return the kernel that adds keys, one row per key."""
    return Kernel(f"dg::bloom_add<{_word(key)},4>", "launch/bloom.cuh", 4)


def bloom_test(key: DTypeLike) -> Kernel:
    """Return the kernel that tells which keys may be present, by key."""
    return Kernel(f"dg::bloom_test<{_word(key)}>", "launch/bloom.cuh")
