"""Groups and states that were folded from parts, in the form of those of one frame."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.frames.groupby.aggregates import numbers
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.aggregates.states import States
from dgpuhash.frames.groupby.aggregates.values import Values, taken
from dgpuhash.frames.groupby.assembly import series_of
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.groupby.groups import Flags, Groups
from dgpuhash.frames.groupby.partial.kinds import Fields, total_of
from dgpuhash.frames.groupby.partial.lost import check_digits, whole_digits
from dgpuhash.frames.groupby.partial.storage import array_of
from dgpuhash.frames.groupby.reduction import check_labelled, check_observed

__all__ = ["FoldedGroups", "FoldedStates"]


class FoldedGroups(Groups):
    """The groups of all parts.

    Parameters
    ----------
    keys : list of GroupingKey
        The key of each group that has rows.
    sizes : int64 array
        The number of these rows.
    sort, dropna, observed : bool or sequence of bool
        As for `Groups`.

    Attributes
    ----------
    states : int64 array
        The position of each group among these, -1 for combinations of categories without rows.
    """

    of_parts = True

    def __init__(
        self, keys: list[GroupingKey], sizes: Any, *, sort: Flags, dropna: Flags, observed: Flags
    ) -> None:
        super().__init__(keys, len(sizes), sort=sort, dropna=dropna, observed=observed)
        self.states: np.ndarray = np.full(len(self), -1, np.int64)
        rows = np.flatnonzero(self.codes >= 0)
        self.states[self.codes[rows]] = rows
        self.sizes = array_of(sizes, self.states)

    def _found(self, values: list[pd.Series]) -> tuple[Any, list[pd.Series]]:
        """Return the codes of states and their keys, which differ."""
        codes = np.arange(len(values[0]))
        if any(self.sorts):
            return self._ordered(codes, values)
        return codes, [column.copy() for column in values]


class FoldedStates(States):
    """The states of one column's groups, folded from those of parts.

    Parameters
    ----------
    values : Values
        Of the dtype of the column, without rows.
    groups : FoldedGroups
    fields : dict
        The fields of the kinds of states, see `kinds`; those of groups without rows are 0 or null.
    """

    def __init__(self, values: Values, groups: FoldedGroups, fields: Fields) -> None:
        if values.kind != "float" and "moment lost" in fields:
            fields = whole_digits(fields)
        kept = ("moment", "any", "all", "prod")
        words: dict[str, Any] = {name: fields[name] for name in kept if name in fields}
        if "all" in words:
            # Of no values all are true.
            words["all"] = words["all"] | (fields["count"] == 0)
        if "prod" in words:
            one = words["prod"].dtype.type(1)
            words["prod"] = np.where(groups.sizes > 0, words["prod"], one)
        super().__init__(values, groups, words)
        self._fields = fields

    @functools.cached_property
    def count(self) -> Any:
        """The number of values of each group that are not null."""
        return self._fields["count"]

    @functools.cached_property
    def decimal_parts(self) -> tuple[Any, ...]:
        """The sums of each group's decimals, in parts."""
        return tuple(self._fields[f"part {place}"] for place in range(4))

    @functools.cached_property
    def stray(self) -> Any | None:
        """A mask of the groups with a NaN that is no null, None where there is none."""
        found = self._fields.get("stray")
        return found > 0 if found is not None and found.any() else None

    @functools.cached_property
    def ordered_count(self) -> Any:
        """The number of values of each group that are neither null nor NaN."""
        return self.count - self._fields.get("stray", 0)

    @functools.cached_property
    def total(self) -> Any:
        """The sum of each group's values, as float64."""
        return total_of(self._fields)[0]

    @property
    def sum(self) -> Any:
        """The sum of each group's values: int64, uint64 or float64."""
        return self.total if self.values.kind == "float" else self._fields["sum"]

    @property
    def mean(self) -> Any:
        """The mean of each group's values; NaN without values."""
        return numbers.mean_of(total_of(self._fields), self.count)[0]

    @property
    def wide(self) -> tuple[Any, Any]:
        """The exact sum of each group's integers, in two words."""
        return self._fields["high"], self._fields["low"]

    def check_digits(self, how: str, field: str) -> None:
        """Raise LostDigitsError where rows that were taken off took too much of a field."""
        check_digits(how, self.groups, self._fields, [field])

    def extreme(self, state: str) -> Any:
        """Return the least or greatest value of each group, of groups without values anything."""
        return self._fields[state]

    def value_of(self, state: str, void: Any) -> Any:
        """Return the least or greatest value of each group as values of the column.

        Null where a mask is set.
        """
        return self._chosen(state, ~void)

    def end(self, state: str, least: int, *, nulls: bool) -> tuple[Any, Any]:
        """Return the first or last value of each group, and a mask of the groups without one."""
        there = self.groups.sizes > 0 if nulls else self.count > 0
        there &= self.count >= least
        return self._chosen(f"{state} of all" if nulls else state, there), ~there

    def labels(self, how: str, options: Options) -> Any:
        """Return the labels of the first rows with the least or greatest values.

        Raises
        ------
        SpecError
            When a group has no values, or a null that counts.
        """
        check_observed(self.groups, how)
        check_labelled(
            how, options, nulls=bool((self.count < self.groups.sizes).any()),
            lacking=bool((self.ordered_count == 0).any()),
        )  # fmt: skip
        return self._fields[how]

    def _chosen(self, field: str, there: Any) -> Any:
        """Return the values of the groups in a mask, null for the others."""
        rows = np.arange(len(there))
        column = series_of(self._fields[field], None)
        return taken(column, rows if there.all() else np.where(there, rows, -1))
