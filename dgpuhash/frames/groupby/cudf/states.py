"""What is computed of each group of a cuDF column, so that aggregates follow from it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from dgpuhash.frames.groupby.aggregates import numbers
from dgpuhash.frames.groupby.aggregates.states import squares_are_exact, squares_of_integers
from dgpuhash.frames.groupby.cudf.groups import CudfGroups
from dgpuhash.frames.groupby.cudf.values import CudfValues, marked
from dgpuhash.tables.columns.aggregates import ColumnReduction
from dgpuhash.tables.select import gather_rows

_SIGN = np.uint64(1 << 63)
_HALF = 2**32 - 1


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
        self.values: CudfValues = values
        self.groups: CudfGroups = groups
        self._place = place
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
        if name in {"sum", "square"}:
            return _read(values.filled(0), "integer" if name == "sum" else name, "sum")
        if name == "total":
            plain = values.nulls is None and values.origin == 0
            column = values.numbers if plain else values.floats
            return _read(column, "real", "compensated")
        if name in {"high", "low"}:
            filled = values.filled(0)
            part = filled >> 32 if name == "high" else filled & filled.dtype.type(_HALF)
            return _read(part.astype(np.int64), "integer", "sum")
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
    def wide(self) -> tuple[Any, Any]:
        """The exact sum of each group's integers, in two words; see `numbers.wide_sums`."""
        if self.values.sums_fit:
            sums = self.word("sum").view(np.int64)
            return sums >> 32, sums & np.int64(_HALF)
        return self.word("high").view(np.int64), self.word("low").view(np.int64)

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
        return numbers_of_words(self.word(name), self.values.sortable.dtype, self.xp)

    def value_of(self, name: str, void: Any | None) -> Any:
        """Return the least or greatest values, which are no numbers; null where masked."""
        values, place = self.values, self.extreme(name)
        if void is not None:
            place = self.xp.where(void, 0, place)
        rows = values.row_of_rank(place) if len(values) else place
        return values.at(rows if void is None else self.xp.where(void, -1, rows))

    def end(self, name: str, least: int, *, nulls: bool) -> Any:
        """Return the first or last values, of nulls too where asked for.

        Null where there are fewer than `least` values.
        """
        groups = self.groups
        if not nulls:
            rows = self.row(name)
        elif name == "first":
            rows = groups.first_rows
        else:
            rows = groups.rows_by_group[groups.starts[1:] - 1]
        if least > 1 or (least == 1 and self.values.nulls is not None):
            rows = self.xp.where(self.count < least, -1, rows)
        return self.values.at(rows)

    def products(self) -> Any:
        """Return the products of the values, as int64 or float64."""
        values, groups, xp = self.values, self.groups, self.xp
        wide = np.float64 if values.numbers.dtype.kind == "f" else np.int64
        rows = groups.rows_by_group
        if not len(rows):
            return xp.zeros(len(groups), wide)
        numbers = values.filled(1)[rows].astype(wide)
        return products(numbers, groups.codes[rows], groups.starts[:-1], groups.sizes, xp)

    def whole_means(self, void: Any | None) -> Any:
        """Return the means of spans in whole units, cut off towards zero."""
        return numbers.whole_means(*self.wide, self.count)

    def labels_of(self, name: str) -> tuple[Any, Any | None]:
        """Return the rows of the least or greatest values, -1 for none, and the rows' labels."""
        return self.rows_with(name), self.labels

    def row(self, name: str) -> Any:
        """Return the first or last row of each group that is not null, -1 for none."""
        if name == "first" and self.values.nulls is None:
            return self.groups.first_rows
        rows = self.word(name).view(np.int64) - (name == "last")
        if self.values.nulls is None:
            return rows
        return self.xp.where(self.count > 0, rows, -1)

    @functools.cached_property
    def squares_add_up(self) -> bool:
        """Whether squared deviations mostly follow from sums: of integers whose sums fit."""
        return self.values.kind in {"bool", "int", "uint"} and self.values.sums_fit

    def squares(self) -> Any:
        """Return each group's sum of squared deviations from its mean.

        Those of integers mostly follow from sums; others take a second pass.
        """
        values, groups = self.values, self.groups
        if self.squares_add_up:
            least, most = values.bounds
            if squares_are_exact(most - least, self.count):
                sums = (self.word(name).view(np.int64) for name in ("sum", "square"))
                return squares_of_integers(self.count, *sums)
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


def numbers_of_words(words: Any, dtype: np.dtype[Any], xp: Any) -> Any:
    """Return numbers of a dtype from the words of the term ``rank``."""
    if dtype.kind == "f":
        words = xp.where(words >= _SIGN, words ^ _SIGN, ~words)
        return words.view(np.float64).astype(dtype, copy=False)
    if dtype.kind == "i":
        return (words ^ _SIGN).view(np.int64).astype(dtype, copy=False)
    return words.astype(dtype)


def products(numbers: Any, codes: Any, starts: Any, sizes: Any, xp: Any) -> Any:
    """Return the products of numbers that lie group by group, each of which has some.

    Those of neighbours are taken first, then of those that are two apart, and so on.

    Examples
    --------
    >>> starts, sizes = np.array([0, 3]), np.array([3, 1])
    >>> products(np.array([2, 3, 5, 7]), np.array([0, 0, 0, 1]), starts, sizes, np).tolist()
    [30, 7]
    """
    made = numbers.copy()
    places = xp.arange(len(made)) - starts[codes]
    left = sizes[codes] - places
    at, step = xp.arange(len(made)), 1
    while len(at):
        at = at[(places[at] % (2 * step) == 0) & (left[at] > step)]
        with np.errstate(over="ignore", invalid="ignore"):
            made[at] *= made[at + step]
        step *= 2
    return made[starts]


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
