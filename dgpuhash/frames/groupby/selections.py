"""Select rows of each group: first, last, at positions, largest and smallest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import SpecError
from dgpuhash.frames.dataframes.order import sorted_rows
from dgpuhash.frames.groupby.aggregates.options import AggregateTypeError
from dgpuhash.frames.groupby.aggregates.states import extremes_of
from dgpuhash.frames.groupby.aggregates.values import Values
from dgpuhash.frames.groupby.grouping_keys import levels_of
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.frames.merge.index import index_of


class PlaceTypeError(SpecError, TypeError):
    """A position in a group that is not a number."""


def rows_before(groups: Groups, n: int) -> Any:
    """Return a mask of the first `n` rows of each group; all but the last `-n` if negative."""
    if n >= 0:
        return (groups.places >= 0) & (groups.places < n)
    return (groups.places >= 0) & (_behind(groups) >= -n)


def rows_behind(groups: Groups, n: int) -> Any:
    """Return a mask of the last `n` rows of each group; all but the first `-n` if negative."""
    if n >= 0:
        return (groups.places >= 0) & (_behind(groups) < n)
    return groups.places >= -n


def _behind(groups: Groups) -> Any:
    """Return the number of rows after each row in its group."""
    # Rows in no group have the code -1.
    return np.append(groups.sizes, 0)[groups.codes] - 1 - groups.places


def rows_at(groups: Groups, n: Any) -> Any:
    """Return a mask of rows at positions of their group: a number, slices, or a list of these.

    Negative places count from the end.
    """
    wanted = n if isinstance(n, list | tuple | np.ndarray | range) else [n]
    # Of none, in an array of the codes' library.
    mask = groups.codes < -1
    for each in wanted:
        mask |= _in_slice(groups, each) if isinstance(each, slice) else _at(groups, each)
    return mask & (groups.codes >= 0)


def rows_at_of(groups: Groups, kept: Any, n: Any) -> Any:
    """Return a mask of rows at a position of their group, counting masked rows only."""
    if not pd.api.types.is_integer(n):
        raise SpecError("dropna option only supported for an integer argument")
    rows = np.flatnonzero(kept & (groups.codes >= 0))
    codes = groups.codes[rows]
    sizes = np.bincount(codes, minlength=len(groups))
    order = sorted_rows([codes]) if len(rows) else rows
    places = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    wanted = places == (n if n >= 0 else np.repeat(sizes, sizes) + n)
    mask = np.zeros(len(kept), bool)
    mask[rows[order[wanted]]] = True
    return mask


def _at(groups: Groups, place: Any) -> Any:
    if not pd.api.types.is_integer(place):
        raise PlaceTypeError(
            f"Invalid index {type(place)}. Must be integer, list-like, slice or a tuple of "
            "integers and slices"
        )
    return groups.places == place if place >= 0 else _behind(groups) == -place - 1


def _in_slice(groups: Groups, asked: slice) -> Any:
    start, stop, step = asked.start, asked.stop, 1 if asked.step is None else asked.step
    if step < 1:
        raise SpecError(f"Invalid step {step}. Must be non-negative")
    places, behind = groups.places, _behind(groups)
    mask = places >= -1
    from_start = places
    if start is not None and start >= 0:
        mask &= places >= start
        from_start = places - start
    elif start is not None:
        mask &= behind < -start
        sizes = groups.sizes[np.maximum(groups.codes, 0)]
        from_start = places - np.maximum(sizes + start, 0)
    if stop is not None:
        mask &= places < stop if stop >= 0 else behind >= -stop
    return mask if step == 1 else mask & (from_start % step == 0)


def extremes(groups: Groups, column: pd.Series, n: int, keep: str, how: str) -> pd.Series:
    """Return the `n` largest or smallest values of each group, with keys and labels.

    Parameters
    ----------
    groups : Groups
    column : Series
        With the labels of the frame.
    n : int
    keep : {"first", "last", "all"}
        Which rows of equal values are kept.
    how : {"nlargest", "nsmallest"}
    """
    if keep not in {"first", "last", "all"}:
        raise SpecError(f"keep={keep!r}; use 'first', 'last' or 'all'")
    values = Values(column.reset_index(drop=True))
    if not values.is_number or values.kind == "period":
        raise AggregateTypeError(f"Cannot use method '{how}' with dtype {column.dtype}")
    rows = np.arange(len(column)) if groups.rows is None else groups.rows
    numbers = values.numbers[rows]
    # NaN has no order, whether it is a null or not.
    nulls = np.zeros(len(rows), bool) if values.unordered is None else values.unordered[rows]
    near = _near(groups, numbers, nulls, n, how)
    codes, sizes = groups.kept_codes, groups.sizes
    if near is not None:
        codes, rows, numbers, nulls = codes[near], rows[near], numbers[near], nulls[near]
        sizes = np.bincount(codes, minlength=len(groups))
    rank = _dense(numbers)
    rank = np.where(nulls, len(rank), -rank if how == "nlargest" else rank)
    later = np.arange(len(rows))
    # Nulls fill up in their order.
    ties = np.where(nulls, later, -later) if keep == "last" else later
    order = sorted_rows([codes, rank, ties]) if len(rows) else later
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = np.arange(len(order)) - starts < n
    if keep == "all" and n > 0:
        last = np.minimum(starts + n - 1, len(order) - 1)
        same = (rank[order][last] == rank[order]) & (codes[order][last] == codes[order])
        kept |= same & ~nulls[order]
    order = order[kept]
    found = rows[order]
    parts = [pd.Series(each.array.take(codes[order])) for each in levels_of(groups.index)]
    labels = [pd.Series(each.array.take(found)) for each in levels_of(column.index)]
    index = index_of([*parts, *labels], [*groups.index.names, *column.index.names])
    return pd.Series(column.array.take(found), index=index, name=column.name, dtype=column.dtype)


def _near(groups: Groups, numbers: Any, nulls: Any, n: int, how: str) -> Any | None:
    """Return candidate positions for the `n` largest or smallest values, None for all.

    Where each of `n` parts of a group has a number, the least of their greatest ones bounds the
    `n` greatest of the group.
    """
    if n < 1 or 4 * n * len(groups) > len(numbers) or numbers.dtype.kind not in "iuf":
        return None
    there = np.flatnonzero(~nulls) if nulls.any() else None
    codes = groups.kept_codes
    taken = codes if there is None else codes[there]
    parts = taken * n
    for part in range(1, n):
        parts[part::n] += part
    state = "greatest" if how == "nlargest" else "least"
    held = Values(pd.Series(numbers if there is None else numbers[there], copy=False))
    bounds = extremes_of(held, state, parts, n * len(groups)).reshape(len(groups), n)
    if state == "greatest":
        return np.flatnonzero(~(numbers < bounds.min(axis=1)[codes]))
    return np.flatnonzero(~(numbers > bounds.max(axis=1)[codes]))


def _dense(numbers: Any) -> Any:
    """Return dense ranks of numbers."""
    if len(numbers) == 0:
        return numbers.astype(np.int64)
    order = sorted_rows([numbers])
    ordered = numbers[order]
    steps = np.concatenate([[False], ordered[1:] != ordered[:-1]])
    rank = np.empty(len(numbers), np.int64)
    rank[order] = np.cumsum(steps)
    return rank
