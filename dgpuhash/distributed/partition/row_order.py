"""Keep the row order of independent indexes by an arrival number in each row.

Each worker stores the rows of the partitions that it receives, so several workers may have rows of
one key. A hidden column stores the order of the rows: by change, then by partition. The rows of one
partition stay together on one worker, in their order, also when they are moved or loaded from a
save. So the arrival numbers of the surviving workers show which partitions the lost workers had.
"""

from __future__ import annotations

from typing import Any

from dgpuhash.errors import ColumnError
from dgpuhash.frames import frames_of

ARRIVAL_COLUMN = "dgpuhash arrival"

# Upper limit of the partitions of one change.
_PARTITIONS = 1 << 32


def arrival_number(revision: int, partition: int) -> int:
    """Return the arrival number of all rows of a partition in the change to `revision`."""
    return revision * _PARTITIONS + partition


def add_arrival_column(frame: Any, arrival: int) -> Any:
    """Return `frame` with the column `ARRIVAL_COLUMN`, unless it has one already.

    Examples
    --------
    >>> import pandas as pd
    >>> add_arrival_column(pd.DataFrame({"k": [3, 5]}), arrival_number(revision=0, partition=7))
       k  dgpuhash arrival
    0  3                 7
    1  5                 7
    """
    if ARRIVAL_COLUMN in frame.columns:
        return frame
    xp = frames_of(frame).xp
    numbered = frame.copy(deep=False)
    numbered[ARRIVAL_COLUMN] = xp.full(len(frame), arrival, dtype=xp.int64)
    return numbered


def combine_semi_joins(query_rows: Any, rows: int, how: str, xp: Any) -> Any:
    """Combine semi-joins: rows with a match in any shard.

    For an anti-join, the rows without a match in all shards.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([2, 0, 2])
    >>> [combine_semi_joins(rows, 4, how, np) for how in ("semi", "anti")]
    [array([0, 2]), array([1, 3])]
    """
    found = xp.zeros(rows, dtype=bool)
    found[query_rows] = True
    return xp.flatnonzero(found if how == "semi" else ~found)


def sort_matches(query_rows: Any, frame: Any) -> tuple[Any, Any]:
    """Sort several shards' matches by query, then by arrival.

    Returns the sorted query rows and the frame, without its arrival column.

    Parameters
    ----------
    query_rows : int64 array
    frame : DataFrame
        The matched rows: shard after shard, each in its own order.
    """
    frames = frames_of(frame)
    xp = frames.xp
    arrived = frames.array(frame[ARRIVAL_COLUMN])
    frame = frame.drop(columns=[ARRIVAL_COLUMN])
    order = xp.argsort(arrived, kind="stable")
    order = order[xp.argsort(query_rows[order], kind="stable")]
    return query_rows[order], frames.take(frame, order)


def check_arrival_column(meta: Any) -> None:
    """Raise ColumnError when `meta` cannot take the arrival column."""
    if ARRIVAL_COLUMN in meta.columns:
        raise ColumnError(
            f"the column name {ARRIVAL_COLUMN!r} is reserved for the index; rename the column"
        )
    if meta.columns.nlevels > 1:
        raise ColumnError(
            "independent shards keep a column of their own beside the rows, and these have columns "
            "of several levels; give the columns flat names, or build with another mode"
        )
