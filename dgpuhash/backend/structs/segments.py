"""The structs and the names of the kernels that group parts of a batch by key; see `args`."""

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

# Rows that a part may have, and where a block has no more than 64 KiB of memory; bits of the hash
# by which its rows are put in order. As in kernels/batch/part_runs.cuh.
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
    """Groups each part of a batch by key; takes `PART_RUNS`, a row is a part."""
    name = f"dg::part_runs<{_word(key)},{_word(value)},{_BLOCK_THREADS}>"
    return Kernel(name, "launch/group_runs.cuh", _BLOCK_THREADS, _BLOCK_THREADS)


def run_pack(key: DTypeLike) -> Kernel:
    """Brings the runs of all parts together; takes `RUN_PACK`, a row is a part."""
    return Kernel(f"dg::run_pack<{_word(key)},32>", "launch/group_runs.cuh", 32)
