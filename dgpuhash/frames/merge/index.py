"""The row labels of a merge."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.frames.merge.keys import JoinKeys
from dgpuhash.frames.merge.rows import RowPairs

__all__ = ["index_of", "join_index", "with_level"]


def join_index(
    left: pd.Index, right: pd.Index, keys: JoinKeys, how: str, pairs: RowPairs
) -> pd.Index:
    """Return the labels of the rows of a merge.

    Numbers from 0, unless a side is compared by its index: labels of the other side then, or of
    both where both are. Rows that this side lacks have null labels.
    """
    if keys.left_index and keys.right_index:
        return _of_both(left, right, keys, how, pairs)
    if keys.right_index:
        return _of_one(left, right, pairs.left, pairs.right, lasting=how == "left")
    if keys.left_index:
        return _of_one(right, left, pairs.right, pairs.left, lasting=how == "right")
    for rows, index in ((pairs.left, left), (pairs.right, right)):
        if rows is None:
            return pd.RangeIndex(len(index))
    return pd.RangeIndex(len(pairs.left))


def _of_one(index: pd.Index, other: pd.Index, rows: Any, others: Any, *, lasting: bool) -> pd.Index:
    """Return the labels of one side, which no row lacks where that is `lasting`."""
    if rows is None:
        return index
    if lasting or len(index):
        absent = None if lasting else rows < 0
        if absent is None or not absent.any():
            return index.take(rows)
        if isinstance(other, pd.MultiIndex) or isinstance(index, pd.MultiIndex):
            return index.take(rows) if len(index) else index
        return index.to_series().reset_index(drop=True).reindex(rows).pipe(_labels, index.name)
    return other if others is None else other.take(others)


def _labels(series: pd.Series, name: Hashable | None) -> pd.Index:
    return pd.Index(series.array, name=name, copy=False)


def _of_both(
    left: pd.Index, right: pd.Index, keys: JoinKeys, how: str, pairs: RowPairs
) -> pd.Index:
    alike = left.nlevels == right.nlevels == len(keys.pairs)
    if not alike:
        return _of_levels(left, right, keys, how, pairs)
    if how == "left" or (how == "inner" and pairs.left is None):
        made = left if pairs.left is None else left.take(pairs.left)
    elif how == "right":
        made = right if pairs.right is None else right.take(pairs.right)
    elif pairs.absent("left") is None:
        made = left if pairs.left is None else left.take(pairs.left)
    else:
        ours, theirs = pairs.rows("left", len(left)), pairs.rows("right", len(right))
        made = left.append(right).take(np.where(ours < 0, len(left) + theirs, ours))
    names = right.names if how == "right" else left.names
    if how in {"inner", "outer"}:
        names = [
            ours if ours == theirs else None
            for ours, theirs in zip(left.names, right.names, strict=True)
        ]
    return made if list(made.names) == list(names) else made.set_names(list(names))


def _of_levels(
    left: pd.Index, right: pd.Index, keys: JoinKeys, how: str, pairs: RowPairs
) -> pd.Index:
    """Return the labels of indexes that share some of their levels: these, and then the others."""
    sides = (left, pairs.rows("left", len(left))), (right, pairs.rows("right", len(right)))
    shared = [pair.name for pair in keys.pairs]
    parts: dict[Hashable, Any] = {}
    for pair in keys.pairs:
        ours, theirs = sides[0][1], sides[1][1]
        both = pd.concat([pair.left, pair.right], ignore_index=True)
        parts[pair.name] = both.take(np.where(ours < 0, len(left) + theirs, ours))
    for index, rows in sides:
        for name in index.names:
            if name not in shared:
                level = index.get_level_values(name).to_series().reset_index(drop=True)
                parts[name] = level.reindex(rows)
    several = [index for index in (left, right) if isinstance(index, pd.MultiIndex)]
    if len(several) == 1:
        order = list(several[0].names)
    elif how == "right":
        order = [*right.names, *(name for name in left.names if name not in shared)]
    else:
        order = [*left.names, *(name for name in right.names if name not in shared)]
    return index_of([parts[name] for name in order], order)


def with_level(index: pd.Index, name: Hashable, values: pd.Series) -> pd.Index:
    """Return an index with other values of one level."""
    if index.nlevels == 1:
        return pd.Index(values.array, name=name, copy=False)
    levels = [
        values.array if other == name else index.get_level_values(other) for other in index.names
    ]
    return index_of(levels, list(index.names))


def index_of(levels: Sequence[Any], names: Sequence[Hashable | None]) -> pd.Index:
    """Return an index of one level or several."""
    if len(levels) == 1:
        array = levels[0].array if isinstance(levels[0], pd.Series) else levels[0]
        return pd.Index(array, name=names[0], copy=False)
    return pd.MultiIndex.from_arrays([pd.Index(level) for level in levels], names=list(names))
