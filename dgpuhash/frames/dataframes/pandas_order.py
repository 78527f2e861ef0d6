"""Sort pandas rows by the keys of a merge, as pandas does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.types import infer_dtype

from dgpuhash.frames.dataframes.arrow_columns import is_bytes
from dgpuhash.frames.dataframes.order import sorted_rows
from dgpuhash.frames.dataframes.pandas_keys import (
    are_compared_as_text,
    common_decimal,
    is_decimal,
    key_column,
    of_one_type,
    typed_columns,
)
from dgpuhash.frames.dataframes.tagged import order_of, tag_values
from dgpuhash.frames.key_columns import NUMERIC, KeyColumn

if TYPE_CHECKING:
    from dgpuhash.frames.merge.keys import JoinKeys, KeyPair

# float64 represents every integer up to this magnitude.
EXACT = 2**53
# Values that NumPy sorts, and a mask of nulls or None.
Level = tuple[Any, Any]


def key_order(keys: JoinKeys, places: Any) -> Any:
    """Return the order of rows of both sides by their keys; see `Frames.key_order`."""
    levels: list[Any] = []
    for pair in reversed(keys.pairs):
        for values, nulls in reversed(_levels(pair, keys)):
            levels.append(values[places])
            if nulls is not None:
                levels.append(nulls[places])
    return sorted_rows(levels[::-1])


def sortable(column: pd.Series) -> tuple[Any, Any | None]:
    """Return the values of a column in a NumPy-sortable form, and a mask of its nulls.

    Raises KeyTypeError when they cannot be keys.
    """
    levels = _sorted_together([key_column(column, 0)])
    assert levels is not None
    return levels[0]


def _levels(key: KeyPair, keys: JoinKeys) -> list[Level]:
    """Return NumPy-sortable arrays for a key of both sides, nulls last."""
    dtypes = key.left.dtype, key.right.dtype
    if isinstance(dtypes[0], pd.CategoricalDtype) and dtypes[0] == dtypes[1]:
        codes = np.concatenate([
            side.astype(dtypes[0]).cat.codes for side in (key.left, key.right)
        ])  # fmt: skip
        return [(codes, codes < 0 if _are_unique_indexes(keys) else None)]
    left, right = of_one_type(key.left), of_one_type(key.right)
    levels = _levels_of_types(left, right)
    levels = [_ranks(left, right, key.name)] if levels is None else levels
    if all(map(_are_moments, (left, right))) and not _are_last(key, keys, left, right):
        least: Any = np.iinfo(np.int64).min
        return [
            (values if nulls is None else np.where(nulls, least, values), None)
            for values, nulls in levels
        ]
    return levels


def _levels_of_types(left: Any, right: Any) -> list[Level] | None:
    """Return NumPy-sortable arrays for columns of similar types; None for others."""
    array = _arrow_values(left, right)
    if array is not None:
        return [(_dense_ranks(array), array.is_null().to_numpy())]
    if are_compared_as_text(left.dtype, right.dtype):
        return None
    found: list[Level] = []
    for each in typed_columns(left, right):
        levels = _sorted_together([key_column(side, 0) for side in each])
        if levels is None:
            return None
        found += levels
    return found


def _are_unique_indexes(keys: JoinKeys) -> bool:
    """Return whether a merge is by both indexes, unique or of several levels."""
    if not (keys.left_index and keys.right_index):
        return False
    only = keys.pairs[0]
    return len(keys.pairs) > 1 or bool(only.left.is_unique and only.right.is_unique)


def _are_last(key: KeyPair, keys: JoinKeys, left: Any, right: Any) -> bool:
    """Return whether pandas sorts nulls of datetimes and durations last.

    It does in indexes that are unique, or beside no labels, in durations of two units and periods
    beside others, which are objects there, and in most objects. `left` and `right` are the columns
    in the dtypes of their values.
    """
    by_indexes = keys.left_index and keys.right_index
    durations = left.dtype.kind == right.dtype.kind == "m"
    periods = any(isinstance(side.dtype, pd.PeriodDtype) for side in (left, right))
    of_two_dtypes = (durations or periods) and bool(left.dtype != right.dtype)
    empty = not (len(left) and len(right))
    objects = [side.dtype == np.dtype(object) for side in (key.left, key.right)]
    if all(objects) and (by_indexes or len(keys.pairs) > 1):
        return True
    if any(objects) and not all(objects) and not (by_indexes and durations):
        return by_indexes or of_two_dtypes or not empty
    return _are_unique_indexes(keys) or empty if by_indexes else of_two_dtypes


def _arrow_values(left: Any, right: Any) -> Any | None:
    """Return both sides' decimals, bytes or text objects as an Arrow column; None for others.

    Arrow sorts these.
    """
    sides, kind = (left, right), None
    dtypes = [side.dtype for side in sides]
    if all(map(is_decimal, dtypes)):
        kind = common_decimal(*dtypes)
    elif all(isinstance(each, pd.ArrowDtype) and is_bytes(each.pyarrow_dtype) for each in dtypes):
        kind = pa.large_binary()
    elif np.dtype(object) in dtypes and all(infer_dtype(side) == "string" for side in sides):
        kind = pa.large_string()
    if kind is None:
        return None
    arrays = [pa.chunked_array(pa.array(side, from_pandas=True)) for side in sides]
    return pa.chunked_array([chunk for each in arrays for chunk in each.cast(kind).chunks], kind)


def _dense_ranks(array: Any) -> Any:
    return pc.rank(array, "ascending", tiebreaker="dense").to_numpy()


def _are_moments(side: Any) -> bool:
    """Return whether a column has pandas datetimes, durations or periods."""
    if side.dtype == np.dtype(object):
        return infer_dtype(side, skipna=True) == "period"
    return isinstance(side.dtype, pd.PeriodDtype) or (
        side.dtype.kind in "mM" and not isinstance(side.dtype, pd.ArrowDtype)
    )


def _sorted_together(columns: Sequence[KeyColumn]) -> list[Level] | None:
    """Return concatenated columns in a NumPy-sortable form; None for other types."""
    kinds = {column.type.kind for column in columns} - {"null"}
    nulls = np.concatenate([
        np.zeros(len(column), bool) if column.nulls is None else column.nulls for column in columns
    ])  # fmt: skip
    mask = nulls if nulls.any() else None
    if not kinds:
        return [(nulls, None)]
    if kinds == {"string"}:
        texts = pa.concat_arrays([column.strings.flat() for column in columns])  # type: ignore[union-attr]
        return [(_dense_ranks(texts), mask)]
    values = [
        np.zeros(len(column), np.int8) if column.values is None else column.values
        for column in columns
    ]  # fmt: skip
    units = [column.type.unit for column in columns if column.type.kind != "null"]
    if len(kinds) > 1 and not kinds <= NUMERIC:
        return None
    if len(set(units)) > 1:
        seconds, rest = zip(*map(_seconds, values, units), strict=True)
        return [(np.concatenate(seconds), mask), (np.concatenate(rest), None)]
    whole = np.concatenate(values)
    if whole.dtype.kind == "f" and not all(map(_are_floats, values)):
        return None
    if kinds <= NUMERIC and mask is not None:
        whole = np.where(mask, whole.dtype.type(0), whole)
    return [(whole, mask)]


def _seconds(values: Any, unit: str) -> tuple[Any, Any]:
    """Return counts of a unit as whole seconds and nanoseconds."""
    if unit == "D":
        return values.astype(np.int64) * 86_400, np.zeros(len(values), np.int64)
    of_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    seconds, rest = np.divmod(values, of_second)
    return seconds, rest * (10**9 // of_second)


def _are_floats(values: Any) -> bool:
    """Return whether float64 represents all of these numbers."""
    if values.dtype.kind not in "iu" or not len(values):
        return True
    low, high = int(values.min()), int(values.max())
    return max(-low, high) <= EXACT


def _ranks(left: Any, right: Any, name: object) -> Level:
    """Return the ranks of a key's values: by size within a type domain, text last."""
    sides = left, right
    texts = [pa.array(tag_values(side, name), pa.large_string()) for side in sides]
    coded = pa.chunked_array(texts).combine_chunks().dictionary_encode()
    nulls = coded.is_null().to_numpy(zero_copy_only=False)
    codes = coded.indices.fill_null(0).to_numpy()
    rows = np.flatnonzero(~nulls)
    found, heads = np.unique(codes[rows], return_index=True)
    values = pd.concat([side.astype(object) for side in sides], ignore_index=True)
    rank = np.zeros(len(found) + 1, np.int64)
    rank[found[order_of(values.take(rows[heads]).tolist())]] = np.arange(len(found))
    return rank[codes], nulls
