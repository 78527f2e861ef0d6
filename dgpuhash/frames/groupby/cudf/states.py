"""States of a cuDF column's groups, the input of its aggregates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar

import numpy as np

from dgpuhash.frames.groupby.aggregates import numbers
from dgpuhash.frames.groupby.aggregates.states import States, squares_are_exact, squares_of_integers
from dgpuhash.frames.groupby.cudf import ranked
from dgpuhash.frames.groupby.cudf.groups import CudfGroups
from dgpuhash.frames.groupby.cudf.values import CudfValues, null_marks, reduction_of
from dgpuhash.tables.columns.aggregates import ColumnReduction
from dgpuhash.tables.select import gather_rows

_HALF = 2**32 - 1


class _Words(dict[str, Any]):
    """States of a column's groups, each computed at first use."""

    def __init__(self, values: CudfValues, groups: CudfGroups, place: Hashable) -> None:
        self._values, self._groups, self._place = values, groups, place
        self._known: dict[str, ColumnReduction] = {}

    def wanted(self, name: str) -> tuple[Hashable, ColumnReduction]:
        """Return the reduction for a state, and its key among those of all columns."""
        if name == "count" and self._values.presence is None:
            return next(iter(self._groups.counting.items()))
        if name not in self._known:
            self._known[name] = self._values.reduction(name)
        return (self._place, name), self._known[name]

    def __missing__(self, name: str) -> Any:
        made = self[name] = self._groups.words(*self.wanted(name))
        return made


