"""Keys of groups as columns that have the same code in every part."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.errors import ColumnError, UnsupportedError
from dgpuhash.frames.dataframes import as_series, frames_of
from dgpuhash.frames.dataframes.pandas_casts import is_unknown
from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.grouping_keys import GroupingKey, grouping_keys

__all__ = ["as_dtype", "known", "known_keys", "portable"]


def known(frame: Any) -> Any:
    """Return a frame or Series without rows, in which categories that are not known are objects.

    Dask has frames of which only the partitions know the categories.
    """
    if frame.ndim == 1:
        return frame.astype(object) if is_unknown(frame.dtype) else frame
    places = [place for place, dtype in enumerate(frame.dtypes) if is_unknown(dtype)]
    if not places:
        return frame
    columns = [as_series(frame.iloc[:, place]) for place in range(frame.shape[1])]
    arrays = [
        column.astype(object).to_numpy() if place in places else column.array
        for place, column in enumerate(columns)
    ]
    return frame_of(arrays, frame.columns, frame.index)


def known_keys(source: Any, by: Any, level: Any, *, observed: bool) -> list[GroupingKey]:
    """Return the keys of a frame without rows; those of unknown categories are objects.

    Raises
    ------
    UnsupportedError
        When groups of categories that no row has are asked for, and these are not known.
    """
    keys = grouping_keys(source, by, level)
    made = [replace(key, values=known(key.values)) for key in keys]
    if not observed and any(map(is_unknown, (key.values.dtype for key in keys))):
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
        When it has other values, or categories in another order that counts.
    """
    if isinstance(dtype, pd.CategoricalDtype) and isinstance(column.dtype, pd.CategoricalDtype):
        return _with_categories(column, dtype, label)
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


def _with_categories(column: pd.Series, dtype: Any, label: Any) -> pd.Series:
    """Return a categorical column with categories in the order of a dtype: codes are compared."""
    own = column.cat.categories
    if own.equals(dtype.categories) and column.dtype == dtype:
        return column
    if column.cat.ordered and dtype.ordered:
        places = dtype.categories.get_indexer(own)
        if (np.diff(places[places >= 0]) < 0).any():
            raise ColumnError(
                f"column {label!r} of a part has the ordered categories "
                f"{reprlib.repr(own.tolist())}, and those of the frame's meta are "
                f"{reprlib.repr(dtype.categories.tolist())}; give all parts one order, or none "
                "with .cat.as_unordered()"
            )
    made = column.cat.set_categories(dtype.categories, ordered=dtype.ordered)
    lost = column[made.isna() & column.notna()]
    if len(lost):
        raise ColumnError(
            f"column {label!r} of a part has the category {lost.iloc[0]!r}, and those of the "
            f"frame's meta are {reprlib.repr(dtype.categories.tolist())}; have the parts tell all "
            "of them with .cat.as_unknown()"
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
        else:
            frames = frames_of(column)
            as_text = frames.compares_as_text(column.dtype, column.dtype)
            found = frames.compared(column, column, name, as_text=as_text)
            made.extend(ours.series for ours, _ in found)
    return pd.DataFrame({f"p{place}": each for place, each in enumerate(made)}, copy=False)
