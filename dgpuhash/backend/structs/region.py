"""Argument structs and kernels that insert by region; see `core`."""

from __future__ import annotations

from numpy.typing import DTypeLike

from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.structs.core import OPEN_STORAGE
from dgpuhash.backend.structs.packing import name_of_word as _word
from dgpuhash.backend.structs.packing import struct_of_words as _words

__all__ = [
    "OPEN_SAMPLE",
    "REGION_CLAIM",
    "REGION_INSERT",
    "REGION_SHIFT",
    "SAMPLE_ROWS",
    "SMALL_REGION_SHIFT",
    "STRUCTS",
    "WITNESSES",
    "open_sample",
    "region_claim",
    "region_insert",
    "witnesses",
]

# Log2 of the buckets of a region, which a block builds in shared memory, and of one where a block
# has at most 64 KiB, as in kernels/table/region.cuh.
REGION_SHIFT, SMALL_REGION_SHIFT = 10, 9
# Three blocks of this size fill a multiprocessor's registers and shared memory.
_BLOCK_THREADS = 320
# Rows that a lane reads together, as in kernels/launch/sample.cuh.
SAMPLE_ROWS = 4

REGION_INSERT = _words(
    "keys", "values", "starts", "left_keys", "left_values", "created", "blank",
    "first", "part_shift", "segment_rows", "n",
    table=OPEN_STORAGE,
)  # fmt: skip
REGION_CLAIM = _words("created", "keys", "values", "fresh", "marking", "n", table=OPEN_STORAGE)
OPEN_SAMPLE = _words("keys", "seed", "zeros", "limit", "rows", "n", table=OPEN_STORAGE)
WITNESSES = _words("keys", "witnesses", "seed", "rows", "n")

# By the C++ name.
STRUCTS = {
    "OpenSampleArgs": OPEN_SAMPLE,
    "RegionInsertArgs": REGION_INSERT,
    "RegionClaimArgs": REGION_CLAIM,
    "WitnessArgs": WITNESSES,
}


def open_sample(key: DTypeLike) -> Kernel:
    """Return the kernel that stores keys with few hash values.

    These are keys whose hashes begin with zeros. One row per `SAMPLE_ROWS` keys.
    """
    return Kernel(f"dg::open_sample<{_word(key)},32>", "launch/sample.cuh")


def witnesses(key: DTypeLike) -> Kernel:
    """Return the kernel that samples three rows of each stretch of a batch.

    One row per stretch.
    """
    return Kernel(f"dg::witnesses<{_word(key)}>", "launch/sample.cuh")


def region_insert(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Return the kernel that inserts a batch in the order of regions.

    One row per region.
    """
    name = f"dg::region_insert<{_word(key)},{_word(value)},{_BLOCK_THREADS}>"
    return Kernel(name, "launch/region.cuh", _BLOCK_THREADS, _BLOCK_THREADS)


def region_claim(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Return the kernel that tells which rows created keys, one row per key."""
    return Kernel(f"dg::region_claim<{_word(key)},{_word(value)},32>", "launch/region.cuh")
