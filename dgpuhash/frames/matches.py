"""What a query found in an index of rows."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dgpuhash import backend
from dgpuhash.tables.select import found_rows, taken

__all__ = ["Matches", "in_query_order"]


def in_query_order(query_rows: Any, n: int, xp: ModuleType) -> tuple[Any, Any, int]:
    """The numbers `query_rows`, each below `n`, in order, where each stood, and how many differ.

    Equal ones stay as they come. As a stable sort, in a few passes where equal ones stand together,
    as they do in what the owner of its key has answered.

    Examples
    --------
    >>> import numpy as np
    >>> in_query_order(np.array([4, 1, 1, 0]), 5, np)
    (array([0, 1, 1, 4]), array([3, 1, 2, 0]), 3)
    """
    matches = len(query_rows)
    matched = xp.zeros(n, dtype=np.uint8)
    matched[query_rows] = 1
    place = xp.empty(n, dtype=np.uint32 if matches < 2**32 else np.uint64)
    place[query_rows] = xp.arange(matches, dtype=place.dtype)
    rows, order = found_rows(backend.get(None, query_rows), matched, place)
    if len(rows) == matches:
        return rows, order, matches
    heads = xp.flatnonzero(query_rows[1:] != query_rows[:-1]) + 1
    if len(heads) + 1 > len(rows):
        order = xp.argsort(query_rows, kind="stable")
        return taken(query_rows, order), order, len(rows)
    zero = xp.zeros(1, dtype=xp.int64)
    heads = xp.concatenate([zero, heads])
    place[query_rows[heads]] = xp.arange(len(heads), dtype=place.dtype)
    runs = place[rows].astype(np.int64)
    rows_of_run = xp.diff(xp.concatenate([heads, xp.asarray([matches])]))[runs]
    heads = heads[runs]
    # One further from row to row, and where a run begins, from the end of the last one to its head.
    steps = xp.ones(matches, dtype=xp.int64)
    steps[xp.concatenate([zero, xp.cumsum(rows_of_run[:-1])])] = heads - xp.concatenate(
        [zero, (heads + rows_of_run - 1)[:-1]]
    )
    order = xp.cumsum(steps)
    return taken(query_rows, order), order, len(rows)


class Matches(NamedTuple):
    """What a query found.

    Attributes
    ----------
    query_rows : int64 array
        Positions in the query, ascending: of each match for inner and left, of each row that has
        (semi) or has not (anti) a match.
    frame : DataFrame or None
        The matched rows of the index, one for each of `query_rows`, in insertion order for one
        query; None for semi and anti.
    """

    query_rows: Any
    frame: Any
