"""Convert pandas frames to Arrow tables and back, without changing a value."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.dataframes.tagged import utf8_error

METADATA = b"dgpuhash"


def to_arrow(frame: Any) -> Any:
    """Return a `pyarrow.Table` from which `from_arrow` makes an equal frame.

    Raises
    ------
    KeyTypeError
        When strings are not UTF-8.
    UnsupportedError
        When Arrow cannot hold a column, or would return different values.

    Examples
    --------
    >>> frame = pd.DataFrame({"k": pd.Categorical(pd.array(["a", None], "string"))})
    >>> from_arrow(to_arrow(frame)).dtypes["k"].categories.dtype
    <StringDtype(na_value=<NA>)>
    """
    labels = list(frame.columns)
    named = frame.set_axis(arrow_names(labels), axis=1)
    try:
        table = pa.Table.from_pandas(named, preserve_index=False)
    except UnicodeEncodeError as error:
        raise utf8_error(labels, error) from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, OverflowError) as error:
        raise UnsupportedError(
            f"a column cannot be written to Arrow ({error}); convert mixed object and sparse "
            f"columns with astype first; the columns are {labels!r}"
        ) from error
    about = {
        "labels": labels,
        "name": frame.columns.name if isinstance(frame.columns.name, str) else None,
        "strings": [storage_name(dtype) for dtype in frame.dtypes],
        "categories": [_storage_of_categories(dtype) for dtype in frame.dtypes],
    }
    made = table.replace_schema_metadata(
        {**(table.schema.metadata or {}), METADATA: json.dumps(about).encode()}
    )
    check_round_trip(frame, made, from_arrow)
    return made


def from_arrow(table: Any) -> Any:
    """Return the pandas or cuDF frame from a table that `to_arrow` wrote."""
    about = json.loads((table.schema.metadata or {}).get(METADATA, b"{}"))
    if not about:
        return table.to_pandas()
    stored = dict(zip(table.column_names, about["strings"], strict=True))
    frame = _with_arrow_columns(table, [name for name in stored if stored[name] == "arrow"])
    # Files from older versions have no such entry.
    categories = about.get("categories", [None] * len(stored))
    for position, (storage, of_categories) in enumerate(
        zip(stored.values(), categories, strict=True)
    ):
        dtype = _stored_dtype(storage)
        label = frame.columns[position]
        objects = python_objects(table.column(position)) if dtype == np.dtype(object) else None
        if objects is not None:
            frame[label] = pd.Series(objects, frame.index, object)
        elif dtype is not None and frame[label].dtype != dtype:
            frame[label] = _restore(frame[label], dtype)
        if isinstance(frame[label].array, pd.arrays.FloatingArray):
            frame[label] = _with_nans(frame[label], table.column(position))
        if of_categories is not None:
            frame[label] = _with_categories(frame[label], of_categories, table.field(position).type)
    name = about.get("name")
    if not isinstance(name, str | None):
        raise ValueError(f"the saved name of the column labels is {name!r}, not a string")
    return frame.set_axis(pd.Index(about["labels"], name=name), axis=1)


def storage_name(dtype: Any) -> str | None:
    """Return the name of a dtype that Arrow does not restore by itself.

    None for all other dtypes.
    """
    if isinstance(dtype, pd.StringDtype):
        return f"{dtype.storage} {'nan' if dtype.na_value is np.nan else 'NA'}"
    if isinstance(dtype, pd.ArrowDtype):
        return "arrow"
    return "object" if dtype == np.dtype(object) else None


def _storage_of_categories(dtype: Any) -> str | None:
    if not isinstance(dtype, pd.CategoricalDtype):
        return None
    own = dtype.categories.dtype
    masked = isinstance(own, pd.api.extensions.ExtensionDtype) and hasattr(own, "numpy_dtype")
    return storage_name(own) or (str(own) if masked else None)


def arrow_names(labels: Sequence[Hashable]) -> list[str]:
    """Return the names of columns in Arrow.

    They are the labels; or numbers, when labels are not text or occur twice.

    Raises
    ------
    UnsupportedError
        When a label is neither text nor a number.
    """
    odd = [label for label in labels if not isinstance(label, str | int)]
    if odd:
        raise UnsupportedError(f"column labels {odd!r} cannot be saved; rename them to strings")
    texts = [label for label in labels if isinstance(label, str)]
    return texts if len(set(texts)) == len(labels) else list(map(str, range(len(labels))))


def _with_arrow_columns(table: Any, arrow: Sequence[str]) -> Any:
    """Return ``table.to_pandas()`` with the columns `arrow` in Arrow dtypes.

    Their dtypes have no names from which pandas could restore them.
    """
    about = table.schema.pandas_metadata
    about["columns"] = [column for column in about["columns"] if column["name"] not in arrow]
    plain = table.drop_columns(arrow).replace_schema_metadata({"pandas": json.dumps(about)})
    columns = plain.to_pandas().to_dict("series")
    columns |= {name: pd.Series(pd.arrays.ArrowExtensionArray(table[name])) for name in arrow}
    return pd.DataFrame({name: columns[name] for name in table.column_names})


def _with_nans(series: Any, column: Any) -> Any:
    """Return nullable floats with the NaN values of the Arrow column `column`.

    pandas converted these to nulls.
    """
    if not pc.any(pc.is_nan(column)).as_py():
        return series
    values, nulls = column.fill_null(0.0).to_numpy(), column.is_null().to_numpy()
    return pd.Series(pd.arrays.FloatingArray(values, nulls), series.index, name=series.name)


def _restore(series: Any, dtype: Any) -> Any:
    if dtype != np.dtype(object):
        return series.astype(dtype)
    return series.astype(object).where(series.notna(), None)


def _with_categories(series: Any, storage: str, kind: Any) -> Any:
    """Return a categorical column with the saved dtype of its categories.

    `storage` is the name of that dtype, and `kind` the column's Arrow type.
    """
    if not isinstance(series.dtype, pd.CategoricalDtype):
        raise ValueError(f"column {series.name!r} is {series.dtype}, and was saved as categorical")
    categories = series.cat.categories
    dtype = pd.ArrowDtype(kind.value_type) if storage == "arrow" else _stored_dtype(storage)
    if categories.dtype == dtype:
        return series
    return series.cat.rename_categories(categories.astype(dtype))


def _stored_dtype(storage: str | None) -> Any:
    if storage is None or storage == "arrow":
        return None
    if storage == "object":
        return np.dtype(object)
    if " " not in storage:
        return pd.api.types.pandas_dtype(storage)
    where, _, null = storage.partition(" ")
    return pd.StringDtype(where, na_value=np.nan if null == "nan" else pd.NA)


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
                f"column {label!r} holds {value!r}, which Arrow would change to {back!r}; convert "
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
