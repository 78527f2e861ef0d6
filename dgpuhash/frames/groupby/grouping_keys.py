"""Resolve the keys of a groupby: columns, levels, arrays, mappings and functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import ColumnError, ShapeError, SpecError, UnsupportedError
from dgpuhash.frames.dataframes import as_series
from dgpuhash.frames.merge.keys import MissingKeyError

_ARRAYS = (list, tuple, np.ndarray, pd.Index, pd.Series, pd.api.extensions.ExtensionArray)


@dataclass(frozen=True, slots=True)
class GroupingKey:
    """Key of a groupby, with its name and values.

    Attributes
    ----------
    name : label or None
        What the result calls it.
    values : Series
        Its value in each row, numbered from 0.
    column : label or None
        The column of the frame that it is, which is then not aggregated.
    in_frame : bool
        Whether it is a column of the frame.
    """

    name: Hashable | None
    values: pd.Series
    column: Hashable | None = None
    in_frame: bool = False


def grouping_keys(frame: Any, by: Any, level: Any) -> list[GroupingKey]:
    """Return the keys for the arguments of a groupby.

    Raises
    ------
    MissingKeyError, ColumnError, ShapeError, SpecError
        When the frame lacks a key, a label is ambiguous, an array has another length, or no key is
        named.
    UnsupportedError
        When a key is a `pandas.Grouper` of a frequency, or both `by` and `level` are given.
    """
    if level is not None:
        if by is None:
            return _levels(frame.index, level)
        key = by.get if isinstance(by, Mapping) else by
        if not callable(key) or isinstance(level, list | tuple):
            raise UnsupportedError(
                "by= and level= can be combined only if by= is a function or mapping of one "
                "level; pass the values in by="
            )
        return [_map_labels(frame.index.get_level_values(level), key)]
    if by is None:
        raise NothingToGroupError("You have to supply one of 'by' and 'level'")
    keys = by if isinstance(by, list) else [by]
    if isinstance(by, list) and len(keys) == len(frame) and _is_one_array(frame, keys):
        keys = [_array_of(keys)]
    if not keys:
        raise SpecError("No group keys passed!")
    return [_key(frame, each) for each in keys]


class NothingToGroupError(SpecError, TypeError):
    """A groupby without `by` and `level`."""


def _is_one_array(frame: Any, keys: list[Any]) -> bool:
    """Return whether a list has the values of one key, rather than labels of several."""
    if any(callable(key) or isinstance(key, (*_ARRAYS, Mapping, pd.Grouper)) for key in keys):
        return False
    columns = frame.columns if frame.ndim == 2 else ()
    names = list(frame.index.names)
    return not all(key in columns or key in names for key in keys)


def _levels(index: Any, level: Any) -> list[GroupingKey]:
    wanted = list(level) if isinstance(level, list | tuple) else [level]
    if not wanted:
        raise SpecError("No group keys passed!")
    if isinstance(index, pd.MultiIndex):
        numbered: Any = index
        # In a list, integers are numbers of levels before they are names.
        found = [
            each if len(wanted) > 1 and isinstance(each, int) else numbered._get_level_number(each)
            for each in wanted
        ]
    else:
        if len(wanted) > 1:
            raise SpecError("multiple levels only valid with MultiIndex")
        if isinstance(wanted[0], str):
            if index.name != wanted[0]:
                raise SpecError(f"level name {wanted[0]} is not the name of the index")
        elif wanted[0] > 0 or wanted[0] < -1:
            raise SpecError("level > 0 or level < -1 only valid with MultiIndex")
        found = [0]
    levels = levels_of(index)
    return [GroupingKey(index.names[number], as_series(levels[number])) for number in found]


def levels_of(index: pd.Index) -> list[Any]:
    """Return the values of each level of an index, by number: names can be other numbers."""
    nameless = index.set_names([None] * index.nlevels)
    return [nameless.get_level_values(level) for level in range(index.nlevels)]


def _key(frame: Any, key: Any) -> GroupingKey:
    """Return one key, interpreted as pandas does."""
    if isinstance(key, pd.Grouper):
        return _of_grouper(frame, key)
    if isinstance(key, str | tuple) or (key is not None and pd.api.types.is_scalar(key)):
        return _column_or_level(frame, key)
    if isinstance(key, pd.Series):
        if _is_column(frame, key):
            return GroupingKey(key.name, as_series(key), key.name, in_frame=True)
        aligned = key if key.index.equals(frame.index) else key.reindex(frame.index)
        return GroupingKey(key.name, as_series(aligned))
    if isinstance(key, Mapping):
        key = key.get
    if callable(key):
        return _map_labels(frame.index, key)
    if getattr(key, "ndim", 1) != 1:
        raise ShapeError(f"Grouper for '{type(key)}' not 1-dimensional")
    if not isinstance(key, _ARRAYS):
        raise SpecError(f"a {type(key).__name__} is no key; give a label, an array or a function")
    if len(key) != len(frame):
        raise ShapeError("Grouper and axis must be same length")
    name = key.name if isinstance(key, pd.Index) else None
    return GroupingKey(name, _column_of(key))


def _of_grouper(frame: Any, key: pd.Grouper) -> GroupingKey:
    """Return the column or level of a pandas Grouper."""
    if key.freq is not None:
        raise UnsupportedError(
            f"a pandas.{type(key).__name__} with freq= is not supported; give the Series "
            f"{_spans(frame, key)}"
        )
    if key.level is not None:
        return _levels(frame.index, key.level)[0]
    return _key(frame, key.key)


def _spans(frame: Any, key: Any) -> str:
    """Return code for a Grouper's time labels, or text if there is none."""
    freq, at_end = key.freq, key.freq.rule_code.partition("-")[0] in _AT_END
    plain = key.closed == key.label == ("right" if at_end else "left")
    plain = plain and key.origin == "start_day" and key.offset is None
    if key.key is None:
        times = "frame.index.to_series()"
        plain, zone = plain and key.level is None, getattr(frame.index, "tz", None)
    else:
        times, zone = f"frame[{key.key!r}]", getattr(frame[key.key].dtype, "tz", None)
    # Of days that have a change of the clock, spans of hours begin otherwise.
    longest = pd.Timedelta(days=1) if zone is None else pd.Timedelta(hours=1)
    if plain and freq == pd.offsets.Day(1):
        return f"{times}.dt.normalize()"
    if plain and isinstance(freq, pd.offsets.Tick) and not longest % pd.Timedelta(freq):
        return f"{times}.dt.floor({freq.freqstr!r})"
    if plain and freq.n == 1 and not isinstance(freq, pd.offsets.Tick):
        rolls = "rollforward" if at_end else "rollback"
        offset = f"pandas.tseries.frequencies.to_offset({freq.freqstr!r}).{rolls}"
        return f"{times}.dt.normalize().map({offset}, na_action='ignore')"
    return "of the begin of each row's span"


