"""States of groups that are folded many at a time, where nobody asks for one of them meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.groupby.aggregates import numbers
from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.partial.cudf.rows import CudfRows
from dgpuhash.frames.groupby.partial.kinds import (
    ADDED_UP,
    NEVER,
    Place,
    fields_of,
    prefix_of,
)
from dgpuhash.frames.groupby.partial.standing import (
    GroupRows,
    StateColumns,
    Wanted,
    distinct_parts,
)
from dgpuhash.frames.groupby.partial.storage import plain
from dgpuhash.frames.merge.distinct import numbered

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.partial.plan import GroupPlan

__all__ = ["GroupBatches", "folding"]

# States that wait for others at least before they are folded; they take some 16 MB.
_WAITING = 2**18


class GroupBatches:
    """The states of groups, which wait until they are as many as those that are folded.

    All of them are then numbered by key at once and folded in a pass a column, which costs a
    fraction of what finding each in a hash table does.

    Parameters
    ----------
    plan : GroupPlan
    """

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        self._folded, self._waiting = plan.states_meta, list[pd.DataFrame]()
        self._waiting_rows = self._nbytes = 0

    def __len__(self) -> int:
        """Return the number of states that are here, of which several may be of one group."""
        return len(self._folded) + self._waiting_rows

    @property
    def nbytes(self) -> int:
        """Bytes of memory that keys and states take."""
        return self._nbytes

    def fold(self, states: pd.DataFrame) -> None:
        """Add the states of a part."""
        if not len(states):
            return
        self._waiting.append(states)
        # Many parts may wait, so their rows are not counted anew for each.
        self._waiting_rows += len(states)
        self._nbytes += frames_of(states).rows_nbytes(states)
        if self._waiting_rows > max(_WAITING, len(self._folded)):
            self.frame()

    def frame(self) -> pd.DataFrame:
        """Return the states as one frame, in which each key occurs once."""
        if self._waiting:
            parts = [self._folded, *self._waiting] if len(self._folded) else self._waiting
            self._folded, self._waiting = self.plan.folded(parts), []
            self._waiting_rows = 0
            self._nbytes = frames_of(self._folded).rows_nbytes(self._folded)
        return self._folded

    def result(self) -> Any:
        """Return the aggregates of the groups that are here."""
        return self.plan.result(self.frame())


def folded(plan: GroupPlan, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the states of all parts as one frame, in which each key occurs once."""
    frames = frames_of(plan.states_meta)
    whole = parts[0] if len(parts) == 1 else frames.concat(parts)
    codes, heads = numbered(plan.portable(whole))
    if len(heads) == len(whole):
        return whole
    wanted = plan.wanted or {}
    alone = {place: kinds for place, kinds in wanted.items() if not _are_added(whole, place, kinds)}
    added = {place: kinds for place, kinds in wanted.items() if place not in alone}
    sums = _sums(whole, codes, len(heads), added)
    first = frames.take(whole if alone else whole.drop(columns=list(sums)), heads)
    if alone:
        made = StateColumns(plan, first)
        known = np.ones(len(whole), bool)
        known[heads] = False
        ends = np.cumsum([len(part) for part in parts])
        for part, end in zip(parts, ends.tolist(), strict=True):
            rows = end - len(part) + np.flatnonzero(known[end - len(part) : end])
            for some in distinct_parts(codes[rows], rows):
                made.fold(codes[some], frames.take(whole, some), alone)
        sums = {label: column.array for label, column in made.columns.items()} | sums
    arrays = [sums[label] if label in sums else plain(first[label]) for label in whole]
    return frame_of(arrays, whole.columns, pd.RangeIndex(len(heads)))


def _are_added(whole: pd.DataFrame, place: Place, kinds: Sequence[str]) -> bool:
    """Return whether the states of a column are sums, which kernels can add up."""
    if not ADDED_UP.issuperset(kinds):
        return False
    for name in fields_of(kinds):
        array = plain(whole[prefix_of(place) + name])
        if not isinstance(array, np.ndarray) or array.dtype.itemsize != 8:
            return False
        # Kernels leave NaN out, and here it is the sum of opposite infinities.
        if array.dtype.kind not in "iu" and (array.dtype.kind != "f" or np.isnan(array).any()):
            return False
    return True


def _sums(whole: pd.DataFrame, codes: Any, groups: int, wanted: Wanted) -> dict[str, Any]:
    """Return the sums of states by group, their numbers of rows, and their first rows."""
    at = np.full(groups, NEVER)
    np.minimum.at(at, codes, whole["at"].to_numpy())
    made = {"at": at}
    fields = [
        prefix_of(place) + name for place, kinds in wanted.items() for name in fields_of(kinds)
    ]
    for label in ["n", *fields]:
        array = plain(whole[label])
        if label.endswith(" real"):
            made[label], rest = numbers.real_sums(codes, groups, array)
            np.add.at(rest, codes, plain(whole[label.removesuffix("real") + "rest"]))
            with np.errstate(invalid="ignore"):
                made[label], made[label.removesuffix("real") + "rest"] = numbers.added(
                    (made[label], 0.0), (rest, 0.0)
                )
        elif label not in made:
            made[label] = np.zeros(groups, array.dtype)
            np.add.at(made[label], codes, array)
    return made


def folding(plan: GroupPlan) -> GroupBatches | GroupRows | CudfRows:
    """Return states of no rows like those of `GroupPlan.standing`, to be asked for all at once."""
    if not plan.needs_rows:
        return GroupBatches(plan)
    return CudfRows(plan) if plan.on_gpu else GroupRows(plan)
