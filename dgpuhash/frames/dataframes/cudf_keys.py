"""Key columns from cuDF Series, without copies where the layout allows it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes.strings import NULL_HASH
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
        strings = CudfStrings(series)
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
    return KeyColumn(type_, _buffer(column, _dtype(type_)), _nulls(series))


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


def _nulls(series: Any) -> Any:
    if not series.has_nulls:
        return None
    return series.isna().astype(bool).to_cupy()


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


class CudfStrings:
    """Strings of a cuDF Series, or a gather of them.

    With `codes`, row i is the string of the Series at ``codes[i]`` (-1: null).
    """

    def __init__(self, series: Any, codes: Any = None) -> None:
        self._series = series.reset_index(drop=True)
        self._codes = codes

    def __len__(self) -> int:
        return len(self._series if self._codes is None else self._codes)

    @property
    def nulls(self) -> Any:
        """Mask of the nulls, or None when there are none."""
        import cupy as cp

        missing = _nulls(self._series)
        if self._codes is None:
            return missing
        absent = self._codes < 0
        if missing is not None:
            absent = absent | missing[cp.maximum(self._codes, 0)]
        return absent if bool(absent.any()) else None

    def over(self, codes: Any) -> CudfStrings:
        """Return a column whose row i is this one's string at ``codes[i]``.

        -1 gives a null.
        """
        return CudfStrings(self._series, codes)

    def hash(self, seed: int) -> Any:
        """Return a 64-bit hash of each string; nulls give a constant."""
        import cupy as cp

        if len(self._series) == 0:
            return cp.full(len(self), NULL_HASH)
        column = self._series.to_pylibcudf()[0]
        offsets = column.child(0)
        width = np.dtype(np.int64 if _kind(offsets) == "INT64" else np.int32)
        first = offsets.offset() + column.offset()
        ends = _bytes(offsets.data()).view(width)[first : first + len(self._series) + 1]
        letters = _bytes(column.data())
        hashes = backend.get("cuda").hash_strings(ends.astype(cp.int64), letters, seed)
        missing = _nulls(self._series)
        if missing is not None:
            hashes = cp.where(missing, NULL_HASH, hashes)
        if self._codes is None:
            return hashes
        return cp.where(self._codes < 0, NULL_HASH, hashes[cp.maximum(self._codes, 0)])

    def take(self, rows: Any) -> CudfStrings:
        """Return the strings at positions `rows`."""
        if self._codes is not None:
            return CudfStrings(self._series, self._codes[rows])
        return CudfStrings(self._series.take(rows))

    def equals(self, other: CudfStrings) -> Any:
        """Return a mask of the positions with equal strings; two nulls are equal."""
        import cupy as cp

        if len(self) == 0:
            return cp.zeros(0, dtype=bool)
        ours, our_nulls = self._flat(), self.nulls
        theirs, their_nulls = other._flat(), other.nulls
        # Dask's strings converted from pandas compare to bool[pyarrow], which CuPy lacks.
        same = (ours == theirs).fillna(False).astype(bool).to_cupy()
        if our_nulls is not None:
            same = same & ~our_nulls
        if their_nulls is not None:
            same = same & ~their_nulls
        if our_nulls is None or their_nulls is None:
            return same
        return same | (our_nulls & their_nulls)

    def _flat(self) -> Any:
        import cudf
        import cupy as cp

        if self._codes is None:
            return self._series
        if len(self._series) == 0:
            return cudf.Series([None] * len(self), dtype="str")
        return self._series.take(cp.maximum(self._codes, 0)).reset_index(drop=True)
