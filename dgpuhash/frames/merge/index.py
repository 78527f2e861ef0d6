"""The row labels of a merge."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.backend import device_of
from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes.pandas_take import TakenRows
from dgpuhash.frames.dataframes.promotion import coalesce_exactly
from dgpuhash.frames.merge.keys import JoinKeys, as_series
from dgpuhash.frames.merge.rows import RowPairs, sortable

__all__ = ["beside", "index_of", "join_index", "null_labels", "with_level"]


def join_index(
    left: Any, right: Any, keys: JoinKeys, how: str, pairs: RowPairs,
    rounded: list[Any] | None = None,
) -> pd.Index:  # fmt: skip
    """Return the labels of the rows of a merge.

    Numbers from 0, unless a side is compared by its index: labels of the other side then, or of
    both where both are. Rows that this side lacks have null labels. `rounded` gets the names of
    labels that are rounded thereby; without it they raise ColumnError.
    """
    if keys.left_index and keys.right_index:
        return _of_both(left, right, keys, how, pairs, rounded)
    if keys.right_index:
        return _of_one(left, right, pairs.left, pairs.right, rounded, lasting=how == "left")
    if keys.left_index:
        return _of_one(right, left, pairs.right, pairs.left, rounded, lasting=how == "right")
    for rows, index in ((pairs.left, left), (pairs.right, right)):
        if rows is None:
            return pd.RangeIndex(len(index))
    return pd.RangeIndex(len(pairs.left))


def _of_one(
    index: Any, other: pd.Index, rows: Any, others: Any, rounded: list[Any] | None, *, lasting: bool
) -> pd.Index:
    """Return the labels of one side, which no row lacks where that is `lasting`."""
    if rows is None:
        return index
    if lasting or len(index):
        absent = None if lasting else rows < 0
        if absent is None or not absent.any():
            return index.take(rows)
        if isinstance(other, pd.MultiIndex) or isinstance(index, pd.MultiIndex):
            return index.take(rows) if len(index) else index
        taken = TakenRows(rows, nulls=True, rounded=rounded).of(as_series(index))
        return _labels(taken, index.name)
    return other if others is None else other.take(others)


def null_labels(like: pd.Index, n: int) -> pd.Index:
    """Return so many labels of null, of the dtype of others."""
    nulls = as_series(like[:0]).reindex(np.full(n, -1))
    return _labels(nulls.array, like.name)


def _labels(values: Any, name: Hashable | None, *, guess: bool = False) -> pd.Index:
    """Return an index of an array; objects stay objects, unless pandas may `guess` their type.

    A guess that would round integers is none.
    """
    if not guess:
        return pd.Index(values, dtype=values.dtype, name=name, copy=False, tupleize_cols=False)
    made = pd.Index(values, name=name, copy=False, tupleize_cols=False)
    rounds = values.dtype == np.dtype(object) and made.dtype.kind == "f"
    if rounds and any(isinstance(each, int) and int(float(each)) != each for each in values):
        return _labels(values, name)
    return made


def _of_both(
    left: Any, right: Any, keys: JoinKeys, how: str, pairs: RowPairs, rounded: list[Any] | None
) -> pd.Index:
    alike = left.nlevels == right.nlevels == len(keys.pairs)
    if not alike:
        return _of_levels(left, right, keys, how, pairs, rounded)
    if how == "left" or (how == "inner" and pairs.left is None):
        made = left if pairs.left is None else left.take(pairs.left)
    elif how == "right":
        made = right if pairs.right is None else right.take(pairs.right)
    elif pairs.absent("left") is None:
        made = left if pairs.left is None else left.take(pairs.left)
    else:
        ours, theirs = pairs.rows("left", len(left)), pairs.rows("right", len(right))
        if left.nlevels == 1:
            both = coalesce_exactly(
                as_series(left), as_series(right), ours, theirs, left.name, rounded
            )
            made = _labels(both.array, left.name)
        else:
            made = beside(left, right).take(np.where(ours < 0, len(left) + theirs, ours))
    names = right.names if how == "right" else left.names
    return made if list(made.names) == list(names) else made.set_names(list(names))


def _of_levels(
    left: Any, right: Any, keys: JoinKeys, how: str, pairs: RowPairs, rounded: list[Any] | None
) -> pd.Index:
    """Return the labels of indexes that share some of their levels: these, and then the others."""
    sides = (left, pairs.rows("left", len(left))), (right, pairs.rows("right", len(right)))
    shared = [pair.name for pair in keys.pairs]
    parts: dict[Hashable, Any] = {}
    for pair in keys.pairs:
        ours, theirs = sides[0][1], sides[1][1]
        parts[pair.name] = coalesce_exactly(pair.left, pair.right, ours, theirs, pair.name, rounded)
    for index, rows in sides:
        found = TakenRows(rows, nulls=True, rounded=rounded)
        for name in index.names:
            if name not in shared:
                parts[name] = found.of(as_series(index.get_level_values(name)))
    several = [index for index in (left, right) if isinstance(index, pd.MultiIndex)]
    if len(several) == 1:
        order = list(several[0].names)
    elif how == "right":
        order = [*right.names, *(name for name in left.names if name not in shared)]
    else:
        order = [*left.names, *(name for name in right.names if name not in shared)]
    return index_of([parts[name] for name in order], order, guess=False)


def with_level(index: Any, name: Hashable, values: pd.Series) -> pd.Index:
    """Return an index with other values of one level."""
    if index.nlevels == 1:
        return _labels(values.array, name)
    levels = [
        values.array if other == name else index.get_level_values(other) for other in index.names
    ]
    return index_of(levels, list(index.names), guess=False)


def beside(left: Any, right: Any) -> pd.Index:
    """Return the labels of both indexes, one behind the other."""
    if left.nlevels == 1:
        return left.append(right)
    levels = [
        pd.concat([as_series(index.get_level_values(level)) for index in (left, right)])
        for level in range(left.nlevels)
    ]
    return index_of(levels, list(left.names), guess=False)


def index_of(levels: Sequence[Any], names: Sequence[Hashable | None], *, guess: bool = True) -> Any:
    """Return an index of one level or several, which are Series, arrays or indexes.

    Levels of objects get the type that pandas may `guess`, where that changes no value.
    """
    if device_of(levels[0]) == "cuda":
        from dgpuhash.frames.merge.cudf.plan import index_of as of_cudf

        return of_cudf(levels, names)
    columns = [as_series(level) for level in levels]
    if len(columns) == 1:
        return _labels(columns[0].array, names[0], guess=guess)
    coded = [_level_of(column, guess=guess) for column in columns]
    return pd.MultiIndex(
        levels=[level for level, _ in coded],
        codes=[codes for _, codes in coded],
        names=list(names),
        verify_integrity=False,
    )


def _level_of(column: Any, *, guess: bool) -> tuple[Any, Any]:
    """Return the different values of a column, sorted where they can be, and each row's among them.

    pandas' own constructors would hash them.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return pd.CategoricalIndex(column.cat.categories, dtype=column.dtype), column.cat.codes
    from dgpuhash.frames.merge.distinct import numbered

    absent = column.isna().to_numpy()
    present = np.flatnonzero(~absent) if absent.any() else slice(None)
    some = column.iloc[present]
    codes = np.full(len(column), -1, np.int64)
    try:
        numbers, heads = numbered(some.to_frame(0))
        # Only different values are sorted: in labels of groups they are few.
        different = some.iloc[heads]
        values, nulls = sortable(different)
    except KeyTypeError:
        found = dict.fromkeys(some)
        places = {value: place for place, value in enumerate(found)}
        codes[present] = [places[value] for value in some]
        level = pd.Series(list(found), dtype=column.dtype)
        return _labels(level.array, None, guess=guess), codes
    rows = np.arange(len(values)) if nulls is None else np.flatnonzero(~nulls)
    order = rows[np.argsort(values[rows], kind="stable")]
    ordered = values[order]
    first = np.ones(len(order), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    rank = np.full(len(values), -1, np.int64)
    rank[order] = np.cumsum(first) - 1
    codes[present] = rank[numbers]
    return _labels(different.iloc[order[first]].array, None, guess=guess), codes
