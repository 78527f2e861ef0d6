"""Random keys made on the device by MurmurHash3's bijective finalizers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend

_SHIFTS = {4: (16, 13, 16), 8: (33, 33, 33)}
_FACTORS = {4: (0x85EBCA6B, 0xC2B2AE35), 8: (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)}
_WORDS = {4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


def keys_of(numbers: Any, dtype: np.dtype[Any]) -> Any:
    """Return a pseudo-random key for each number, by a bijective mix.

    Different numbers have different keys.

    Parameters
    ----------
    numbers : array of integers
        Numbers to mix, below 2**32 for 32-bit keys.
    dtype : dtype
        An integer dtype of 32 or 64 bits.

    Examples
    --------
    >>> keys_of(np.arange(3), np.dtype("i8")).dtype
    dtype('int64')
    """
    keys = numbers.astype(_WORDS[dtype.itemsize])
    kind = keys.dtype.type
    for shift, factor in zip(
        _SHIFTS[dtype.itemsize], (*_FACTORS[dtype.itemsize], None), strict=True
    ):
        keys ^= keys >> kind(shift)
        if factor is not None:
            keys *= kind(factor)
    return keys.view(dtype)


def unique_keys(backend: Backend, first: int, n: int, dtype: np.dtype[Any]) -> Any:
    """Return the `n` distinct keys of ``first`` to ``first + n - 1``.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> made = unique_keys(backend.get("cpu"), 0, 1000, np.dtype("u4"))
    >>> len(set(made.tolist()))
    1000
    """
    return keys_of(backend.xp.arange(first, first + n, dtype=_WORDS[dtype.itemsize]), dtype)


def values_of(keys: Any, dtype: np.dtype[Any]) -> Any:
    """Derive the value of each key.

    An answer can then be checked without the input.
    """
    return (keys ^ (keys >> keys.dtype.type(7))).astype(dtype)


def uniform_floats(backend: Backend, n: int, stream: int) -> Any:
    """Return `n` random float64 in [0, 1), different for each `stream`.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> round(float(uniform_floats(backend.get("cpu"), 10_000, 1).mean()), 1)
    0.5
    """
    words = unique_keys(backend, (stream + 1) << 48, n, np.dtype(np.uint64))
    words >>= np.uint64(11)
    made = words.astype(np.float64)
    made *= 2.0**-53
    return made
