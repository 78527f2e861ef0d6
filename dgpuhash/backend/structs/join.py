"""Argument structs and kernels that join; conventions as in `core`."""

from __future__ import annotations

from numpy.typing import DTypeLike

from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.structs.packing import name_of_word as _word
from dgpuhash.backend.structs.packing import struct_of_words as _words

__all__ = [
    "ALL_ROWS",
    "FOUND_COUNT",
    "FOUND_SELECT",
    "JOIN_PAIRS",
    "JOIN_SELECT",
    "JOIN_SIDES",
    "STRUCTS",
    "TAKE",
    "TAKE_SHARES",
    "all_rows",
    "found_count",
    "found_select",
    "join_pairs",
    "join_select",
    "take_words",
]

JOIN_SIDES = _words("offsets", "keys", "starts", "right_rows", "left_rows")
JOIN_PAIRS = _words("left", "right", "pairs", "segment_pairs", "n", sides=JOIN_SIDES)
JOIN_SELECT = _words("partner", "ends", "left", "right", "alone", "rows", "segment_rows", "n")
ALL_ROWS = _words("rows", "n")
TAKE = _words("words", "rows", "to", "count", "n")
FOUND_COUNT = _words("found", "counts", "rows", "segment_rows", "n")
FOUND_SELECT = _words("found", "words", "ends", "rows_to", "words_to", "rows", "segment_rows", "n")

# Words that one thread gathers.
TAKE_SHARES = 4

# By the C++ name.
STRUCTS = {
    "JoinSides": JOIN_SIDES,
    "JoinPairsArgs": JOIN_PAIRS,
    "JoinSelectArgs": JOIN_SELECT,
    "AllRowsArgs": ALL_ROWS,
    "TakeArgs": TAKE,
    "FoundCountArgs": FOUND_COUNT,
    "FoundSelectArgs": FOUND_SELECT,
}


def join_pairs(tile: int = 32) -> Kernel:
    """Return the kernel that writes the row numbers of pairs.

    One row per segment of the pairs.
    """
    return Kernel(f"dg::join_pairs<{tile}>", "launch/join.cuh", tile)


def join_select(tile: int = 32) -> Kernel:
    """Return the kernel that writes rows with, or without, a partner.

    One row per segment.
    """
    return Kernel(f"dg::join_select<{tile}>", "launch/join.cuh", tile)


def all_rows() -> Kernel:
    """Return the kernel that writes the row numbers from 0 on."""
    return Kernel("dg::all_rows", "launch/join.cuh")


def take_words(word: DTypeLike, row: DTypeLike) -> Kernel:
    """Return the kernel that gathers words by row number.

    Takes `TAKE`. A thread gathers `TAKE_SHARES` words; one row per first of them.
    """
    return Kernel(f"dg::take_words<{_word(word)},{_word(row)}>", "launch/join.cuh")


def found_count() -> Kernel:
    """Return the kernel that counts rows that were found, by segment."""
    return Kernel("dg::found_count<32>", "launch/join.cuh", 32)


def found_select(word: DTypeLike) -> Kernel:
    """Return the kernel that writes found rows and their words, by segment."""
    return Kernel(f"dg::found_select<{_word(word)},32>", "launch/join.cuh", 32)
