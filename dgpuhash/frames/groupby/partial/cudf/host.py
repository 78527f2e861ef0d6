"""Copy cuDF frames of states and results to pandas frames on the host, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.errors import ColumnError


def host_like(meta: Any) -> pd.DataFrame:
    """Return an empty pandas frame like a cuDF frame, in nullable dtypes."""
    columns = {label: meta[label].iloc[:0] for label in meta.columns}
    made = {label: pd.Series([], dtype=_host_dtype(each)) for label, each in columns.items()}
    return pd.DataFrame(made, columns=meta.columns)


def _host_dtype(series: Any) -> Any:
    """Return the pandas dtype for the values of a cuDF column with nulls."""
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iufb":
        if dtype.kind == "b":
            return "boolean"
        name = {"i": "Int", "u": "UInt", "f": "Float"}[dtype.kind]
        return f"{name}{8 * dtype.itemsize}"
    host = series.to_pandas().dtype
    return "str" if host.kind == "O" and isinstance(host, np.dtype) else host


def on_host(states: Any) -> pd.DataFrame:
    """Return a cuDF frame as a pandas frame of Arrow dtypes, categoricals as values."""
    made = states.copy(deep=False)
    for label in states.columns:
        dtype = states[label].dtype
        if hasattr(dtype, "categories"):
            made[label] = states[label].astype(dtype.categories.dtype)
    table: pa.Table = made.to_arrow(preserve_index=False)
    return table.to_pandas(types_mapper=pd.ArrowDtype)


def in_dtypes(frame: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of `on_host` in the dtypes of another one.

    Raises
    ------
    ColumnError
        When a value is none of these dtypes, as a category that the other frame lacks.
    """
    made = {}
    for label, dtype in like.dtypes.items():
        column = frame[label]
        made[label] = column.astype(dtype)
        categories = isinstance(dtype, pd.CategoricalDtype)
        if categories and int(made[label].isna().sum()) > int(column.isna().sum()):
            raise ColumnError(
                f"{label!r} has values outside {dtype}; give all frames the same categories, "
                "or build the groups from .astype('str') of the column"
            )
    return pd.DataFrame(made, copy=False)


def on_device(frame: pd.DataFrame, like: Any) -> Any:
    """Return a pandas frame as a cuDF frame with the labels and dtypes of another one."""
    import cudf

    numbered = frame.set_axis([str(place) for place in range(frame.shape[1])], axis=1)
    made = cudf.DataFrame.from_arrow(pa.Table.from_pandas(numbered, preserve_index=False))
    for name, label in zip(numbered.columns, like.columns, strict=True):
        dtype = like[label].dtype
        if hasattr(dtype, "categories"):
            dtype = _with_categories(dtype, made[name])
        if made[name].dtype != dtype:
            made[name] = made[name].astype(dtype)
    made.columns = like.columns
    return made


def _with_categories(dtype: Any, values: Any) -> Any:
    """Return a categorical dtype extended by these values."""
    import cudf

    known = list(dtype.categories.to_pandas())
    there = values.dropna().unique().to_pandas()
    more = [each for each in there if each not in set(known)]
    return cudf.CategoricalDtype([*known, *more], ordered=dtype.ordered) if more else dtype
