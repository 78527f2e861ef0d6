"""States of a column's groups: counts, sums and extremes, the input of aggregates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dgpuhash import backend
from dgpuhash.frames.groupby.aggregates import decimals, numbers, ordered
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.aggregates.values import Values
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.tables.columns.aggregates import ColumnReduction, reduce_groups

_SIGN = np.uint64(1 << 63)

# Term and fold of the kernels, for states that are one pass over the rows.
_WORDS = {
    "sum": ("integer", "sum"),
    "square": ("square", "sum"),
    "total": ("real", "real_sum"),
    "least": ("rank", "least"),
    "greatest": ("rank", "greatest"),
    "first": ("row", "least"),
    "last": ("row", "greatest"),
    "any": ("truth", "greatest"),
    "all": ("truth", "least"),
}


class States:
    """States of one column's groups by name, computed at first use.

    Parameters
    ----------
    values : Values
        The rows that are in a group.
    groups : Groups
    words : dict, optional
        uint64 words of each group, by the name of the state; the moment's are float64.
    ranked : callable, optional
        Of groups and places in these: the values there if each group were sorted, where the rows
        are not here.
    """

    own: ClassVar[Any] = ordered
    """The aggregates that each library has a way of its own for."""
    may_lose: ClassVar[bool] = False
    """Whether `check_digits` may raise."""

    def __init__(
        self, values: Any, groups: Any, words: dict[str, Any] | None = None,
        ranked: Callable[[Any, Any], Any] | None = None,
    ) -> None:  # fmt: skip
        self.values: Any = values
        self.groups: Any = groups
        self.xp: Any = groups.xp
        self.words: dict[str, Any] = {} if words is None else words
        self.ranked = ranked

    def void(self, least: int, options: Options, counts: Any = None) -> Any | None:
        """Return a mask of groups without a result: too few values, or a null that counts.

        None where all have one. `counts` are those of the values; by default of all that are not
        null.
        """
        fewest = self.values.fewest
        if fewest and least <= fewest and self.values.nulls is None:
            return None
        least = fewest if least < fewest else least
        void = (self.count if counts is None else counts) < least
        return void if options.skipna else void | (self.count < self.groups.sizes)

    @functools.cached_property
    def decimal_parts(self) -> tuple[Any, ...]:
        """The sums of each group's decimals, as limbs; see `decimals`."""
        return decimals.part_sums(self.values, codes_of(self), len(self.groups))

    @functools.cached_property
    def count(self) -> Any:
        """The number of non-null values of each group."""
        there = self.values.there
        if there is None:
            return self.groups.sizes
        return np.bincount(self.groups.kept_codes[there], minlength=len(self.groups))

    @functools.cached_property
    def ordered_count(self) -> Any:
        """The number of values of each group that are neither null nor NaN."""
        found = self.values.stray
        if found is None:
            return self.count
        return self.count - np.bincount(self.groups.kept_codes[found], minlength=len(self.groups))

    @property
    def total(self) -> Any:
        """The sum of each group's values less their origin, as float64."""
        return self.words["total"].view(np.float64)

    @property
    def sum(self) -> Any:
        """The sum of each group's values: int64, uint64 or float64."""
        if self.values.kind == "float":
            return self.total
        return self.words["sum"].view(self.values.sums_dtype)

    @functools.cached_property
    def wide(self) -> tuple[Any, Any]:
        """The exact sum of each group's integers, in two words; see `numbers.wide_sums`."""
        return numbers.wide_sums(codes_of(self), len(self.groups), self._numbers)

    @property
    def strays(self) -> Any:
        """The number of non-null NaNs of each group."""
        return np.bincount(
            self.groups.kept_codes[[] if self.values.stray is None else self.values.stray],
            minlength=len(self.groups),
        )

    @property
    def pairs(self) -> tuple[Any, Any]:
        """The sums of floats as pairs."""
        return numbers.real_sums(codes_of(self), len(self.groups), self._floats)

    @property
    def magnitudes(self) -> tuple[Any, Any]:
        """The sums of absolute values of floats, and the number of nonzero ones."""
        codes, groups, sizes = codes_of(self), len(self.groups), np.abs(self._floats)
        with np.errstate(over="ignore"):
            whole = sizes.sum()
        if np.isnan(whole):
            sizes[np.isnan(sizes)] = 0.0
        nonzero = codes if sizes.all() else codes[sizes > 0]
        # Of no rows NumPy's sums are integers.
        made = np.bincount(codes, sizes, groups).astype(np.float64, copy=False)
        return made, np.bincount(nonzero, minlength=groups)

    @property
    def _floats(self) -> Any:
        """The floats of a column that may have NaN as a value."""
        return self._numbers.astype(np.float64, copy=False)

    @property
    def _numbers(self) -> Any:
        """The numbers of a column that may have NaN as a value."""
        values = self.values
        return values.numbers if values.read is None else values.numbers[values.read]

    @functools.cached_property
    def stray(self) -> Any | None:
        """A mask of the groups with a non-null NaN; None if there is none."""
        found = self.values.stray
        if found is None:
            return None
        return np.bincount(self.groups.kept_codes[found], minlength=len(self.groups)) > 0

    @property
    def mean(self) -> Any:
        """The mean of each group's values less their origin; NaN without values."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.total / self.count

    @property
    def squares(self) -> Any:
        """The sum of each group's squared deviations from its mean."""
        return self.words["moment"]

    @property
    def products(self) -> Any:
        """The product of each group's values, 1 for none: int64, uint64 or float64."""
        return ordered.products(self)

    def results(self, found: Any, void: Any) -> Any:
        """Return numbers in the column's dtype, null where masked.

        A NaN that arises, as of infinities, is a null but where the library keeps both apart.
        """
        nan = np.isnan(found) if found.dtype.kind == "f" and not self.groups.keeps_nan else None
        if nan is not None and nan.any() and not pd.get_option("future.distinguish_nan_and_na"):
            void = void | nan
        return self.values.results(found, void)

    def check_digits(self, how: str, field: str) -> None:
        """Raise an error if a field is too inexact; states of rows never are."""

    def extreme(self, state: str) -> Any:
        """Return the minimum or maximum of each group, undefined without values."""
        return numbers_of_words(self.words[state], self.values.extremes_dtype, self.xp)

    def row(self, state: str) -> Any:
        """Return the first or last non-null row of each group, -1 for none."""
        rows = self.words[state].view(np.int64) - (state == "last")
        return self._rows_of(np.where(self.count > 0, rows, -1))

    def rows_with(self, state: str) -> Any:
        """Return the first row with each group's minimum or maximum, -1 for none."""
        values, codes = self.values, codes_of(self)
        column = values.sortable if values.read is None else values.sortable[values.read]
        wanted = self.extreme(state).astype(column.dtype)
        hits = np.flatnonzero(column == wanted[codes])
        rows = np.full(len(self.groups), -1, np.int64)
        # Of several rows of a group the one written last stays: the first.
        rows[codes[hits[::-1]]] = hits[::-1]
        return self._rows_of(rows)

    def value_of(self, state: str, void: Any) -> Any:
        """Return the minimum or maximum of each group as values of the column.

        Null where a mask is set.
        """
        values, wanted = self.values, self.extreme(state)
        rank = values.sortable
        rows = np.arange(len(rank)) if values.there is None else values.there
        at = np.zeros(int(rank[rows].max(initial=0)) + 1, np.int64)
        at[rank[rows]] = rows
        return values.at(np.where(void, -1, at[np.where(void, 0, wanted).astype(np.int64)]))

    def end(self, state: str, least: int, *, nulls: bool) -> Any:
        """Return the first or last value of each group; null for fewer than `least` values.

        `nulls`: nulls count as values.
        """
        rows = self.groups.ends(state) if nulls else self.row(state)
        if least > 1 or (least == 1 and self.values.nulls is not None):
            rows = self.xp.where(self.count < least, -1, rows)
        made = self.values.at(rows)
        if self.values.kind == "object":
            made[rows < 0] = None
        return made

    def whole_means(self) -> Any:
        """Return the means of datetimes and durations, truncated to whole units."""
        return numbers.whole_means(*self.wide, self.count)

    def _rows_of(self, rows: Any) -> Any:
        """Return row numbers for positions among the non-null values."""
        read = self.values.read
        return rows if read is None else np.append(read, -1)[rows]


