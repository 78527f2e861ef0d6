"""Packing of argument structs of 64-bit words, and C++ names of words."""

from __future__ import annotations

import functools
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

__all__ = ["name_of_word", "packing", "struct_of_words", "words_of"]

_NAMES = {np.dtype(np.uint32): "dg::u32", np.dtype(np.uint64): "dg::u64"}


def struct_of_words(*fields: str, **nested: np.dtype) -> np.dtype:
    """Return a struct of the `nested` structs followed by 64-bit words.

    All argument structs have this form.
    """
    return np.dtype([*nested.items(), *((field, "<u8") for field in fields)], align=True)


class Packing(NamedTuple):
    """Description of how to pack a struct into bytes."""

    nested: dict[str, int]
    """Bytes of each nested struct; these come first."""
    words: list[str]
    pack: Callable[..., bytes]
    """Takes the bytes of each nested struct, then the number of each word."""


@functools.cache
def packing(struct: np.dtype[Any]) -> Packing:
    """Return how to pack a struct that `struct_of_words` described.

    Examples
    --------
    >>> nested, words, pack = packing(struct_of_words("n", table=struct_of_words("keys")))
    >>> nested, words, pack(words_of(5), 1) == words_of(5, 1)
    ({'table': 8}, ['n'], True)
    """
    names = struct.names or ()
    nested = {name: struct[name].itemsize for name in names if struct[name].names}
    formats = [f"{nbytes}s" for nbytes in nested.values()]
    words = [name for name in names if not struct[name].names]
    return Packing(nested, words, Struct(f"<{''.join(formats)}{len(words)}Q").pack)


def words_of(*numbers: Any) -> bytes:
    """Return the bytes of a struct that has only words."""
    return Struct(f"<{len(numbers)}Q").pack(*numbers)


def name_of_word(dtype: DTypeLike | None) -> str:
    """Return the C++ type of uint32 or uint64 words; ``void`` for None."""
    return "void" if dtype is None else _NAMES[np.dtype(dtype)]
