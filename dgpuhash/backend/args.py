"""The structs that kernels take, as NumPy dtypes, and the names of kernel instances.

Each dtype mirrors the C++ struct of the same name in ``kernels/``; pointers are ``uint64``. A test
compares every offset with the compiled extension.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.backend.kernel import Kernel

__all__ = [
    "LIMIT",
    "OPEN_ERASE",
    "OPEN_FIND",
    "OPEN_INSERT",
    "OPEN_STATE",
    "OPEN_STORAGE",
    "STRUCTS",
    "TILE_WIDTHS",
    "UNLIMITED",
    "WINDOW_BYTES",
    "open_erase",
    "open_find",
    "open_insert",
]

TILE_WIDTHS = (1, 2, 4, 8, 16, 32)
DEFAULT_TILE = 4
# The keys of eight buckets; a table has a prime number of windows.
WINDOW_BYTES = 512
UNLIMITED = 2**64 - 1

OPEN_STATE = np.dtype(
    [
        ("occupied", "<u8"),
        ("erased", "<u8"),
        ("pending", "<u8"),
        ("side_present", "<u8", 2),
        ("side_value", "<u8", 2),
    ],
    align=True,
)


def _words(*fields: str, **nested: np.dtype) -> np.dtype:
    """A struct of `nested` structs and then 64-bit words, as all argument structs are."""
    return np.dtype([*nested.items(), *((field, "<u8") for field in fields)], align=True)


OPEN_STORAGE = _words("keys", "values", "state", "windows", "seed")
OPEN_INSERT = _words(
    "keys", "values", "fresh", "pending_rows", "n", "limit", "overwrite", table=OPEN_STORAGE
)
OPEN_FIND = _words("keys", "values", "found", "n", "default_value", table=OPEN_STORAGE)
OPEN_ERASE = _words("keys", "erased", "n", table=OPEN_STORAGE)
LIMIT = _words("keys", "values", "slots", "n", "slot_count")

# By the C++ name.
STRUCTS = {
    "OpenState": OPEN_STATE,
    "OpenStorage": OPEN_STORAGE,
    "OpenInsertArgs": OPEN_INSERT,
    "OpenFindArgs": OPEN_FIND,
    "OpenEraseArgs": OPEN_ERASE,
    "LimitArgs": LIMIT,
}

_WORDS = {np.dtype(np.uint32): "dg::u32", np.dtype(np.uint64): "dg::u64"}


def _word(dtype: DTypeLike | None) -> str:
    return "void" if dtype is None else _WORDS[np.dtype(dtype)]


def _pair(name: str, file: str, key: DTypeLike, value: DTypeLike | None, tile: int) -> Kernel:
    return Kernel(f"dg::{name}<{_word(key)},{_word(value)},{tile}>", file, tile)


def open_insert(key: DTypeLike, value: DTypeLike | None, tile: int = DEFAULT_TILE) -> Kernel:
    """Stores keys (`value` None) or pairs; takes `OPEN_INSERT`."""
    return _pair("open_insert", "launch/open.cuh", key, value, tile)


def open_find(key: DTypeLike, value: DTypeLike | None, tile: int = DEFAULT_TILE) -> Kernel:
    """Looks keys up; takes `OPEN_FIND`."""
    return _pair("open_find", "launch/open.cuh", key, value, tile)


def open_erase(key: DTypeLike, value: DTypeLike | None, tile: int = DEFAULT_TILE) -> Kernel:
    """Removes keys; takes `OPEN_ERASE`."""
    return _pair("open_erase", "launch/open.cuh", key, value, tile)
