"""Key columns from pandas Series."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes.strings import ArrowStrings
from dgpuhash.frames.key_columns import ARROW, MASKED, PLAIN, KeyColumn, LogicalType

__all__ = ["key_column", "utf8_error"]

REMEDIES = {
    "complex": "split it into two float columns",
    "bytes": "decode it: Series.astype(object).str.decode('utf-8'), or 'latin-1' if it is no text",
    "decimal": "convert both sides to one scale, and that to text, which is exact of decimal128: "
    ".astype("
    "pandas.ArrowDtype(pyarrow.decimal256(76, 38))).astype('str')",
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
    """Return the values of `series` as a key column.

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


def utf8_error(name: object, error: Exception) -> KeyTypeError:
    """Return the error for strings of a column that are not UTF-8.

    `name` may be a list of labels when any one of the columns may hold them.
    """
    return KeyTypeError(
        f"column {name!r} holds strings that are not valid UTF-8 ({error}); clean them "
        "with .str.encode('utf-8', 'replace').str.decode('utf-8')"
    )


def _numeric_type(dtype: np.dtype, missing: str = PLAIN) -> LogicalType:
    kind = {"b": "bool", "f": "float", "i": "int"}.get(dtype.kind, "uint")
    bits = {"b": 1, "f": max(8 * dtype.itemsize, 32)}.get(dtype.kind, 8 * dtype.itemsize)
    return LogicalType(kind, bits, nullable=missing != PLAIN, missing=missing)


def _any_or_none(mask: np.ndarray) -> np.ndarray | None:
    return mask if mask.any() else None


def _from_numpy(series: Any, name: object) -> KeyColumn:
    dtype = series.dtype
    if dtype.kind in "Mm":
        return _from_ticks(series.to_numpy(), "datetime" if dtype.kind == "M" else "timedelta")
    if dtype.kind == "O":
        return _from_objects(series, name)
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise _refusal(name, dtype, "complex" if dtype.kind == "c" else "other")
    values = series.to_numpy()
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
    inferred = pd.api.types.infer_dtype(series, skipna=True)
    if inferred == "string":
        return _from_texts(series, name)
    # NaT and other typed nulls count as plain nulls, and do not determine the column's type.
    there = series.notna()
    kept = pd.api.types.infer_dtype(series[there], skipna=True)
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
    if values.strings is not None:
        assert isinstance(values.strings, ArrowStrings)
        return _strings(values.strings.over(codes))
    absent = codes < 0
    at = np.maximum(codes, 0)
    picked = values.values[at] if len(values) else np.zeros(len(codes), values.values.dtype)
    if values.nulls is not None:
        absent = absent | values.nulls[at]
    type_ = values.type
    if type_.kind in {"bool", "int", "uint"}:
        type_ = replace(type_, nullable=True)
    return KeyColumn(type_, picked, _any_or_none(absent), objects=True)


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
