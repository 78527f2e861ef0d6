"""Number the distinct keys of a column in order of first appearance: `factorize`, `unique`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.spec import key_dtype_of
from dgpuhash.tables.arguments.encoding import key_words, keys_of
from dgpuhash.tables.arguments.interop import as_argument, as_device_array, natural_dtype
from dgpuhash.tables.cached import cached
from dgpuhash.tables.columns.aggregates import (
    ColumnReduction,
    one_pass_pays,
    reduce_groups,
    reduce_keys,
)
from dgpuhash.tables.columns.distinct import DistinctEstimate, Factorization, distinct_keys
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.typing import Array, ArrayKind, KeysLike

_INT64 = np.dtype(np.int64)


class GroupedKeys:
    """Validated key column and its groups.

    The device is that of `keys` and of the arrays in `others`.
    """

    def __init__(self, keys: Any, *others: Any) -> None:
        self._taken = as_argument(keys, "keys")
        self._dtype = key_dtype_of(natural_dtype(self._taken, "keys"))
        placed = [] if self._taken.location is None else [self._taken.data]
        self.backend: Backend = backends.get(None, *placed, *others)
        self.bits: Any = key_words(
            self.backend, as_device_array(self.backend, self._taken, self._dtype, "keys")
        )

    @cached
    def _estimate(self) -> DistinctEstimate:
        return DistinctEstimate.of(self.backend, self.bits)

    @cached
    def groups(self) -> Factorization:
        """Return the numbered distinct keys."""
        return Factorization(self.backend, self.bits, vars(self).get("_estimate"))

    @cached
    def first_rows(self) -> Any:
        """Return the first row of each distinct key, by number."""
        if "groups" in vars(self):
            return self.groups.first_rows
        estimate = vars(self).get("_estimate")
        return distinct_keys(self.backend, self.bits, estimate, numbered=False).first_rows()

    @cached
    def _distinct(self) -> Any:
        """Return the word of each distinct key, by number."""
        return self.bits[self.first_rows]

    def own_words(self) -> Any:
        """Return the word of each distinct key, by number, in an array of the caller's own."""
        words = self._distinct
        del self._distinct
        return words

    def uniques(self, order: Any = None) -> Any:
        """Return the distinct keys by number, or in the given `order`.

        The array is of the same kind as the keys.
        """
        bits = self._distinct if order is None else self._distinct[order]
        keys = keys_of(self.backend, bits, self._dtype)
        return self._taken.wrap(keys, self._dtype, by_row=False, own=True)

    def totals(self, columns: Sequence[ColumnReduction]) -> list[Any]:
        """Return each column's aggregates by distinct key (uint64 words).

        Aggregates are ordered by key number.
        """
        if "groups" not in vars(self) and one_pass_pays(self.backend, self._estimate, columns):
            self.first_rows, self._distinct, totals = reduce_keys(
                self.backend, self.bits, self._estimate, columns
            )
            return totals
        return reduce_groups(self.backend, self.groups.codes, len(self.groups), columns)

    def counts(self) -> Any:
        """Return the number of rows of each distinct key, by key number."""
        return self.totals([ColumnReduction(None, "u1", "one", "sum")])[0].view(np.int64)

    def by_row(self, result: Any, dtype: np.dtype[Any] = _INT64) -> Any:
        """Return a result by row in the kind of the keys."""
        return self._taken.wrap(result, dtype)

    def by_key(self, result: Any, dtype: np.dtype[Any] = _INT64) -> Any:
        """Return a result by distinct key, in an array like the keys."""
        return self._taken.wrap(result, dtype, by_row=False)


@overload
def factorize(keys: ArrayKind) -> tuple[ArrayKind, ArrayKind]: ...


@overload
def factorize(keys: KeysLike) -> tuple[Array, Array]: ...


