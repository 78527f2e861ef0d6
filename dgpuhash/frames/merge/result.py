"""MergePlan: build the result frame of a merge from pairs of matching rows."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import repeat
from operator import contains
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import ColumnError, SpecError
from dgpuhash.frames.dataframes import Frames, as_series, frames_of
from dgpuhash.frames.dataframes.base import JoinedSide
from dgpuhash.frames.merge.arguments import Suffixes
from dgpuhash.frames.merge.index import index_of
from dgpuhash.frames.merge.keys import JoinKeys, MergeError
from dgpuhash.frames.merge.rows import RowPairs

# What the column of an indicator holds.
ORIGINS = ("left_only", "right_only", "both")


@dataclass(frozen=True)
class MergePlan:
    """Plan of a merge's result: its columns, dtypes and labels, for any matching rows.

    The adapter of their library gives labels, dtypes and nulls; see `Frames`.

    Attributes
    ----------
    left, right : DataFrame
        With all of their columns and levels.
    keys : JoinKeys
    how : {"inner", "left", "right", "outer"}
    names : pair of Index or list
        The labels of each side's columns.
    labels : pair of Index or list
        What these are called in the result.
    indicator : label or None
        The column that tells on which side a row was found.
    promote : {"nullable", "pandas", "each"}
        What integers and booleans become on a side that may lack rows: nullable ones, from dtypes
        alone; floats and objects as in pandas, or ColumnError where that would round one; each:
        as pandas where rows lack.
    rounded : list or None
        Gets the labels of columns of which integers were rounded; None: that is an error.
    """

    left: Any
    right: Any
    keys: JoinKeys
    how: str
    names: tuple[Any, Any]
    labels: tuple[Any, Any]
    indicator: Hashable | None
    promote: str = "pandas"
    rounded: list[Hashable | None] | None = None

    @classmethod
    def of(
        cls, left: Any, right: Any, keys: JoinKeys, how: str, *,
        suffixes: Suffixes = ("_x", "_y"), indicator: bool | str = False, promote: str = "pandas",
    ) -> MergePlan:  # fmt: skip
        """Return the plan for two frames.

        Raises
        ------
        MergeError, ColumnError, KeyTypeError, SpecError
            When columns overlap and suffixes do not tell them apart, the indicator's name is taken,
            or keys are never equal.
        """
        frames = frames_of(left)
        right = frames.without(right, keys.dropped)
        names = frames.labels(left), frames.labels(right)
        added = None if indicator is False else _indicator_name(indicator, *names)
        nullable = promote == "nullable"
        left, right = frames.with_agreed_keys(left, right, keys, how, nullable=nullable)
        plan = cls(left, right, keys, how, names, result_labels(*names, suffixes), added, promote)
        return plan._nullable(frames) if nullable else plan

    def over(self, left: Any, right: Any, keys: JoinKeys, *, cast: Any = True) -> MergePlan:
        """Return the plan for other rows of both sides; `cast` keys to this plan's dtypes."""
        frames = frames_of(left)
        there = {*frames.labels(right), *right.index.names}
        right = frames.without(right, [label for label in keys.dropped if label in there])
        if cast:
            left, right = frames.with_planned_keys(left, right, keys, self)
        rounded: list[Hashable | None] | None = [] if self.promote == "each" else None
        plan = replace(self, left=left, right=right, keys=keys, rounded=rounded)
        return plan._nullable(frames) if self.promote == "nullable" else plan

    def _nullable(self, frames: Frames) -> MergePlan:
        """Return the plan with nullable dtypes on the sides that may have absent rows.

        Keys that are made of both sides lack none.
        """
        if frames.promotion == "nullable":
            return self
        keys, sides = self.keys, [self.left, self.right]
        indexes = [keys.right_index, keys.left_index]
        whole = set() if all(indexes) else {pair.name for pair in keys.pairs if pair.is_one_column}
        # Of indexes that share all levels, labels are keys, too.
        levels = [side.index.nlevels for side in sides]
        shared = {pair.name for pair in keys.pairs} if all(indexes) else set()
        labelled = not all(indexes) or levels != [len(keys.pairs)] * 2
        for place, lacking in enumerate(({"right", "outer"}, {"left", "outer"})):
            if self.how in lacking:
                named = shared if indexes[place] and labelled else None
                sides[place] = frames.nullable(sides[place], whole, named)
        return replace(self, left=sides[0], right=sides[1])

    def _sides(self, pairs: RowPairs) -> tuple[JoinedSide, JoinedSide]:
        """Return both sides with their rows."""
        how = self.how
        lacks = how in ("right", "outer") and pairs.lacks("left")
        left = JoinedSide(self.left, pairs.left, lacks, how == "left")
        lacks = how in ("left", "outer") and pairs.lacks("right")
        return left, JoinedSide(self.right, pairs.right, lacks, how == "right")

    def index(self, pairs: RowPairs) -> Any:
        """Return the index labels of the given rows.

        Numbers from 0, unless a side is compared by its index: labels of the other side then, or of
        both where both are. Rows that this side lacks have null labels.
        """
        keys, frames = self.keys, frames_of(self.left)
        if not (keys.left_index or keys.right_index):
            rows = pairs.right if pairs.left is None else pairs.left
            return frames.range_index(len(self.left if rows is None else rows))
        sides = self._sides(pairs)
        if keys.left_index and keys.right_index:
            return self._index_of_both(sides, frames)
        side, other = sides if keys.right_index else reversed(sides)
        return frames.take_labels(side, other, self.promote, self.rounded)

    def _index_of_both(self, sides: tuple[JoinedSide, JoinedSide], frames: Frames) -> Any:
        """Return the index labels of a merge by both indexes."""
        (left, right), how, pairs = sides, self.how, self.keys.pairs
        first, then = (right, left) if how == "right" else (left, right)
        alike = left.frame.index.nlevels == right.frame.index.nlevels == len(pairs)
        if alike and not first.lacks:
            return frames.complete_labels(first, pairs, "right" if first is right else "left", how)
        parts = {
            place: frames.one_key(
                pair.left, pair.right, sides, how, None, pair.name, self.rounded, of_levels=True
            )
            for place, pair in enumerate(pairs)
        }
        if alike:
            return index_of(list(parts.values()), list(first.frame.index.names), guess=False)
        # Indexes that share some of their levels: these, and then the others.
        named = {pair.name: parts[place] for place, pair in enumerate(pairs)}
        for side in sides:
            for name in side.frame.index.names:
                if name not in named:
                    named[name] = frames.take_level(side, name, self.promote, self.rounded)
        names = [list(side.frame.index.names) for side in (first, then)]
        several = [side for side in sides if type(side.frame.index).__name__ == "MultiIndex"]
        if len(several) == 1:
            order = list(several[0].frame.index.names)
        else:
            order = [*names[0], *(name for name in names[1] if name not in names[0])]
        return index_of([named[name] for name in order], order, guess=False)

    def frame(self, pairs: RowPairs, index: Any) -> Any:
        """Return the result with the given rows of both sides, and their labels."""
        frames, sides = frames_of(self.left), self._sides(pairs)
        added: list[tuple[int | None, Hashable, Any]] = []
        if self.indicator is not None:
            codes = _origins(pairs, len(index), frames.xp)
            added.append((None, self.indicator, frames.categories(codes, ORIGINS)))
        labels, levels = beside(*self.labels), {}
        there = {self.indicator} - {None}
        both = self.keys.left_index and self.keys.right_index
        for place, pair in enumerate(() if both else self.keys.pairs):
            name = pair.name
            if not pair.is_one_column or any(map(contains, (*self.labels, there), repeat(name))):
                continue
            # Keys that are columns of neither side.
            column = frames.one_key(
                pair.left, pair.right, sides, self.how, None, pair.left.name, self.rounded
            )
            if name is not None and name in index.names:
                names = list(index.names)
                parts = [
                    column if other == name else index.get_level_values(other) for other in names
                ]
                index = index_of(parts, names, guess=False)
            elif pair.of_levels:
                levels[name] = column
            else:
                there.add(name or f"key_{place}")
                added.append((place - len(levels), name or f"key_{place}", column))
        if levels:
            index = index_of(list(levels.values()), list(levels), guess=False)
        columns = {} if both else self._key_columns(sides, frames)
        return frames.join_sides(sides, columns, labels, index, added, self.promote, self.rounded)

    def _key_columns(self, sides: tuple[JoinedSide, JoinedSide], frames: Frames) -> dict[int, Any]:
        """Return the key columns that combine both sides, where one has absent rows.

        They are by their position among the columns of the left side and then of the right one.
        """
        columns: dict[int, Any] = {}
        left, right = sides
        if left.rows is None and right.rows is None:
            return columns
        for pair in self.keys.pairs:
            name, ours = pair.name, pair.name in self.names[0]
            side, labels, other = (
                (left, self.names[0], pair.right) if ours else (right, self.names[1], pair.left)
            )
            if name is None or name not in labels:
                continue
            if not side.lacks and "M" not in {dtype.kind for dtype in pair.dtypes}:
                continue
            column = as_series(frames.column(side.frame, name))
            moments = column.dtype.kind == "M" == other.dtype.kind and column.dtype != other.dtype
            named = pair.is_one_column and any(name in called for called in self.labels)
            if named and (side.lacks or moments):
                place = list(labels).index(name) + (0 if ours else len(self.names[0]))
                first, then = (column, other) if ours else (other, column)
                columns[place] = frames.one_key(
                    first, then, sides, self.how, column.dtype, first.name, self.rounded
                )
        return columns


