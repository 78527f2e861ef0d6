"""What a query found in an index of rows."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Matches"]


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
