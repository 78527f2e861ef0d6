"""Compute results of groups from merged states, rows, or order statistics."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import pandas as pd

from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.groupby.aggregates import numbers
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.aggregates.states import States
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.aggregates.values import Values, take_values
from dgpuhash.frames.groupby.assembly import series_of
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.groupby.groups import Flags, Groups
from dgpuhash.frames.groupby.partial.fold import array_of
from dgpuhash.frames.groupby.partial.kinds import Fields, total_of
from dgpuhash.frames.groupby.partial.verbs import AGGREGATING, PlannedGroups, settle_dtype
from dgpuhash.frames.groupby.reduction import Wanted, check_labelled, check_observed

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.partial.plan import GroupPlan

# The most that may be lost, and half of what tells a float from the next one.
_MOST, _HALF_STEP = 1e-6, 2.0**-53
_NAMED = 5
_WERE = {False: "lay much further apart", True: "were much larger"}


class LostDigitsError(UnsupportedError):
    """Sums or deviations that lost their digits when rows were removed."""


def check_digits(how: str, groups: Groups, fields: Fields, field: str) -> None:
    """Raise LostDigitsError if a field's error bound exceeds 10⁻⁶.

    Less than the digits of the values that are left is none.

    Parameters
    ----------
    how : str
        The aggregate.
    groups : Groups
    fields : dict
        Arrays by name, an element for each group.
    field : {"real", "moment"}
        The field that the aggregate follows from.
    """
    lost = fields.get(f"{field} lost")
    if lost is None or not lost.any():
        return
    if field == "real":
        bad = _bad_sums(fields)
    else:
        step = _HALF_STEP * np.abs(numbers.mean_of(total_of(fields), fields["count"])[0])
        with np.errstate(invalid="ignore", over="ignore"):
            bad = lost > _MOST * np.maximum(fields[field], step * step)
    if bad.any():
        rows = np.flatnonzero(bad)
        labels = groups.index.take(rows[:_NAMED])
        on_host = labels.to_pandas() if hasattr(labels, "to_pandas") else labels
        named = ", ".join(map(repr, on_host.tolist()))
        raise LostDigitsError(
            f"{how} of {len(rows):,} group{'' if len(rows) == 1 else 's'}, as {named}, is not "
            f"known to 6 digits: retracted rows {_WERE[field == 'real']} than the remaining "
            f"ones; build the groups again, or request only the other aggregates"
        )


def _bad_sums(fields: Mapping[str, Any]) -> Any:
    """Return a mask of groups whose float sum may be wrong by more than 10⁻⁶.

    Of values whose sum is about 0, what lies below the digits of a float is nothing.
    """
    lost = fields["real lost"]
    with np.errstate(invalid="ignore", over="ignore"):
        # What is lost of the sizes is less than `lost` in digits of floats.
        digits = _HALF_STEP * fields["magnitude"] - lost
        bad = (lost > _MOST * np.abs(fields["real"])) & (lost > digits)
    # The sum of a NaN that is no null is none.
    return bad & (fields["stray"] == 0) if "stray" in fields else bad


def _whole_digits(fields: Fields) -> Fields:
    """Return integer fields rounded to exact values where little was lost.

    Products of the deviations of n whole numbers add up to a multiple of 1/n.
    """
    lost, count = fields["moment lost"], fields["count"]
    known = (lost > 0) & (lost * count < 0.25)
    near = np.rint(fields["moment"] * count) / np.maximum(count, 1)
    return fields | {
        "moment": np.where(known, near, fields["moment"]),
        "moment lost": np.where(known, 0.0, lost),
    }


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

    def chosen(self, field: Any, void: Any) -> Any:
        """Return values of the groups, null where masked."""
        rows = np.arange(len(void))
        return take_values(series_of(field, None), np.where(void, -1, rows) if void.any() else rows)

    def _found(self, values: list[pd.Series]) -> tuple[Any, list[pd.Series]]:
        """Return the codes of states, and their distinct keys."""
        codes = np.arange(len(values[0]))
        if any(self.sorts):
            return self._ordered(codes, values)
        return codes, [column.copy() for column in values]


class FoldedStates(States):
    """States of one column's groups, merged from parts.

    Parameters
    ----------
    values : Values or CudfValues
        Of the dtype of the column, without rows.
    groups : FoldedGroups or FoldedCudfGroups
    fields : dict
        The fields of the kinds of states, see `kinds`; those of groups without rows are 0 or null.
    """

    may_lose: ClassVar[bool] = True

    def __init__(self, values: Any, groups: Any, fields: Fields) -> None:
        if values.kind != "float" and "moment lost" in fields:
            fields = _whole_digits(fields)
        if "all" in fields:
            # Of no values all are true.
            fields = fields | {"all": fields["all"] | (fields["count"] == 0)}
        super().__init__(values, groups, fields)

    @property
    def count(self) -> Any:
        """The number of non-null values of each group."""
        return self.words["count"]

    @property
    def decimal_parts(self) -> tuple[Any, ...]:
        """The sums of each group's decimals, as limbs."""
        return tuple(self.words[f"part {place}"] for place in range(4))

    @functools.cached_property
    def stray(self) -> Any | None:
        """A mask of the groups with a non-null NaN; None if there is none."""
        found = self.words.get("stray")
        return found > 0 if found is not None and found.any() else None

    @functools.cached_property
    def ordered_count(self) -> Any:
        """The number of values of each group that are neither null nor NaN."""
        return self.count - self.words.get("stray", 0)

    @functools.cached_property
    def _totals(self) -> tuple[Any, Any]:
        return total_of(self.words)

    @property
    def total(self) -> Any:
        """The sum of each group's values, as float64."""
        return self._totals[0]

    @property
    def sum(self) -> Any:
        """The sum of each group's values: int64, uint64 or float64."""
        return self.total if self.values.kind == "float" else self.words["sum"]

    @property
    def mean(self) -> Any:
        """The mean of each group's values; NaN without values."""
        return numbers.mean_of(self._totals, self.count)[0]

    @property
    def wide(self) -> tuple[Any, Any]:
        """The exact sum of each group's integers, in two words."""
        return self.words["high"], self.words["low"]

    @property
    def squares(self) -> Any:
        """The sum of each group's squared deviations from its mean."""
        return self.words["moment"]

    @property
    def products(self) -> Any:
        """The product of each group's values, 1 for none: int64, uint64 or float64."""
        found = self.words["prod"]
        return self.xp.where(self.groups.sizes > 0, found, found.dtype.type(1))

    def check_digits(self, how: str, field: str) -> None:
        """Raise LostDigitsError if removed rows cost a field too many digits."""
        check_digits(how, self.groups, self.words, field)

    def extreme(self, state: str) -> Any:
        """Return the minimum or maximum of each group, undefined without values."""
        return self.words[state]

    def value_of(self, state: str, void: Any) -> Any:
        """Return the minimum or maximum of each group as values of the column.

        Null where a mask is set.
        """
        return self.groups.chosen(self.words[state], void)

    def end(self, state: str, least: int, *, nulls: bool) -> Any:
        """Return the first or last value of each group; null for fewer than `least` values."""
        void = (self.groups.sizes if nulls else self.count) == 0
        void |= self.count < least
        made = self.groups.chosen(self.words[f"{state} of all" if nulls else state], void)
        if self.values.kind == "object":
            made[void] = None
        return made

    def labels(self, how: str, options: Options) -> Any:
        """Return the index labels of the first rows with the minimum or maximum.

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
        return self.words[how]


# By the position of a column, the number at each place of each group, if the group were sorted.
Known: TypeAlias = Mapping[int, Mapping[tuple[int, int], Any]]

_RANKED = frozenset({"median", "quantile", "count"})


def ranked_columns(plan: GroupPlan) -> tuple[int, ...]:
    """Return the positions of columns of which a plan needs order statistics alone.

    None of them where it needs more of the rows of a group.
    """
    found: dict[int, bool] = {}

    def note_numbers(
        groups: PlannedGroups, positions: Sequence[int], wanted: Sequence[Wanted]
    ) -> list[Any]:
        for each in wanted:
            number = Values(plan.column_of(plan.source, positions[each.place])).is_number
            found[positions[each.place]] = number and each.how in _RANKED
        return groups.settle_dtypes(wanted, full=plan.observed)

    if plan.on_gpu or not plan.needs_rows or plan.verb.name not in AGGREGATING or not plan.observed:
        return ()
    empty = Groups(plan.keys, 0, sort=plan.sort, dropna=plan.dropna, observed=True)
    plan.answer(plan.grouped(plan.source, empty, note_numbers))
    return tuple(sorted(found)) if all(found.values()) else ()


def numbers_dtype(plan: GroupPlan, position: int) -> np.dtype[Any]:
    """Return the dtype of a column's values as numbers."""
    numbers = Values(plan.column_of(plan.source, position)).numbers
    return np.dtype(np.int64 if numbers.dtype.kind == "b" else numbers.dtype)


