"""Keys of groups as columns that have the same code in every part."""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.errors import ColumnError, KeyTypeError, UnsupportedError
from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.grouping_keys import GroupingKey, grouping_keys
from dgpuhash.frames.merge.comparable import comparable
from dgpuhash.frames.merge.keys import as_series

__all__ = ["as_dtype", "known", "known_keys", "portable"]

# What Dask has in place of categories that only partitions know.
_UNKNOWN = "__UNKNOWN_CATEGORIES__"


def known(frame: Any) -> Any:
    """Return a frame or Series without rows, in which categories that are not known are objects.

    Dask has frames of which only the partitions know the categories.
    """
    if frame.ndim == 1:
        return frame.astype(object) if _is_unknown(frame.dtype) else frame
    places = [place for place, dtype in enumerate(frame.dtypes) if _is_unknown(dtype)]
    if not places:
        return frame
    columns = [as_series(frame.iloc[:, place]) for place in range(frame.shape[1])]
    arrays = [
        column.astype(object).to_numpy() if place in places else column.array
        for place, column in enumerate(columns)
    ]
    return frame_of(arrays, frame.columns, frame.index)


def _is_unknown(dtype: Any) -> bool:
    return isinstance(dtype, pd.CategoricalDtype) and _UNKNOWN in list(dtype.categories[:1])


def known_keys(source: Any, by: Any, level: Any, *, observed: bool) -> list[GroupingKey]:
    """Return the keys of a frame without rows; those of unknown categories are objects.

    Raises
    ------
    UnsupportedError
        When groups of categories that no row has are asked for, and these are not known.
    """
    keys = grouping_keys(source, by, level)
    made = [replace(key, values=known(key.values)) for key in keys]
    if not observed and any(map(_is_unknown, (key.values.dtype for key in keys))):
        raise UnsupportedError(
            "observed=False of categories that only the partitions know; tell them with "
            ".cat.as_known()"
        )
    return made


def as_dtype(column: pd.Series, dtype: Any, label: Any) -> pd.Series:
    """Return a column of a part in the dtype that the plan knows.

    Raises
    ------
    ColumnError
        When it has other values.
    """
    if column.dtype == dtype:
        return column
    try:
        made = column.astype(dtype)
        back = made.astype(column.dtype)
        same = bool(((back == column) | (column.isna() & made.isna())).all())
        if same and {made.dtype.kind, column.dtype.kind} == {"i", "u"}:
            # Great numbers without a sign come back from negative ones.
            same = bool(((made < 0) == (column < 0)).all())
        reason = "" if same else ", which does not have its values"
    except (TypeError, ValueError, OverflowError, pa.ArrowInvalid) as error:
        reason = f" ({error})"
    if reason:
        raise ColumnError(
            f"column {label!r} of a part is {column.dtype}, and {dtype} in the plan{reason}; give "
            "all parts one dtype with .astype"
        )
    return made


def portable(columns: Sequence[pd.Series], names: Sequence[Any]) -> pd.DataFrame:
    """Return columns of keys, called by numbers, whose dtypes depend on those of keys alone.

    They are equal where the keys are, in whatever part these are.
    """
    made: list[Any] = []
    for column, name in zip(columns, names, strict=True):
        if isinstance(column.dtype, pd.CategoricalDtype):
            made.append(pd.Series(column.cat.codes.to_numpy().astype(np.int32)))
        elif column.dtype == object:
            made.append(_texts(column, name))
        else:
            made.extend(ours for ours, _ in comparable(column, column, name))
    return pd.DataFrame({f"p{place}": each for place, each in enumerate(made)}, copy=False)


def _texts(column: pd.Series, name: Any) -> pd.Series:
    """Return texts that are equal where Python's objects are."""
    nulls = column.isna().to_numpy()
    texts = [None if null else _text(each, name) for each, null in zip(column, nulls, strict=True)]
    return pd.Series(pd.array(texts, dtype="str"))


def _text(value: Any, name: Any) -> str:
    if isinstance(value, str):
        return f"\0s{value}" if value.startswith("\0") else value
    if isinstance(value, bytes):
        return f"\0b{value.decode('latin-1')}"
    if isinstance(value, tuple):
        parts = [_text(each, name) for each in value]
        return "\0t" + "".join(f"{len(part)}:{part}" for part in parts)
    if isinstance(value, numbers.Number | np.bool_ | decimal.Decimal):
        return f"\0n{_number(value)}"
    if isinstance(value, datetime.datetime | np.datetime64):
        return f"\0m{pd.Timestamp(value).isoformat()}"
    if isinstance(value, datetime.date | datetime.time):
        return f"\0d{value.isoformat()}"
    if isinstance(value, datetime.timedelta | np.timedelta64):
        return f"\0e{pd.Timedelta(value).value}"
    if isinstance(value, pd.Period | pd.Interval):
        return f"\0p{value!r}"
    if value is None or value != value:
        return "\0-"
    raise KeyTypeError(
        f"key column {name!r} holds a {type(value).__name__}, which parts of a frame cannot be "
        "grouped by; convert it with .astype('str')"
    )


def _number(value: Any) -> str:
    """Return a text that is equal for equal numbers of any type."""
    if isinstance(value, complex | np.complexfloating) and value.imag:
        return f"{_number(value.real)}+{_number(value.imag)}j"
    value = value.real if isinstance(value, complex | np.complexfloating) else value
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return str(float(value))
    top, bottom = (int(value), 1) if int(value) == value else _ratio(value)
    return f"{top}/{bottom}"


def _ratio(value: Any) -> tuple[int, int]:
    top, bottom = value.as_integer_ratio()
    return int(top), int(bottom)
