"""Order of values: of the keys of groups, and ranks of what NumPy cannot compare."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.dataframes.order import sorted_rows
from dgpuhash.frames.dataframes.pandas_keys import is_plain
from dgpuhash.frames.dataframes.pandas_order import sortable


def key_order(columns: list[pd.Series], *, in_runs: bool = False) -> Any:
    """Return the positions of rows in the order of several key columns, nulls last.

    Of rows that come `in_runs`, a few parts in order one behind the other, the runs are merged:
    that takes little memory besides the positions.

    Raises
    ------
    KeyTypeError
        When objects cannot be compared.

    Examples
    --------
    >>> key_order([pd.Series(["b", None, "a"])])
    array([2, 0, 1])
    """
    levels: list[Any] = []
    for column in columns:
        for values, nulls in _sortable(column):
            if nulls is not None:
                levels.append(nulls)
            levels.append(values)
    if not len(columns[0]):
        return np.empty(0, np.int64)
    return np.lexsort(levels[::-1]) if in_runs else sorted_rows(levels)


def ranks(column: pd.Series) -> Any:
    """Return integers that compare as the values of a column do; those of nulls mean nothing.

    Raises
    ------
    KeyTypeError
        When objects cannot be compared.

    Examples
    --------
    >>> ranks(pd.Series(["b", "c", "a"]))
    array([1, 2, 0])
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy().astype(np.int64)
    if isinstance(dtype, pd.StringDtype | pd.ArrowDtype):
        array = pa.chunked_array(pa.array(column, from_pandas=True))
        found = pc.rank(array, "ascending", tiebreaker="dense")
        return found.to_numpy().astype(np.int64) - 1
    return _object_ranks(column)


def _object_ranks(column: pd.Series) -> Any:
    """Return the ranks of Python's objects: numbers come before texts, as pandas has it."""
    nulls = column.isna().to_numpy()
    places: dict[Any, int] = {}
    numbers = [
        -1 if null else places.setdefault(value, len(places))
        for value, null in zip(column, nulls, strict=True)
    ]
    try:
        ordered = _sorted(list(places))
    except TypeError as error:
        raise KeyTypeError(
            f"objects that cannot be compared ({error}); group with sort=False, or convert them "
            "with .astype('str')"
        ) from error
    rank = np.empty(len(places) + 1, np.int64)
    for place, value in enumerate(ordered):
        rank[places[value]] = place
    return rank[np.array(numbers, np.int64)]


def _sorted(values: list[Any]) -> list[Any]:
    if len(values) == 1:
        # Raises where there is no order.
        operator.lt(values[0], values[0])
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=lambda value: (isinstance(value, str), value))


def _sortable(column: pd.Series) -> list[tuple[Any, Any | None]]:
    """Return values that NumPy sorts, the first of which count most, and masks of nulls."""
    dtype: Any = column.dtype
    if is_plain(dtype):
        return [sortable(column)]
    if isinstance(dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        return [(codes, codes < 0)]
    arrow = isinstance(dtype, pd.ArrowDtype) and (
        pa.types.is_decimal(dtype.pyarrow_dtype)
        or pa.types.is_binary(dtype.pyarrow_dtype)
        or pa.types.is_time(dtype.pyarrow_dtype)
    )
    objects = isinstance(dtype, np.dtype) and dtype.kind == "O"
    objects = objects and pd.api.types.infer_dtype(column, skipna=True) != "string"
    if arrow or objects:
        return [(ranks(column), column.isna().to_numpy())]
    found = frames_of(column).compared(column, column, column.name)
    return [sortable(ours.series) for ours, _ in found]
