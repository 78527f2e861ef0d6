"""Random unique keys made on the device: a bijective mix of a counter (murmur3's finalizers)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend

__all__ = ["unique_keys", "values_of"]

_SHIFTS = {4: (16, 13, 16), 8: (33, 33, 33)}
_FACTORS = {4: (0x85EBCA6B, 0xC2B2AE35), 8: (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)}


def unique_keys(backend: Backend, first: int, n: int, dtype: np.dtype[Any]) -> Any:
    """`n` different keys: the mixed numbers `first` to ``first + n - 1``.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> made = unique_keys(backend.get("cpu"), 0, 1000, np.dtype("u4"))
    >>> len(set(made.tolist()))
    1000
    """
    keys = backend.xp.arange(first, first + n, dtype=dtype)
    kind = dtype.type
    shifts, factors = _SHIFTS[dtype.itemsize], _FACTORS[dtype.itemsize]
    for shift, factor in zip(shifts, (*factors, 1), strict=True):
        keys ^= keys >> kind(shift)
        keys *= kind(factor)
    return keys


def values_of(keys: Any, dtype: np.dtype[Any]) -> Any:
    """The value that goes with each key, so that an answer can be checked without the input."""
    return (keys ^ (keys >> keys.dtype.type(7))).astype(dtype)
