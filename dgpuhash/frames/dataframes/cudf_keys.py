"""Key columns from cuDF Series, without copies where the layout allows it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes.strings import Strings
from dgpuhash.frames.key_columns import ARROW, KeyColumn, LogicalType

__all__ = ["CudfStrings", "key_column", "plain_array"]

# libcudf's type names. Any cuDF column can hold nulls, whatever its dtype.
FIXED = {
    **{f"INT{bits}": LogicalType("int", bits, nullable=True) for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": LogicalType("uint", bits, nullable=True) for bits in (8, 16, 32, 64)},
    "BOOL8": LogicalType("bool", 1, nullable=True),
    # NaN and null are different keys, as in cuDF's own merges.
    "FLOAT32": LogicalType("float", 32, nullable=True, missing=ARROW),
    "FLOAT64": LogicalType("float", 64, nullable=True, missing=ARROW),
    "TIMESTAMP_DAYS": LogicalType("date", 32, unit="D"),
}
UNITS = {"SECONDS": "s", "MILLISECONDS": "ms", "MICROSECONDS": "us", "NANOSECONDS": "ns"}
for _name, _unit in UNITS.items():
    FIXED[f"TIMESTAMP_{_name}"] = LogicalType("datetime", 64, unit=_unit)
    FIXED[f"DURATION_{_name}"] = LogicalType("timedelta", 64, unit=_unit)


def key_column(series: Any, name: object) -> KeyColumn:
    """Return the values of `series` as a key column.

    Raises
    ------
    KeyTypeError
        When the dtype cannot be a key.
    """
    import cudf

    if isinstance(series.dtype, cudf.CategoricalDtype):
        return _from_categories(series, name)
    column = series.to_pylibcudf()[0]
    kind = _kind(column)
    if kind == "STRING":
        strings = CudfStrings(column)
        return KeyColumn(LogicalType("string", nullable=True), nulls=strings.nulls, strings=strings)
    if kind not in FIXED:
        remedy = "convert it to integers, floats, datetimes or strings with astype"
        if kind.startswith("DECIMAL"):
            remedy = (
                "convert both sides to one scale, and that to text, which is exact: "
                ".astype(cudf.Decimal128Dtype(38, 9)).astype('str')"
            )
        raise KeyTypeError(
            f"key column {name!r} is {series.dtype}, which cannot be a key; {remedy}"
        )
    type_ = FIXED[kind]
    if type_.kind == "datetime" and getattr(series.dtype, "tz", None) is not None:
        type_ = LogicalType("datetime", 64, unit=type_.unit, aware=True)
    return KeyColumn(type_, _buffer(column, _dtype(type_)), _nulls(column))


def plain_array(column: Any, dtype: Any) -> Any:
    """Return the values of a pylibcudf column as a CuPy array, uncopied.

    `dtype` is that of the column in cuDF. None when there are nulls, or no array can hold the
    values.
    """
    if not isinstance(dtype, np.dtype):
        return None
    kind = _kind(column)
    if kind not in FIXED or column.null_count():
        return None
    return _buffer(column, _dtype(FIXED[kind]))


def _kind(column: Any) -> str:
    """Return libcudf's name for the type of a pylibcudf column."""
    import pylibcudf

    return str(pylibcudf.TypeId(column.type().id()).name)


def _dtype(type_: LogicalType) -> np.dtype:
    if type_.kind == "bool":
        return np.dtype(bool)
    letter = {"uint": "u", "float": "f"}.get(type_.kind, "i")
    return np.dtype(f"{letter}{type_.bits // 8}")


def _buffer(column: Any, dtype: np.dtype) -> Any:
    """Return the fixed-width values of a pylibcudf column as a CuPy array.

    The array is on the column's memory.
    """
    import cupy as cp

    n = column.size()
    if n == 0:
        return cp.empty(0, dtype)
    return _bytes(column.data()).view(dtype)[column.offset() : column.offset() + n]


def _bytes(span: Any) -> Any:
    """Return device memory that pylibcudf owns as a CuPy array of bytes."""
    import cupy as cp

    if span is None:
        return cp.empty(0, cp.uint8)
    if hasattr(span, "__cuda_array_interface__"):
        return cp.asarray(span).view(cp.uint8)
    memory = cp.cuda.UnownedMemory(span.ptr, span.size, span)
    return cp.ndarray((span.size,), cp.uint8, cp.cuda.MemoryPointer(memory, 0))


def _nulls(column: Any) -> Any:
    """Return a mask of the nulls of a pylibcudf column, or None when there are none."""
    import pylibcudf

    if not column.null_count():
        return None
    return _buffer(pylibcudf.unary.is_null(column), np.dtype(bool))


def _either(one: Any, other: Any) -> Any:
    if not bool(other.any()):
        return one
    return other if one is None else one | other


def _from_categories(series: Any, name: object) -> KeyColumn:
    import cudf
    import cupy as cp

    codes = series.cat.codes.astype("int64").fillna(-1).to_cupy()
    values = key_column(cudf.Series(series.cat.categories), name)
    if values.strings is not None:
        assert isinstance(values.strings, CudfStrings)
        strings = values.strings.over(codes)
        return KeyColumn(values.type, nulls=strings.nulls, strings=strings)
    absent = codes < 0
    at = cp.maximum(codes, 0)
    picked = values.values[at] if len(values) else cp.zeros(len(codes), values.values.dtype)
    nulls = absent if bool(absent.any()) else None
    if values.nulls is not None:
        nulls = _either(nulls, values.nulls[at])
    return KeyColumn(values.type, picked, nulls)


class CudfStrings(Strings):
    """Strings of a pylibcudf column, or a gather of them."""

    device = "cuda"

    def __init__(self, column: Any) -> None:
        super().__init__(column, column.size())

    @functools.cached_property
    def _spans(self) -> tuple[Any, Any]:
        if self._size == 0:  # A column without rows may have no offsets.
            return self._xp.zeros(1, np.int64), self._xp.empty(0, np.uint8)
        offsets = self._column.child(0)
        width = np.dtype(np.int64 if _kind(offsets) == "INT64" else np.int32)
        first = offsets.offset() + self._column.offset()
        ends = _bytes(offsets.data()).view(width)[first : first + self._size + 1]
        return ends.astype(np.int64, copy=False), _bytes(self._column.data())

    @functools.cached_property
    def _missing(self) -> Any:
        return _nulls(self._column)