def places_asked(plan: GroupPlan, keys: pd.DataFrame) -> dict[int, set[tuple[int, int]]]:
    """Return by column the ranks of each group's values that the aggregates need.

    Parameters
    ----------
    plan : GroupPlan
    keys : DataFrame
        Of each group the key, its number of rows (``n``), of values that have an order (``n0``, by
        the position of a column) and of others that are no nulls (``nan0``), and its first row
        (``at``), as in states.
    """
    asked: dict[int, set[tuple[int, int]]] = {}

    def at(position: int, rows: Any, places: Any) -> Any:
        there = keys[f"n{position}"].to_numpy()[rows] > places
        pairs = zip(rows[there].tolist(), places[there].tolist(), strict=True)
        asked.setdefault(position, set()).update(pairs)
        return np.zeros(len(rows), numbers_dtype(plan, position))

    _result_of(plan, keys, at)
    return asked


def result_of_places(
    plan: GroupPlan, keys: pd.DataFrame, known: Known
) -> tuple[Any, pd.DataFrame]:  # fmt: skip
    """Return the groups' result from order statistics, and their keys; see `places_asked`."""

    def at(position: int, rows: Any, places: Any) -> Any:
        numbers = known.get(position, {})
        pairs: Iterable[tuple[int, int]] = zip(rows.tolist(), places.tolist(), strict=True)
        dtype = numbers_dtype(plan, position)
        return np.array([numbers.get(pair, 0) for pair in pairs], dtype)

    return _result_of(plan, keys, at)


def _result_of(plan: GroupPlan, keys: pd.DataFrame, at: Any) -> tuple[Any, pd.DataFrame]:
    groups = plan.groups_of(keys)
    rows = groups.states

    def there(position: int) -> Callable[[Any, Any], Any]:
        return lambda own, places: at(position, rows[own], places)

    def reduce(_: GroupBy, positions: Sequence[int], wanted: Sequence[Wanted]) -> list[Any]:
        found = []
        for each in wanted:
            position = positions[each.place]
            values = Values(plan.column_of(plan.source, position))
            states = States(values, groups, {}, there(position))
            # What it would count of the rows.
            states.ordered_count = array_of(keys[f"n{position}"].to_numpy(), rows)
            states.count = states.ordered_count + array_of(keys[f"nan{position}"].to_numpy(), rows)
            array = AGGREGATES[each.how].result(states, each.options)
            found.append(settle_dtype(array, values, each, full=plan.observed))
        return found

    found = plan.answer(plan.grouped(plan.source, groups, reduce))
    return found, plan.heads_of(groups, keys["at"], rows)
