"""Conversion of two key columns to one device and one dtype."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import KeyTypeError
from dgpuhash.spec import key_dtype_of
from dgpuhash.tables.arguments.casts import keeps_values
from dgpuhash.tables.arguments.encoding import key_words
from dgpuhash.tables.arguments.exact import comparable
from dgpuhash.tables.arguments.interop import ArrayArgument, as_argument
from dgpuhash.tables.arguments.lookup_keys import LookupKeys, as_lookup_keys
from dgpuhash.tables.arguments.validate import has_python_values, natural_dtype


class CommonKeys(NamedTuple):
    """Two columns of keys in one dtype.

    Rows that the dtype does not hold are left out.

    Such rows equal no key of the other column.
    """

    backend: Backend
    taken: ArrayArgument
    """The first column's argument."""
    words: tuple[Any, Any]
    """The key words of both columns."""
    asked: tuple[LookupKeys, LookupKeys]
    """The rows of these keys, for each column."""


def to_common_dtype(first: Any, second: Any, names: tuple[str, str]) -> CommonKeys:
    """Return two columns as key words of one dtype on one device.

    Raises
    ------
    KeyTypeError
        When values of the two columns are never equal, such as dates and numbers.
    """
    taken = [as_argument(each, name) for each, name in zip((first, second), names, strict=True)]
    backend = backends.get(None, *(each.data for each in taken if each.location is not None))
    dtype = _dtype_for_both(taken, names)
    left, right = (
        as_lookup_keys(backend, each, dtype, name) for each, name in zip(taken, names, strict=True)
    )
    words = key_words(backend, left.keys), key_words(backend, right.keys)
    return CommonKeys(backend, taken[0], words, (left, right))


def _dtype_for_both(taken: list[ArrayArgument], names: tuple[str, str]) -> np.dtype[Any]:
    # An empty column takes the dtype of the other one.
    empty = [not len(each.data) for each in taken]
    if all(empty):
        return np.dtype(np.int64)
    if any(empty):
        chosen = int(empty[0])
        return key_dtype_of(natural_dtype(taken[chosen], names[chosen]))
    # Python numbers take the dtype of the array in the other column.
    by_value = [has_python_values(each) for each in taken]
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
    # If no dtype holds all values of both, use the right one: left keys that it lacks match none.
    if left == right or left.kind in "mM":
        return right
    both = np.promote_types(left, right)
    return both if keeps_values(left, both) and keeps_values(right, both) else right


def _dtype_of_values(taken: list[ArrayArgument], names: tuple[str, str]) -> np.dtype[Any]:
    """Return the dtype for two columns of Python values.

    It is the dtype of one of the columns, and holds all values of that column.
    """
    found, reason = [], None
    for each, name in zip(taken, names, strict=True):
        try:
            found.append(key_dtype_of(natural_dtype(each, name)))
        except KeyTypeError as error:
            reason = error
    if not found:
        assert reason is not None
        raise reason
    # Integers that the float dtype does not hold equal no float.
    return max(reversed(found), key=lambda dtype: (dtype.kind == "f", dtype.itemsize))
