"""Argument structs and kernels of the multisplit; see `core`."""

from __future__ import annotations

from numpy.typing import DTypeLike

from dgpuhash.backend.kernel import Kernel
from dgpuhash.backend.structs.packing import name_of_word as _word
from dgpuhash.backend.structs.packing import struct_of_words as _words
from dgpuhash.backend.structs.partition import DIGIT

__all__ = [
    "BLOCK_TILES",
    "DEAL_BACK",
    "DEAL_COUNT",
    "DEAL_MOVE",
    "DEAL_PARTS",
    "DEAL_PLACES",
    "STEP_ROWS",
    "STRUCTS",
    "deal_back",
    "deal_count",
    "deal_move",
    "deal_places",
]

# Most parts of a multisplit by tiles, as in kernels/batch/multisplit.cuh.
DEAL_PARTS = {"cpu": 256, "cuda": 32}
# Segments have a multiple of this number of rows: on a GPU, steps of a warp.
STEP_ROWS = {"cpu": 2**12, "cuda": 2**8}
# Tiles of a block that moves rows; each tile has its own segment.
BLOCK_TILES = {"cpu": 1, "cuda": 4}
_WARP = 32

DEAL_COUNT = _words(
    "keys", "parts_of", "counts", "rows", "parts", "segment_rows", "n",
    digit=DIGIT,
)  # fmt: skip
DEAL_PLACES = _words("places", "starts", "parts", "segments", "segment_rows", "n")
DEAL_MOVE = _words(
    "words", "words_to", "parts_of", "places", "rows", "parts", "segments", "segment_rows", "n"
)
DEAL_BACK = _words(
    "words", "flags", "words_to", "flags_to", "parts_of", "places", "pads",
    "rows", "parts", "segment_rows", "n",
)  # fmt: skip

# By the C++ name.
STRUCTS = {
    "DealBackArgs": DEAL_BACK,
    "DealCountArgs": DEAL_COUNT,
    "DealMoveArgs": DEAL_MOVE,
    "DealPlacesArgs": DEAL_PLACES,
}


def deal_count(key: DTypeLike) -> Kernel:
    """Return the kernel that notes each row's part and counts rows by part.

    One row per segment.
    """
    return _kernel(f"dg::deal_count<{_word(key)},{_WARP}>")


def deal_places() -> Kernel:
    """Return the kernel that sums up the counts, in a launch of one row."""
    threads = 1024
    return _kernel(f"dg::deal_places<{threads}>", threads, threads)


def deal_move(word: DTypeLike) -> Kernel:
    """Return the kernel that moves words into the order of parts.

    One row per block of `BLOCK_TILES` segments.
    """
    threads = _WARP * BLOCK_TILES["cuda"]
    return _kernel(f"dg::deal_move<{_word(word)},{threads}>", threads, threads)


def deal_back(word: DTypeLike) -> Kernel:
    """Return the kernel that moves words and flags back to input order.

    One row per segment.
    """
    return _kernel(f"dg::deal_back<{_word(word)},{_WARP}>")


def _kernel(expression: str, tile: int = _WARP, threads: int = 256) -> Kernel:
    return Kernel(expression, "launch/multisplit.cuh", tile, threads)
