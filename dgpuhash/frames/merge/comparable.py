"""Columns by which keys of two sides are compared: values of their types, or tagged texts."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import infer_dtype

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.dataframes.arrow_columns import is_bytes
from dgpuhash.frames.key_columns import KeyColumn, check_comparable
from dgpuhash.frames.keys.categories import is_unknown
from dgpuhash.frames.keys.tagged import tagged

__all__ = [
    "Compared",
    "are_compared_as_text",
    "common_decimal",
    "comparable",
    "compared",
    "is_decimal",
    "of_one_type",
    "typed_columns",
]

Columns = tuple[Any, Any]


@dataclass(frozen=True)
class Compared:
    """A Series by which keys are compared, read as a key column once.

    Attributes
    ----------
    series : Series
    name : label
        What errors call the key.
    """

    series: Any
    name: object

    @functools.cached_property
    def column(self) -> KeyColumn:
        """The values of the Series."""
        return frames_of(self.series).key_column(self.series, self.name)


# Of Arrow's widest decimals.
_MOST_DIGITS = 76


def comparable(
    left: pd.Series, right: pd.Series, name: object, *, as_text: bool | None = None
) -> list[Columns]:
    """Return the columns of both sides that are equal where these keys are.

    Parameters
    ----------
    left, right : Series
    name : label
        What errors call the key.
    as_text : bool, optional
        Whether keys are compared by their tagged texts; all partitions are compared alike. Default:
        what the dtypes ask for, and objects of one type only beside others.

    Raises
    ------
    KeyTypeError
        When a value cannot be a key.

    Examples
    --------
    >>> found = comparable(pd.Series([True, None], dtype=object), pd.Series([1, 0]), "k")
    >>> [column.dtype.name for column in found[0]]
    ['boolean', 'int64']
    """
    found = compared(left, right, name, as_text=as_text)
    return [(ours.series, theirs.series) for ours, theirs in found]


def compared(
    left: pd.Series, right: pd.Series, name: object, *, as_text: bool | None = None
) -> list[tuple[Compared, Compared]]:
    """Return the result of `comparable` and the key columns read from it."""
    if as_text is None:
        left, right = of_one_type(left), of_one_type(right)
        as_text = are_compared_as_text(left.dtype, right.dtype)
    if as_text:
        return [(Compared(tagged(left, name), name), Compared(tagged(right, name), name))]
    return [_comparable(*each, name) for each in typed_columns(left, right)]


def of_one_type(side: pd.Series) -> pd.Series:
    """Return objects that have one type in a dtype that holds them as they are; others as given.

    Examples
    --------
    >>> of_one_type(pd.Series([2**63, None], dtype=object)).dtype, of_one_type(pd.Series([1])).dtype
    (UInt64Dtype(), dtype('int64'))
    """
    if side.dtype != np.dtype(object):
        return side
    kind, there = infer_dtype(side, skipna=True), side.where(side.notna(), None)
    try:
        if kind == "integer":
            low, high = there.min(), there.max()
            return there.astype("UInt64" if low >= 0 and high >= 2**63 else "Int64")
        if kind == "floating":
            return there.astype("float64")
        if kind == "boolean":
            return there.astype("boolean")
        if kind in {"datetime", "datetime64"}:
            return pd.Series(pd.to_datetime(there))
        if kind in {"timedelta", "timedelta64"}:
            return pd.Series(pd.to_timedelta(there))
        if kind == "date" and any(isinstance(each, datetime.datetime) for each in side):
            return side
        if kind in {"date", "decimal", "bytes"}:
            return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(there)])))
    except (TypeError, ValueError, OverflowError):
        # Integers beyond 64 bits, several time zones, decimals that are infinite.
        pass
    return side


def are_compared_as_text(left: Any, right: Any) -> bool:
    """Return whether keys of two dtypes are compared by their tagged texts.

    These are Python's objects, bytes and times of a day; categories of which a partition may have
    any; and decimals, periods and intervals beside values of other dtypes.
    """
    if any(is_unknown(dtype) for dtype in (left, right)):
        return True
    values = [_of_values(dtype) for dtype in (left, right)]
    if any(map(_is_tagged, values)):
        return True
    if any(isinstance(each, pd.PeriodDtype | pd.IntervalDtype) for each in values):
        periods = isinstance(values[0], pd.PeriodDtype) and values != [left, right]
        return bool(values[0] != values[1]) or periods
    decimals = [is_decimal(dtype) for dtype in (left, right)]
    if all(decimals):
        return common_decimal(left, right) is None
    return any(map(is_decimal, values))


def _of_values(dtype: Any) -> Any:
    return dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype


def _is_tagged(dtype: Any) -> bool:
    if isinstance(dtype, pd.ArrowDtype):
        return is_bytes(dtype.pyarrow_dtype) or pa.types.is_time(dtype.pyarrow_dtype)
    return bool(dtype == np.dtype(object))


def typed_columns(left: Any, right: Any) -> Iterator[Columns]:
    """Yield the columns of both sides that have the values of keys which are not compared as text.

    They may be of types that are never equal.
    """
    left, right = _values(left), _values(right)
    dtypes = left.dtype, right.dtype
    if all(isinstance(dtype, pd.IntervalDtype) for dtype in dtypes) and dtypes[0] == dtypes[1]:
        for end in ("left", "right"):
            ours, theirs = (pd.Series(getattr(side.array, end)) for side in (left, right))
            yield ours, theirs
    elif "c" in {dtype.kind for dtype in dtypes}:
        yield _real(left), _real(right)
        yield _imaginary(left), _imaginary(right)
    elif all(map(is_decimal, dtypes)):
        yield _decimal_texts(left, right)
    else:
        yield left, right


def _real(side: Any) -> Any:
    return pd.Series(side.to_numpy().real) if side.dtype.kind == "c" else side


def _imaginary(side: Any) -> Any:
    numbers = side.to_numpy().imag if side.dtype.kind == "c" else np.zeros(len(side))
    return pd.Series(numbers)


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
    return side


def is_decimal(dtype: Any) -> bool:
    """Return whether a dtype is one of Arrow's decimals."""
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype)


