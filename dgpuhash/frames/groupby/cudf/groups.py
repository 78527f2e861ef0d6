"""CudfGroups: group numbers, order and keys of a cuDF frame's rows, on the device."""

from __future__ import annotations

import copy
import functools
import itertools
import operator
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dgpuhash import backend
from dgpuhash.errors import ShapeError, SpecError, UnsupportedError
from dgpuhash.frames.dataframes import frames_named
from dgpuhash.frames.dataframes.cudf_columns import (
    array_column,
    column_of_series,
    column_over,
    gather,
    index_of_columns,
    key_values,
    null_mask,
    numbered_series,
    ranked_column,
    series_of_column,
    sorted_order,
    take_columns,
)
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.key_columns import KeyColumn
from dgpuhash.frames.keys.encoding import KeyColumns, KeyEncoder
from dgpuhash.frames.merge.keys import MissingKeyError
from dgpuhash.tables.columns.aggregates import ColumnReduction, reduce_groups
from dgpuhash.tables.columns.factorize import GroupedKeys
from dgpuhash.tables.select import gather_rows

if TYPE_CHECKING:
    from dgpuhash.backend import Backend
    from dgpuhash.frames.dataframes.base import Frames


# What depends on the order of groups, once it is known, and columns that may leave with a result.
_OF_THE_ORDER = {
    "order", "first_rows", "codes", "rows_by_group", "starts", "places", "_keys_by_number"
}  # fmt: skip
# Counts the rows of each group.
_ROWS = ColumnReduction(None, "u1", "one", "sum")


def as_keys(keys: Sequence[tuple[Any, Any]]) -> KeyColumns:
    """Return key columns that are equal where these Series or columns are equal.

    Parameters
    ----------
    keys : list of (label, Series or column)
        Errors tell the labels.
    """
    made: list[KeyColumn] = []
    frames = frames_named("cudf")
    for label, values in keys:
        column = column_of_series(values)
        dtype = column.dtype
        if isinstance(dtype, np.dtype) and dtype.kind in "biufmM":
            made.append(key_values(column.to_pylibcudf(), dtype, label))
        elif hasattr(dtype, "categories"):
            codes = series_of_column(column).cat.codes.astype("int32").fillna(-1)
            made.append(frames.key_column(codes, label))
        else:
            series = series_of_column(column)
            made.extend(ours.column for ours, _ in frames.key_columns(series, series, label))
    return KeyColumns(range(len(made)), made, frames)


