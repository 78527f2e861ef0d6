"""Fold the states of parts: many at a time, by the number of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.groupby.aggregates import numbers
from dgpuhash.frames.groupby.assembly import frame_of
from dgpuhash.frames.groupby.partial.kinds import (
    ADDED_UP,
    NEVER,
    Choice,
    Place,
    combined,
    fields_of,
    prefix_of,
)
from dgpuhash.frames.groupby.partial.rows import distinct_rows, parts_of_rows
from dgpuhash.frames.groupby.partial.storage import NumberColumn, ValueColumn, column_of, plain
from dgpuhash.frames.merge.distinct import numbered

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.partial.plan import GroupPlan

Wanted: TypeAlias = Mapping[Place, tuple[str, ...]]


def _combine(
    columns: Mapping[str, NumberColumn | ValueColumn], rows: Any, states: pd.DataFrame,
    wanted: Wanted,
) -> None:  # fmt: skip
    """Combine the states of groups at positions, each of which occurs once, with others."""
    n, at = columns["n"], columns["at"]
    n.put(rows, n.take(rows) + states["n"].to_numpy())
    at.put(rows, np.minimum(at.take(rows), states["at"].to_numpy()))
    for place, kinds in wanted.items():
        labels = {name: prefix_of(place) + name for name in fields_of(kinds)}
        ours = {name: columns[label].take(rows) for name, label in labels.items()}
        theirs = {name: plain(states[label]) for name, label in labels.items()}
        for name, array in combined(kinds, ours, theirs).items():
            column = columns[labels[name]]
            if not isinstance(array, Choice):
                column.put(rows, array)
            elif len(others := np.flatnonzero(array.theirs)):
                column.put(rows[others], theirs[name][others])


# Rows of one device that are not compared with each other yet.
_FEW = {"cpu": 2**12, "cuda": 2**20}


class GroupRows:
    """Rows of groups, collected part by part, for aggregates that need them side by side.

    Parameters
    ----------
    plan : GroupPlan
    """

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        # By the place of the first row of each: rows of a part come at once, and in order.
        self._parts: dict[int, Any] = {}
        self._rows = self.nbytes = 0
        self._few = self._enough = _FEW["cuda" if plan.on_gpu else "cpu"]

    def __len__(self) -> int:
        return self._rows

    def fold(self, states: Any) -> None:
        """Add the rows of a part."""
        if not len(states):
            return
        self._parts[int(states["at"].iloc[0])] = states
        self._rows += len(states)
        self.nbytes += frames_of(states).rows_nbytes(states)
        if self.plan.distinct and len(self) > self._enough:
            before = len(self)
            self._keep(distinct_rows(self.plan, self.frame()))
            # Where few are equal it seldom pays.
            self._enough = (2 if 2 * len(self) <= before else 8) * len(self) + self._few

    def _keep(self, rows: Any) -> None:
        self._parts = {int(rows["at"].iloc[0]): rows}
        self._rows, self.nbytes = len(rows), frames_of(rows).rows_nbytes(rows)

    def frame(self) -> Any:
        """Return the rows as one frame, in the order of the parts and in theirs."""
        if not self._parts:
            return self.plan.states_meta
        if len(self._parts) > 1:
            ordered = [self._parts[first] for first in sorted(self._parts)]
            self._keep(frames_of(ordered[0]).concat(ordered))
        return next(iter(self._parts.values()))

    def result(self) -> Any:
        """Return the aggregates of the groups that are here."""
        return self.plan.result(self.frame())


def distinct_parts(codes: Any, rows: Any) -> list[Any]:
    """Return rows in as few parts as it takes so that no code occurs twice in one.

    Examples
    --------
    >>> [part.tolist() for part in distinct_parts(np.array([5, 7, 5]), np.array([0, 1, 2]))]
    [[0, 1], [2]]
    """
    order = np.argsort(codes, kind="stable")
    found = codes[order]
    if not (found[1:] == found[:-1]).any():
        return [rows]
    first = np.flatnonzero(np.concatenate([[True], found[1:] != found[:-1]]))
    turn = np.empty(len(codes), np.int64)
    counts = np.diff(first, append=len(codes))
    turn[order] = np.arange(len(codes)) - np.repeat(first, counts)
    return [rows[turn == each] for each in range(int(counts.max()))]


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
        self._rows: Any = ()
        self._folded, self._waiting = plan.states_meta, list[pd.DataFrame]()
        self._waiting_rows = self._nbytes = 0

    def __len__(self) -> int:
        """Return the number of states and rows here, of which several may be of one group."""
        return len(self._folded) + self._waiting_rows + len(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that keys and states take."""
        return self._nbytes + (self._rows.nbytes if self._rows else 0)

    def fold(self, states: pd.DataFrame) -> None:
        """Add the states of a part, or its rows in place of them."""
        if not len(states):
            return
        if self.plan.form_of(states):
            self._rows = self._rows or folding(self.plan.forms[1])
            self._rows.fold(states)
            return
        self._waiting.append(states)
        # Many parts may wait, so their rows are not counted anew for each.
        self._waiting_rows += len(states)
        self._nbytes += frames_of(states).rows_nbytes(states)
        if self._waiting_rows > max(_WAITING, len(self._folded)):
            self._fold_waiting()

    def frame(self) -> pd.DataFrame:
        """Return the states as one frame, in which each key occurs once."""
        if self._rows:
            rows, self._rows = self._rows, ()
            for number, part in parts_of_rows(rows.plan, rows.frame()):
                self.fold(self.plan.reduce(part, number))
        return self._fold_waiting()

    def _fold_waiting(self) -> pd.DataFrame:
        if self._waiting:
            parts = [self._folded, *self._waiting] if len(self._folded) else self._waiting
            self._folded, self._waiting = self.plan.folded(parts), []
            self._waiting_rows = 0
            self._nbytes = frames_of(self._folded).rows_nbytes(self._folded)
        return self._folded

    def result(self) -> Any:
        """Return the aggregates of the groups that are here."""
        rows_alone = self._rows and not len(self._folded) and not self._waiting
        return self._rows.result() if rows_alone else self.plan.result(self.frame())


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
        columns = {
            str(label): column_of(plain(first[label]))
            for label in first if label not in plan.key_labels
        }  # fmt: skip
        known = np.ones(len(whole), bool)
        known[heads] = False
        ends = np.cumsum([len(part) for part in parts])
        for part, end in zip(parts, ends.tolist(), strict=True):
            rows = end - len(part) + np.flatnonzero(known[end - len(part) : end])
            for some in distinct_parts(codes[rows], rows):
                _combine(columns, codes[some], frames.take(whole, some), alone)
        sums = {label: column.array for label, column in columns.items()} | sums
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


def folding(plan: GroupPlan) -> GroupBatches | GroupRows:
    """Return states of no rows, or rows where the plan needs them, to which parts are added."""
    return GroupRows(plan) if plan.needs_rows else GroupBatches(plan)