# Groupers by these label times by the end of the span.
_AT_END = frozenset({"ME", "YE", "QE", "BME", "BYE", "BQE", "W"})


def _map_labels(labels: pd.Index, key: Callable[[Any], Any]) -> GroupingKey:
    """Return a function's values for labels."""
    return GroupingKey(labels.name, _column_of([key(label) for label in labels]))


def _column_of(values: Any) -> pd.Series:
    """Return values of any kind as a Series numbered from 0; keys of several levels as tuples."""
    if isinstance(values, pd.MultiIndex):
        values = values.to_flat_index()
    if isinstance(values, list | tuple):
        values = _array_of(values)
    return as_series(values)


def _array_of(values: Any) -> Any:
    if any(isinstance(value, list | tuple) for value in values):
        made = np.empty(len(values), object)
        made[:] = [tuple(value) if isinstance(value, list) else value for value in values]
        return made
    return pd.Series(list(values)).array


def _column_or_level(frame: Any, label: Any) -> GroupingKey:
    """Return the column or index level with this label."""
    names = list(frame.index.names)
    in_columns = frame.ndim == 2 and _contains(frame.columns, label)
    if in_columns and label in names:
        raise ColumnError(
            f"'{label}' is both an index level and a column label, which is ambiguous."
        )
    if in_columns:
        column = frame[label]
        if column.ndim != 1:
            raise ColumnError(f"Grouper for '{label}' not 1-dimensional")
        return GroupingKey(label, as_series(column), label, in_frame=True)
    if label not in names:
        raise MissingKeyError(label)
    return GroupingKey(label, as_series(levels_of(frame.index)[names.index(label)]))


def _contains(labels: pd.Index, label: Any) -> bool:
    try:
        return label in labels
    except TypeError:
        return False


def _is_column(frame: Any, key: pd.Series) -> bool:
    """Return whether a Series is a column of this frame, beyond having its name."""
    if frame.ndim == 1 or key.name is None or not _contains(frame.columns, key.name):
        return False
    column = frame[key.name]
    return column.ndim == 1 and bool(key._mgr.references_same_values(column._mgr, 0))
