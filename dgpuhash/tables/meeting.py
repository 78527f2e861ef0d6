"""Two columns of keys that shall meet: one device, one dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import KeyTypeError
from dgpuhash.spec import key_dtype_of
from dgpuhash.tables.arrays import Taken, take
from dgpuhash.tables.bits import key_bits
from dgpuhash.tables.casts import keeps_values
from dgpuhash.tables.intake import adopt, natural_dtype

__all__ = ["meet"]


def meet(first: Any, second: Any, names: tuple[str, str]) -> tuple[Backend, Taken, Any, Any]:
    """The backend, the first argument as taken in, and the key words of both.

    Raises
    ------
    KeyTypeError
        When neither dtype holds every value of the other.
    """
    taken = [take(each, name) for each, name in zip((first, second), names, strict=True)]
    backend = backends.get(None, *(each.data for each in taken if each.location is not None))
    dtype = _dtype_for_both(taken, names)
    words = [
        key_bits(backend, adopt(backend, each, dtype, name))
        for each, name in zip(taken, names, strict=True)
    ]
    return backend, taken[0], words[0], words[1]


def _dtype_for_both(taken: list[Taken], names: tuple[str, str]) -> np.dtype[Any]:
    left, right = (key_dtype_of(natural_dtype(each)) for each in taken)
    # Python numbers take the dtype of the array that they meet, where they fit it, and no numbers
    # that of any.
    sequences = [each.location is None for each in taken]
    if sequences[0] != sequences[1]:
        return right if sequences[0] else left
    if all(sequences) and not all(len(each.data) for each in taken):
        return left if len(taken[0].data) else right
    try:
        both = np.promote_types(left, right)
    except TypeError:
        both = left
    if all(sequences) or (keeps_values(left, both) and keeps_values(right, both)):
        return key_dtype_of(both)
    raise KeyTypeError(
        f"{names[0]} of dtype {left} and {names[1]} of dtype {right} cannot be compared without "
        "changing values; bring them to one dtype with .astype"
    )
