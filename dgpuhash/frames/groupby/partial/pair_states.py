"""States of pairs of columns: sums, and sums of products of deviations from the means."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.frames.groupby.aggregates import numbers, pairs
from dgpuhash.frames.groupby.aggregates.values import Values
from dgpuhash.frames.groupby.groups import Groups

__all__ = ["PAIR_FIELDS", "PairColumn", "combined_pairs", "pair_states", "retracted_pairs"]

PAIR_FIELDS = ("count", "left", "left rest", "right", "right rest", "mixed", "squares", "others")
_SIDES = ("left", "right")
Fields = dict[str, Any]


class PairColumn:
    """A column of numbers of a part, of which pairs are made.

    Parameters
    ----------
    groups : Groups
    column : Series
        All rows.
    how : {"cov", "corr"}
        What the pairs are for; see `pairs.floats`.

    Attributes
    ----------
    values : float64 array
        The rows that are in a group, less `origin`.
    origin : int
    """

    def __init__(self, groups: Groups, column: pd.Series, how: str) -> None:
        self._groups = groups
        self.values: Any = pairs.floats(groups, column, how)
        self.origin: int = Values(groups.kept(column)).origin

    @functools.cached_property
    def nulls(self) -> Any:
        """A mask of the nulls."""
        return np.isnan(self.values)

    @functools.cached_property
    def sums(self) -> tuple[Any, Any]:
        """The sum of each group as pairs of floats, where there are no nulls."""
        return self._sums(slice(None), self._groups.sizes)

    def sums_of(self, rows: Any, counts: Any) -> tuple[Any, Any]:
        """Return the sum of some rows of each group, of which there are so many."""
        return self.sums if len(rows) == len(self.values) else self._sums(rows, counts)

    def _sums(self, rows: Any, counts: Any) -> tuple[Any, Any]:
        groups = self._groups
        total = numbers.real_sums(groups.kept_codes[rows], len(groups), self.values[rows])
        if not self.origin:
            return total
        dtype = np.uint64 if self.origin >= 2**63 else np.int64
        origin = np.full(len(groups), self.origin, dtype)
        return numbers.added(total, numbers.times(numbers.of_integers(origin), counts))


def pair_states(groups: Groups, columns: Sequence[PairColumn]) -> tuple[Any, ...]:
    """Return the fields of a pair of columns, of the rows where neither is null."""
    found = pairs.moments(groups, *(column.values for column in columns))
    both = np.flatnonzero(~(columns[0].nulls | columns[1].nulls))
    totals = [each for column in columns for each in column.sums_of(both, found.count)]
    return (found.count, *totals, found.mixed, found.squares, found.others)


def combined_pairs(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
    """Return the fields of the groups of two parts together."""
    between = _between(ours, theirs)
    totals = _totals(ours, theirs, 1)
    made = []
    for name, more in zip(("mixed", "squares", "others"), between, strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            both = ours[name] + theirs[name] + more
        both = np.where(ours["count"] == 0, theirs[name], both)
        made.append(np.where(theirs["count"] == 0, ours[name], both))
    return (ours["count"] + theirs["count"], *totals, *made)


def retracted_pairs(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
    """Return the fields of what is left of groups without the rows of others."""
    count, totals = ours["count"] - theirs["count"], _totals(ours, theirs, -1)
    left = {"count": count, **dict(zip(PAIR_FIELDS[1:5], totals, strict=True))}
    made = []
    for name, less in zip(("mixed", "squares", "others"), _between(left, theirs), strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            rest = ours[name] - theirs[name] - less
        rest = np.where(theirs["count"] == 0, ours[name], np.where(count <= 1, 0.0, rest))
        made.append(rest if name == "mixed" else np.maximum(rest, 0))
    return (count, *totals, *made)


def _totals(ours: Fields, theirs: Fields, sign: int) -> list[Any]:
    made: list[Any] = []
    for side in _SIDES:
        other = sign * theirs[side], sign * theirs[f"{side} rest"]
        made.extend(numbers.added((ours[side], ours[f"{side} rest"]), other))
    return made


def _between(ours: Fields, theirs: Fields) -> tuple[Any, Any, Any]:
    """Return what the means of two parts add to the sums of products."""
    off = []
    for side in _SIDES:
        means = [
            numbers.mean_of((each[side], each[f"{side} rest"]), each["count"])
            for each in (ours, theirs)
        ]
        off.append(numbers.difference(*means))
    n, m = (each["count"].astype(np.float64) for each in (ours, theirs))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        share = n * (m / (n + m))
        return off[0] * off[1] * share, off[0] * off[0] * share, off[1] * off[1] * share
