"""States of a part: the fields of a cuDF column's groups, which mean the same in every part."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from dgpuhash.frames.dataframes.cudf_columns import take_series
from dgpuhash.frames.groupby.aggregates import numbers
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.cudf.groups import CudfGroups
from dgpuhash.frames.groupby.cudf.states import CudfStates, reduce_states
from dgpuhash.frames.groupby.cudf.values import CudfValues
from dgpuhash.frames.groupby.partial.kinds import KINDS, NEVER, kinds_for, place_of
from dgpuhash.tables.columns.aggregates import ColumnReduction


class _Like:
    """Values as `kinds_for` asks for them."""

    # Floats have NaNs that are no nulls.
    storage = "masked"

    def __init__(self, values: CudfValues) -> None:
        self.kind, self.is_number = values.kind, values.is_number
        self.are_ticks = values.kind in {"datetime", "timedelta"}
        self.plain = values.numbers.dtype if values.is_number else None


def kinds_of(values: CudfValues, how: str, options: Options) -> tuple[str, ...] | None:
    """Return the kinds of states that an aggregate of a column takes; None where it needs rows.

    These have the fields of those of pandas frames.
    """
    like: Any = _Like(values)
    found = kinds_for(like, how, options)
    if found is None or "decimal" in found:
        return None
    # Labels are found by numbers that equal the extreme.
    return None if how.startswith("idx") and not values.is_number else found


class PartStates(CudfStates):
    """The states of a column's groups in a part, as fields.

    Parameters
    ----------
    values : CudfValues
    groups : CudfGroups
    place : hashable
    number : int
        That of the part.
    """

    def __init__(
        self, values: CudfValues, groups: CudfGroups, place: Hashable, number: int
    ) -> None:  # fmt: skip
        super().__init__(values, groups, place)
        self._number = number

    def words_of(self, kind: str) -> tuple[str, ...]:
        """Return the states that are computed in the first pass for a kind."""
        values = self.values
        if kind == "stray":
            return () if values.stray is None else ("stray",)
        if kind == "wide":
            return ("sum",) if values.sums_fit else ("high", "low")
        if kind == "moment":
            if self.squares_add_up:
                return ("count", "sum", "square")
            return ("count",) if values.kind == "float" else ("count", "total")
        if kind in {"first", "last"}:
            first = kind == "first" and values.nulls is None
            return () if first else (kind, "count")
        if kind in {"idxmin", "idxmax"}:
            return ("least" if kind == "idxmin" else "greatest", "count")
        if kind in {"first of all", "last of all", "prod"}:
            return ()
        if kind == "magnitude":
            return ("magnitude", "nonzero")
        return ("pair",) if kind == "real" else (kind,)

    def _made(self, name: str) -> ColumnReduction:
        values, xp = self.values, self.xp
        if name == "pair":
            column = xp.ascontiguousarray(values.floats)
            return ColumnReduction(column, "f8", "real", "pair")
        if name == "magnitude":
            return ColumnReduction(xp.abs(values.floats), "f8", "real", "compensated")
        if name == "nonzero":
            nonzero = (xp.abs(values.floats) > 0).view(np.uint8)
            return ColumnReduction(nonzero, "u1", "integer", "sum")
        if name == "stray":
            stray: Any = values.stray
            return ColumnReduction(stray.view(np.uint8), "u1", "integer", "sum")
        return super()._made(name)

    @functools.cached_property
    def _pairs(self) -> tuple[Any, Any]:
        """The sums of floats as pairs."""
        words = self.by_number("pair")
        return tuple(map(self.groups.arranged, numbers.pairs_of(words)))  # type: ignore[return-value]

    @property
    def total(self) -> Any:
        """The sum of each group's values less their origin, as float64."""
        return self._pairs[0] if self.values.kind == "float" else super().total

    def of_numbers(self, kinds: Iterable[str]) -> bool:
        """Return whether one of some kinds needs the numbers of the rows' groups."""
        found = _OF_NUMBERS.intersection(kinds)
        return bool(found) and not (found == {"moment"} and self.squares_add_up)

    def fields(self, kind: str) -> tuple[Any, ...]:
        """Return the fields of a kind: arrays of numbers, and columns of other values."""
        made = _FIELDS.get(kind)
        return (self._own(kind),) if made is None else made(self)

    def _own(self, kind: str) -> Any:
        if kind in {"any", "all"}:
            return (self.word(kind) != 0).astype(np.uint8)
        if kind == "count":
            return self.count
        return self.squares() if kind == "moment" else self.products()

    def _stray(self) -> tuple[Any, ...]:
        if self.values.stray is None:
            return (self.xp.zeros(len(self.groups), np.int64),)
        return (self.word("stray").view(np.int64),)

    def _extreme(self, name: str) -> tuple[Any, ...]:
        if self.values.is_number:
            return (self.extreme(name),)
        return (self.value_of(name, None if self.values.nulls is None else self.count == 0),)

    def _end(self, name: str, *, nulls: bool = False) -> tuple[Any, ...]:
        groups = self.groups
        if not nulls:
            rows = self.row(name)
        elif name == "first":
            rows = groups.first_rows
        else:
            rows = groups.rows_by_group[groups.starts[1:] - 1]
        return self.values.at(rows), self._places(rows, NEVER if name == "first" else -1)

    def _label(self, extreme: str) -> tuple[Any, ...]:
        rows = self.rows_with(extreme)
        labels = self.groups.frames.series(self.labels).reset_index(drop=True)
        return take_series(labels, rows, nulls=True), self._places(rows, NEVER)

    def _places(self, rows: Any, none: int) -> Any:
        """Return rows as numbers that tell the part, too."""
        return self.xp.where(rows < 0, np.int64(none), place_of(self._number, rows))


_FIELDS: dict[str, Callable[[PartStates], tuple[Any, ...]]] = {
    "stray": PartStates._stray,
    "sum": lambda states: (states.word("sum").view(np.int64),),
    "real": lambda states: states._pairs,
    "wide": lambda states: states.wide,
    "magnitude": lambda states: (
        states.word("magnitude").view(np.float64),
        states.word("nonzero").view(np.int64),
    ),
    "least": lambda states: states._extreme("least"),
    "greatest": lambda states: states._extreme("greatest"),
    "first": lambda states: states._end("first"),
    "last": lambda states: states._end("last"),
    "first of all": lambda states: states._end("first", nulls=True),
    "last of all": lambda states: states._end("last", nulls=True),
    "idxmin": lambda states: states._label("least"),
    "idxmax": lambda states: states._label("greatest"),
}
# Kinds that need the numbers of the rows' groups: these are found first then.
_OF_NUMBERS = frozenset({"moment", "prod", "idxmin", "idxmax", "last of all"})


def fields_of_columns(
    groups: CudfGroups, columns: Iterable[tuple[PartStates, tuple[str, ...]]]
) -> list[dict[str, Any]]:
    """Return the fields of some columns, whose states are found in one pass where they can be.

    Parameters
    ----------
    groups : CudfGroups
    columns : iterable of (PartStates, kinds)
    """
    given = list(columns)
    if any(states.of_numbers(kinds) for states, kinds in given):
        groups.number()
    needs = [
        (states, [word for kind in kinds for word in states.words_of(kind)])
        for states, kinds in given
    ]
    reduce_states(groups, needs, sizes=True)
    return [
        {
            field: array
            for kind in kinds
            for field, array in zip(KINDS[kind].fields, states.fields(kind), strict=True)
        }
        for states, kinds in given
    ]
