"""The keys of a groupby of a cuDF frame: columns, index levels, Series, arrays and mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import ShapeError, SpecError, UnsupportedError
from dgpuhash.frames.dataframes import frames_named
from dgpuhash.frames.dataframes.cudf_columns import numbered
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.merge.keys import MissingKeyError


def grouping_keys(frame: Any, by: Any, level: Any) -> list[GroupingKey]:
    """Return the keys that the arguments of a groupby name, their NaNs as nulls.

    A list is one of keys, and a label is a column's before it is an index level's.

    Raises
    ------
    MissingKeyError, ShapeError, SpecError
        When the frame lacks a key, an array has another length, or no key is named.
    UnsupportedError
        When a key is a Grouper, or both `by` and `level` are given.
    """
    if level is not None:
        if by is not None:
            raise UnsupportedError("by= and level= together; give by= the values of the level")
        levels = level if isinstance(level, list | tuple) else [level]
        return [_level(frame.index, each) for each in levels]
    if by is None:
        raise SpecError("You have to supply one of 'by' and 'level'")
    keys = by if isinstance(by, list) else [by]
    if not keys:
        if len(frame):
            raise SpecError("No group keys passed")
        return [GroupingKey(None, column_of_key(np.empty(0)))]
    return [key for each in keys for key in _keys(frame, each)]


def observed_keys(frame: Any, by: Any, level: Any, *, observed: bool) -> list[GroupingKey]:
    """Return the keys that the arguments of a groupby name; see `grouping_keys`.

    Raises
    ------
    UnsupportedError
        When groups of categories that no row has are asked for.
    """
    keys = grouping_keys(frame, by, level)
    if not observed and any(hasattr(key.values.dtype, "categories") for key in keys):
        raise UnsupportedError(
            "observed=False of cuDF frames; group with observed=True, or frame.to_pandas()"
        )
    return keys


def column_of_key(values: Any) -> Any:
    """Return values as a cuDF Series numbered from 0, in which NaN is a null."""
    series = numbered(values)
    return series.nans_to_nulls() if getattr(series.dtype, "kind", "O") == "f" else series


def _level(index: Any, level: Any) -> GroupingKey:
    values = index.get_level_values(level)
    return GroupingKey(values.name, column_of_key(values))


def _keys(frame: Any, key: Any) -> list[GroupingKey]:
    import cudf

    if isinstance(key, pd.Grouper | cudf.Grouper):
        raise UnsupportedError("a Grouper; give a label, or for a freq= the Series of the periods")
    if isinstance(key, Mapping):
        key = cudf.Series(list(key.values()), index=list(key))
    if isinstance(key, pd.Series):
        key = cudf.from_pandas(key)
    if isinstance(key, cudf.Series):
        return [_of_series(frame, key)]
    if isinstance(key, pd.Index):
        key = cudf.from_pandas(key)
    if isinstance(key, cudf.MultiIndex | cudf.Index):
        _check_length(frame, key)
        return [
            GroupingKey(name, column_of_key(key.get_level_values(place)))
            for place, name in enumerate(key.names)
        ]
    if callable(key):
        return _keys(frame, key(frame.index))
    if isinstance(key, str | tuple) or np.ndim(key) == 0:
        return [_labelled(frame, key)]
    _check_length(frame, key)
    return [GroupingKey(None, column_of_key(key))]


def _check_length(frame: Any, key: Any) -> None:
    if len(key) != len(frame):
        raise ShapeError("Grouper and object must have same length")


def _of_series(frame: Any, key: Any) -> GroupingKey:
    """Return a key of the rows whose labels a Series has, a column of the frame where it is one."""
    if not key.index.equals(frame.index):
        return GroupingKey(key.name, column_of_key(key.reindex(frame.index)))
    column = _column_that_is(frame, key)
    return GroupingKey(key.name, column_of_key(key), column, in_frame=column is not None)


def _column_that_is(frame: Any, key: Any) -> Any:
    """Return the label of the column that a Series is, None if it is none or a copy."""
    own = getattr(key, "_column", None)
    if frame.ndim == 1 or own is None:
        return None
    return next((label for label, series in frame.items() if series._column is own), None)


def _labelled(frame: Any, label: Any) -> GroupingKey:
    column = frames_named("cudf").column(frame, label) if frame.ndim == 2 else None
    if column is not None:
        return GroupingKey(label, column_of_key(column), label, in_frame=True)
    names = list(frame.index.names)
    if label is None or label not in names:
        raise MissingKeyError(label)
    return GroupingKey(label, column_of_key(frame.index.get_level_values(label)))
