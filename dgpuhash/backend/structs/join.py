"""The structs and the names of the kernels that join; see `args`."""

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

# Rows that a thread takes words for at once.
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
    """Writes the row numbers of pairs; takes `JOIN_PAIRS`, a row is a segment of the pairs."""
    return Kernel(f"dg::join_pairs<{tile}>", "launch/join.cuh", tile)


def join_select(tile: int = 32) -> Kernel:
    """Writes rows that have a partner, or none; takes `JOIN_SELECT`, a row is a segment."""
    return Kernel(f"dg::join_select<{tile}>", "launch/join.cuh", tile)


def all_rows() -> Kernel:
    """Counts rows up; takes `ALL_ROWS`."""
    return Kernel("dg::all_rows", "launch/join.cuh")


def take_words(word: DTypeLike, row: DTypeLike) -> Kernel:
    """Copies words by their numbers; takes `TAKE`, a row is one of the first of `TAKE_SHARES`."""
    return Kernel(f"dg::take_words<{_word(word)},{_word(row)}>", "launch/join.cuh")


def found_count() -> Kernel:
    """Counts rows that were found; takes `FOUND_COUNT`, a row is a segment."""
    return Kernel("dg::found_count<32>", "launch/join.cuh", 32)


def found_select(word: DTypeLike) -> Kernel:
    """Writes rows that were found, and their words; takes `FOUND_SELECT`, a row is a segment."""
    return Kernel(f"dg::found_select<{_word(word)},32>", "launch/join.cuh", 32)
