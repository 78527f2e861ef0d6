"""Read key columns from pandas Series, and make keys of two Series comparable."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import infer_dtype

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes.arrow_columns import is_bytes
from dgpuhash.frames.dataframes.pandas_casts import is_unknown
from dgpuhash.frames.dataframes.strings import ArrowStrings
from dgpuhash.frames.dataframes.tagged import utf8_error
from dgpuhash.frames.key_columns import ARROW, MASKED, PLAIN, KeyColumn, LogicalType

# Of Arrow's widest decimals.
_MOST_DIGITS = 76

REMEDIES = {
    "complex": "split it into two float columns",
    "bytes": "decode it: Series.astype(object).str.decode('utf-8'), or 'latin-1' if it is no text",
    "decimal": "convert both sides to one scale, and that to text, which is exact of decimal128: "
    ".astype(pandas.ArrowDtype(pyarrow.decimal256(76, 38))).astype('str')",
    "period": "convert it with Series.dt.to_timestamp()",
    "sparse": "convert it with Series.sparse.to_dense()",
    "interval": "use its .left and .right as two key columns",
    "integer": "convert it with Series.infer_objects() or .astype('Int64')",
    "floating": "convert it with Series.infer_objects() or .astype('Float64')",
    "boolean": "convert it with .astype('boolean')",
    "datetime": "convert it with pandas.to_datetime",
    "date": "convert it with .astype('date32[day][pyarrow]') or pandas.to_datetime",
    "timedelta": "convert it with pandas.to_timedelta",
}
ANY_REMEDY = "convert it to one type, for example with .astype('str')"


def key_column(series: Any, name: object) -> KeyColumn:
    """Return the values of a Series, or of an array of numbers, as a key column.

    Raises
    ------
    KeyTypeError
        When the dtype cannot be a key; the message names the cast that helps.
    """
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _from_categories(series, name)
    if isinstance(dtype, pd.StringDtype):
        return _from_texts(series, name)
    if isinstance(dtype, pd.ArrowDtype):
        return _from_arrow(series, name)
    if isinstance(dtype, pd.DatetimeTZDtype):
        return _from_ticks(series.to_numpy(dtype=f"M8[{dtype.unit}]"), "datetime", aware=True)
    if isinstance(dtype, np.dtype):
        return _from_numpy(series, name)
    if dtype.kind in "iubf" and not isinstance(dtype, pd.SparseDtype):
        return _from_masked(series)
    raise _refusal(name, dtype, type(dtype).__name__.removesuffix("Dtype").lower())


def _refusal(name: object, dtype: object, what: str) -> KeyTypeError:
    remedy = REMEDIES.get(what, ANY_REMEDY)
    described = f"{dtype} ({what})" if str(dtype) == "object" else str(dtype)
    return KeyTypeError(f"key column {name!r} is {described}, which cannot be a key; {remedy}")


@functools.cache
def _numeric_type(dtype: np.dtype, missing: str = PLAIN) -> LogicalType:
    kind = {"b": "bool", "f": "float", "i": "int"}.get(dtype.kind, "uint")
    bits = {"b": 1, "f": max(8 * dtype.itemsize, 32)}.get(dtype.kind, 8 * dtype.itemsize)
    return LogicalType(kind, bits, nullable=missing != PLAIN, missing=missing)


def _any_or_none(mask: np.ndarray) -> np.ndarray | None:
    return mask if mask.any() else None


def is_plain(dtype: Any) -> bool:
    """Return whether a dtype is a NumPy boolean, number or time of up to 64 bits."""
    return isinstance(dtype, np.dtype) and dtype.kind in "biufmM" and dtype.itemsize <= 8


def _from_numpy(series: Any, name: object) -> KeyColumn:
    dtype = series.dtype
    if dtype.kind in "Mm":
        return _from_ticks(series.to_numpy(), "datetime" if dtype.kind == "M" else "timedelta")
    if dtype.kind == "O":
        return _from_objects(series, name)
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise _refusal(name, dtype, "complex" if dtype.kind == "c" else "other")
    values = series if isinstance(series, np.ndarray) else series.to_numpy()
    if dtype.kind != "f":
        return KeyColumn(_numeric_type(dtype), values)
    values = values.astype(np.float32) if dtype.itemsize == 2 else values
    return KeyColumn(_numeric_type(dtype), values, _any_or_none(np.isnan(values)))


def _from_ticks(stamps: np.ndarray, kind: str, aware: bool = False) -> KeyColumn:
    unit = np.datetime_data(stamps.dtype)[0]
    return KeyColumn(
        LogicalType(kind, 64, unit=unit, aware=aware),
        np.ascontiguousarray(stamps).view(np.int64),
        _any_or_none(np.isnat(stamps)),
    )


def _from_masked(series: Any) -> KeyColumn:
    plain = np.dtype(series.dtype.numpy_dtype)
    nulls = series.isna().to_numpy()
    values = series.to_numpy(dtype=plain, na_value=plain.type(0))
    return KeyColumn(_numeric_type(plain, MASKED), values, _any_or_none(nulls))


def _from_texts(series: Any, name: object) -> KeyColumn:
    try:
        return _from_strings(series)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise utf8_error(name, error) from error


def _from_strings(series: Any) -> KeyColumn:
    array = pa.array(series, type=pa.large_string(), from_pandas=True)
    return _strings(ArrowStrings(array))


def _strings(strings: ArrowStrings) -> KeyColumn:
    return KeyColumn(LogicalType("string", nullable=True), nulls=strings.nulls, strings=strings)


def _nulls(rows: int) -> KeyColumn:
    strings = ArrowStrings(pa.nulls(rows, pa.large_string()))
    return KeyColumn(LogicalType("null"), nulls=np.ones(rows, bool), strings=strings)


def _from_objects(series: Any, name: object) -> KeyColumn:
    inferred = infer_dtype(series, skipna=True)
    if inferred == "string":
        return _from_texts(series, name)
    # NaT and other typed nulls count as plain nulls, and do not determine the column's type.
    there = series.notna()
    kept = infer_dtype(series[there], skipna=True)
    if kept == "empty":
        return _nulls(len(series))
    if kept != "string":
        raise _refusal(name, series.dtype, kept.removesuffix("64"))
    return _from_texts(series.where(there, None), name)


def _from_categories(series: Any, name: object) -> KeyColumn:
    codes = series.cat.codes.to_numpy().astype(np.int64)
    categories = series.cat.categories
    if len(categories) == 0 and categories.dtype == object:
        return _nulls(len(codes))
    values = key_column(pd.Series(categories), name)
    if values.type.kind == "null":
        return _nulls(len(codes))
    made, type_ = values.over(codes), values.type
    if type_.kind in {"bool", "int", "uint"}:
        type_ = replace(type_, nullable=True)
    return replace(made, type=type_, objects=values.strings is None)


def _from_arrow(series: Any, name: object) -> KeyColumn:
    dtype = series.dtype.pyarrow_dtype
    array = pa.chunked_array(pa.array(series, type=dtype, from_pandas=True))
    nulls = series.isna().to_numpy()
    if pa.types.is_null(dtype):
        return _nulls(len(series))
    if dtype in {pa.string(), pa.large_string(), pa.string_view()}:
        return _strings(ArrowStrings(array))
    if pa.types.is_boolean(dtype):
        values = array.fill_null(False).to_numpy()
        return KeyColumn(_numeric_type(values.dtype, ARROW), values, _any_or_none(nulls))
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype):
        values = array.fill_null(0).to_numpy()
        if values.dtype.kind == "f":
            values = values.astype(np.float32) if values.dtype.itemsize == 2 else values
        return KeyColumn(_numeric_type(values.dtype, ARROW), values, _any_or_none(nulls))
    if pa.types.is_timestamp(dtype):
        type_ = LogicalType("datetime", 64, unit=dtype.unit, aware=dtype.tz is not None)
    elif pa.types.is_duration(dtype):
        type_ = LogicalType("timedelta", 64, unit=dtype.unit)
    elif pa.types.is_date(dtype):
        bits = dtype.bit_width
        type_ = LogicalType("date", bits, unit="D" if bits == 32 else "ms")
    else:
        any_length = dtype in {pa.binary(), pa.large_binary(), pa.binary_view()}
        what = "bytes" if any_length or pa.types.is_fixed_size_binary(dtype) else str(dtype)
        raise _refusal(name, series.dtype, "decimal" if pa.types.is_decimal(dtype) else what)
    integers = pa.int32() if type_.bits == 32 else pa.int64()
    values = array.cast(integers).fill_null(0).to_numpy()
    return KeyColumn(type_, values, _any_or_none(nulls))


def of_one_type(side: pd.Series) -> pd.Series:
    """Return objects of one type in an exact dtype; others unchanged.

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
    """Return whether keys of two dtypes are compared by tagged text.

    These are Python's objects, bytes and times of a day; categories of which a partition may have
    any; and decimals, periods and intervals beside values of other dtypes.
    """
    if all(isinstance(dtype, np.dtype) and dtype.kind != "O" for dtype in (left, right)):
        return False
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


