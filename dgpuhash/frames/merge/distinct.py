"""Distinct keys of a frame, and which keys of one frame occur in another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.frames.keys.encoding import KeyEncoder, same_keys
from dgpuhash.frames.merge.rows import matched
from dgpuhash.tables import unique

__all__ = ["first_rows", "occurs"]


def first_rows(keys: pd.DataFrame) -> Any:
    """Return for each row the first row that has the same key in all columns.

    Rows of one code are compared with the first of them; those that differ have another round.

    Examples
    --------
    >>> first_rows(pd.DataFrame({"a": ["x", "y", "x"], "b": [1, 1, 1]}))
    array([0, 1, 0])
    """
    if len(keys) == 0:
        return np.empty(0, np.int64)
    encoded = KeyEncoder.for_frame(keys, list(keys.columns)).encode(keys)
    first, rows = np.empty(len(keys), np.int64), np.arange(len(keys))
    while len(rows):
        _, heads, groups = unique(encoded.codes[rows], return_index=True, return_inverse=True)
        first[rows] = rows[heads[groups]]
        if encoded.ambiguous is False:
            break
        later = rows[first[rows] != rows]
        same = same_keys(encoded.columns, later, encoded.columns, first[later])
        rows = later[~same]
    return first


def occurs(left: pd.DataFrame, right: pd.DataFrame, *, nulls_equal: bool = True) -> Any:
    """Return a mask of the left rows whose key a right row has.

    Columns are compared by position. A left row is matched once, however many right rows have its
    key.

    Examples
    --------
    >>> occurs(pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"k": [2, 2, 3]}))
    array([False,  True])
    """
    found = np.zeros(len(left), bool)
    if len(left) and len(right):
        distinct = right.iloc[first_rows(right) == np.arange(len(right))]
        found[matched(left, distinct, nulls_equal=nulls_equal)[0]] = True
    return found
