"""Matches in the order of the query's rows."""

from __future__ import annotations

from types import ModuleType
from typing import Any

__all__ = ["in_query_order"]


def in_query_order(query_rows: Any, n: int, xp: ModuleType) -> Any:
    """The positions of `query_rows`, each below `n`, in their order; equal ones as they come.

    As a stable sort, in a few passes where the positions of a row stand together, as they do in
    what the owner of its key has answered.

    Examples
    --------
    >>> import numpy as np
    >>> in_query_order(np.array([4, 1, 1, 0]), 5, np)
    array([3, 1, 2, 0])
    """
    matches = len(query_rows)
    numbers = xp.arange(matches, dtype=xp.int64)
    place = xp.full(n, -1, dtype=xp.int64)
    place[query_rows] = numbers
    matched = xp.flatnonzero(place >= 0)
    if len(matched) == matches:
        return place[matched]
    heads = xp.flatnonzero(query_rows[1:] != query_rows[:-1]) + 1
    if len(heads) + 1 > len(matched):
        return xp.argsort(query_rows, kind="stable")
    zero = xp.zeros(1, dtype=xp.int64)
    heads = xp.concatenate([zero, heads])
    place[query_rows[heads]] = xp.arange(len(heads), dtype=xp.int64)
    runs = place[matched]
    rows_of_run = xp.diff(xp.concatenate([heads, xp.asarray([matches])]))[runs]
    heads = heads[runs]
    # One further from row to row, and where a run begins, from the end of the last one to its head.
    steps = xp.ones(matches, dtype=xp.int64)
    steps[xp.concatenate([zero, xp.cumsum(rows_of_run[:-1])])] = heads - xp.concatenate(
        [zero, (heads + rows_of_run - 1)[:-1]]
    )
    return xp.cumsum(steps)
