"""Groups: group number, order and key of each row."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pandas as pd

from dgpuhash import config
from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.dataframes.order import sorted_rows
from dgpuhash.frames.dataframes.pandas import PandasFrames
from dgpuhash.frames.dataframes.pandas_keys import is_plain, key_column
from dgpuhash.frames.dataframes.pandas_take import take_rows
from dgpuhash.frames.groupby.aggregates.values import key_order, nulls_of
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.key_columns import KeyColumn
from dgpuhash.frames.keys.encoding import KeyColumns
from dgpuhash.frames.merge.accessor import key_columns
from dgpuhash.frames.merge.distinct import number_keys
from dgpuhash.frames.merge.index import index_of

Flags: TypeAlias = bool | Sequence[bool]


def numbered(columns: Sequence[Any], names: Sequence[Any] = ()) -> tuple[Any, Any]:
    """Return the number of each row's multi-column key, and the first row of each key.

    Keys are numbered in order of first appearance.

    Parameters
    ----------
    columns : list of Series or integer arrays
    names : list of labels
        What errors call the columns; by default as they are called.

    Examples
    --------
    >>> numbered([pd.Series([7, 5, 7]), np.array([1, 1, 1])])
    (array([0, 1, 0]), array([0, 1]))
    """
    if not len(columns[0]):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    made: list[KeyColumn] = []
    for column, name in zip_longest(columns, names):
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.cat.codes.to_numpy()
        label = getattr(column, "name", None) if name is None else name
        if is_plain(column.dtype) or isinstance(column.dtype, pd.StringDtype):
            made.append(key_column(column, label))
        else:
            made.extend(key_column(each, label) for each in key_columns(column, label))
    return number_keys(KeyColumns(range(len(made)), made, PandasFrames()))


class Groups:
    """The groups of a frame's rows.

    Parameters
    ----------
    keys : list of GroupingKey
    rows : int
        The number of rows.
    sort : bool or sequence of bool
        Whether groups come in the order of their keys, nulls last, or in order of first appearance;
        of each key.
    dropna : bool or sequence of bool
        Whether rows with a null in a key are in no group.
    observed : bool or sequence of bool
        Whether only categories that occur are groups.

    Attributes
    ----------
    keys : list of GroupingKey
    columns : list of Series
        For each key its value in each group.
    codes : int64 array
        The group of each row, -1 for rows in none.
    heads : int64 array or None
        The first row of each group among the rows in groups, where that is known.
    of_parts : bool
        Whether the rows are those of parts: then dtypes do not depend on their order.
    keeps_nan : bool
        Whether sums of NaN are NaN where it is no null, and not null.
    """

    heads: Any | None = None
    of_parts: bool = False
    keeps_nan: bool = False
    xp: ClassVar[Any] = np

    def __init__(
        self, keys: list[GroupingKey], rows: int, *, sort: Flags, dropna: Flags, observed: Flags
    ) -> None:
        self.keys: list[GroupingKey] = keys
        self._total = rows
        self.sorts: list[bool] = _each(sort, keys)
        self.drops: list[bool] = _each(dropna, keys)
        seen = _each(observed, keys)
        self._free = [place for place in _categories(keys) if not seen[place]]
        self.is_observed: bool = not self._free
        kept = None
        if any(self.drops):
            nulls = np.zeros(rows, bool)
            for key in itertools.compress(keys, self.drops):
                if (mask := nulls_of(key.values)) is not None:
                    nulls |= mask
            kept = np.flatnonzero(~nulls) if nulls.any() else None
        self.rows = kept
        values = [key.values if kept is None else take_rows(key.values, kept) for key in keys]
        self.columns: list[Any]
        codes, self.columns = self._found(values) if self.is_observed else self._product(values)
        self.codes: Any = codes
        if kept is not None:
            self.codes = np.full(rows, -1, np.int64)
            self.codes[kept] = codes
        self.kept_codes = codes

    def __len__(self) -> int:
        return len(self.columns[0])

    def _found(self, values: list[pd.Series]) -> tuple[Any, list[pd.Series]]:
        """Return row codes, and the keys of the observed groups."""
        codes, heads = numbered(values, [key.name for key in self.keys])
        alone = len(heads) == len(codes)
        columns = values if alone else [take_rows(column, heads) for column in values]
        if any(self.sorts):
            return self._ordered(codes, columns)
        self.heads = heads
        return codes, list(map(_copy, columns)) if alone else columns

    def _ordered(self, codes: Any, columns: list[pd.Series]) -> tuple[Any, list[pd.Series]]:
        order = key_order(list(itertools.compress(columns, self.sorts)))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return rank[codes], [take_rows(column, order) for column in columns]

    def _product(self, values: list[pd.Series]) -> tuple[Any, list[pd.Series]]:
        """Return row codes, and the product of all categories as keys."""
        free = self._free
        levels = {place: self._level(place) for place in free}
        sizes = {place: len(level) for place, (_, level) in levels.items()}
        others = [place for place in range(len(values)) if place not in free]
        outer = np.zeros(len(values[0]), np.int64)
        heads = np.zeros(1, np.int64)
        if others:
            outer, heads = self._apart(others)
        within = math.prod(sizes.values())
        most = config.count("frames.most-groups")
        if len(heads) * within > most:
            raise UnsupportedError(
                f"observed=False makes {len(heads) * within:,} groups of categories, more than "
                f"{most:,}; group with observed=True, or set dgpuhash.frames.most-groups in Dask's "
                "configuration"
            )
        codes, inner = outer, np.zeros(1, np.int64)
        places: dict[int, Any] = {}
        for place in free:
            codes = codes * sizes[place] + levels[place][0]
            for other in places:
                places[other] = np.repeat(places[other], sizes[place])
            places[place] = np.tile(np.arange(sizes[place]), len(inner))
            inner = np.zeros(len(places[place]), np.int64)
        columns = []
        for place in range(len(values)):
            if place in free:
                columns.append(take_rows(levels[place][1], np.tile(places[place], len(heads))))
            else:
                columns.append(take_rows(self.keys[place].values, np.repeat(heads, within)))
        if not others:
            return codes, columns
        if any(self.sorts):
            return self._ordered(codes, columns)
        # Groups that occur come first.
        _, first = numbered([codes])
        there = np.zeros(len(columns[0]), bool)
        there[codes] = True
        order = np.concatenate([codes[first], np.flatnonzero(~there)])
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return rank[codes], [take_rows(column, order) for column in columns]

    def _apart(self, places: list[int]) -> tuple[Any, Any]:
        """Return the key number of each row in a group, and the first row of each key.

        Rows without a group because of another key count.
        """
        columns = [self.keys[place].values for place in places]
        nulls = np.zeros(self._total, bool)
        for place, column in zip(places, columns, strict=True):
            if self.drops[place]:
                nulls |= column.isna().to_numpy()
        rows = np.flatnonzero(~nulls)
        numbers, heads = numbered([take_rows(column, rows) for column in columns])
        found = np.full(self._total, -1, np.int64)
        found[rows] = numbers
        return found if self.rows is None else found[self.rows], rows[heads]

    def _level(self, key: int) -> tuple[Any, pd.Series]:
        """Return each row's position among the categories of a key, and the categories."""
        column: Any = self.keys[key].values
        all_codes = column.cat.codes.to_numpy().astype(np.int64)
        codes = all_codes if self.rows is None else all_codes[self.rows]
        known = np.arange(len(column.cat.categories))
        if self.drops[key]:
            all_codes = all_codes[all_codes >= 0]
        if not self.sorts[key]:
            # In order of appearance, also in rows that another key leaves out.
            _, first = numbered([all_codes])
            seen = all_codes[first]
            known = np.concatenate([seen, np.setdiff1d(known, seen)])
        elif (all_codes < 0).any():
            known = np.append(known, -1)
        place = np.empty(len(known) + 1, np.int64)
        place[known] = np.arange(len(known))
        level = pd.Series(pd.Categorical.from_codes(known, dtype=column.dtype))
        return place[codes], level

    @functools.cached_property
    def sizes(self) -> Any:
        """The number of rows of each group."""
        return np.bincount(self.kept_codes, minlength=len(self))

    @functools.cached_property
    def follow(self) -> bool:
        """Whether the rows are already ordered by group, rows without a group first."""
        return bool((self.codes[1:] >= self.codes[:-1]).all())

    @functools.cached_property
    def order(self) -> Any:
        """Positions of the rows in groups, ordered by group and then by row."""
        found = sorted_rows([self.kept_codes]) if len(self.kept_codes) else self.kept_codes
        return found if self.rows is None else self.rows[found]

    @functools.cached_property
    def starts(self) -> Any:
        """The offset of each group in `order`, and the end."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @functools.cached_property
    def places(self) -> Any:
        """The position of each row in its group, from 0; -1 for rows in no group."""
        found = np.full(self._total, -1, np.int64)
        found[self.order] = np.arange(len(self.order)) - np.repeat(self.starts[:-1], self.sizes)
        return found

    def ends(self, name: str) -> Any:
        """Return the ``first`` or ``last`` row of each group among the rows in groups.

        -1 for none.
        """
        if name == "first" and self.heads is not None:
            return self.heads
        rows = np.full(len(self), -1, np.int64)
        places, step = np.arange(len(self.kept_codes)), -1 if name == "first" else 1
        rows[self.kept_codes[::step]] = places[::step]
        return rows

    def positions(self, rows: Any) -> Any:
        """Return frame positions for rows numbered among those in groups; undefined for -1."""
        return rows if self.rows is None else np.append(self.rows, 0)[rows]

    def kept(self, column: pd.Series) -> pd.Series:
        """Return the rows of a column that are in a group."""
        return column if self.rows is None else take_rows(column, self.rows)

    @functools.cached_property
    def index(self) -> Any:
        """The labels of the groups."""
        columns, names = [*map(infer_keys, self.columns)], [key.name for key in self.keys]
        if len(columns) == 1 and columns[0].dtype == object:
            objects: Any = object
            return pd.Index(columns[0].to_numpy(), objects, name=names[0], tupleize_cols=False)
        return index_of(columns, names)


def _each(flags: Flags, keys: list[GroupingKey]) -> list[bool]:
    return [flags] * len(keys) if isinstance(flags, bool) else list(flags)


def _categories(keys: list[GroupingKey]) -> list[int]:
    return [
        place for place, key in enumerate(keys) if isinstance(key.values.dtype, pd.CategoricalDtype)
    ]


def _copy(column: pd.Series) -> pd.Series:
    return pd.Series(column.array.copy(), dtype=column.dtype, copy=False)


def infer_keys(column: pd.Series) -> pd.Series:
    """Return group keys with inferred dtypes for objects, and their nulls as NaN.

    Integers that float64 does not hold stay objects beside floats, where pandas rounds them.
    """
    if column.dtype != object:
        return column
    objects = column.where(column.notna(), np.nan)
    made = objects.infer_objects()
    pairs = zip(made.dropna(), objects.dropna(), strict=True)
    if made.dtype.kind == "f" and any(one != other for one, other in pairs):
        return objects
    return made
