"""Argument structs and kernels that group parts of a batch; see `core`."""

from __future__ import annotations

from numpy.typing import DTypeLike

from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.structs.core import RUN_ORDER
from dgpuhash.backend.structs.packing import name_of_word as _word
from dgpuhash.backend.structs.packing import struct_of_words as _words

__all__ = [
    "PART_ROWS",
    "PART_RUNS",
    "RUN_PACK",
    "SMALL_PART_ROWS",
    "STRUCTS",
    "WITHIN_BITS",
    "part_runs",
    "run_pack",
]

# Most rows of a part, and where a block has at most 64 KiB of shared memory; bits of the hash that
# order the rows of a part. As in kernels/batch/part_runs.cuh.
PART_ROWS, SMALL_PART_ROWS = 3 * 2**10, 2**11
WITHIN_BITS = 16
_BLOCK_THREADS = 512

PART_RUNS = _words(
    "keys", "values", "bounds", "run_keys", "values_to", "counts", "within", "segment_rows", "n",
    order=RUN_ORDER,
)  # fmt: skip
RUN_PACK = _words(
    "firsts", "run_keys", "bounds", "places", "starts", "run_keys_to", "segment_rows", "n"
)

# By the C++ name.
STRUCTS = {"PartRunsArgs": PART_RUNS, "RunPackArgs": RUN_PACK}


def part_runs(key: DTypeLike, value: DTypeLike) -> Kernel:
    """Return the kernel that groups each part by key, one row per part."""
    name = f"dg::part_runs<{_word(key)},{_word(value)},{_BLOCK_THREADS}>"
    return Kernel(name, "launch/group_runs.cuh", _BLOCK_THREADS, _BLOCK_THREADS)


def run_pack(key: DTypeLike) -> Kernel:
    """Return the kernel that packs the runs of all parts, one row per part."""
    return Kernel(f"dg::run_pack<{_word(key)},32>", "launch/group_runs.cuh", 32)