@function_translates_memory_errors
def factorize(keys: KeysLike) -> tuple[Array, Array]:
    """Return dense numbers (codes) for keys, and the distinct keys.

    Uses the compacting hash table of Alcantara's thesis (2011), §6.3; the numbers do not depend on
    the order in which its threads run. On a CPU with few threads, dense integer keys (range below
    four times the rows) are numbered by direct address instead, in an array with a slot of 4 bytes
    for each number of the range.

    Parameters
    ----------
    keys : array
        Array of any kind on a CPU or a GPU, of a dtype that tables accept as keys. -0.0 equals
        0.0, all NaNs are one key, and so are all NaTs.

    Returns
    -------
    codes : array of int64
        The number of each row's key: 0 for the first key that appears, 1 for the next one, and so
        on; an array of the same kind as `keys`.
    uniques : array
        The distinct keys in order of first appearance: ``uniques[codes]`` is `keys`.

    Raises
    ------
    KeyTypeError, ShapeError
        When `keys` is not a valid column of keys.
    OutOfMemoryError
        When the device has no room for a table of the distinct keys.

    Examples
    --------
    >>> import numpy as np
    >>> factorize(np.array([30, 10, 30, 20]))
    (array([0, 1, 0, 2]), array([30, 10, 20]))
    """
    grouped = GroupedKeys(keys)
    codes = grouped.groups.codes
    return grouped.by_row(codes), grouped.uniques()


@overload
def unique(keys: ArrayKind) -> ArrayKind: ...


@overload
def unique(
    keys: KeysLike,
    *,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Array: ...


@function_translates_memory_errors
def unique(
    keys: KeysLike,
    *,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Array:
    """Return the distinct keys in order of first appearance.

    Finds dense integer keys by direct address, as `factorize` does.

    Parameters
    ----------
    keys : array
        Array of any kind on a CPU or a GPU, of a dtype that tables accept as keys. -0.0 equals
        0.0, all NaNs are one key, and so are all NaTs.
    return_index, return_inverse, return_counts : bool
        Whether to return these arrays too, in this order, as `numpy.unique` does.

    Returns
    -------
    uniques : array
        The distinct keys; this and the other arrays are of the same kind as `keys`.
    index : array of int64, optional
        The first row of each distinct key.
    inverse : array of int64, optional
        For each row the number of its key in `uniques`.
    counts : array of int64, optional
        Number of rows of each distinct key.

    Raises
    ------
    KeyTypeError, ShapeError
        When `keys` is not a valid column of keys.
    OutOfMemoryError
        When the device has no room for a table of the distinct keys.

    Examples
    --------
    >>> import numpy as np
    >>> unique(np.array([30, 10, 30]))
    array([30, 10])
    >>> unique(np.array([30, 10, 30]), return_index=True, return_counts=True)
    (array([30, 10]), array([0, 1]), array([2, 1]))
    """
    grouped = GroupedKeys(keys)
    inverse = [grouped.by_row(grouped.groups.codes)] if return_inverse else []
    counts = [grouped.by_key(grouped.counts())] if return_counts else []
    index = [grouped.by_key(grouped.first_rows)] if return_index else []
    results = [grouped.uniques(), *index, *inverse, *counts]
    return results[0] if len(results) == 1 else tuple(results)


@overload
def value_counts(keys: ArrayKind) -> tuple[ArrayKind, ArrayKind]: ...


@overload
def value_counts(keys: KeysLike) -> tuple[Array, Array]: ...


@function_translates_memory_errors
def value_counts(keys: KeysLike) -> tuple[Array, Array]:
    """Return the distinct keys and their row counts, most frequent first.

    Parameters
    ----------
    keys : array
        Array of any kind on a CPU or a GPU, of a dtype that tables accept as keys. NaN and NaT are
        counted.

    Returns
    -------
    uniques : array
        The distinct keys by descending count, ties in order of first appearance; of the same kind
        as `keys`.
    counts : array of int64
        The number of rows of each distinct key, in an array of the same kind.

    Raises
    ------
    KeyTypeError, ShapeError
        When `keys` is not a valid column of keys.
    OutOfMemoryError
        When the device has no room for a table of the distinct keys.

    Examples
    --------
    >>> import numpy as np
    >>> value_counts(np.array([2.5, 0.5, 0.5, 1.5]))
    (array([0.5, 2.5, 1.5]), array([2, 1, 1]))
    """
    grouped = GroupedKeys(keys)
    counts = grouped.counts()
    order = grouped.backend.stable_order(-counts)
    return grouped.uniques(order), grouped.by_key(counts[order])
