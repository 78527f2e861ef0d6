"""Medians and quantiles of groups of which only the values at a few places are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from dgpuhash.frames.groupby.aggregates.states import States
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.aggregates.values import Values
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.frames.groupby.partial.asked import PlannedGroups
from dgpuhash.frames.groupby.partial.dtypes import settled
from dgpuhash.frames.groupby.partial.folded import FoldedGroups
from dgpuhash.frames.groupby.partial.storage import array_of
from dgpuhash.frames.groupby.partial.verbs import AGGREGATING
from dgpuhash.frames.groupby.reduction import Wanted

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.partial.plan import GroupPlan

__all__ = ["Known", "numbers_dtype", "places_asked", "ranked_columns", "result_of_places"]

# By the position of a column, the number at each place of each group, if the group were sorted.
Known: TypeAlias = Mapping[int, Mapping[tuple[int, int], Any]]

_RANKED = frozenset({"median", "quantile", "count"})


def ranked_columns(plan: GroupPlan) -> tuple[int, ...]:
    """Return the positions of the columns of which a plan needs values at some places alone.

    None of them where it needs more of the rows of a group.
    """
    found: dict[int, bool] = {}

    def seen(
        groups: PlannedGroups, positions: Sequence[int], wanted: Sequence[Wanted]
    ) -> list[Any]:
        for each in wanted:
            number = Values(plan.column_of(plan.source, positions[each.place])).is_number
            found[positions[each.place]] = number and each.how in _RANKED
        return groups.settled(wanted, full=plan.observed)

    if plan.on_gpu or not plan.needs_rows or plan.verb.name not in AGGREGATING or not plan.observed:
        return ()
    empty = Groups(plan.keys, 0, sort=plan.sort, dropna=plan.dropna, observed=True)
    plan.told(plan.grouped(plan.source, empty, seen))
    return tuple(sorted(found)) if all(found.values()) else ()


def numbers_dtype(plan: GroupPlan, position: int) -> np.dtype[Any]:
    """Return the dtype of the numbers that the values of a column are."""
    numbers = Values(plan.column_of(plan.source, position)).numbers
    return np.dtype(np.int64 if numbers.dtype.kind == "b" else numbers.dtype)


def places_asked(plan: GroupPlan, keys: pd.DataFrame) -> dict[int, set[tuple[int, int]]]:
    """Return by column the places of groups whose values the aggregates are made of.

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

    _told(plan, keys, at)
    return asked


def result_of_places(
    plan: GroupPlan, keys: pd.DataFrame, known: Known
) -> tuple[Any, pd.DataFrame]:  # fmt: skip
    """Return the result of groups, and their keys; `keys` are as in `places_asked`."""

    def at(position: int, rows: Any, places: Any) -> Any:
        numbers = known.get(position, {})
        pairs: Iterable[tuple[int, int]] = zip(rows.tolist(), places.tolist(), strict=True)
        dtype = numbers_dtype(plan, position)
        return np.array([numbers.get(pair, 0) for pair in pairs], dtype)

    return _told(plan, keys, at)


def _told(plan: GroupPlan, keys: pd.DataFrame, at: Any) -> tuple[Any, pd.DataFrame]:
    groups = FoldedGroups(
        plan.keys_of_states(keys), keys["n"].to_numpy(),
        sort=plan.sort, dropna=plan.dropna, observed=plan.observed,
    )  # fmt: skip
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
            found.append(settled(array, values, each, full=plan.observed))
        return found

    heads = dict(zip(plan.key_labels, groups.columns, strict=True))
    if not plan.sort:
        heads["at"] = pd.Series(keys["at"].to_numpy()[rows])
    return plan.told(plan.grouped(plan.source, groups, reduce)), pd.DataFrame(heads, copy=False)
