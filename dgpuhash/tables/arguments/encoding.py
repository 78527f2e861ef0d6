"""Keys and values as the unsigned words that kernels store, and back.

Keys are canonical: equal keys have equal words. -0.0 becomes 0.0 and every NaN the same NaN.
Keys and values of one and two bytes are widened to four.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.structs import core

__all__ = [
    "carrier",
    "key_bits",
    "key_memory",
    "keys_of",
    "value_bits",
    "value_memory",
    "value_width",
    "values_of",
    "word",
    "words_of",
]


_UNSIGNED = {nbytes: np.dtype(f"u{nbytes}") for nbytes in (1, 2, 4, 8)}


def word(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The unsigned dtype that stores a key, or a value of 1, 2, 4 or 8 bytes."""
    return _UNSIGNED[8 if dtype.itemsize == 8 else 4]


def value_width(dtype: np.dtype[Any] | None) -> int:
    """Bytes that a table stores per value: 0 (sets), 4 or 8; wide values are 8-byte row numbers."""
    if dtype is None:
        return 0
    return word(dtype).itemsize if dtype.itemsize in (1, 2, 4, 8) else 8


def carrier(backend: Backend, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that the backend's arrays carry `dtype` in.

    CuPy has no dates and no text: on a GPU dates travel as int64, anything but numbers as rows of
    bytes.
    """
    if backend.xp is np or dtype.kind in "biufc":
        return dtype
    return np.dtype(np.int64 if dtype.kind in "mM" else np.uint8)


def key_bits(backend: Backend, keys: Any) -> Any:
    """The canonical words of `keys`, a contiguous array of a key dtype or of its carrier."""
    return words_of(key_memory(backend, keys))


def key_memory(backend: Backend, keys: Any) -> Any:
    """As `key_bits`; of any dtype as wide as the words, since a view takes CuPy a microsecond."""
    if keys.dtype.kind != "f":
        return keys if keys.dtype.itemsize >= 4 else words_of(keys)
    words = words_of(keys)
    sign, infinity, nan = _patterns(keys.dtype)
    made = backend.empty(len(words), words.dtype)
    backend.run(
        core.float_words(words.dtype), core.FLOAT_WORDS, len(words),
        floats=words, words=made, sign=sign, infinity=infinity, nan=nan,
    )  # fmt: skip
    return made


@functools.cache
def _patterns(dtype: np.dtype[Any]) -> tuple[int, int, int]:
    """The bits of -0.0, infinity and NaN."""
    patterns = np.array([-0.0, np.inf, np.nan], dtype).view(_UNSIGNED[dtype.itemsize])
    sign, infinity, nan = patterns.tolist()
    return sign, infinity, nan


def keys_of(backend: Backend, bits: Any, dtype: np.dtype[Any]) -> Any:
    """The keys that `key_bits` turned into `bits`."""
    return _from_words(bits, carrier(backend, dtype))


def value_bits(values: Any, dtype: np.dtype[Any]) -> Any:
    """The words of `values`, whose dtype has 1, 2, 4 or 8 bytes."""
    return words_of(value_memory(values, dtype))


def value_memory(values: Any, dtype: np.dtype[Any]) -> Any:
    """As `value_bits`; of any dtype as wide as the words."""
    if values.ndim == 2:
        values = values.view(f"u{dtype.itemsize}").reshape(len(values))
    return values if values.dtype.itemsize >= 4 else words_of(values)


def values_of(backend: Backend, bits: Any, dtype: np.dtype[Any]) -> Any:
    """The values that `value_bits` turned into `bits`."""
    carried = carrier(backend, dtype)
    if carried.itemsize == dtype.itemsize:
        return _from_words(bits, carried)
    return (
        _from_words(bits, np.dtype(f"u{dtype.itemsize}"))
        .view(carried)
        .reshape(len(bits), dtype.itemsize)
    )


def words_of(array: Any) -> Any:
    """The elements as words, on the memory of `array` where they are as wide."""
    plain = _view(array, _UNSIGNED[array.dtype.itemsize])
    return plain if plain.dtype.itemsize >= 4 else plain.astype(np.uint32)


def _from_words(bits: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.itemsize < 4:
        bits = bits.astype(_UNSIGNED[dtype.itemsize])
    return _view(bits, dtype)


def _view(array: Any, dtype: np.dtype[Any]) -> Any:
    return array if array.dtype == dtype else array.view(dtype)
