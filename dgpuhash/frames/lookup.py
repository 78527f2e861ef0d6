"""Lookup of keys in an index: left merge, query rows and a found mask."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.keys.encoding import KeyEncoder
from dgpuhash.frames.merge_result import assemble, join_columns, needed_columns
from dgpuhash.typing import AnyFrame, Array

__all__ = ["Lookup", "lookup_rows"]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Result of `FrameIndex.find`: merged rows, query rows and a found mask.

    Attributes
    ----------
    frame : DataFrame
        The left merge of the keys with the index: the key columns as given, then the stored
        columns, null where a key is not stored. In input order; one row per key when keys are
        unique, else all rows of a key in insertion order. pandas, or cuDF for GPU keys.
    query_rows : int64 array
        For each row of `frame`, the position of its key in the input.
    found : bool array
        For each key of the input, whether it is stored.

    Examples
    --------
    >>> import pandas as pd
    >>> from dgpuhash import FrameIndex
    >>> visits = pd.DataFrame({"who": ["Ada", "Bo", "Ada"], "day": [1, 1, 2]})
    >>> answer = FrameIndex.build(visits, on="who").find(pd.DataFrame({"who": ["Eve", "Ada"]}))
    >>> answer.frame
       who  day
    0  Eve  NaN
    1  Ada  1.0
    2  Ada  2.0
    >>> answer.query_rows.tolist(), answer.found.tolist()
    ([0, 1, 1], [False, True])
    """

    frame: AnyFrame
    query_rows: Array
    found: Array


def lookup_rows(
    asked: Any,
    encoder: KeyEncoder,
    index_meta: Any,
    match: Callable[[Any, Sequence[Hashable]], tuple[Any, Any]],
    columns: Sequence[Hashable] | None = None,
) -> Lookup:
    """Return the `Lookup` of the keys in frame `asked`.

    Parameters
    ----------
    asked : DataFrame
        The key columns.
    encoder : KeyEncoder
    index_meta : DataFrame
        An empty frame like the index's rows.
    match : callable
        Takes a frame of the key columns and the wanted stored columns; returns query rows and
        matched rows. `FrameIndex.match`, or the distributed index's.
    columns : list of labels, optional
        The columns of the left merge to return; default: all.
    """
    names = join_columns(asked, encoder)
    moved = needed_columns(index_meta, encoder, names)
    query_rows, rows = match(asked, moved)
    frames = frames_of(asked)
    xp = frames.xp
    query_rows = xp.asarray(query_rows, dtype=xp.int64)
    frame = assemble(
        asked,
        query_rows,
        rows,
        index_meta=index_meta,
        left_on=names,
        right_on=names,
        how="left",
        alone=encoder.is_untyped,
    )
    counts = xp.bincount(query_rows, minlength=len(asked))[: len(asked)]
    positions = xp.arange(len(frame))
    if len(frame) > len(asked):
        positions = xp.searchsorted(xp.cumsum(xp.maximum(counts, 1)), positions, side="right")
    wanted = frame if columns is None else frame[list(columns)]
    return Lookup(wanted, positions.astype(xp.int64, copy=False), counts > 0)
