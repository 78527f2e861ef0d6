"""Columns of cuDF frames: taken out of frames, gathered, and put together again.

A selection, a Series or a gather of a cuDF frame makes some hundred calls; the columns themselves
make a few. Their names are private to cuDF: `_data`, `_from_data` and `_column`, of version 26.10.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Any

__all__ = [
    "array_column",
    "column_of_series",
    "columns_of",
    "frame_of",
    "index_of_column",
    "numbered",
    "series_of_column",
    "take_columns",
    "take_series",
    "with_attributes",
]


def columns_of(frame: Any) -> Any:
    """Return the columns of a cuDF frame, a mapping by their labels."""
    return frame._data


def series_of_column(column: Any, name: Hashable | None = None, index: Any = None) -> Any:
    """Return a Series of a column, numbered from 0 unless there is an index."""
    import cudf

    return cudf.Series._from_column(column, name=name, index=index)


def index_of_column(column: Any, name: Hashable | None = None) -> Any:
    """Return an index of a column, which later writes to the column do not change."""
    import cudf

    return cudf.Index._from_column(column.copy(deep=False), name=name)


def column_of_series(series: Any) -> Any:
    """Return the column of a Series or of an index of one level."""
    return series._column


def numbered(values: Any) -> Any:
    """Return a Series, an index of one level or an array as a Series numbered from 0."""
    if hasattr(type(values), "_column"):
        return series_of_column(column_of_series(values), values.name)
    import cudf

    return cudf.Series(values)


def array_column(array: Any, like: Any = None) -> Any:
    """Return a column on the memory of a contiguous CuPy array, of the dtype of the column `like`.

    Moments and spans are given as counts.
    """
    import cudf
    import pylibcudf as plc

    own, dtype = plc.Column.from_cuda_array_interface(array), array.dtype
    if like is not None:
        own = plc.Column(like.to_pylibcudf().type(), len(array), own.data(), None, 0, 0, [])
        dtype = like.dtype
    return cudf.core.column.ColumnBase.create(own, dtype)


def take_series(series: Any, rows: Any, *, nulls: bool = False) -> Any:
    """Return the values of a Series at positions, as `take_columns`, numbered from 0."""
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
    import cupy as cp
    import pylibcudf as plc

    if rows is None:
        return [column.copy(deep=False) for column in columns]
    if not columns or not len(rows) or not len(next(iter(columns))):
        empty = cudf.core.column.column_empty
        return [empty(len(rows), column.dtype) for column in columns]
    rows = cp.ascontiguousarray(rows, "i8")
    # libcudf counts negative numbers from the end, and takes numbers beyond the end for nulls.
    places = plc.Column.from_cuda_array_interface(rows.view("u8") if nulls else rows)
    policy = plc.copying.OutOfBoundsPolicy
    found = plc.copying.gather(
        plc.Table([column.to_pylibcudf() for column in columns]),
        places,
        policy.NULLIFY if nulls else policy.DONT_CHECK,
    ).columns()
    create = cudf.core.column.ColumnBase.create
    return [create(made, column.dtype) for made, column in zip(found, columns, strict=True)]


def frame_of(columns: Iterable[tuple[Hashable, Any]], index: Any, like: Any = None) -> Any:
    """Return a cuDF frame of labels and columns, with an index.

    Labels are of several levels where those of the frame `like` are.
    """
    import cudf

    of_levels = like is not None and like._data.multiindex
    names = like._data.level_names if of_levels else None
    made = cudf.core.column_accessor.ColumnAccessor(
        dict(columns), multiindex=of_levels, level_names=names, verify=False
    )
    return cudf.DataFrame._from_data(made, index=index)


def with_attributes(made: Any, frame: Any) -> Any:
    """Return a frame that was made of rows of another one, with `attrs` and flags of that."""
    if frame.attrs or not frame.flags.allows_duplicate_labels:
        frame._propagate_metadata(made)
    return made
