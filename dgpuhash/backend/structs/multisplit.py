"""The structs and the names of the kernels that deal batches out to few parts; see `args`."""

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

# Parts that a tile deals out to, as in kernels/batch/multisplit.cuh.
DEAL_PARTS = {"cpu": 256, "cuda": 32}
# Segments of a batch have a multiple of so many rows: on a GPU the steps of a warp.
STEP_ROWS = {"cpu": 2**12, "cuda": 2**8}
# Of a block that moves rows, each with a segment of its own.
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
    """Notes each row's part, and counts rows; takes `DEAL_COUNT`, a row is a segment."""
    return _kernel(f"dg::deal_count<{_word(key)},{_WARP}>")


def deal_places() -> Kernel:
    """Sums counts up; takes `DEAL_PLACES`, one row."""
    threads = 1024
    return _kernel(f"dg::deal_places<{threads}>", threads, threads)


def deal_move(word: DTypeLike) -> Kernel:
    """Moves words by part; takes `DEAL_MOVE`, a row is a block of `BLOCK_TILES` segments."""
    threads = _WARP * BLOCK_TILES["cuda"]
    return _kernel(f"dg::deal_move<{_word(word)},{threads}>", threads, threads)


def deal_back(word: DTypeLike) -> Kernel:
    """Brings words and flags back to their rows; takes `DEAL_BACK`, a row is a segment."""
    return _kernel(f"dg::deal_back<{_word(word)},{_WARP}>")


def _kernel(expression: str, tile: int = _WARP, threads: int = 256) -> Kernel:
    return Kernel(expression, "launch/multisplit.cuh", tile, threads)
