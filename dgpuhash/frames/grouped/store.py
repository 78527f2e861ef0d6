"""Growable storage of partial states, and the results read from it."""

from __future__ import annotations

import copy
import sys
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.groupby.partial.fold import ValueColumn
from dgpuhash.frames.groupby.partial.kinds import (
    Choice,
    combine,
    fields_of,
    lost_fields,
    retract,
)
from dgpuhash.frames.grouped.aggregation import Aggregation
from dgpuhash.frames.grouped.columns import DeviceColumns, HostColumns
from dgpuhash.frames.grouped.fields import EPOCH, OWN, SIZE
from dgpuhash.frames.labels import stored_labels
from dgpuhash.frames.row_store import NumericDtypes, RowStore, numeric_dtypes

# Rows by which the size of others is estimated.
SAMPLED = 1024

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
        self._own: HostColumns = (
            DeviceColumns(self.meta, groups.nullable_states) if groups.are_on_gpu
            else HostColumns(self.meta)
        )  # fmt: skip
        self._columns: dict[Hashable, Any] = {
            label: self._own.column(label, self._own.read(self.meta, label)) for label in self.meta
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
            column.append(self._own.read(frame, label))

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
        for first in range(0, len(rows), self._own.at_once):
            block = slice(first, first + self._own.at_once)
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
            made._columns[label] = self._own.column(label, column.take(rows))
            if len(others):
                made._columns[label].append(self._own.read(others, label))
        return made

    def written(self, states: Any, first: int) -> Any:
        """Return a frame of states with stored ones from a position on, without keys."""
        arrays = [
            self._own.read(states, label) if label in self._groups.by
            else self._columns[label].array[first:]
            for label in states
        ]  # fmt: skip
        return self._own.frame(arrays, list(states), len(states))

    def put(self, rows: Any, states: StateRows) -> None:
        """Replace the non-key columns of the states at positions by other states."""
        for label, column in states._columns.items():
            self._columns[label].put(rows, column.array[: len(rows)])

    def columns_of(self, states: Any) -> Fields:
        """Return the non-key columns of states, as arrays by label."""
        return {
            label: self._own.read(states, label)
            for label in states if label not in self._groups.by
        }  # fmt: skip

    def stamp(self, states: Any, epoch: int) -> Any:
        """Return states to store, with the epoch of the change."""
        arrays = {label: self._own.read(states, label) for label in states}
        given = arrays[EPOCH]
        arrays[EPOCH] = np.where(given == 0, epoch, np.minimum(given, epoch))
        for place, kinds in self._groups.kinds.items():
            rows = {
                field: arrays[f"{OWN}{place} {field}"]
                for field in fields_of(kinds) if field.endswith(" row")
            }  # fmt: skip
            _say_earlier(rows)
            arrays |= {f"{OWN}{place} {field}": array for field, array in rows.items()}
        return self._own.frame(list(arrays.values()), list(arrays), len(states))

    def frame(self) -> Any:
        """Return all states, including those of dropped groups."""
        return self.take(self._frames.xp.arange(len(self)))

    def take(self, rows: Any, columns: Sequence[Hashable] | None = None) -> Any:
        """Return the given states, numbered from 0, with `columns` (default: all)."""
        labels = list(self.meta) if columns is None else stored_labels(columns, self.meta)
        arrays = [self._columns[label].take(rows) for label in labels]
        return self._own.frame(arrays, labels, len(rows))

    def column(self, label: Hashable) -> Any:
        """Return all values of a column."""
        return self._columns[label].array

    def arrays(self, columns: Sequence[Hashable]) -> list[Any] | None:
        """Return all rows of `columns` as `Frames.arrays` does; None if that takes a copy."""
        found = [self._columns[label] for label in columns]
        if not found or any(isinstance(each, ValueColumn) or each.has_nulls for each in found):
            return None
        return self._own.arrays([each.array for each in found], columns)

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
        some = self._states.take(self._frames.xp.arange(min(len(self), SAMPLED)))
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