def states_of(groups: Groups, wanted: Iterable[tuple[Values, Iterable[str]]]) -> list[States]:
    """Return the states of several columns, each in few passes over the rows.

    Columns without nulls share one pass; a column with nulls has one without these rows.
    """
    made: list[States] = []
    deviating: list[States] = []
    passes: dict[int, list[tuple[States, str]]] = {}
    for values, names in wanted:
        states = States(values, groups, {})
        made.append(states)
        needed = dict.fromkeys(names)
        if "moment" in needed and values.spread is not None:
            needed |= {"sum": None, "square": None}
        elif "moment" in needed or (values.kind == "float" and "sum" in needed):
            needed["total"] = None
        if "moment" in needed:
            deviating.append(states)
        if values.are_ticks:
            # Their means are those of exact sums.
            needed.pop("total", None)
        for name in needed:
            if name in {"sum", "total"} and not values.is_number:
                continue
            if name in _WORDS and not (name == "sum" and values.kind == "float"):
                which = 0 if values.read is None else id(values)
                passes.setdefault(which, []).append((states, name))
    for asked in passes.values():
        _run(groups, asked)
    for states in deviating:
        states.words["moment"] = _squares(states)
    return made


def extremes_of(values: Values, state: str, codes: Any, groups: int) -> Any:
    """Return the ``least`` or ``greatest`` number of each group; a bound for empty groups."""
    words = reduce_groups(backend.get("cpu"), codes, groups, [_reduction(values, state)])
    return numbers_of_words(words[0], values.extremes_dtype, np)