def beside(left: Any, right: Any) -> Any:
    """Return two indexes or lists of labels concatenated."""
    if isinstance(left, list):
        return left + right
    if left.nlevels == 1:
        return left.append(right)
    levels = [
        pd.concat([as_series(index.get_level_values(level)) for index in (left, right)])
        for level in range(left.nlevels)
    ]
    return index_of(levels, list(left.names), guess=False)


def result_labels(left: Any, right: Any, suffixes: Suffixes) -> tuple[Any, Any]:
    """Return the result's labels for the columns of both sides, given as indexes or lists.

    Raises
    ------
    SpecError, ColumnError, MergeError
        When `suffixes` is no pair, or does not tell columns of one name apart.
    """
    if isinstance(suffixes, dict | set | str) or not pd.api.types.is_list_like(suffixes):
        raise SuffixTypeError(
            f"Passing 'suffixes' as a {type(suffixes)}, is not supported. Provide 'suffixes' as a "
            "tuple instead."
        )
    # Lists: an index of texts takes long to go through.
    there = set(right if isinstance(right, list) else right.tolist())
    if not any(map(left.__contains__, there)):
        return left, right
    both = [label for label in dict.fromkeys(list(left)) if label in there]
    ours, theirs = suffixes
    if not ours and not theirs:
        raise ColumnError(
            f"columns overlap but no suffix specified: {pd.Index(both)}; rename them, or give "
            "suffixes=('_left', '_right')"
        )
    taken = set(both)
    made = _add_suffixes(left, taken, ours), _add_suffixes(right, taken, theirs)
    doubled: set[Hashable] = set()
    for before, after in zip((left, right), made, strict=True):
        again = zip(after, _again(after), _again(before), strict=True)
        doubled |= {label for label, now, then in again if now and not then}
    doubled |= set(made[0]) & (there - taken)
    doubled |= set(made[1]) & (set(left) - taken)
    if doubled:
        raise MergeError(
            f"Passing 'suffixes' which cause duplicate columns {doubled} is not allowed."
        )
    return made


