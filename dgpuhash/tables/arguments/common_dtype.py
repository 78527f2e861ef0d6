"""Two columns of keys that shall meet: one device, one dtype."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import KeyTypeError
from dgpuhash.spec import key_dtype_of
from dgpuhash.tables.arguments.casts import keeps_values
from dgpuhash.tables.arguments.encoding import key_bits
from dgpuhash.tables.arguments.exact import comparable
from dgpuhash.tables.arguments.interop import Taken, take
from dgpuhash.tables.arguments.lookup_keys import Asked, ask
from dgpuhash.tables.arguments.validate import natural_dtype, on_host

__all__ = ["Met", "meet"]


class Met(NamedTuple):
    """Two columns of keys in one dtype, without the rows that are no value of it.

    Those are equal to no key of the other column.
    """

    backend: Backend
    taken: Taken
    """The first column, as taken in."""
    words: tuple[Any, Any]
    """Of the keys of both."""
    asked: tuple[Asked, Asked]
    """Which rows these are."""


def meet(first: Any, second: Any, names: tuple[str, str]) -> Met:
    """Two columns as key words of one dtype.

    Raises
    ------
    KeyTypeError
        When their values are never equal, such as dates and numbers.
    """
    taken = [take(each, name) for each, name in zip((first, second), names, strict=True)]
    backend = backends.get(None, *(each.data for each in taken if each.location is not None))
    dtype = _dtype_for_both(taken, names)
    left, right = (ask(backend, each, dtype, name) for each, name in zip(taken, names, strict=True))
    words = key_bits(backend, left.keys), key_bits(backend, right.keys)
    return Met(backend, taken[0], words, (left, right))


def _dtype_for_both(taken: list[Taken], names: tuple[str, str]) -> np.dtype[Any]:
    # No keys take the dtype of any.
    empty = [not len(each.data) for each in taken]
    if all(empty):
        return np.dtype(np.int64)
    if any(empty):
        chosen = int(empty[0])
        return key_dtype_of(natural_dtype(taken[chosen], names[chosen]))
    # Python numbers take that of the array that they meet.
    by_value = [on_host(each) for each in taken]
    if by_value[0] != by_value[1]:
        return key_dtype_of(natural_dtype(taken[int(by_value[0])]))
    if by_value[0]:
        return _dtype_of_values(taken, names)
    left, right = (key_dtype_of(natural_dtype(each)) for each in taken)
    if not comparable(left, right):
        raise KeyTypeError(
            f"{names[0]} of dtype {left} and {names[1]} of dtype {right} cannot be "
            "compared without changing values; pass columns of numbers, of dates, or of durations"
        )
    # Where no dtype holds all values of both, those that the second one lacks equal none of its.
    if left == right or left.kind in "mM":
        return right
    both = np.promote_types(left, right)
    return both if keeps_values(left, both) and keeps_values(right, both) else right


def _dtype_of_values(taken: list[Taken], names: tuple[str, str]) -> np.dtype[Any]:
    """The dtype for two columns of Python values: that of one, which holds all of its own."""
    found, reason = [], None
    for each, name in zip(taken, names, strict=True):
        try:
            found.append(key_dtype_of(natural_dtype(each, name)))
        except KeyTypeError as error:
            reason = error
    if not found:
        assert reason is not None
        raise reason
    # Integers that a float dtype lacks equal no float.
    return max(reversed(found), key=lambda dtype: (dtype.kind == "f", dtype.itemsize))
