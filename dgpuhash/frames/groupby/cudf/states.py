"""What is computed of each group of a cuDF column, so that aggregates follow from it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from dgpuhash.frames.groupby.cudf.groups import CudfGroups
from dgpuhash.frames.groupby.cudf.values import CudfValues, marked
from dgpuhash.tables.columns.aggregates import ColumnReduction
from dgpuhash.tables.select import gather_rows

__all__ = ["CudfStates", "fused", "reduce_states"]

_SIGN = np.uint64(1 << 63)


class CudfStates:
    """The states of one column's groups.

    Nulls take part in no reduction: floats are NaN there, which kernels leave out, and other
    numbers have a value that changes nothing.

    Parameters
    ----------
    values : CudfValues
    groups : CudfGroups
    place : hashable
        What tells the column from others.

    Attributes
    ----------
    labels : Index or None
        The labels of the rows, for aggregates that give labels.
    """

    labels: Any = None

    def __init__(self, values: CudfValues, groups: CudfGroups, place: Hashable) -> None:
        self.values, self.groups, self._place = values, groups, place
        self.xp: Any = groups.xp
        self._known: dict[str, ColumnReduction] = {}
        self._made_once: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what a function makes, which is called the first time."""
        if name not in self._made_once:
            self._made_once[name] = make()
        return self._made_once[name]

    def reduction(self, name: str) -> tuple[Hashable, ColumnReduction]:
        """Return the reduction of a state, and its key among those of all columns."""
        if name == "count" and self.values.presence is None:
            return next(iter(self.groups.counting.items()))
        if name not in self._known:
            self._known[name] = self._made(name)
        return (self._place, name), self._known[name]

    def _made(self, name: str) -> ColumnReduction:
        values = self.values
        if name == "count":
            return ColumnReduction(values.presence, "f4", "one", "sum")
        if name in {"first", "last"}:
            reading = "u1" if values.presence is None else "f4"
            fold = "least" if name == "first" else "greatest"
            return ColumnReduction(values.presence, reading, "row", fold)
        if name == "sum":
            return _read(values.filled(0), "integer", "sum")
        if name == "total":
            plain = values.nulls is None and values.origin == 0
            column = values.numbers if plain else values.floats
            return _read(column, "real", "compensated")
        if name in {"any", "all"}:
            column = values.truths
            if values.nulls is not None:
                column = self.xp.where(values.nulls, np.uint8(name == "all"), column)
            return _read(column, "truth", "greatest" if name == "any" else "least")
        return _read(self._extremes_of(name), "rank", name)

    def _extremes_of(self, name: str) -> Any:
        """Return the numbers whose least or greatest is looked for."""
        column, nulls = self.values.sortable, self.values.nulls
        if nulls is None:
            return column
        kind = column.dtype.kind
        if kind == "f":
            worst = column.dtype.type("nan")
        elif kind == "b":
            worst = name == "least"
        else:
            info = np.iinfo(column.dtype)
            worst = column.dtype.type(info.max if name == "least" else info.min)
        return self.xp.where(nulls, worst, column)

    def word(self, name: str) -> Any:
        """Return the words of a state for each group."""
        return self.groups.words(*self.reduction(name))

    def by_number(self, name: str) -> Any:
        """Return the words of a state for each group by number, also of those left out."""
        return self.groups.words_by_number(*self.reduction(name))

    @property
    def count(self) -> Any:
        """The number of values of each group that are not null."""
        return self.word("count").view(np.int64)

    @property
    def total(self) -> Any:
        """The sum of each group's values less their origin, as float64."""
        return self.word("total").view(np.float64)

    @property
    def mean(self) -> Any:
        """The mean of each group's values less their origin; NaN without values."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.total / self.count

    @functools.cached_property
    def stray(self) -> Any | None:
        """A mask of the groups with a NaN that is no null, None where there is none."""
        stray = self.values.stray
        if stray is None:
            return None
        return self.groups.words((self._place, "stray"), _read(stray, "truth", "greatest")) != 0

    def extreme(self, name: str) -> Any:
        """Return the least or greatest value of each group, of groups without values anything."""
        words, dtype = self.word(name), self.values.sortable.dtype
        if dtype.kind == "f":
            words = self.xp.where(words >= _SIGN, words ^ _SIGN, ~words)
            return words.view(np.float64).astype(dtype)
        if dtype.kind == "i":
            return (words ^ _SIGN).view(np.int64).astype(dtype)
        return words.astype(dtype)

    def row(self, name: str) -> Any:
        """Return the first or last row of each group that is not null, -1 for none."""
        if name == "first" and self.values.nulls is None:
            return self.groups.first_rows
        rows = self.word(name).view(np.int64) - (name == "last")
        if self.values.nulls is None:
            return rows
        return self.xp.where(self.count > 0, rows, -1)

    def squares(self) -> Any:
        """Return each group's sum of squared deviations from its mean, in a second pass."""
        values, groups = self.values, self.groups
        mean = self._by_number(self.mean)
        off = _squared_difference(self.xp)(gather_rows(mean, groups.numbers), values.floats)
        found = groups.words((self._place, "squares"), _read(off, "real", "real_sum"))
        # Deviations from what is infinite are no numbers, which are left out.
        return self.xp.where(self.xp.isfinite(self.mean), found.view(np.float64), np.nan)

    def _by_number(self, array: Any) -> Any:
        """Return values of the groups of the result by number, 0 for those left out."""
        groups = self.groups
        if groups.order is None:
            return array
        made = self.xp.zeros(groups.numbered_groups, array.dtype)
        made[groups.order] = array
        return made

    def rows_with(self, name: str) -> Any:
        """Return the first row of each group that has its least or greatest value, -1 for none."""
        wanted = self._by_number(self.extreme(name))
        hits = self.values.sortable == gather_rows(wanted, self.groups.numbers)
        if self.values.nulls is not None:
            hits &= ~self.values.nulls
        reduction = ColumnReduction(marked(~hits, self.xp), "f4", "row", "least")
        rows = self.groups.words((self._place, f"row of {name}"), reduction).view(np.int64)
        return self.xp.where(self.count > 0, rows, -1)


@functools.cache
def _squared_difference(xp: Any) -> Any:
    def square(left: Any, right: Any) -> Any:
        return (left - right) * (left - right)

    return fused(square, xp)


def fused(function: Any, xp: Any) -> Any:
    """Return a function of arrays whose steps are one pass where the library can do that."""
    fuse = getattr(xp, "fuse", None)
    return function if fuse is None else fuse()(function)


def _read(column: Any, term: str, fold: str) -> ColumnReduction:
    kind = "u" if column.dtype.kind == "b" else column.dtype.kind
    return ColumnReduction(column, f"{kind}{column.dtype.itemsize}", term, fold)


def reduce_states(
    groups: CudfGroups, wanted: Iterable[tuple[CudfStates, Iterable[str]]], *, sizes: bool
) -> None:
    """Compute states of several columns, and the sizes of groups, in one pass over the rows."""
    needed = dict(states.reduction(name) for states, names in wanted for name in names)
    groups.reduce({**needed, **(groups.counting if sizes else {})})