def _add_suffixes(columns: Any, taken: set[Hashable], suffix: str | None) -> Any:
    """Return the column labels, with a suffix where both sides have them."""
    if suffix is None or not taken:
        return columns
    if not isinstance(columns, pd.MultiIndex):
        named = [f"{label}{suffix}" if label in taken else label for label in columns]
        return (
            named
            if isinstance(columns, list)
            else pd.Index(named, name=columns.name, tupleize_cols=False)
        )
    first = {label[0] for label in taken}  # type: ignore[index]
    tuples = [
        tuple(f"{part}{suffix}" if part in first else part for part in label) for label in columns
    ]
    levels = [pd.Series(level) for level in zip(*tuples, strict=True)]
    return index_of(levels, list(columns.names))


def _again(labels: Any) -> list[bool]:
    """Return a mask of the labels that repeat an earlier one."""
    seen: set[Hashable] = set()
    told = []
    for label in labels:
        told.append(label in seen)
        seen.add(label)
    return told


class SuffixTypeError(SpecError, TypeError):
    """Suffixes that are not a pair of strings."""


def _indicator_name(indicator: bool | str, left: Any, right: Any) -> Hashable | None:
    if not isinstance(indicator, bool | str):
        raise SpecError("indicator option can only accept boolean or string arguments")
    if indicator == "":
        return None
    name = "_merge" if indicator is True else indicator
    there = {*left, *right}
    for taken in ("_left_indicator", "_right_indicator"):
        if taken in there:
            raise ColumnError(
                "Cannot use `indicator=True` option when data contains a column named "
                f"{taken}; rename it"
            )
    if name in there:
        raise ColumnError(
            f"Cannot use name of an existing column for indicator column: {name!r}; give another"
        )
    return name


def _origins(pairs: RowPairs, n: int, xp: Any) -> Any:
    """Return for each row its index into `ORIGINS`."""
    codes = xp.full(n, 2, np.int8)
    for side, code in (("left", 1), ("right", 0)):
        absent = pairs.absent(side)
        if absent is not None:
            codes[absent] = code
    return codes
