"""Structs of 64-bit words, and what kernels call the words that stand for keys and values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

__all__ = ["name_of_word", "packing", "struct_of_words", "words_of"]

_NAMES = {np.dtype(np.uint32): "dg::u32", np.dtype(np.uint64): "dg::u64"}


def struct_of_words(*fields: str, **nested: np.dtype) -> np.dtype:
    """A struct of `nested` structs and then 64-bit words, as all argument structs are."""
    return np.dtype([*nested.items(), *((field, "<u8") for field in fields)], align=True)


@functools.cache
def packing(struct: np.dtype[Any]) -> tuple[tuple[str, ...], Callable[..., bytes]]:
    """The fields of a struct of words, and what makes its bytes of their values in that order.

    A nested struct's value is its bytes.

    Examples
    --------
    >>> names, pack = packing(struct_of_words("n", table=struct_of_words("keys")))
    >>> names, pack(words_of(5), 1) == words_of(5, 1)
    (('table', 'n'), True)
    """
    names = struct.names or ()
    formats = [f"{struct[name].itemsize}s" if struct[name].names else "Q" for name in names]
    return names, Struct("<" + "".join(formats)).pack


def words_of(*numbers: Any) -> bytes:
    """The bytes of a struct that only has words."""
    return Struct(f"<{len(numbers)}Q").pack(*numbers)


def name_of_word(dtype: DTypeLike | None) -> str:
    """The C++ type of uint32 and uint64 words; ``void`` for None."""
    return "void" if dtype is None else _NAMES[np.dtype(dtype)]