def codes_of(states: States) -> Any:
    """Return the group codes of the values that kernels read."""
    codes, read = states.groups.kept_codes, states.values.read
    return codes if read is None else codes[read]


def numbers_of_words(words: Any, dtype: np.dtype[Any], xp: Any) -> Any:
    """Return numbers of a dtype from the words of the term ``rank``."""
    if dtype.kind == "f":
        words = xp.where(words >= _SIGN, words ^ _SIGN, ~words)
        return words.view(np.float64).astype(dtype, copy=False)
    if dtype.kind == "i":
        return (words ^ _SIGN).view(np.int64).astype(dtype, copy=False)
    return words.astype(dtype, copy=False)


def _run(groups: Groups, asked: list[tuple[States, str]]) -> None:
    reductions = [_reduction(states.values, name) for states, name in asked]
    words = reduce_groups(backend.get("cpu"), codes_of(asked[0][0]), len(groups), reductions)
    for (states, name), found in zip(asked, words, strict=True):
        if name == "total" and states.values.are_small:
            states.words[name] = found.view(np.int64).astype(np.float64).view(np.uint64)
        else:
            states.words[name] = found


def _reduction(values: Values, name: str) -> ColumnReduction:
    term, fold = _WORDS["sum" if name == "total" and values.are_small else name]
    if name in {"least", "greatest"}:
        column = values.sortable
    elif name in {"any", "all"} and (values.stray is not None or not values.is_number):
        # Kernels leave NaN out, which is a value there, and true.
        column = values.truths
    elif name == "total" and values.origin:
        column = values.floats
    elif name in {"first", "last"} and not values.skips_nan:
        return ColumnReduction(None, "u1", term, fold)
    else:
        column = values.numbers
    if values.read is not None:
        column = column[values.read]
    column = np.ascontiguousarray(column)
    kind = "u" if column.dtype.kind == "b" else column.dtype.kind
    return ColumnReduction(column, f"{kind}{column.dtype.itemsize}", term, fold)


def _squares(states: States) -> Any:
    """Return each group's sum of squared deviations from its mean.

    Those of integers mostly follow from sums; others take a second pass, and what the rounding of
    the mean adds is taken off again.
    """
    values, spread = states.values, states.values.spread
    if spread is not None:
        if squares_are_exact(spread, states.count):
            sums = (states.words[name].view(np.int64) for name in ("sum", "square"))
            return squares_of_integers(states.count, *sums)
        _run(states.groups, [(states, "total")])
    codes = codes_of(states)
    # Those of dates are taken from whole numbers beside the means, which float64 need not have.
    exact = values.are_ticks
    mean = states.whole_means() if exact else states.mean
    column = values.numbers if exact else values.floats
    column = column if values.read is None else column[values.read]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        off = numbers.apart(column, mean[codes]) if exact else column - mean[codes]
        reductions = [
            ColumnReduction(column, "f8", "real", "real_sum") for column in (off * off, off)
        ]
        words = reduce_groups(backend.get("cpu"), codes, len(states.groups), reductions)
        squares, rest = (each.view(np.float64) for each in words)
        return np.where(np.isfinite(mean), squares - rest * rest / states.count, np.nan)


def squares_are_exact(spread: int, count: Any) -> bool:
    """Return whether `squares_of_integers` is exact for integers with this `spread`."""
    return (spread + 1) ** 2 * (int(count.max()) if len(count) else 0) < 2**63


def squares_of_integers(count: Any, sums: Any, squares: Any) -> Any:
    """Return sums of squared deviations from the mean, as float64.

    Parameters
    ----------
    count : int64 array
        How many integers there are; on any device.
    sums : int64 array
        Their sums.
    squares : int64 array
        Sums of their squares, modulo 2**64. Those of deviations are less than 2**63.

    Examples
    --------
    >>> values = np.array([2**40, 2**40 + 1, 2**40 + 5])
    >>> of_all = (each.reshape(1) for each in (values.sum(), (values * values).sum()))
    >>> squares_of_integers(np.array([3]), *of_all).tolist()
    [14.0]
    """
    count = count + (count == 0)
    mean = sums // count
    rest = sums - mean * count
    # Of deviations from a whole number beside the mean: with it, what is beyond 64 bits goes.
    whole = squares - mean * (sums + rest)
    left = rest.astype(np.float64)
    return whole.astype(np.float64) - left * left / count