class CudfGroups:
    """The groups of a cuDF frame's rows.

    Keys of 64 bits are numbered when something needs the numbers of rows: until then one pass finds
    the groups and aggregates. Groups with a null among their keys are numbered, too, and left out
    at the end.

    Parameters
    ----------
    keys : list of GroupingKey
    rows : int
    sort : bool
        Whether groups come in the order of their keys, nulls last, or in order of first appearance.
    dropna : bool or sequence of bool
        Whether rows with a null in a key are in no group; of each key.
    """

    keeps_nan = True
    """Whether sums of NaN are NaN where it is no null, and not null."""

    def __init__(
        self, keys: list[GroupingKey], rows: int, *, sort: bool, dropna: bool | Sequence[bool]
    ) -> None:
        self.keys: list[GroupingKey] = keys
        self.rows: int = rows
        self.sorts: bool = sort
        self.drops: list[bool] = [dropna] * len(keys) if isinstance(dropna, bool) else list(dropna)
        self.frames: Frames = frames_named("cudf")
        self.xp: Any = self.frames.xp
        self.backend: Backend = backend.get(self.frames.device)
        self._words: dict[Hashable, Any] = {}
        columns = as_keys(list(zip([key.name for key in keys], self._key_columns, strict=True)))
        encoder, encoded = KeyEncoder.for_types(columns.stored_types).for_call(columns)
        exact = bool(rows) and encoded.proves
        dtype = self._key_columns[0].dtype
        integers = isinstance(dtype, np.dtype) and dtype.kind in "iu"
        # Whether the words of the keys are the only key's values.
        self._words_are_keys: bool = exact and integers and encoder.codes_are_keys
        self._grouped: GroupedKeys | None = GroupedKeys(encoded.codes) if exact else None
        self._numbered: Any = None if exact else encoded.numbers()

    def in_key_order(self) -> CudfGroups:
        """Return the same groups in the order of their keys."""
        if self.sorts:
            return self
        made = copy.copy(self)
        for name in _OF_THE_ORDER & vars(made).keys():
            delattr(made, name)
        made.sorts = True
        return made

    def __len__(self) -> int:
        return len(self._first if self.order is None else self.order)

    @property
    def _first(self) -> Any:
        """The first row of each group, in order of appearance."""
        return self._numbered[1] if self._grouped is None else self._grouped.first_rows

    @property
    def numbers(self) -> Any:
        """The group number of each row in order of appearance, dropped groups included."""
        return self._numbered[0] if self._grouped is None else self._grouped.groups.codes

    def number(self) -> None:
        """Compute the group numbers now, to save another pass over the rows."""
        assert self.numbers is not None

    @property
    def numbered_groups(self) -> int:
        """The number of groups, dropped ones included."""
        return len(self._first)

    @functools.cached_property
    def order(self) -> Any | None:
        """The group numbers in the order of the result, None for ascending ones."""
        if not len(self._first):
            return None
        table, kept = self._keys_by_number, None
        dropping = itertools.compress(table, self.drops)
        nulls = [mask for mask in map(null_mask, dropping) if mask is not None]
        if nulls:
            kept = self.xp.flatnonzero(~functools.reduce(operator.or_, nulls))
        if not self.sorts or (kept is not None and not len(kept)):
            return kept
        table = table if kept is None else gather(table, kept)
        dtypes = [column.dtype for column in self._key_columns]
        order = sorted_order([
            ranked_column(column_over(own, dtype)) if hasattr(dtype, "categories") else own
            for own, dtype in zip(table, dtypes, strict=True)
        ])  # fmt: skip
        return order if kept is None else kept[order]

    @functools.cached_property
    def _key_columns(self) -> list[Any]:
        return [column_of_series(key.values) for key in self.keys]

    @functools.cached_property
    def _keys_by_number(self) -> list[Any]:
        """The keys of the groups by number, as pylibcudf columns."""
        if self._grouped is not None and self._words_are_keys:
            words = self._grouped.own_words().view(self._key_columns[0].dtype)
            return [array_column(words).to_pylibcudf()]
        return gather([column.to_pylibcudf() for column in self._key_columns], self._first)

    def arrange(self, array: Any) -> Any:
        """Return values by group number in the order of the result."""
        return array if self.order is None else gather_rows(array, self.order)

    @functools.cached_property
    def first_rows(self) -> Any:
        """The first row of each group of the result."""
        return self.arrange(self._first)

    @property
    def columns(self) -> list[Any]:
        """New columns with the keys of each group of the result."""
        order, data = self.order, self._key_columns
        table = vars(self).pop("_keys_by_number", None)
        if table is None or not len(self):
            return take_columns(data, self.first_rows, nulls=False)
        found = table if order is None else gather(table, order)
        return [column_over(own, each.dtype) for own, each in zip(found, data, strict=True)]

    @property
    def index(self) -> Any:
        """The labels of the groups."""
        return index_of_columns(self.columns, [key.name for key in self.keys])

    @functools.cached_property
    def codes(self) -> Any:
        """The position of each row's group in the result, -1 for dropped rows."""
        if self.order is None:
            return self.numbers
        rank = self.xp.full(self.numbered_groups, -1, np.int64)
        rank[self.order] = self.xp.arange(len(self.order))
        return gather_rows(rank, self.numbers)

    def reduce(self, wanted: dict[Hashable, ColumnReduction]) -> None:
        """Compute missing reductions in one pass over the rows."""
        missing = {key: each for key, each in wanted.items() if key not in self._words}
        if not missing:
            return
        columns = list(missing.values())
        if self._grouped is not None:
            words = self._grouped.totals(columns)
        else:
            words = reduce_groups(self.backend, self.numbers, self.numbered_groups, columns)
        self._words.update(zip(missing, words, strict=True))

    def words(self, key: Hashable, reduction: ColumnReduction) -> Any:
        """Return the words of a reduction for each group of the result."""
        return self.arrange(self.words_by_number(key, reduction))

    def words_by_number(self, key: Hashable, reduction: ColumnReduction) -> Any:
        """Return the words of a reduction by group number, dropped groups included."""
        self.reduce({key: reduction})
        return self._words[key]

    def forget(self) -> None:
        """Drop all computed words except the sizes."""
        self._words = {key: words for key, words in self._words.items() if key == "size"}

    @property
    def counting(self) -> dict[Hashable, ColumnReduction]:
        """The reduction for `sizes`."""
        return {"size": _ROWS}

    @property
    def sizes(self) -> Any:
        """The number of rows of each group of the result."""
        return self.words("size", _ROWS).view(np.int64)

    @functools.cached_property
    def rows_by_group(self) -> Any:
        """The row numbers ordered by group, in row order within a group."""
        found = self.backend.stable_order(self.codes)
        left_out = self.rows - int(self.starts[-1])
        return found[left_out:]

    def ends(self, name: str) -> Any:
        """Return the ``first`` or ``last`` row of each group."""
        return self.first_rows if name == "first" else self.rows_by_group[self.starts[1:] - 1]

    def positions(self, rows: Any) -> Any:
        """Return row positions in the frame for rows in groups, unchanged here."""
        return rows

    @functools.cached_property
    def starts(self) -> Any:
        """The offset of each group in `rows_by_group`, and the end."""
        ends = self.xp.zeros(len(self) + 1, np.int64)
        ends[1:] = self.xp.cumsum(self.sizes)
        return ends

    @property
    def kept_codes(self) -> Any:
        """The position of each row's group in the result, for rows in a group."""
        return self.codes

    def only_of_groups(self, floats: Any) -> Any:
        """Return numbers by row, NaN for rows in no group."""
        if self.order is None or len(self.order) == self.numbered_groups:
            return floats
        return self.xp.where(self.codes < 0, np.nan, floats)

    @functools.cached_property
    def places(self) -> Any:
        """The position of each row in its group, from 0; -1 for rows in no group."""
        found = self.xp.full(self.rows, -1, np.int64)
        rows = self.rows_by_group
        found[rows] = self.xp.arange(len(rows)) - self.starts[self.codes[rows]]
        return found