class CudfStates(States):
    """The states of one cuDF column's groups.

    Nulls take part in no reduction: floats are NaN there, which kernels leave out, and other
    numbers have a value that changes nothing.

    Parameters
    ----------
    values : CudfValues
    groups : CudfGroups
    place : hashable
        What tells the column from others.
    as_pairs : bool
        Whether sums of floats are pairs, as those of parts are.
    """

    own: ClassVar[Any] = ranked

    def __init__(
        self, values: CudfValues, groups: CudfGroups, place: Hashable, *, as_pairs: bool = False
    ) -> None:  # fmt: skip
        self.values, self.groups, self.xp = values, groups, groups.xp
        self.words: _Words = _Words(values, groups, place)  # type: ignore[assignment]
        self._place, self._as_pairs = place, as_pairs
        self._made_once: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a function's value, computed at the first call."""
        if name not in self._made_once:
            self._made_once[name] = make()
        return self._made_once[name]

    def words_of(self, state: str) -> tuple[str, ...]:
        """Return the reductions of the first pass for a state or kind of states."""
        values = self.values
        if state == "stray":
            return () if values.stray is None else ("stray",)
        if state in {"total", "wide"} and values.kind == "timedelta":
            return ("sum", "count") if values.sums_fit else ("high", "low", "count")
        if state == "moment" and self.squares_add_up:
            return "sum", "square", "count"
        if state in {"total", "moment"}:
            if state == "moment" and self._as_pairs and values.kind == "float":
                return ("count",)
            return ("sum" if values.are_small and state == "total" else "total", "count")
        if state == "all":
            return ("all",)
        if state == "sum" and values.kind in {"text", "decimal"}:
            return ("count",)
        found = _WORDS.get(state, (state,))
        if state == "sum" and values.kind == "float":
            found = ("total",)
        elif state == "wide" and values.sums_fit:
            found = ("sum",)
        elif state == "first" and values.nulls is None:
            # It is the first row of all, which groups have.
            found = ()
        return found if values.nulls is None and found else (*found, "count")

    def in_two_passes(self, states: Iterable[str]) -> bool:
        """Return whether some states need group numbers first."""
        found = _OF_NUMBERS.intersection(states)
        return bool(found) and not (found == {"moment"} and self.squares_add_up)

    def by_number(self, name: str) -> Any:
        """Return the words of a state by group number, dropped groups included."""
        return self.groups.words_by_number(*self.words.wanted(name))

    @property
    def count(self) -> Any:
        """The number of non-null values of each group."""
        return self.words["count"].view(np.int64)

    @property
    def ordered_count(self) -> Any:
        """The number of non-null values of each group, with NaN sorted last."""
        return self.count

    @functools.cached_property
    def pairs(self) -> tuple[Any, Any]:
        """The sums of floats as pairs."""
        words = self.by_number("pair")
        return tuple(map(self.groups.arrange, numbers.pairs_of(words)))  # type: ignore[return-value]

    @property
    def magnitudes(self) -> tuple[Any, Any]:
        """The sums of absolute values of floats, and the number of nonzero ones."""
        return self.words["magnitude"].view(np.float64), self.words["nonzero"].view(np.int64)

    @property
    def total(self) -> Any:
        """The sum of each group's values less their origin, as float64."""
        if self._as_pairs and self.values.kind == "float":
            return self.pairs[0]
        return self.sum.astype(np.float64) if self.values.are_small else super().total

    @property
    def wide(self) -> tuple[Any, Any]:
        """The exact sum of each group's integers, in two words; see `numbers.wide_sums`."""
        if self.values.sums_fit:
            sums = self.words["sum"].view(np.int64)
            return sums >> 32, sums & np.int64(_HALF)
        return self.words["high"].view(np.int64), self.words["low"].view(np.int64)

    @property
    def strays(self) -> Any:
        """The number of non-null NaNs of each group."""
        if self.values.stray is None:
            return self.xp.zeros(len(self.groups), np.int64)
        return self.words["stray"].view(np.int64)

    @functools.cached_property
    def stray(self) -> Any | None:
        """A mask of the groups with a non-null NaN; None if there is none."""
        return None if self.values.stray is None else self.words["is stray"] != 0

    def value_of(self, state: str, void: Any | None) -> Any:
        """Return the minimum or maximum of non-numbers; null where masked."""
        values, place = self.values, self.extreme(state)
        if void is not None:
            place = self.xp.where(void, 0, place)
        rows = values.row_of_rank(place) if len(values) else place
        return values.at(rows if void is None else self.xp.where(void, -1, rows))

    @property
    def products(self) -> Any:
        """The products of the values, as int64 or float64."""
        values, groups, xp = self.values, self.groups, self.xp
        wide = np.float64 if values.numbers.dtype.kind == "f" else np.int64
        rows = groups.rows_by_group
        if not len(rows):
            return xp.zeros(len(groups), wide)
        numbers = values.filled(1)[rows].astype(wide)
        return products(numbers, groups.codes[rows], groups.starts[:-1], groups.sizes, xp)

    def row(self, state: str) -> Any:
        """Return the first or last non-null row of each group, -1 for none."""
        if state == "first" and self.values.nulls is None:
            return self.groups.first_rows
        rows = self.words[state].view(np.int64) - (state == "last")
        return rows if self.values.nulls is None else self.xp.where(self.count > 0, rows, -1)

    @functools.cached_property
    def squares_add_up(self) -> bool:
        """Whether squared deviations follow from sums: integers whose sums fit."""
        return self.values.kind in {"bool", "int", "uint"} and self.values.sums_fit

    @property
    def squares(self) -> Any:
        """The sum of each group's squared deviations from its mean.

        Those of integers mostly follow from sums; others take a second pass.
        """
        values, groups = self.values, self.groups
        if self.squares_add_up:
            least, most = values.bounds
            if squares_are_exact(most - least, self.count):
                sums = (self.words[name].view(np.int64) for name in ("sum", "square"))
                return squares_of_integers(self.count, *sums)
        found = self.mean
        mean = self._by_number(found)
        off = _squared_difference(self.xp)(gather_rows(mean, groups.numbers), values.floats)
        squares = groups.words((self._place, "squares"), reduction_of(off, "real", "real_sum"))
        # Deviations from what is infinite are no numbers, which are left out.
        return self.xp.where(self.xp.isfinite(found), squares.view(np.float64), np.nan)

    def _by_number(self, array: Any) -> Any:
        """Return values of the result's groups by group number, 0 for dropped groups."""
        groups = self.groups
        if groups.order is None:
            return array
        made = self.xp.zeros(groups.numbered_groups, array.dtype)
        made[groups.order] = array
        return made

    def rows_with(self, state: str) -> Any:
        """Return the first row with each group's minimum or maximum, -1 for none."""
        wanted = self._by_number(self.extreme(state))
        hits = self.values.sortable == gather_rows(wanted, self.groups.numbers)
        if self.values.nulls is not None:
            hits &= ~self.values.nulls
        reduction = ColumnReduction(null_marks(~hits, self.xp), "f4", "row", "least")
        rows = self.groups.words((self._place, f"row of {state}"), reduction).view(np.int64)
        return self.xp.where(self.count > 0, rows, -1)


# States that need the numbers of the rows' groups, which are found first then.
_OF_NUMBERS = frozenset({"moment", "prod", "idxmin", "idxmax", "last of all"})
# What is computed for states that are called otherwise.
_WORDS: dict[str, tuple[str, ...]] = {
    "real": ("pair",), "magnitude": ("magnitude", "nonzero"), "wide": ("high", "low"),
    "idxmin": ("least",), "idxmax": ("greatest",),
    "first of all": (), "last of all": (), "prod": (),
}  # fmt: skip


def products(numbers: Any, codes: Any, starts: Any, sizes: Any, xp: Any) -> Any:
    """Return the product of each group's numbers, which are contiguous and not empty.

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

    return ranked.fused(square, xp)


def reduce_states(
    groups: CudfGroups, wanted: Iterable[tuple[CudfStates, Iterable[str]]], *, sizes: bool
) -> None:
    """Compute states of several columns, and the sizes of groups, in one pass over the rows."""
    needed = dict(
        states.words.wanted(word) for states, names in wanted for name in names
        for word in states.words_of(name)
    )  # fmt: skip
    groups.reduce({**needed, **(groups.counting if sizes else {})})
