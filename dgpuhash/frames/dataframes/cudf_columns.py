"""Read, gather and rebuild columns of cuDF frames through pylibcudf.

A selection, a Series or a gather of a cuDF frame makes some hundred calls; the columns themselves
make a few. Their names are private to cuDF: `_data`, `_from_data`, `_column`, `plc_column` and
`_rebuild_column`, of version 26.10.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from dgpuhash.errors import KeyTypeError, UnsupportedError
from dgpuhash.frames.dataframes.strings import Strings
from dgpuhash.frames.key_columns import ARROW, KeyColumn, LogicalType

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


def columns_of(frame: Any) -> Any:
    """Return the columns of a cuDF frame as a mapping from labels."""
    return frame._data


def has_column(frame: Any, label: Hashable) -> bool:
    """Return whether a frame has a column with this label."""
    columns = columns_of(frame)
    return label in (frame.columns if columns.multiindex else columns)


def series_of_column(column: Any, name: Hashable | None = None, index: Any = None) -> Any:
    """Return a Series of a column, numbered from 0 unless an index is given."""
    import cudf

    return cudf.Series._from_column(column, name=name, index=index)


def index_of_columns(columns: Sequence[Any], names: Sequence[Hashable | None]) -> Any:
    """Return an index of one or several levels on columns that must not be written to.

    Raises
    ------
    UnsupportedError
        When the only level holds decimals, of which cuDF makes no index.
    """
    import cudf

    if len(columns) > 1:
        frame = frame_of(enumerate(columns), cudf.RangeIndex(len(columns[0])))
        return cudf.MultiIndex.from_frame(frame, names=list(names))
    if type(columns[0].dtype).__name__.startswith("Decimal"):
        raise UnsupportedError(
            f"cuDF has no index of dtype {columns[0].dtype}; give as_index=False, "
            "or convert the key with .astype('str')"
        )
    return cudf.Index._from_column(columns[0], name=names[0])


def column_of_series(series: Any) -> Any:
    """Return the column of a Series or one-level index; a column unchanged."""
    return getattr(series, "_column", series)


def series_of_key(values: Any, name: Hashable | None = None) -> Any:
    """Return the values of a key as a Series; a column is numbered from 0."""
    return values if hasattr(type(values), "iloc") else series_of_column(values, name)


def numbered_series(values: Any) -> Any:
    """Return a Series, an index of one level or an array as a Series numbered from 0."""
    if is_numbered(getattr(values, "index", None)):
        return values
    if hasattr(type(values), "_column"):
        return series_of_column(column_of_series(values), values.name)
    import cudf

    return cudf.Series(values)


def is_numbered(index: Any) -> bool:
    """Return whether the labels of an index are row numbers."""
    import cudf

    return type(index) is cudf.RangeIndex and index.start == 0 and index.step == 1


def array_column(array: Any, like: Any = None) -> Any:
    """Return a column on the memory of a contiguous CuPy array, with the dtype of `like`.

    Moments and spans are given as counts.
    """
    import pylibcudf as plc

    dtype = array.dtype if like is None else like.dtype
    if not len(array):
        return empty_column(dtype)
    own = plc.Column.from_cuda_array_interface(array)
    if like is not None:
        own = plc.Column(like.to_pylibcudf().type(), len(array), own.data(), None, 0, 0, [])
    return column_over(own, dtype)


def empty_column(dtype: Any) -> Any:
    """Return a column without rows."""
    import cudf

    return cudf.core.column.column_empty(0, dtype)


def column_over(own: Any, dtype: Any) -> Any:
    """Return a column of a dtype on the memory of a pylibcudf column."""
    import cudf

    columns, plain = cudf.core.column.column, isinstance(dtype, np.dtype) and dtype.kind in "biuf"
    # Checks of the dtype take longer than all else.
    own = columns._rebuild_column(own, [], wrap_buffers=True) if plain else own
    return columns.ColumnBase.create(own, dtype, validate=not plain)


def shared_column(column: Any) -> Any:
    """Return a copy-on-write column on the same memory."""
    return column_over(column.plc_column, column.dtype)


def take_series(series: Any, rows: Any, *, nulls: bool = False) -> Any:
    """Return the values of a Series at positions, as `take_columns` does, numbered from 0."""
    found = take_columns([column_of_series(series)], rows, nulls=nulls)
    return series_of_column(found[0], series.name)


def take_columns(columns: Collection[Any], rows: Any, *, nulls: bool) -> list[Any]:
    """Return the values of each column at positions `rows`, safe to write to.

    Parameters
    ----------
    columns : columns of one length
    rows : integer array or None
        None: all of them, in order, which are copied when one is written to.
    nulls : bool
        Whether a position may be -1, which gives a null.
    """
    import cudf

    if rows is None:
        return list(map(shared_column, columns))
    if not columns or not len(rows) or not len(next(iter(columns))):
        empty = cudf.core.column.column_empty
        return [empty(len(rows), column.dtype) for column in columns]
    found = gather([column.to_pylibcudf() for column in columns], rows, nulls=nulls)
    return _columns_like(found, columns)


def gather(table: Sequence[Any], rows: Any, *, nulls: bool = False) -> list[Any]:
    """Return the values of pylibcudf columns at positions.

    `nulls`: a position may be -1, which gives a null.
    """
    import cupy as cp
    import pylibcudf as plc

    rows = cp.ascontiguousarray(rows, "i8")
    # libcudf counts negative numbers from the end, and takes numbers beyond the end for nulls.
    places = plc.Column.from_cuda_array_interface(rows.view("u8") if nulls else rows)
    policy = plc.copying.OutOfBoundsPolicy
    beyond = policy.NULLIFY if nulls else policy.DONT_CHECK
    return list(plc.copying.gather(plc.Table(list(table)), places, beyond).columns())


def ranked_column(values: Any) -> Any:
    """Return a pylibcudf column in the sort order of a Series; codes for categoricals."""
    if hasattr(values.dtype, "categories"):
        series = series_of_column(column_of_series(values))
        values = series.cat.codes.astype("int64").where(series.notna())
    return column_of_series(values).to_pylibcudf()


def sorted_order(table: Sequence[Any]) -> Any:
    """Return the positions of rows in the order of columns of pylibcudf, as a CuPy array.

    Nulls come last, and equal rows stay in order.
    """
    import pylibcudf as plc

    order = plc.sorting.stable_sorted_order(
        plc.Table(list(table)),
        [plc.types.Order.ASCENDING] * len(table),
        [plc.types.NullOrder.AFTER] * len(table),
    )
    return _buffer(order, np.dtype(np.int32))


def _columns_like(made: Iterable[Any], columns: Iterable[Any]) -> list[Any]:
    """Return pylibcudf columns as cuDF columns with the dtypes of others."""
    return [column_over(own, column.dtype) for own, column in zip(made, columns, strict=True)]


def frame_of(columns: Iterable[tuple[Hashable, Any]], index: Any, like: Any = None) -> Any:
    """Return a cuDF frame from labels, columns and an index.

    Labels are of several levels where those of the frame `like` are.
    """
    import cudf

    of_levels = like is not None and like._data.multiindex
    names = like._data.level_names if of_levels else (None,)
    made = cudf.core.column_accessor.ColumnAccessor(
        dict(columns), multiindex=of_levels, level_names=names, verify=False
    )
    return cudf.DataFrame._from_data(made, index=index)


def index_of(levels: Sequence[Any], names: Sequence[Hashable | None]) -> Any:
    """Return a cuDF index from one or several levels, given as Series or indexes."""
    return index_of_columns([shared_column(column_of_series(each)) for each in levels], names)


def levels_of_index(index: Any) -> list[Any]:
    """Return the levels of a cuDF index as Series numbered from 0."""
    return [numbered_series(index.get_level_values(level)) for level in range(index.nlevels)]


def order_of(columns: Sequence[Any]) -> Any:
    """Return the stable sort order of rows by several Series, nulls last.

    Categories are in their own order.
    """
    return sorted_order(list(map(ranked_column, columns)))


def two_rows(meta: Any) -> Any:
    """Return a two-row frame with the schema of an empty one."""
    import cudf
    from dask.dataframe.dispatch import meta_nonempty

    levels = levels_of_index(meta.index)
    # Dask-cuDF makes no labels of the dtypes of pandas that have nulls.
    if not any(hasattr(level.dtype, "numpy_dtype") for level in levels):
        return meta_nonempty(meta)
    made = meta_nonempty(meta.reset_index(drop=True))
    columns = enumerate(map(column_of_series, levels))
    labels = meta_nonempty(frame_of(columns, cudf.RangeIndex(len(meta))))
    made.index = index_of([labels[level] for level in range(len(levels))], list(meta.index.names))
    return made


def key_column(series: Any, name: object) -> KeyColumn:
    """Return the values of a Series or a column as a key column.

    Raises
    ------
    KeyTypeError
        When the dtype cannot be a key.
    """
    import cudf

    column = column_of_series(series)
    if isinstance(column.dtype, cudf.CategoricalDtype):
        return _from_categories(series_of_key(series), name)
    return key_values(column.to_pylibcudf(), column.dtype, name)


def key_values(column: Any, dtype: Any, name: object) -> KeyColumn:
    """Return the values of a column of pylibcudf as a key column.

    `dtype` is that of the column in cuDF, not one of categories.
    """
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
        raise KeyTypeError(f"key column {name!r} is {dtype}, which cannot be a key; {remedy}")
    type_ = FIXED[kind]
    if type_.kind == "datetime" and getattr(dtype, "tz", None) is not None:
        type_ = LogicalType("datetime", 64, unit=type_.unit, aware=True)
    return KeyColumn(type_, _buffer(column, _dtype(type_)), null_mask(column))


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
    if not (getattr(span, "ptr", 0) and span.size):
        return cp.asarray(span).view(cp.uint8)
    memory = cp.cuda.UnownedMemory(span.ptr, span.size, span)
    return cp.ndarray((span.size,), cp.uint8, cp.cuda.MemoryPointer(memory, 0))


def null_mask(column: Any) -> Any:
    """Return a mask of the nulls of a pylibcudf column, or None when there are none."""
    import pylibcudf

    if not column.null_count():
        return None
    return _buffer(pylibcudf.unary.is_null(column), np.dtype(bool))


def _from_categories(series: Any, name: object) -> KeyColumn:
    import cudf

    codes = series.cat.codes.astype("int64").fillna(-1).to_cupy()
    return key_column(cudf.Series(series.cat.categories), name).over(codes)


def type_name(own: Any, dtype: Any) -> str:
    """Return libcudf's name of the type of a pylibcudf column that cuDF has a dtype for."""
    return "DICTIONARY32" if hasattr(dtype, "categories") else _kind(own)


def integers(series: Any) -> list[Any]:
    """Return the stored integers of decimals: one a value, or two halves."""
    column = series.to_pylibcudf()[0]
    kind, start, end = _kind(column), column.offset(), column.offset() + column.size()
    halves = 2 if kind == "DECIMAL128" else 1
    stored = _bytes(column.data()).view(np.int32 if kind == "DECIMAL32" else np.int64)
    values = [stored[start * halves + half : end * halves : halves] for half in range(halves)]
    made = [type(series)(each.copy()) for each in values]
    return [each.where(series.notna()) for each in made] if column.null_count() else made


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
        return null_mask(self._column)
