"""Rows of parts as states, for aggregates that need the rows of a group side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.grouping_keys import GroupingKey, levels_of
from dgpuhash.frames.groupby.groups import Groups, compared
from dgpuhash.frames.groupby.partial.kinds import place_of
from dgpuhash.frames.groupby.partial.storage import plain
from dgpuhash.frames.merge.distinct import numbered
from dgpuhash.frames.merge.index import index_of
from dgpuhash.frames.merge.keys import as_series

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.partial.plan import GroupPlan

__all__ = ["distinct_rows", "result_of", "rows_of"]


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
    return plan.told(grouped)


def _frame(plan: GroupPlan, rows: pd.DataFrame, labels: pd.Index) -> Any:
    """Return the rows as a frame like the source, with the columns that are read."""
    if plan.source.ndim == 1:
        return pd.Series(plain(rows["c0"]), index=labels, name=plan.source.name)
    arrays = [plain(rows[f"c{place}"]) for place in plan.places]
    return frame_of(arrays, plan.source.columns.take(plan.places), labels)
