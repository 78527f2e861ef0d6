"""Constants common to kernels and Python.

Each stands in a kernel file, too, which its comment names.
"""

from __future__ import annotations

# core/bucket.cuh.
BUCKET_BYTES = 64
# Slots in use that an insert is never refused for; launch/open.cuh.
UNLIMITED = 2**64 - 1
# Hash of a null string; core/hash.cuh.
NULL_HASH = 0x9E3779B97F4A7C15
# Words (8 bytes) of a block of a Bloom filter; table/bloom.cuh.
BLOOM_WORDS = 4

# Log2 of the buckets of a region, which a block builds in shared memory, and of one where a block
# has at most 64 KiB; table/region.cuh.
REGION_SHIFT, SMALL_REGION_SHIFT = 10, 9
# Rows that a lane reads together; launch/sample.cuh.
SAMPLE_ROWS = 4

# Most rows of a part, and where a block has at most 64 KiB of shared memory; bits of the hash that
# order the rows of a part; batch/part_runs.cuh.
PART_ROWS, SMALL_PART_ROWS = 3 * 2**10, 2**11
WITHIN_BITS = 16

# Words of a block's own totals in shared memory; batch/block_aggregate.cuh.
FRONT_WORDS = 4096
# In the order of the enums of batch/fold.cuh; a reading is a dtype, and "date" any date.
READINGS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "date")
TERMS = ("one", "integer", "real", "rank", "row", "truth", "square")
FOLDS = ("sum", "real_sum", "least", "greatest", "compensated", "excess", "pair")

# Words that one thread gathers; launch/join.cuh.
TAKE_SHARES = 4

# Most parts of one pass that is stable, and of one that is not; batch/partition_step.cuh.
PASS_PARTS = {"cpu": 2048, "cuda": 256}
ANY_ORDER_PARTS = {"cpu": 2048, "cuda": 512}
# Most rows of one pass: on a GPU 31 bits number granules of at least 4 rows.
PASS_ROWS = 2**33
# Threads of a block that has a multiprocessor to itself, and of a block that shares one.
BLOCK_THREADS, SMALL_BLOCK_THREADS = 1024, 512
# Segments to partition at once on a CPU with a usual number of threads.
CPU_BLOCKS = 16
# Rows of one step of a large block by the bytes of the widest column; batch/partition_step.cuh.
BLOCK_ROWS = {4: 2**14, 8: 3 * 2**12}

# Most parts of a multisplit by tiles; batch/multisplit.cuh.
DEAL_PARTS = {"cpu": 256, "cuda": 32}
# Segments have a multiple of this number of rows: on a GPU, steps of a warp.
STEP_ROWS = {"cpu": 2**12, "cuda": 2**8}
# Tiles of a block that moves rows; each tile has its own segment.
BLOCK_TILES = {"cpu": 1, "cuda": 4}


def block_threads(architecture: int) -> int:
    """Return the threads of a block of `partition_…` on an architecture.

    `architecture` is 90 for 9.0. Blocks are large where a block may have 163 KiB of shared memory
    or more, as in kernels/core/platform.cuh.
    """
    return BLOCK_THREADS if architecture in (80, 90, 100) else SMALL_BLOCK_THREADS


def overflow_bits(slot_nbytes: int) -> int:
    """Return the bits of the overflow filter of a bucket.

    See kernels/table/overflow.cuh.
    """
    return 2 if BUCKET_BYTES // slot_nbytes < 8 else 8


def claim_words(key_nbytes: int, buckets: int) -> int:
    """Return the number of 4-byte words of claims for keys of 16 bytes; 0 for narrower keys.

    See kernels/table/claims.cuh.
    """
    return (buckets + 3) // 4 if key_nbytes == 16 else 0