def grouping_keys(frame: Any, by: Any, level: Any) -> list[GroupingKey]:
    """Return the keys for the arguments of a groupby, with NaNs as nulls.

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
            raise UnsupportedError("by= and level= cannot be combined; give by= the level's values")
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
    """Return the keys for the arguments of a groupby; see `grouping_keys`.

    Raises
    ------
    UnsupportedError
        When groups of categories that no row has are asked for.
    """
    keys = grouping_keys(frame, by, level)
    if not observed and any(hasattr(key.values.dtype, "categories") for key in keys):
        raise UnsupportedError(
            "observed=False is not supported for cuDF frames; group with observed=True, or "
            "frame.to_pandas()"
        )
    return keys


def column_of_key(values: Any) -> Any:
    """Return values as a cuDF Series numbered from 0, with NaN as null."""
    series = numbered_series(values)
    return series.nans_to_nulls() if getattr(series.dtype, "kind", "O") == "f" else series


def _level(index: Any, level: Any) -> GroupingKey:
    values = index.get_level_values(level)
    return GroupingKey(values.name, column_of_key(values))


def _keys(frame: Any, key: Any) -> list[GroupingKey]:
    import cudf

    if isinstance(key, pd.Grouper | cudf.Grouper):
        raise UnsupportedError(
            "a Grouper is not supported; give a label, or in place of freq= a Series of the periods"
        )
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
        return [_label_columns(frame, key)]
    _check_length(frame, key)
    return [GroupingKey(None, column_of_key(key))]


def _check_length(frame: Any, key: Any) -> None:
    if len(key) != len(frame):
        raise ShapeError("Grouper and object must have same length")


def _of_series(frame: Any, key: Any) -> GroupingKey:
    """Return a Series as a key: a column of the frame if it is one, else aligned by label."""
    if not key.index.equals(frame.index):
        return GroupingKey(key.name, column_of_key(key.reindex(frame.index)))
    column = _column_that_is(frame, key)
    return GroupingKey(key.name, column_of_key(key), column, in_frame=column is not None)


def _column_that_is(frame: Any, key: Any) -> Any:
    """Return the label of the column that a Series is a view of, or None."""
    own = getattr(key, "_column", None)
    if frame.ndim == 1 or own is None:
        return None
    return next((label for label, series in frame.items() if series._column is own), None)


def _label_columns(frame: Any, label: Any) -> GroupingKey:
    column = frames_named("cudf").column(frame, label) if frame.ndim == 2 else None
    if column is not None:
        return GroupingKey(label, column_of_key(column), label, in_frame=True)
    names = list(frame.index.names)
    if label is None or label not in names:
        raise MissingKeyError(label)
    return GroupingKey(label, column_of_key(frame.index.get_level_values(label)))
