"""Encode keys and values as unsigned words, and decode them.

Keys are canonical: equal keys have equal words. -0.0 becomes 0.0 and every NaN the same NaN.
Keys and values of one and two bytes are widened to four. Keys that are records have 16 bytes, which
are compared whole.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.kernel import WIDE_WORD
from dgpuhash.backend.native import require_wide_swap

_UNSIGNED = {nbytes: np.dtype(f"u{nbytes}") for nbytes in (1, 2, 4, 8)} | {16: WIDE_WORD}


def word_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the word dtype for a key or a narrow value.

    A narrow value has 1, 2, 4 or 8 bytes.
    """
    return _UNSIGNED[max(dtype.itemsize, 4)]


def value_width(dtype: np.dtype[Any] | None) -> int:
    """Return the bytes that a table stores per value: 0 (sets), 4 or 8.

    A wide value is stored as an 8-byte row number.
    """
    if dtype is None:
        return 0
    return word_dtype(dtype).itemsize if dtype.itemsize in (1, 2, 4, 8) else 8


def carrier_dtype(backend: Backend, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the backend's arrays for values of `dtype`.

    CuPy has neither dates nor text: on a GPU dates are int64, and every other dtype that is not a
    number is rows of bytes.
    """
    if backend.xp is np or dtype.kind in "biufc":
        return dtype
    return np.dtype(np.int64 if dtype.kind in "mM" else np.uint8)


def key_words(backend: Backend, keys: Any) -> Any:
    """Return the canonical words of `keys`.

    `keys` is a contiguous array of a key dtype or of its carrier.
    """
    return words_of(key_memory(backend, keys))


def key_memory(backend: Backend, keys: Any) -> Any:
    """Return canonical words as `key_words`, in any dtype of their width.

    Saves a view, which takes CuPy a microsecond.
    """
    if keys.dtype.kind != "f":
        if 4 <= keys.dtype.itemsize <= 8:
            return keys
        return words_of(keys) if keys.ndim == 1 and keys.dtype.kind != "V" else _wide(backend, keys)
    words = words_of(keys)
    sign, infinity, nan = _patterns(keys.dtype)
    made = backend.empty(len(words), words.dtype)
    backend.run(
        kernel_named("float_words", words.dtype), len(words),
        floats=words, words=made, sign=sign, infinity=infinity, nan=nan,
    )  # fmt: skip
    return made


def _wide(backend: Backend, records: Any) -> Any:
    """Return records of 16 bytes, or rows of bytes in their place, as words."""
    if backend.name == "cpu":
        require_wide_swap()
    words = records.view(WIDE_WORD).reshape(len(records))
    if backend.pointer(words) % WIDE_WORD.itemsize == 0:
        return words
    # Kernels load them whole.
    made = backend.empty(len(words), WIDE_WORD)
    made[...] = words
    return made


@functools.cache
def _patterns(dtype: np.dtype[Any]) -> tuple[int, int, int]:
    """Return the bits of -0.0, infinity and NaN."""
    patterns = np.array([-0.0, np.inf, np.nan], dtype).view(_UNSIGNED[dtype.itemsize])
    sign, infinity, nan = patterns.tolist()
    return sign, infinity, nan


def keys_of(backend: Backend, bits: Any, dtype: np.dtype[Any]) -> Any:
    """Return the keys that `key_words` encoded as `bits`."""
    carried = carrier_dtype(backend, dtype)
    if bits.dtype == WIDE_WORD:
        keys = bits.view(carried)
        return keys if carried == dtype else keys.reshape(len(bits), dtype.itemsize)
    return _from_words(bits, carried)


def value_words(values: Any, dtype: np.dtype[Any]) -> Any:
    """Return the words of `values`, whose dtype has 1, 2, 4 or 8 bytes."""
    return words_of(value_memory(values, dtype))


def value_memory(values: Any, dtype: np.dtype[Any]) -> Any:
    """Return words as `value_words`, in any dtype of their width."""
    if values.ndim == 2:
        values = values.view(f"u{dtype.itemsize}").reshape(len(values))
    return values if values.dtype.itemsize >= 4 else words_of(values)


def values_of(backend: Backend, bits: Any, dtype: np.dtype[Any]) -> Any:
    """Return the values that `value_words` encoded as `bits`."""
    carried = carrier_dtype(backend, dtype)
    if carried.itemsize == dtype.itemsize:
        return _from_words(bits, carried)
    return (
        _from_words(bits, np.dtype(f"u{dtype.itemsize}"))
        .view(carried)
        .reshape(len(bits), dtype.itemsize)
    )


def words_of(array: Any) -> Any:
    """Return the elements as words, as a view if the widths are equal."""
    plain = _view(array, _UNSIGNED[array.dtype.itemsize])
    return plain if plain.dtype.itemsize >= 4 else plain.astype(np.uint32)


def sortable(words: np.ndarray) -> np.ndarray:
    """Return words on the host as elements that compare by their bits.

    Examples
    --------
    >>> sortable(np.array([3, 1], np.uint32)).max()
    np.uint32(3)
    """
    return words.view("u8,u8") if words.dtype == WIDE_WORD else words


def _from_words(bits: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.itemsize < 4:
        bits = bits.astype(_UNSIGNED[dtype.itemsize])
    return _view(bits, dtype)


def _view(array: Any, dtype: np.dtype[Any]) -> Any:
    return array if array.dtype == dtype else array.view(dtype)
