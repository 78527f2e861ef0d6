"""Membership test: a mask of the values that are among some keys."""

from __future__ import annotations

from typing import overload

import numpy as np

from dgpuhash.seeds import draw_seed
from dgpuhash.tables.arguments.common_dtype import to_common_dtype
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.tables.open_addressing.growth import Storage
from dgpuhash.typing import Array, ArrayKind, KeysLike

__all__ = ["isin"]


@overload
def isin(values: ArrayKind, keys: KeysLike) -> ArrayKind: ...


@overload
def isin(values: KeysLike, keys: KeysLike) -> Array: ...


@function_translates_memory_errors
def isin(values: KeysLike, keys: KeysLike) -> Array:
    """Return a mask of the values that are among the keys.

    Builds a `HashSet` of the keys for one query; build one yourself for several queries.

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
    asked, stored = met.words
    # Room for more, with which both take less time.
    wanted = len(stored) * 3 // 2
    table = Storage(met.backend, stored.dtype, None, seed=draw_seed(), capacity=wanted)
    table.add(stored, None)
    return met.taken.wrap(met.asked[0].by_row(table.contains(asked)), np.dtype(bool))
