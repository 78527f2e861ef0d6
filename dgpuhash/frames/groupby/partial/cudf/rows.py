"""Rows of cuDF frames as states, for aggregates that need the rows of a group side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dgpuhash.frames.dataframes import frames_named
from dgpuhash.frames.groupby.cudf.group_by import CudfGroupBy
from dgpuhash.frames.groupby.cudf.groups import CudfGroups
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.groupby.partial.rows import distinct_rows, frame_of_rows, rows_in_order

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


class CudfRows:
    """Rows of groups that stand: those of parts are kept as they come.

    Parameters
    ----------
    plan : CudfPlan
    """

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        # By the place of the first row of each: rows of a part come at once, and in order.
        self._parts: dict[int, Any] = {}
        self._rows = 0
        self.nbytes: int = 0
        self._enough = _FEW

    def __len__(self) -> int:
        return self._rows

    def fold(self, states: Any) -> None:
        """Add the rows of a part."""
        if not len(states):
            return
        self._parts[int(states["at"].iloc[0])] = states
        self._rows += len(states)
        self.nbytes += frames_named("cudf").rows_nbytes(states)
        if self.plan.distinct and len(self) > self._enough:
            self._keep(distinct_rows(self.plan, self.frame()))
            # Where few are equal it seldom pays.
            self._enough = 2 * len(self) + _FEW

    def _keep(self, rows: Any) -> None:
        self._parts = {int(rows["at"].iloc[0]): rows}
        self._rows, self.nbytes = len(rows), frames_named("cudf").rows_nbytes(rows)

    def frame(self) -> Any:
        """Return the rows as one frame, in the order of the parts and in theirs."""
        if not self._parts:
            return self.plan.states_meta
        if len(self._parts) > 1:
            ordered = [self._parts[first] for first in sorted(self._parts)]
            self._keep(frames_named("cudf").concat(ordered))
        return next(iter(self._parts.values()))

    def result(self) -> Any:
        """Return the aggregates of the groups that are here."""
        return self.plan.result(self.frame())
