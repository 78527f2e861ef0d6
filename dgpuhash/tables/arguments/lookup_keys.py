"""Keys to look up, cast from any dtype to the table's key dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import KeyTypeError
from dgpuhash.spec import key_dtype_of, native_dtype
from dgpuhash.tables.arguments.casts import keeps_values
from dgpuhash.tables.arguments.encoding import carrier_dtype, key_words
from dgpuhash.tables.arguments.exact import cast_exactly, comparable, convert_times, unit_of
from dgpuhash.tables.arguments.interop import (
    ArrayArgument,
    as_argument,
    as_device_array,
    has_python_values,
    host_as_device_array,
    natural_dtype,
    one_dimension,
)
from dgpuhash.tables.arguments.objects import cast_rounding_floats, group_by_dtype
from dgpuhash.tables.select import gather_rows as rows_of


# Not frozen: that would cost each lookup half a microsecond.
@dataclass(slots=True)
class LookupKeys:
    """Lookup keys that fit the table's dtype, and their row numbers.

    Attributes
    ----------
    keys : array
        On the backend, of the table's dtype or of its carrier.
    count : int
        Rows of the argument.
    rows : array of int64, or None
        Rows of the argument that have `keys`; None: all.
    """

    keys: Any
    count: int
    rows: Any = None

    def by_row(self, result: Any, absent: Any = None) -> Any:
        """Return one result for each row of the argument.

        `result` has one element for each of `keys`. The other rows get `absent`, an array of one
        element.
        """
        if self.rows is None:
            return result
        xp = backends.get(None, self.rows).xp
        if absent is None:
            made = xp.zeros((self.count, *result.shape[1:]), result.dtype)
        else:
            made = xp.repeat(absent, self.count, axis=0)
        made[self.rows] = result
        return made

    def offsets(self, offsets: Any) -> Any:
        """Return list offsets for all rows of the argument.

        `offsets` are those of `keys`: where each list begins, and where the last one ends.
        """
        if self.rows is None:
            return offsets
        made = backends.get(None, self.rows).xp.zeros(self.count + 1, np.int64)
        made[self.rows + 1] = offsets[1:] - offsets[:-1]
        return made.cumsum()

    def numbers(self, rows: Any) -> Any:
        """Return row numbers of the argument, given row numbers of `keys`."""
        return rows if self.rows is None else rows_of(self.rows, rows)

    def among_all(self, rows: Any) -> Any:
        """Return row numbers as `numbers` does; -1 (no row) stays -1."""
        if self.rows is None or not len(rows):
            return rows
        xp = backends.get(None, rows).xp
        # Index -1 is the last element.
        return xp.concatenate([self.rows, xp.full(1, -1, np.int64)])[rows]

    def others(self, backend: Backend) -> Any:
        """Return the rows whose keys do not fit, in order."""
        if self.rows is None:
            return backend.empty(0, np.int64)
        left_out = backend.full(self.count, True, bool)
        left_out[self.rows] = False
        return backend.xp.flatnonzero(left_out)


def as_lookup_keys(
    backend: Backend, taken: ArrayArgument, dtype: np.dtype[Any], what: str
) -> LookupKeys:
    """Return the lookup keys that fit `dtype`, and their rows.

    The other rows equal no stored key.

    Raises
    ------
    ShapeError
        When the argument does not have one dimension.
    KeyTypeError
        When values of the two dtypes are never equal, such as text and numbers.
    """
    if not has_python_values(taken):
        array = backend.asarray(taken.data)
        if array.dtype == dtype and array.ndim == 1:
            return LookupKeys(array, len(array))
        if dtype.names is not None:
            return LookupKeys(as_device_array(backend, taken, dtype, what), len(array))
        return _of_array(backend, taken, one_dimension(array, what), dtype, what)
    host = one_dimension(taken.data, what, dtype)
    if not len(host):
        return LookupKeys(host_as_device_array(backend, np.zeros(0, dtype), dtype), 0)
    asked = _hold(np, *_of_values(host, dtype, what))
    rows = None if asked.rows is None else backend.from_host(asked.rows)
    return LookupKeys(host_as_device_array(backend, asked.keys, dtype), asked.count, rows)


def joined_rows(backend: Backend, asked: Sequence[LookupKeys]) -> Any:
    """Return the rows of the keys of several arguments, concatenated.

    None if all rows of all arguments have keys.
    """
    if all(each.rows is None for each in asked):
        return None
    rows, first = [], 0
    for each in asked:
        own = backend.xp.arange(each.count, dtype=np.int64) if each.rows is None else each.rows
        rows.append(own + first)
        first += each.count
    return backend.xp.concatenate(rows)


def _of_array(
    backend: Backend, taken: ArrayArgument, array: Any, dtype: np.dtype[Any], what: str
) -> LookupKeys:
    """Return the lookup keys as `as_lookup_keys` does, from an array on this device."""
    carried = carrier_dtype(backend, dtype)
    if not len(array):
        return LookupKeys(backend.empty(0, carried), 0)
    # On a GPU plain integers stand for dates.
    target = dtype if taken.dtype is not None else carried
    source = native_dtype(taken.dtype or array.dtype)
    kept = source.kind not in "mM" and keeps_values(source, target)
    if source == target or kept or not comparable(source, target):
        return LookupKeys(as_device_array(backend, taken, dtype, what), len(array))
    array = array.astype(native_dtype(array.dtype), copy=False)
    if source.kind in "mM":
        units = unit_of(source), unit_of(dtype)
        ints, valid = convert_times(array.view(np.int64), *units, backend.xp)
        return _hold(backend.xp, ints.view(carried), valid)
    return _hold(backend.xp, *cast_exactly(array, target, backend.xp))


def _of_values(host: np.ndarray, dtype: np.dtype[Any], what: str) -> tuple[np.ndarray, Any]:
    """Return Python values as `dtype`, and a mask of the exact ones.

    The mask is None if `dtype` holds all values.
    """
    if host.dtype != object:
        return cast_rounding_floats(host, dtype, what)
    made, held = np.zeros(len(host), dtype), np.zeros(len(host), bool)
    for rows, part in group_by_dtype(host, what):
        made[rows], valid = cast_rounding_floats(part, dtype, what)
        held[rows] = True if valid is None else valid
    return made, held


def _hold(xp: Any, keys: Any, valid: Any) -> LookupKeys:
    rows = None if valid is None else xp.flatnonzero(valid)
    if rows is None or len(rows) == len(keys):
        return LookupKeys(keys, len(keys))
    return LookupKeys(keys[rows], len(keys), rows)


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
