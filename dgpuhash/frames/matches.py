"""Matches of a query in an index, sorted by query row."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dgpuhash import backend
from dgpuhash.frames.keys.encoding import EncodedKeys, same_keys
from dgpuhash.tables.select import gather_rows, select_found


def sort_by_query_row(query_rows: Any, n: int, xp: ModuleType) -> tuple[Any, Any, int]:
    """Sort the row numbers of matches; return rows, order and distinct count.

    `query_rows` are row numbers below `n`. Returns the sorted rows, the position from which each
    one came (as a stable ``argsort`` gives it), and the number of distinct rows. Takes a few linear
    passes where equal numbers are adjacent, as in the answer of the owner of a key; otherwise it
    sorts.

    Examples
    --------
    >>> import numpy as np
    >>> sort_by_query_row(np.array([4, 1, 1, 0]), 5, np)
    (array([0, 1, 1, 4]), array([3, 1, 2, 0]), 3)
    """
    matches = len(query_rows)
    matched = xp.zeros(n, dtype=np.uint8)
    matched[query_rows] = 1
    place = xp.empty(n, dtype=np.uint32 if matches < 2**32 else np.uint64)
    place[query_rows] = xp.arange(matches, dtype=place.dtype)
    rows, order = select_found(backend.get(None, query_rows), matched, place)
    if len(rows) == matches:
        return rows, order, matches
    heads = xp.flatnonzero(query_rows[1:] != query_rows[:-1]) + 1
    if len(heads) + 1 > len(rows):
        order = xp.argsort(query_rows, kind="stable")
        return gather_rows(query_rows, order), order, len(rows)
    zero = xp.zeros(1, dtype=xp.int64)
    heads = xp.concatenate([zero, heads])
    place[query_rows[heads]] = xp.arange(len(heads), dtype=place.dtype)
    runs = place[rows].astype(np.int64)
    rows_of_run = xp.diff(xp.concatenate([heads, xp.asarray([matches])]))[runs]
    heads = heads[runs]
    # Step by one inside a run, and from the end of one run to the head of the next.
    steps = xp.ones(matches, dtype=xp.int64)
    steps[xp.concatenate([zero, xp.cumsum(rows_of_run[:-1])])] = heads - xp.concatenate(
        [zero, (heads + rows_of_run - 1)[:-1]]
    )
    order = xp.cumsum(steps)
    return gather_rows(query_rows, order), order, len(rows)


def with_unmatched(n: int, query_rows: Any, rows: Any, xp: ModuleType) -> tuple[Any, Any]:
    """Return the rows of a left join: query rows (None if each occurs once) and matches.

    `query_rows` are row numbers below `n`, ascending, and `rows` what each of them found. Rows that
    found nothing are added in place, with -1.

    Examples
    --------
    >>> import numpy as np
    >>> with_unmatched(3, np.array([0, 0, 2]), np.array([5, 6, 5]), np)
    (array([0, 0, 1, 2]), array([ 5,  6, -1,  5]))
    """
    counts = xp.bincount(query_rows, minlength=n)
    if n == 0 or int(counts.max()) <= 1:
        found = xp.full(n, -1, dtype=xp.int64)
        found[query_rows] = rows
        return None, found
    ends = xp.cumsum(xp.maximum(counts, 1))
    steps = xp.zeros(int(ends[-1]), dtype=xp.int64)
    steps[ends[:-1]] = 1
    owners = xp.cumsum(steps)
    found = xp.full(len(owners), -1, dtype=xp.int64)
    found[xp.flatnonzero((counts > 0)[owners])] = rows
    return owners, found


def unequal_matches(
    wanted: EncodedKeys, rows: Any, found: Any, stored: Callable[[Any], tuple[Any, Any]]
) -> Any | None:
    """Return the positions of matches with equal codes and different keys, or None.

    Parameters
    ----------
    wanted : EncodedKeys
    rows : int64 array or None
        The key of each match; None for all keys, in order.
    found : int64 array
        The stored row of each, -1 for none.
    stored : callable
        Returns key columns for stored rows, and where in these the rows are.
    """
    xp, at = backend.get(None, found).xp, None
    if wanted.ambiguous is not True:
        codes = wanted.codes if rows is None else wanted.codes[rows]
        at = xp.flatnonzero(codes == wanted.ambiguous)
    elif rows is None and int(xp.count_nonzero(found >= 0)) * 2 < len(found):
        at = xp.flatnonzero(found >= 0)
    hits = found if at is None else found[at]
    if len(hits) == 0:
        return None
    if rows is None:
        asked, hits = at, xp.maximum(hits, 0)
    else:
        asked = rows if at is None else rows[at]
    same = same_keys(wanted.columns, asked, *stored(hits))
    if bool(same.all()):
        return None
    return (~same).nonzero()[0] if at is None else at[~same]


def drop_matches(rows: Any, found: Any, unequal: Any) -> tuple[Any, Any]:
    """Return the keys and stored rows of matches without those at given positions."""
    kept = backend.get(None, found).xp.ones(len(found), bool)
    kept[unequal] = False
    return kept.nonzero()[0] if rows is None else rows[kept], found[kept]


class Matches(NamedTuple):
    """Query rows and the matching index rows.

    Attributes
    ----------
    query_rows : int64 array
        Positions in the query, ascending: one for each match (inner and left joins), or one for
        each row with a match (semi) or without one (anti).
    frame : DataFrame or None
        The matched rows of the index, one for each of `query_rows`, in insertion order for one
        query row; None for semi and anti.
    """

    query_rows: Any
    frame: Any
