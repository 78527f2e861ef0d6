"""Rows of cuDF frames as states, for aggregates that need the rows of a group side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dgpuhash.frames.dataframes import frames_named
from dgpuhash.frames.groupby.cudf.group_by import CudfGroupBy
from dgpuhash.frames.groupby.cudf.groups import CudfGroups
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.groupby.partial.rows import frame_of_rows, rows_in_order

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.partial.cudf.plan import CudfPlan

# Rows that are not compared with each other yet.
_FEW = 2**20


def result_of(plan: CudfPlan, rows: Any) -> Any:
    """Return the result of rows that came from parts in any order."""
    rows = rows_in_order(rows) if plan.in_order else rows
    groups = CudfGroups(
        plan.keys_of_states(rows), len(rows), sort=plan.sort, dropna=plan.dropna
    )  # fmt: skip
    made = CudfGroupBy(
        frame_of_rows(plan, rows), groups, as_index=plan.as_index, selection=plan.selection
    )  # fmt: skip
    return plan.told(made)


def portable(keys: Sequence[GroupingKey]) -> Any:
    """Return columns that are equal where keys are, in whatever part these are.

    Categories are compared by their values, of which each part may have others.
    """
    made: list[Any] = []
    frames = frames_named("cudf")
    for key in keys:
        if hasattr(key.values.dtype, "categories"):
            made.append(key.values)
        else:
            found = frames.compared(key.values, key.values, key.name)
            made.extend(ours.series for ours, _ in found)
    return frames.make({f"p{place}": each for place, each in enumerate(made)})
