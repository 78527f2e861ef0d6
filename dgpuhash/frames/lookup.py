"""Lookup: single keys and arrays of keys against an index."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dgpuhash.errors import ColumnError, ShapeError
from dgpuhash.frames.assembly import assemble, join_columns, moved_columns
from dgpuhash.frames.dataframes import frames_of, make_frame
from dgpuhash.frames.keys import KeyEncoder, key_names

__all__ = ["Lookup", "keys_frame", "lookup_rows"]


@dataclass(frozen=True, slots=True)
class Lookup:
    """The answer to a lookup.

    Attributes
    ----------
    frame : DataFrame
        The left merge of the keys with the index: the key columns as asked, then the stored
        columns, null where a key is not stored. In input order; one row a key when keys are
        unique, else all rows of a key in insertion order. pandas, or cuDF for GPU keys.
    query_rows : int64 array
        For each row of `frame`, the position of its key in the input.
    found : bool array
        For each key of the input, whether it is stored.
    """

    frame: Any
    query_rows: Any
    found: Any

    def __len__(self) -> int:
        return len(self.frame)

    def arrays(self) -> dict[Hashable, Any]:
        """The columns of `frame` by name: NumPy arrays, and CuPy ones for numbers in cuDF."""
        frames = frames_of(self.frame)
        return {label: frames.array(self.frame[label]) for label in self.frame.columns}


def keys_frame(keys: Any, encoder: KeyEncoder, index_meta: Any) -> Any:
    """Keys in any form as a frame of the key columns.

    Parameters
    ----------
    keys : scalar, list, array, Series, DataFrame, list of tuples, or mapping of arrays
        Scalars, lists, arrays and Series serve an index on one column; tuples have one value for
        each key column.
    encoder : KeyEncoder
        That of the index.
    index_meta : DataFrame
        An empty frame like the index's rows; lists and scalars become frames of its library.

    Raises
    ------
    ColumnError
        When a key column is missing.
    ShapeError
        When keys have not one value for each key column.
    """
    names = encoder.names
    if hasattr(keys, "iloc") and hasattr(keys, "columns"):
        return keys[list(key_names(keys, list(names)))]
    if isinstance(keys, Mapping):
        if not set(names) <= set(keys):
            raise ColumnError(f"keys name {list(keys)!r}; the index is on {list(names)!r}")
        return make_frame({name: keys[name] for name in names}, index_meta)
    if getattr(keys, "ndim", 1) == 0:
        keys = keys[()]
    if (
        isinstance(keys, str | bytes)
        or not hasattr(keys, "__len__")
        or (isinstance(keys, tuple) and len(names) > 1)
    ):
        keys = [keys]
    if len(keys) == 0 and not hasattr(keys, "dtype"):
        return index_meta[list(names)]
    if len(names) == 1:
        return make_frame({names[0]: keys if hasattr(keys, "dtype") else list(keys)}, index_meta)
    rows = list(keys)
    if any(not isinstance(row, tuple | list) or len(row) != len(names) for row in rows):
        raise ShapeError(
            f"the index is on {list(names)!r}; give a DataFrame with these columns, or for each "
            f"key one tuple of {len(names)} values"
        )
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return make_frame({name: list(column) for name, column in columns}, index_meta)


def lookup_rows(
    keys: Any,
    encoder: KeyEncoder,
    index_meta: Any,
    match: Callable[[Any, Sequence[Hashable]], tuple[Any, Any]],
) -> Lookup:
    """Answer a lookup.

    Parameters
    ----------
    keys
        As `keys_frame` takes them.
    encoder : KeyEncoder
    index_meta : DataFrame
        An empty frame like the index's rows.
    match : callable
        From a frame of the key columns and the stored columns wanted to query rows and matched
        rows: `FrameIndex.match`, or the distributed one.
    """
    asked = keys_frame(keys, encoder, index_meta)
    names = join_columns(asked, encoder)
    moved = moved_columns(index_meta, encoder, names)
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
    )
    counts = xp.bincount(query_rows, minlength=len(asked))[: len(asked)]
    ends = xp.cumsum(xp.maximum(counts, 1))
    positions = xp.searchsorted(ends, xp.arange(len(frame)), side="right")
    return Lookup(frame, positions.astype(xp.int64), counts > 0)
