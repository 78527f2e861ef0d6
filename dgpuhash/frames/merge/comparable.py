"""Keys as columns that an index can hold: what pandas compares as objects becomes values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.key_columns import check_comparable

__all__ = ["comparable"]

Columns = tuple[Any, Any]
# What objects of one kind are converted to.
_OBJECTS: dict[str, Any] = {
    "boolean": "boolean",
    "integer": "Int64",
    "floating": "float64",
    "mixed-integer-float": "float64",
    "date": pd.ArrowDtype(pa.date32()),
}


def comparable(left: pd.Series, right: pd.Series, name: object) -> list[Columns]:
    """Return the columns of both sides that are equal where these keys are.

    Raises
    ------
    KeyTypeError
        When objects of several kinds, or of one that cannot be a key, are compared.

    Examples
    --------
    >>> found = comparable(pd.Series([True, None], dtype=object), pd.Series([1, 0]), "k")
    >>> [column.dtype.name for column in found[0]]
    ['boolean', 'int64']
    """
    return [
        (ours, theirs)
        if _are_comparable(ours, theirs, name)
        else (_only_nulls(ours, 0), _only_nulls(theirs, 1))
        for ours, theirs in _parts(_values(left), _values(right))
    ]


def _parts(left: Any, right: Any) -> Iterator[Columns]:
    dtypes = left.dtype, right.dtype
    if all(isinstance(dtype, pd.IntervalDtype) for dtype in dtypes) and dtypes[0] == dtypes[1]:
        for end in ("left", "right"):
            ours, theirs = (pd.Series(getattr(side.array, end)) for side in (left, right))
            yield ours, theirs
    elif "c" in {dtype.kind for dtype in dtypes}:
        for part in ("real", "imag"):
            ours, theirs = (
                pd.Series(getattr(side.to_numpy(complex), part)) for side in (left, right)
            )
            yield ours, theirs
    elif all(_is_decimal(dtype) for dtype in dtypes):
        scale = max(dtype.pyarrow_dtype.scale for dtype in dtypes)
        yield _decimals(left, scale), _decimals(right, scale)
    else:
        yield left, right


def _values(side: Any) -> Any:
    """Return a key column as one of a dtype that stands for its values."""
    dtype: Any = side.dtype
    if isinstance(dtype, pd.PeriodDtype):
        return pd.Series(side.array.asi8.view("M8[ns]"))
    if isinstance(dtype, pd.SparseDtype):
        return side.sparse.to_dense()
    if isinstance(dtype, pd.CategoricalDtype) and isinstance(
        dtype.categories.dtype, pd.IntervalDtype
    ):
        codes = side.cat.codes.to_numpy()
        return pd.Series(dtype.categories.array.take(codes, allow_fill=True))
    if isinstance(dtype, pd.CategoricalDtype) and dtype.categories.dtype == object:
        values = _values(pd.Series(dtype.categories))
        if values.dtype != object:
            return values.reindex(side.cat.codes).reset_index(drop=True)
        return side
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_binary(dtype.pyarrow_dtype):
        return _decoded(side.astype(object))
    if dtype.kind != "O" or not isinstance(dtype, np.dtype):
        return side
    kind = pd.api.types.infer_dtype(side, skipna=True)
    if kind == "bytes":
        return _decoded(side)
    if kind in {"datetime", "datetime64", "timedelta", "timedelta64"}:
        moments = pd.to_datetime if kind.startswith("date") else pd.to_timedelta
        return moments(side)
    if kind == "decimal":
        made = pa.array(side.where(side.notna(), None).to_list())
        return pd.Series(made, dtype=pd.ArrowDtype(made.type))
    if kind == "integer":
        numbers = [int(each) for each in side if not pd.isna(each)]
        if min(numbers) >= -(2**63) and 2**63 <= max(numbers) < 2**64 and min(numbers) >= 0:
            return side.astype("UInt64")
    return side.astype(_OBJECTS[kind]) if kind in _OBJECTS else side


def _decoded(side: pd.Series) -> pd.Series:
    """Return bytes as text of as many letters."""
    texts = [each.decode("latin-1") if isinstance(each, bytes) else None for each in side]
    return pd.Series(pd.array(texts, dtype="str"))


def _is_decimal(dtype: Any) -> bool:
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype)


def _decimals(side: pd.Series, scale: int) -> pd.Series:
    array = pa.chunked_array(pa.array(side, from_pandas=True)).cast(pa.decimal256(76, scale))
    return pd.Series(array.cast(pa.string()).to_pandas().astype("str"))


def _are_comparable(left: pd.Series, right: pd.Series, name: object) -> bool:
    types = [frames_of(side.to_frame()).key_column(side, name).type for side in (left, right)]
    try:
        check_comparable(name, *types)
    except KeyTypeError:
        return False
    return True


def _only_nulls(side: pd.Series, number: int) -> pd.Series:
    """Return a column that equals no other's but in its nulls."""
    return pd.Series(pd.arrays.IntegerArray(np.full(len(side), number), side.isna().to_numpy()))
