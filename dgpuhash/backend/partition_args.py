"""The structs and the names of the kernels that partition batches; see `args`."""

from __future__ import annotations

from numpy.typing import DTypeLike

from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.words import name_of_word as _word
from dgpuhash.backend.words import struct_of_words as _words

__all__ = [
    "ANY_ORDER_PARTS",
    "BLOCK_THREADS",
    "DIGIT",
    "PARTITION",
    "PASS_PARTS",
    "PASS_ROWS",
    "PUT_BACK",
    "STRUCTS",
    "partition_count",
    "partition_scatter",
    "partition_strew",
    "put_back",
]

# Parts of one pass where rows of a part stay in order, and where they do not, as in
# kernels/batch/part_step.cuh.
PASS_PARTS = {"cpu": 2048, "cuda": 256}
ANY_ORDER_PARTS = {"cpu": 2048, "cuda": 384}
# Rows of one pass: on a GPU 31 bits number granules of at least 4 rows.
PASS_ROWS = 2**33
# Threads of a block.
BLOCK_THREADS = 512

DIGIT = _words("seed", "spread", "shift", "mask")
PARTITION = _words(
    "keys", "values", "keys_to", "values_to", "numbers_to",
    "counters", "bounds", "rows", "parts", "pieces", "step_rows", "segment_rows", "n",
    digit=DIGIT,
)  # fmt: skip

PUT_BACK = _words("numbers", "words", "flags", "words_to", "flags_to", "n")

# By the C++ name.
STRUCTS = {"Digit": DIGIT, "PartitionArgs": PARTITION, "PutBackArgs": PUT_BACK}


def partition_count(key: DTypeLike) -> Kernel:
    """Counts each segment's rows by part; takes `PARTITION`, a row is a segment."""
    return _kernel(f"dg::partition_count<{_word(key)},{BLOCK_THREADS}>")


def partition_scatter(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """Moves rows by part, in order; takes `PARTITION`, a row is a segment."""
    return _kernel(f"dg::partition_scatter<{_word(key)},{_word(value)},{BLOCK_THREADS}>")


def partition_strew(key: DTypeLike, value: DTypeLike | None) -> Kernel:
    """As `partition_scatter`, but rows of one part come in any order."""
    return _kernel(f"dg::partition_strew<{_word(key)},{_word(value)},{BLOCK_THREADS}>")


def put_back(word: DTypeLike) -> Kernel:
    """Puts words and flags to the places of their rows; takes `PUT_BACK`."""
    return Kernel(f"dg::put_back<{_word(word)}>", "launch/put_back.cuh")


def _kernel(expression: str) -> Kernel:
    return Kernel(expression, "launch/partition.cuh", BLOCK_THREADS, BLOCK_THREADS)
