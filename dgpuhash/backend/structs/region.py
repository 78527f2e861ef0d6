"""The structs and the names of the kernels that insert by region of a table; see `args`."""

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

# Of buckets: what a block builds in its shared memory, and what it does where it has no more than
# 64 KiB, as in kernels/table/region.cuh.
REGION_SHIFT, SMALL_REGION_SHIFT = 10, 9
# Three blocks of so many threads have a multiprocessor's registers and shared memory.
_BLOCK_THREADS = 320
# Rows that a lane reads at once, as in kernels/launch/sample.cuh.
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
    """Stores keys of few hashes; takes `OPEN_SAMPLE`, a row is `SAMPLE_ROWS` keys."""
    return Kernel(f"dg::open_sample<{_word(key)},32>", "launch/sample.cuh")


def witnesses(key: DTypeLike) -> Kernel:
    """Takes three rows of each stretch of a batch; takes `WITNESSES`, a row is a stretch."""
    return Kernel(f"dg::witnesses<{_word(key)}>", "launch/sample.cuh")


def region_insert(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Stores a batch that is in the table's order; takes `REGION_INSERT`, a row is a region."""
    name = f"dg::region_insert<{_word(key)},{_word(value)},{_BLOCK_THREADS}>"
    return Kernel(name, "launch/region.cuh", _BLOCK_THREADS, _BLOCK_THREADS)


def region_claim(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Says which rows created keys; takes `REGION_CLAIM`, a row is a key."""
    return Kernel(f"dg::region_claim<{_word(key)},{_word(value)},32>", "launch/region.cuh")
