"""Groups of the rows of a cuDF frame: their numbers, order and keys, on the device."""

from __future__ import annotations

import copy
import functools
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash import backend
from dgpuhash.frames.dataframes import frames_named
from dgpuhash.frames.dataframes.cudf_columns import (
    column_of_series,
    frame_of,
    index_of,
    order_of,
    take_series,
)
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.keys.encoding import KeyColumns, KeyEncoder
from dgpuhash.tables.columns.aggregates import ColumnReduction, reduce_groups
from dgpuhash.tables.columns.factorize import GroupedKeys
from dgpuhash.tables.select import gather_rows

if TYPE_CHECKING:
    from dgpuhash.backend import Backend
    from dgpuhash.frames.dataframes.base import Frames


__all__ = ["CudfGroups", "compared"]

# What depends on the order of groups, once it is known.
_OF_THE_ORDER = {"order", "first_rows", "columns", "codes", "rows_by_group", "starts", "places"}
# Counts the rows of each group.
_ROWS = ColumnReduction(None, "u1", "one", "sum")


def compared(keys: Sequence[tuple[Any, Any]]) -> Any:
    """Return a frame of columns that are equal where these Series are, called by numbers.

    Parameters
    ----------
    keys : list of (label, Series)
        Errors tell the labels.
    """
    made: list[Any] = []
    for label, series in keys:
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufmM":
            made.append(series)
        elif hasattr(series.dtype, "categories"):
            made.append(series.cat.codes.astype("int32").fillna(-1))
        else:
            found = frames_named("cudf").compared(series, series, label)
            made.extend(ours.series for ours, _ in found)
    return frame_of(enumerate(map(column_of_series, made)), made[0].index)


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
        frame = compared([(key.name, key.values) for key in keys])
        columns = KeyColumns.of(frame, list(frame))
        encoded = KeyEncoder.for_columns(columns).for_call(columns)[1]
        exact = bool(rows) and encoded.proves
        self._grouped: GroupedKeys | None = GroupedKeys(encoded.codes) if exact else None
        self._numbered: Any = None if exact else encoded.numbered()

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
        """The number of each row's group in order of appearance, also of those left out."""
        return self._numbered[0] if self._grouped is None else self._grouped.groups.codes

    def number(self) -> None:
        """Compute the numbers of rows now, so that no pass before finds the groups, too."""
        assert self.numbers is not None

    @property
    def numbered_groups(self) -> int:
        """How many groups there are with those that are left out."""
        return len(self._first)

    @functools.cached_property
    def order(self) -> Any | None:
        """The numbers of the groups in the order of the result, None for all by number."""
        columns = [take_series(key.values, self._first) for key in self.keys]
        kept = None
        nulls = [
            column.isna() for column, drops in zip(columns, self.drops, strict=True)
            if drops and column.has_nulls
        ]  # fmt: skip
        if nulls:
            gone = functools.reduce(lambda one, other: one | other, map(self._mask, nulls))
            kept = self.xp.flatnonzero(~gone)
            columns = [take_series(column, kept) for column in columns]
        if not self.sorts or not len(columns[0]):
            return kept
        order = order_of(columns)
        return order if kept is None else kept[order]

    def _mask(self, series: Any) -> Any:
        return self.frames.array(series.astype(bool))

    def arranged(self, array: Any) -> Any:
        """Return values of groups by number in the order of the result."""
        return array if self.order is None else gather_rows(array, self.order)

    @functools.cached_property
    def first_rows(self) -> Any:
        """The first row of each group of the result."""
        return self.arranged(self._first)

    @functools.cached_property
    def columns(self) -> list[Any]:
        """For each key its value in each group of the result."""
        return [take_series(key.values, self.first_rows) for key in self.keys]

    @property
    def index(self) -> Any:
        """The labels of the groups."""
        return index_of(self.columns, [key.name for key in self.keys])

    @functools.cached_property
    def codes(self) -> Any:
        """The place of each row's group in the result, -1 for rows in none."""
        if self.order is None:
            return self.numbers
        rank = self.xp.full(self.numbered_groups, -1, np.int64)
        rank[self.order] = self.xp.arange(len(self.order))
        return gather_rows(rank, self.numbers)

    def reduce(self, wanted: dict[Hashable, ColumnReduction]) -> None:
        """Compute what is not known yet of some reductions, in one pass over the rows."""
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
        return self.arranged(self.words_by_number(key, reduction))

    def words_by_number(self, key: Hashable, reduction: ColumnReduction) -> Any:
        """Return the words of a reduction for each group by number, also of those left out."""
        self.reduce({key: reduction})
        return self._words[key]

    def forget(self) -> None:
        """Keep no words but the sizes: those of other columns are used once."""
        self._words = {key: words for key, words in self._words.items() if key == "size"}

    @property
    def counting(self) -> dict[Hashable, ColumnReduction]:
        """What `sizes` needs."""
        return {"size": _ROWS}

    @property
    def sizes(self) -> Any:
        """The number of rows of each group of the result."""
        return self.words("size", _ROWS).view(np.int64)

    @functools.cached_property
    def rows_by_group(self) -> Any:
        """The rows that are in a group by their group; those of a group stay in order."""
        found = self.backend.stable_order(self.codes)
        left_out = self.rows - int(self.starts[-1])
        return found[left_out:]

    @functools.cached_property
    def starts(self) -> Any:
        """Where each group begins in `rows_by_group`, and its end."""
        ends = self.xp.zeros(len(self) + 1, np.int64)
        ends[1:] = self.xp.cumsum(self.sizes)
        return ends

    @property
    def kept_codes(self) -> Any:
        """The place of each row's group in the result; those of rows in none are not asked for."""
        return self.codes

    def only_of_groups(self, floats: Any) -> Any:
        """Return numbers of rows, NaN for rows in no group."""
        if self.order is None or len(self.order) == self.numbered_groups:
            return floats
        return self.xp.where(self.codes < 0, np.nan, floats)

    @functools.cached_property
    def places(self) -> Any:
        """The place of each row in its group, counted from 0; -1 for rows in none."""
        found = self.xp.full(self.rows, -1, np.int64)
        rows = self.rows_by_group
        found[rows] = self.xp.arange(len(rows)) - self.starts[self.codes[rows]]
        return found