def typed_columns(left: Any, right: Any) -> Iterator[tuple[Any, Any]]:
    """Yield both sides' columns of keys that are compared by type, not as text.

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
    """Return a key column in a dtype that represents its values."""
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
    """Return whether a dtype is an Arrow decimal."""
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype)


def common_decimal(left: Any, right: Any) -> Any:
    """Return the common Arrow type of two decimal dtypes, or None."""
    kinds = [dtype.pyarrow_dtype for dtype in (left, right)]
    scale = max(kind.scale for kind in kinds)
    digits = scale + max(kind.precision - kind.scale for kind in kinds)
    return None if digits > _MOST_DIGITS else pa.decimal256(_MOST_DIGITS, scale)


def _decimal_texts(left: pd.Series, right: pd.Series) -> tuple[Any, Any]:
    """Return decimals of both sides as text with equally many fraction digits."""
    kind = common_decimal(left.dtype, right.dtype)
    arrays = [pa.chunked_array(pa.array(side, from_pandas=True)) for side in (left, right)]
    ours, theirs = (pd.array(each.cast(kind).cast(pa.large_string()), "str") for each in arrays)
    return pd.Series(ours), pd.Series(theirs)


def only_nulls(side: pd.Series, number: int) -> pd.Series:
    """Return a column whose nulls alone can equal another column's values."""
    return pd.Series(pd.arrays.IntegerArray(np.full(len(side), number), side.isna().to_numpy()))
