"""Rows of cuDF frames as states, for aggregates that need the rows of a group side by side."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pandas as pd

from dgpuhash.frames.dataframes import frames_named
from dgpuhash.frames.dataframes.cudf_columns import index_of, levels_of_index
from dgpuhash.frames.groupby.cudf.assembly import frame_of
from dgpuhash.frames.groupby.cudf.group_by import CudfGroupBy
from dgpuhash.frames.groupby.cudf.groups import CudfGroups, compared
from dgpuhash.frames.groupby.cudf.keys import grouping_keys
from dgpuhash.frames.groupby.cudf.values import series_of_array
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.groupby.partial.kinds import place_of
from dgpuhash.frames.merge.distinct import number_keys as numbered

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.partial.cudf.plan import CudfPlan

# Rows that are not compared with each other yet.
_FEW = 2**20


def rows_of(plan: CudfPlan, part: Any, keys: list[GroupingKey], number: int) -> Any:
    """Return the rows of a part that are in a group; see `GroupPlan.reduce`."""
    import cudf

    frames = frames_named("cudf")
    xp: Any = frames.xp
    made: dict[str, Any] = {
        label: key.values for label, key in zip(plan.key_labels, keys, strict=True)
    }
    made["at"] = series_of_array(place_of(number, xp.arange(len(part))))
    for place in plan.places:
        made[f"c{place}"] = plan.column_of(part, place)
    for level, labels in enumerate(levels_of_index(part.index) if plan.labels else ()):
        made[f"i{level}"] = labels
    found = frame_of(list(made.values()), pd.Index(list(made)), cudf.RangeIndex(len(part)))
    nulls = [key.values.isna() for key in keys if plan.dropna and key.values.has_nulls]
    if nulls:
        gone = functools.reduce(lambda one, other: one | other, nulls)
        found = frames.take(found, xp.flatnonzero(~frames.array(gone.astype(bool))))
    return distinct_rows(found) if plan.distinct else found


def distinct_rows(rows: Any) -> Any:
    """Return the first of the rows that are equal."""
    rows = _ordered(rows)
    _, heads = numbered(compared([(label, rows[label]) for label in rows.columns if label != "at"]))
    return rows if len(heads) == len(rows) else frames_named("cudf").take(rows, heads)


def _ordered(rows: Any) -> Any:
    """Return rows in the order of the parts, and in theirs."""
    frames = frames_named("cudf")
    place: Any = frames.array(rows["at"])
    if not bool((place[1:] < place[:-1]).any()):
        return rows
    return frames.take(rows, frames.xp.argsort(place))


def result_of(plan: CudfPlan, rows: Any) -> Any:
    """Return the result of rows that came from parts in any order."""
    rows = _ordered(rows) if plan.in_order else rows
    groups = CudfGroups(
        plan.keys_of_states(rows), len(rows), sort=plan.sort, dropna=plan.dropna
    )  # fmt: skip
    made = CudfGroupBy(
        _frame(plan, rows), groups, as_index=plan.as_index, selection=plan.selection
    )  # fmt: skip
    return plan.told(made)


def _frame(plan: CudfPlan, rows: Any) -> Any:
    """Return the rows as a frame like the source, with the columns that are read."""
    import cudf

    labels: Any = cudf.RangeIndex(len(rows))
    if plan.labels:
        index = plan.source.index
        levels = [rows[f"i{level}"].rename(None) for level in range(index.nlevels)]
        labels = index_of(levels, list(index.names))
    if plan.source.ndim == 1:
        made = rows["c0"].rename(plan.source.name)
        made.index = labels
        return made
    columns = [rows[f"c{place}"] for place in plan.places]
    return frame_of(columns, plan.source.columns.take(plan.places), labels)


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


def codes_of_keys(plan: Any, part: Any) -> Any:
    """Return the code of the key of each row of a part."""
    keys = portable(grouping_keys(part, plan.by, plan.level))
    return plan.encoder.encode_rows(keys).codes


def parts_of_rows(plan: Any, rows: Any) -> Iterator[tuple[int, Any]]:
    """Yield the rows of each part as such a part, with its number; keys are columns of it."""
    frames = frames_named("cudf")
    xp: Any = frames.xp
    rows = _ordered(rows)
    numbers = frames.array(rows["at"]) >> 32
    starts = xp.flatnonzero(xp.diff(numbers, prepend=numbers[:1] - 1))
    edges = [*starts.tolist(), len(rows)]
    for (start, end), number in zip(pairwise(edges), numbers[starts].tolist(), strict=True):
        yield int(number), _frame(plan, rows.iloc[start:end].reset_index(drop=True))


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
            self._keep(distinct_rows(self.frame()))
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
