"""Structs of 64-bit words, and what kernels call the words that stand for keys and values."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

__all__ = ["name_of_word", "struct_of_words"]

_NAMES = {np.dtype(np.uint32): "dg::u32", np.dtype(np.uint64): "dg::u64"}


def struct_of_words(*fields: str, **nested: np.dtype) -> np.dtype:
    """A struct of `nested` structs and then 64-bit words, as all argument structs are."""
    return np.dtype([*nested.items(), *((field, "<u8") for field in fields)], align=True)


def name_of_word(dtype: DTypeLike | None) -> str:
    """The C++ type of uint32 and uint64 words; ``void`` for None."""
    return "void" if dtype is None else _NAMES[np.dtype(dtype)]
