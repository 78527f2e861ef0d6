"""Growable storage of partial states, and the results read from it."""

from __future__ import annotations

import copy
import sys
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pandas as pd

from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.partial.fold import NumberColumn, ValueColumn, column_of, plain
from dgpuhash.frames.groupby.partial.kinds import (
    Choice,
    combine,
    fields_of,
    lost_fields,
    retract,
)
from dgpuhash.frames.grouped.aggregation import EPOCH, OWN, SIZE, Aggregation
from dgpuhash.frames.labels import stored_labels
from dgpuhash.frames.row_store import NumericDtypes, RowStore, numeric_dtypes

# Rows by which the size of others is estimated.
SAMPLED = 1024
# States that are combined at once: what that takes stays in the caches of a core.
AT_ONCE = 1 << 13

Fields: TypeAlias = dict[Any, Any]
NEVER = np.iinfo(np.int64).max


class StateRows(RowStore):
    """Partial states of groups; changes cost only the changed states.

    Parameters
    ----------
    groups : Aggregation
    """

    def __init__(self, groups: Aggregation) -> None:
        super().__init__(groups.states)
        self._groups = groups
        self._columns: dict[Hashable, NumberColumn | ValueColumn] = {
            label: column_of(plain(self.meta[label])) for label in self.meta
        }

    def __len__(self) -> int:
        return min(map(len, self._columns.values()))

    @property
    def numbers(self) -> NumericDtypes:
        """Numeric dtypes of the columns; an empty list if there is no row."""
        return numeric_dtypes(self.meta) if len(self) else []

    def append(self, frame: Any, arrays: Sequence[Any] | None = None) -> None:
        """Add states."""
        # An append that was interrupted has left some columns longer.
        length = len(self)
        for label, column in self._columns.items():
            column.cut(length)
            column.append(plain(frame[label]))

    def appended(self, frame: Any, arrays: Sequence[Any] | None = None) -> StateRows:
        """Add states that are invisible until a table names them; return this store."""
        self.append(frame)
        return self

    def combine(self, rows: Any, states: Fields, chosen: Any, *, taken_off: bool) -> None:
        """Merge stored states with other ones, or retract those.

        Parameters
        ----------
        rows : int64 array
            Positions of stored states, of which none occurs twice.
        states : dict
            Columns of other states by their labels, as `columns_of` gives them.
        chosen : int64 array
            Which of these belong to `rows`.
        taken_off : bool
        """
        for first in range(0, len(rows), AT_ONCE):
            block = slice(first, first + AT_ONCE)
            theirs = {label: column[chosen[block]] for label, column in states.items()}
            self._combine(rows[block], theirs, taken_off=taken_off)

    def _combine(self, rows: Any, states: Fields, *, taken_off: bool) -> None:
        size, epoch = self._columns[SIZE], self._columns[EPOCH]
        sign = -1 if taken_off else 1
        size.put(rows, size.take(rows) + sign * states[SIZE])
        epoch.put(rows, np.maximum(epoch.take(rows), states[EPOCH]))
        for place, kinds in self._groups.kinds.items():
            fields = [*fields_of(kinds), *lost_fields(kinds)]
            labels = {field: f"{OWN}{place} {field}" for field in fields}
            labels = {field: label for field, label in labels.items() if label in self._columns}
            ours = {field: self._columns[label].take(rows) for field, label in labels.items()}
            theirs = {field: states[label] for field, label in labels.items()}
            _say_later(theirs)
            found = (retract if taken_off else combine)(kinds, ours, theirs)
            _say_earlier(found)
            for field, array in found.items():
                column = self._columns[labels[field]]
                if not isinstance(array, Choice):
                    column.put(rows, array)
                elif len(others := np.flatnonzero(array.theirs)):
                    column.put(rows[others], theirs[field][others])

    def beside(self, rows: Any, others: Any) -> StateRows:
        """Return a store of the states at positions and of others, without keys."""
        made = copy.copy(self)
        made._columns = {}
        for label, column in self._columns.items():
            if label in self._groups.by:
                continue
            ours = column.take(rows)
            numbers = isinstance(column, NumberColumn)
            made._columns[label] = NumberColumn(ours, copy=False) if numbers else ValueColumn(ours)
            if len(others):
                made._columns[label].append(plain(others[label]))
        return made

    def written(self, states: Any, first: int) -> Any:
        """Return a frame of states with stored ones from a position on, without keys."""
        made = states.copy(deep=False)
        for label, column in self._columns.items():
            made[label] = column.array[first:]
        return made

    def put(self, rows: Any, states: StateRows) -> None:
        """Replace the non-key columns of the states at positions by other states."""
        for label, column in states._columns.items():
            self._columns[label].put(rows, column.array[: len(rows)])

    def columns_of(self, states: Any) -> Fields:
        """Return the non-key columns of states, as arrays by label."""
        return {
            label: plain(states[label]) for label in states if label not in self._groups.by
        }  # fmt: skip

    def stamp(self, states: Any, epoch: int) -> Any:
        """Return states to store, with the epoch of the change."""
        made = states.copy(deep=False)
        given = states[EPOCH].to_numpy()
        made[EPOCH] = np.where(given == 0, epoch, np.minimum(given, epoch))
        for place, kinds in self._groups.kinds.items():
            rows = {
                field: made[f"{OWN}{place} {field}"].to_numpy()
                for field in fields_of(kinds) if field.endswith(" row")
            }  # fmt: skip
            _say_earlier(rows)
            for field, array in rows.items():
                made[f"{OWN}{place} {field}"] = array
        return made

    def frame(self) -> Any:
        """Return all states, including those of dropped groups."""
        return self.take(np.arange(len(self)))

    def take(self, rows: Any, columns: Sequence[Hashable] | None = None) -> Any:
        """Return the given states, numbered from 0, with `columns` (default: all)."""
        labels = list(self.meta) if columns is None else stored_labels(columns, self.meta)
        arrays = [self._columns[label].take(rows) for label in labels]
        return frame_of(arrays, self._labels(labels), pd.RangeIndex(len(rows)))

    def column(self, label: Hashable) -> Any:
        """Return all values of a column."""
        return self._columns[label].array

    def arrays(self, columns: Sequence[Hashable]) -> list[Any] | None:
        """Return all rows of `columns` as `Frames.arrays` does; None if that takes a copy."""
        numbers = [self._columns[label] for label in columns]
        if not all(isinstance(each, NumberColumn) for each in numbers):
            return None
        index = pd.RangeIndex(len(self))
        frame = frame_of([each.array for each in numbers], self._labels(columns), index)
        return self._frames.arrays(frame)

    def _labels(self, labels: Sequence[Hashable]) -> pd.Index:
        return self.meta.columns[[list(self.meta).index(label) for label in labels]]

    def kept(self, rows: Any) -> StateRows:
        """Return a store with only the given states, in order, numbered from 0."""
        made = StateRows(self._groups)
        made.append(self.take(rows))
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of the stored columns."""
        return sum(column.nbytes for column in self._columns.values())


class ResultRows:
    """Results of stored states, with the interface of `RowStore`.

    Parameters
    ----------
    states : StateRows
    groups : Aggregation
    """

    page_nbytes: ClassVar[int] = sys.maxsize
    paged: ClassVar[bool] = True

    def __init__(self, states: StateRows, groups: Aggregation) -> None:
        self._states, self._groups = states, groups
        self._frames = frames_of(groups.results)
        self.meta: Any = groups.results

    def __len__(self) -> int:
        return len(self._states)

    def take(self, rows: Any, columns: Sequence[Hashable] | None = None) -> Any:
        """Return the results of the given rows, numbered from 0, with `columns`."""
        wanted = list(self.meta) if columns is None else stored_labels(columns, self.meta)
        if set(wanted) <= set(self._groups.by):
            return self._states.take(rows, wanted)
        return self._groups.results_of(self._states.take(rows), wanted)[wanted]

    def in_pages(self, count: int) -> bool:
        """Return whether to compute results of requested rows alone: always."""
        return True

    def whole(self) -> Any:
        """Return the results of no rows."""
        return self.meta

    def arrays(self, columns: Sequence[Hashable]) -> list[Any] | None:
        """Return key columns as `RowStore.arrays` does; None for results."""
        return self._states.arrays(columns) if set(columns) <= set(self._groups.by) else None

    def row_nbytes(self, columns: Sequence[Hashable]) -> float:
        """Return the estimated bytes of a row with these columns."""
        some = self._states.take(np.arange(min(len(self), SAMPLED)))
        sample = self._groups.results_of(some, columns, checked=False)[list(columns)]
        return float(self._frames.rows_nbytes(sample)) / max(1, len(sample))

    def fits(self, taken: Any, nbytes: int) -> bool:
        """Return whether the rows `taken` from here have at most `nbytes`."""
        return bool(self._frames.rows_nbytes(taken) <= nbytes)

    @property
    def numbers(self) -> NumericDtypes:
        """Numeric dtypes of the states."""
        return self._states.numbers

    def check_rounding(self, rows: Any) -> None:
        """Raise ColumnError as `RowStore.check_rounding` for states."""
        self._states.check_rounding(rows)

    def check_promotion_with(self, numbers: NumericDtypes) -> None:
        """Raise ColumnError as `RowStore.check_promotion_with` for states."""
        self._states.check_promotion_with(numbers)

    def free(self) -> None:
        """Free resources outside of memory: nothing."""


def _say_earlier(fields: Fields) -> None:
    """Set the row numbers of first and last values to 0: all incoming rows are later."""
    _number_rows(fields, 0)


def _say_later(fields: Fields) -> None:
    """Set the row numbers of first and last values to 1: all stored rows are earlier."""
    _number_rows(fields, 1)


def _number_rows(fields: Fields, number: int) -> None:
    for field in fields:
        if field.endswith(" row"):
            rows = fields[field]
            # No row at all is the number after the last for a first value, -1 for a last one.
            none = rows == NEVER if field.startswith("first") else rows < 0
            fields[field] = np.where(none, rows, number)
