"""Argument structs and kernels that partition batches; see `core`."""

from __future__ import annotations

from numpy.typing import DTypeLike

from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.structs.packing import name_of_word as _word
from dgpuhash.backend.structs.packing import struct_of_words as _words

__all__ = [
    "ANY_ORDER_PARTS",
    "BLOCK_ROWS",
    "BLOCK_THREADS",
    "CPU_BLOCKS",
    "DIGIT",
    "PARTITION",
    "PASS_PARTS",
    "PASS_ROWS",
    "SMALL_BLOCK_THREADS",
    "STRUCTS",
    "block_threads",
    "partition_count",
    "partition_scatter",
    "partition_strew",
]

# Most parts of one pass that is stable, and of one that is not, as in
# kernels/batch/partition_step.cuh.
PASS_PARTS = {"cpu": 2048, "cuda": 256}
ANY_ORDER_PARTS = {"cpu": 2048, "cuda": 512}
# Most rows of one pass: on a GPU 31 bits number granules of at least 4 rows.
PASS_ROWS = 2**33
# Threads of a block that has a multiprocessor to itself, and of a block that shares one.
BLOCK_THREADS, SMALL_BLOCK_THREADS = 1024, 512
# Segments to partition at once on a CPU with a usual number of threads.
CPU_BLOCKS = 16
# Rows of one step of a large block by the bytes of the widest column, as in partition_step.cuh.
BLOCK_ROWS = {4: 2**14, 8: 3 * 2**12}

DIGIT = _words("seed", "spread", "shift", "mask")
ROUTE = _words("owners", "seed", "ranges", "scale")
PARTITION = _words(
    "keys", "values", "keys_to", "values_to", "numbers_to", "more_keys", "more_values",
    "counters", "bounds", "rows", "more_first", "parts",
    "shares", "groups", "digit_first", "digit_step", "pieces", "step_rows", "segment_rows", "n",
    digit=DIGIT, route=ROUTE,
)  # fmt: skip

# By the C++ name.
STRUCTS = {
    "Digit": DIGIT,
    "PartitionArgs": PARTITION,
    "Route": ROUTE,
}


def block_threads(architecture: int) -> int:
    """Return the threads of a block of `partition_…` on an architecture.

    `architecture` is 90 for 9.0. Blocks are large where a block may have 163 KiB of shared memory
    or more, as in kernels/core/platform.cuh.
    """
    return BLOCK_THREADS if architecture in (80, 90, 100) else SMALL_BLOCK_THREADS


def partition_count(key: DTypeLike, threads: int) -> Kernel:
    """Return the kernel that counts rows by part, one row per segment.

    Takes `PARTITION`.
    """
    return _kernel(f"dg::partition_count<{_word(key)},{threads}>", threads)


def partition_scatter(key: DTypeLike, value: DTypeLike | None, threads: int) -> Kernel:
    """Return the kernel that moves rows by part, in input order.

    Takes `PARTITION`, one row per segment.
    """
    return _kernel(f"dg::partition_scatter<{_word(key)},{_word(value)},{threads}>", threads)


def partition_strew(key: DTypeLike, value: DTypeLike | None, threads: int) -> Kernel:
    """Return the kernel that moves rows by part, in any order.

    Takes `PARTITION`, one row per segment.
    """
    return _kernel(f"dg::partition_strew<{_word(key)},{_word(value)},{threads}>", threads)


def _kernel(expression: str, threads: int) -> Kernel:
    return Kernel(expression, "launch/partition.cuh", threads, threads)