def common_decimal(left: Any, right: Any) -> Any:
    """Return the Arrow type that holds decimals of both dtypes, None where there is none."""
    kinds = [dtype.pyarrow_dtype for dtype in (left, right)]
    scale = max(kind.scale for kind in kinds)
    digits = scale + max(kind.precision - kind.scale for kind in kinds)
    return None if digits > _MOST_DIGITS else pa.decimal256(_MOST_DIGITS, scale)


def _decimal_texts(left: pd.Series, right: pd.Series) -> Columns:
    """Return decimals of both sides as texts with equally many digits behind the point."""
    kind = common_decimal(left.dtype, right.dtype)
    arrays = [pa.chunked_array(pa.array(side, from_pandas=True)) for side in (left, right)]
    ours, theirs = (pd.array(each.cast(kind).cast(pa.large_string()), "str") for each in arrays)
    return pd.Series(ours), pd.Series(theirs)


def _comparable(left: pd.Series, right: pd.Series, name: object) -> tuple[Compared, Compared]:
    """Return columns as they are, or only their nulls where their types are never equal."""
    ours, theirs = Compared(left, name), Compared(right, name)
    try:
        check_comparable(name, ours.column.type, theirs.column.type)
    except KeyTypeError:
        return _only_nulls(left, 0, name), _only_nulls(right, 1, name)
    return ours, theirs


def _only_nulls(side: pd.Series, number: int, name: object) -> Compared:
    """Return a column that equals no other's but in its nulls."""
    array = pd.arrays.IntegerArray(np.full(len(side), number), side.isna().to_numpy())
    return Compared(pd.Series(array), name)
