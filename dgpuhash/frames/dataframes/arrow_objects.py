"""Object columns in Arrow and back; values that would change are refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.errors import UnsupportedError


def check_round_trip(frame: Any, table: Any, read: Callable[[Any], Any]) -> None:
    """Raise UnsupportedError when Arrow does not return an equal frame.

    Objects may come back as equal values of another type, such as integers as floats.

    Parameters
    ----------
    frame : pandas.DataFrame
    table : pyarrow.Table
        `frame`, converted to Arrow.
    read : callable
        Converts a table to a frame.

    Raises
    ------
    UnsupportedError
        When objects differ (the message gives the first), or categories cannot be read back.

    Examples
    --------
    >>> frame = pd.DataFrame({"n": pd.Series([2**60 + 1, None], dtype=object)})
    >>> check_round_trip(frame, pa.Table.from_pandas(frame), pa.Table.to_pandas)
    """
    for position, dtype in enumerate(frame.dtypes):
        if dtype == np.dtype(object):
            objects, label = frame.iloc[:, position], frame.columns[position]
            _check_objects(objects, table.column(position), label)
    if any(isinstance(dtype, pd.CategoricalDtype) for dtype in frame.dtypes):
        remedy = "convert them with .astype('str').astype('category') first"
        try:
            back = read(table.slice(0, 0))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise UnsupportedError(
                f"the categories of a column cannot be read back from Arrow ({error}); {remedy}"
            ) from error
        for label, own, made in zip(frame, frame.dtypes, back.dtypes, strict=True):
            if isinstance(own, pd.CategoricalDtype) and (
                own != made or own.categories.dtype != made.categories.dtype
            ):
                raise UnsupportedError(
                    f"the categories of column {label!r} are of {own.categories.dtype}, and Arrow "
                    f"gives other ones back; {remedy}"
                )


def python_objects(column: Any) -> np.ndarray | None:
    """Return the values of an Arrow column as Python objects, or None.

    None for text and temporal columns, which pandas itself converts to objects. It would convert
    integers with nulls to floats.
    """
    if _is_text(column.type) or pa.types.is_temporal(column.type):
        return None
    return np.fromiter(column.to_pylist(), object, len(column))


def _check_objects(series: Any, column: Any, label: Hashable) -> None:
    if _is_text(column.type):
        return
    for value, back in zip(series.tolist(), column.to_pylist(), strict=True):
        if not _same(value, back):
            raise UnsupportedError(
                f"column {label!r} holds {value!r}, of which Arrow would make {back!r}; convert "
                "the column first, for example with .astype('str')"
            )


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _same(value: Any, back: Any) -> bool:
    if back is None:
        # A null of any kind.
        return bool(pd.api.types.is_scalar(value) and pd.isna(value))
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, Number) and not isinstance(value, bool):
        return isinstance(back, Number) and not isinstance(back, bool) and bool(value == back)
    alike = isinstance(value, type(back)) or isinstance(back, type(value))
    return alike and bool(value == back)
