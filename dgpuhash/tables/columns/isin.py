"""isin: test the values of a column for membership in other keys."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.seeds import draw_seed
from dgpuhash.tables.arguments.lookup_keys import to_common_dtype
from dgpuhash.tables.columns.direct import DirectTable, addresses_directly
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.tables.open_addressing.growth import Storage
from dgpuhash.typing import Array, ArrayKind, KeysLike


@overload
def isin(values: ArrayKind, keys: KeysLike) -> ArrayKind: ...


@overload
def isin(values: KeysLike, keys: KeysLike) -> Array: ...


@function_translates_memory_errors
def isin(values: KeysLike, keys: KeysLike) -> Array:
    """Return a mask of the values that are among the keys.

    Builds a `HashSet` of the keys for one query; build one yourself for several queries. On a CPU
    with few threads, dense integer keys (range below four times their number) are found by direct
    address instead, in an array with a byte for each number of the range.

    Parameters
    ----------
    values, keys : array
        Arrays of any kind on one device, of dtypes that tables accept as keys. Different dtypes
        are compared by exact value. -0.0 equals 0.0, all NaNs are one key, and so are all NaTs.

    Returns
    -------
    array of bool
        Mask in the order of `values`, an array of the same kind.

    Raises
    ------
    KeyTypeError
        When values of the two dtypes are never equal, e.g. numbers and dates.
    ShapeError
        When there are nulls (a KeyTypeError for nulls in lists), as in a query of a `HashSet`:
        tables have no null; drop them, or use a `FrameIndex`, which matches nulls.
    OutOfMemoryError
        When the device has no room for a table of the keys.

    Examples
    --------
    >>> import numpy as np
    >>> isin(np.array([1.0, np.nan, 2.0]), np.array([np.nan, 1.0], "float32"))
    array([ True,  True, False])
    >>> isin(np.array([2**63 - 1, 5]), np.array([2**63, 5], "uint64"))
    array([False,  True])
    """
    met = to_common_dtype(values, keys, ("values", "keys"))
    found = membership_mask(met.backend, *met.words)
    return met.taken.wrap(met.asked[0].by_row(found), np.dtype(bool))


def membership_mask(backend: Backend, probes: Any, keys: Any) -> Any:
    """Return a mask of the words that are among other words."""
    if addresses_directly(backend, len(probes) + len(keys)):
        direct = DirectTable.set_of(keys, len(probes))
        if direct is not None:
            return direct.find(probes)
    # Room for more, with which both take less time.
    capacity = len(keys) * 3 // 2
    table = Storage(backend, keys.dtype, None, seed=draw_seed(), capacity=capacity)
    table.add(keys, None)
    return table.contains(probes)
