"""Rows of parts as states, for aggregates that need the rows of a group side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dgpuhash.frames.groupby.aggregates.states import ends
from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.grouping_keys import GroupingKey, levels_of
from dgpuhash.frames.groupby.groups import Groups, compared
from dgpuhash.frames.groupby.partial.folded import FoldedGroups
from dgpuhash.frames.groupby.partial.kinds import place_of
from dgpuhash.frames.groupby.partial.storage import plain
from dgpuhash.frames.groupby.partial.verbs import AGGREGATING
from dgpuhash.frames.merge.distinct import numbered
from dgpuhash.frames.merge.index import index_of
from dgpuhash.frames.merge.keys import as_series

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.partial.plan import GroupPlan

__all__ = ["distinct_rows", "in_pieces", "result_of", "result_of_pieces", "rows_of"]


def rows_of(plan: GroupPlan, part: Any, keys: list[GroupingKey], number: int) -> pd.DataFrame:
    """Return the rows of a part that are in a group; see `GroupPlan.reduce`."""
    made: dict[str, Any] = {}
    for label, key in zip(plan.key_labels, keys, strict=True):
        made[label] = key.values
    made["at"] = place_of(number, np.arange(len(part)))
    for place in plan.places:
        made[f"c{place}"] = plan.column_of(part, place)
    for level, labels in enumerate(levels_of(part.index) if plan.labels else ()):
        made[f"i{level}"] = as_series(labels)
    arrays = [plain(each) if isinstance(each, pd.Series) else each for each in made.values()]
    found = frame_of(arrays, pd.Index(list(made)), pd.RangeIndex(len(part)))
    if plan.dropna and plan.observed:
        nulls = np.zeros(len(part), bool)
        for key in keys:
            nulls |= key.values.isna().to_numpy()
        if nulls.any():
            found = found.take(np.flatnonzero(~nulls)).reset_index(drop=True)
    return distinct_rows(found) if plan.distinct else found


def distinct_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the first of the rows that are equal."""
    rows = _ordered(rows)
    columns = [as_series(rows[label]) for label in rows if label != "at"]
    _, heads = numbered(compared(columns))
    return rows if len(heads) == len(rows) else rows.take(heads).reset_index(drop=True)


def _ordered(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in the order of the parts, and in theirs."""
    place = rows["at"].to_numpy()
    if not (place[1:] < place[:-1]).any():
        return rows
    return rows.take(np.argsort(place, kind="stable")).reset_index(drop=True)


def result_of(plan: GroupPlan, rows: pd.DataFrame) -> Any:
    """Return the result of rows that came from parts in any order."""
    return _told(plan, rows)[0]


def in_pieces(plan: GroupPlan) -> bool:
    """Return whether results of some of the groups can be put together; see `result_of_pieces`."""
    return plan.verb.name in AGGREGATING and plan.observed


def result_of_pieces(plan: GroupPlan, pieces: Iterable[pd.DataFrame]) -> Any:
    """Return the result of rows, or of folded states, in pieces of which each has whole groups.

    Only one piece is in memory at a time, with the results of those before. All groups have equally
    many rows of the result.
    """
    results: list[Any] = []
    parts: list[pd.DataFrame] = []
    for piece in pieces:
        result, heads = (_told if plan.needs_rows else _folded)(plan, piece)
        if results and not len(results[0]):
            results.clear()
            parts.clear()
        if len(result) or not results:
            results.append(result)
            parts.append(heads)
    if len(results) == 1:
        return results[0]
    heads = pd.concat(parts, ignore_index=True)
    parts.clear()
    if plan.sort:
        order = _groups(plan, heads.assign(n=np.ones(len(heads), np.int64))).states
    else:
        order = np.argsort(heads["at"].to_numpy(), kind="stable")
    indexes = [each.index for each in results]
    whole = pd.concat([each.reset_index(drop=True) for each in results], ignore_index=True)
    # Their memory is needed for the rows in order.
    results.clear()
    del result
    times = len(whole) // len(heads)
    order = (order[:, None] * times + np.arange(times)).ravel()
    whole = whole.take(order).reset_index(drop=True)
    if plan.as_index:
        columns = [
            pd.concat([as_series(each) for each in level], ignore_index=True).take(order)
            for level in zip(*map(levels_of, indexes), strict=True)
        ]
        whole.index = index_of(columns, list(indexes[0].names))
    return whole


def _groups(plan: GroupPlan, states: pd.DataFrame) -> FoldedGroups:
    return FoldedGroups(
        plan.keys_of_states(states), states["n"].to_numpy(),
        sort=plan.sort, dropna=plan.dropna, observed=plan.observed,
    )  # fmt: skip


def _folded(plan: GroupPlan, states: pd.DataFrame) -> tuple[Any, pd.DataFrame]:
    """Return the result of folded states; and its groups, as `_told` does."""
    groups = _groups(plan, states)
    heads = dict(zip(plan.key_labels, groups.columns, strict=True))
    if not plan.sort:
        heads["at"] = pd.Series(states["at"].to_numpy()[groups.states])
    return plan.result_of(states, groups), pd.DataFrame(heads, copy=False)


def _told(plan: GroupPlan, rows: pd.DataFrame) -> tuple[Any, pd.DataFrame]:
    """Return the result of rows, and the keys of its groups with the place of the first row."""
    rows = _ordered(rows) if plan.in_order else rows
    labels: Any = pd.RangeIndex(len(rows))
    if plan.labels:
        index = plan.source.index
        levels = [as_series(rows[f"i{level}"]) for level in range(index.nlevels)]
        labels = index_of(levels, list(index.names))
    frame = _frame(plan, rows, labels)
    groups = Groups(
        plan.keys_of_states(rows), len(rows), sort=plan.sort, dropna=plan.dropna,
        observed=plan.observed,
    )  # fmt: skip
    grouped = plan.grouped(
        frame, groups, lambda made, _, wanted: made.settled(wanted, full=plan.observed)
    )
    heads = dict(zip(plan.key_labels, groups.columns, strict=True))
    if not plan.sort:
        heads["at"] = pd.Series(rows["at"].to_numpy()[ends(groups, "first")])
    return plan.told(grouped), pd.DataFrame(heads, copy=False)


def _frame(plan: GroupPlan, rows: pd.DataFrame, labels: pd.Index) -> Any:
    """Return the rows as a frame like the source, with the columns that are read."""
    if plan.source.ndim == 1:
        return pd.Series(plain(rows["c0"]), index=labels, name=plan.source.name)
    arrays = [plain(rows[f"c{place}"]) for place in plan.places]
    return frame_of(arrays, plan.source.columns.take(plan.places), labels)
