"""Merge result from the left frame, the matched index rows and query rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from dgpuhash.errors import ColumnError, KeyTypeError, SpecError, UnsupportedError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.dataframes.pandas_checks import check_takeable
from dgpuhash.frames.key_columns import check_comparable
from dgpuhash.frames.keys.encoding import KeyEncoder
from dgpuhash.frames.labels import key_names, refuse_nulls, stored_labels
from dgpuhash.frames.matches import sort_by_query_row, with_unmatched
from dgpuhash.tables.select import gather_rows

__all__ = [
    "assemble",
    "assemble_arrays",
    "check_how",
    "join_columns",
    "merge_meta",
    "needed_columns",
]

Suffixes = tuple[str | None, str | None]
HOWS = ("inner", "left", "semi", "anti")
# Joins that also return rows of the index that nothing matches.
ALL_ROWS = ("right", "outer")
# Names of Dask and cuDF.
_ALIASES = {"leftsemi": "semi", "leftanti": "anti"}
DEFAULT_SUFFIXES: Suffixes = ("_x", "_y")
# Metas of inner merges by the kinds of both sides, as each takes a few milliseconds.
_metas: dict[tuple[Any, ...] | None, Any] = {}
_MOST_METAS = 64


def check_how(how: str, *, all_rows: bool = False) -> str:
    """Return the join type of this name, when an index answers it.

    `all_rows` tells whether it also answers right and outer joins.

    Raises
    ------
    UnsupportedError
        For other join types; the message tells how to get them.
    """
    how = _ALIASES.get(how, how) if isinstance(how, str) else how
    if how in HOWS:
        return how
    if how in ALL_ROWS:
        if all_rows:
            return how
        raise UnsupportedError(
            f"how={how!r} also returns rows of the index that nothing matched; get it in two "
            "steps: merge with how='left' (or 'inner'), then build an index of the left keys, "
            "merge the indexed frame against that with how='anti', and concatenate the two"
        )
    known = ", ".join(map(repr, (*HOWS, *ALL_ROWS)))
    raise UnsupportedError(
        f"how={how!r}; use one of {known}; for others, dgpuhash.merge(left, right, how=…)"
    )


def join_columns(
    left: Any,
    encoder: KeyEncoder,
    on: Hashable | Sequence[Hashable] | None = None,
    left_on: Hashable | Sequence[Hashable] | None = None,
) -> tuple[Hashable, ...]:
    """Return the columns of `left` to compare with the index's key columns.

    They are in the order of the index's key columns.

    Parameters
    ----------
    left : DataFrame
        Or an empty frame like it.
    encoder : KeyEncoder
    on : label or list of labels, optional
        Columns of the same names on both sides: exactly the index's key columns, in any order.
    left_on : label or list of labels, optional
        Columns of `left`, one for each key column of the index. Default: the index's key columns.

    Raises
    ------
    ColumnError
        When columns are missing, their number is wrong, both `on` and `left_on` are given, or
        pandas cannot gather rows of a column.
    KeyTypeError
        When a column can never equal its index column.

    Examples
    --------
    >>> import pandas as pd
    >>> encoder = KeyEncoder.for_frame(pd.DataFrame({"tailnum": ["N1"]}), on="tailnum")
    >>> join_columns(pd.DataFrame({"plane": ["N1"]}), encoder, left_on="plane")
    ('plane',)
    """
    if on is not None and left_on is not None:
        raise ColumnError("on= and left_on= exclude each other; give one of them")
    if left_on is None:
        names = key_names(left, list(encoder.names) if on is None else on)
        if set(names) != set(encoder.names):
            raise ColumnError(
                f"on={list(names)!r}, but the index is on {list(encoder.names)!r}; name the "
                "columns of the left frame with left_on=, or build an index on those columns"
            )
        names = encoder.names
    else:
        names = key_names(left, left_on)
    if len(names) != len(encoder.names):
        raise ColumnError(
            f"left_on has {len(names)} columns {list(names)!r}, the index {len(encoder.names)}, "
            f"{list(encoder.names)!r}; give one column for each, in that order"
        )
    refuse_nulls(names)
    check_takeable(left)
    frames = frames_of(left)
    for name, type_ in zip(names, encoder.types, strict=True):
        column = left[name]
        told = column[:0] if frames.is_typed(column) else column
        check_comparable(name, type_, frames.key_column(told, name).type)
    return names


def needed_columns(
    index_meta: Any,
    encoder: KeyEncoder,
    left_on: Sequence[Hashable],
    columns: Sequence[Hashable] | None = None,
) -> list[Hashable]:
    """Return the columns of the index that a merge result needs, in order.

    Leaves out a key column with the same name on both sides, since the left one stands for both.

    Raises
    ------
    ColumnError
        When `columns` names one that the index does not hold.

    Examples
    --------
    >>> import pandas as pd
    >>> planes = pd.DataFrame({"tailnum": ["N1"], "seats": [55], "year": [1999]})
    >>> encoder = KeyEncoder.for_frame(planes, on="tailnum")
    >>> needed_columns(planes, encoder, ["tailnum"], columns=["year"])
    ['year']
    >>> needed_columns(planes, encoder, ["plane"], columns=["year"])
    ['tailnum', 'year']
    """
    there = list(index_meta)
    asked = there if columns is None else stored_labels(columns, index_meta)
    shared = {name for name, other in zip(encoder.names, left_on, strict=True) if name == other}
    wanted = {*asked, *encoder.names}
    return [label for label in there if label in wanted - shared]


def merge_meta(
    left_meta: Any,
    index_meta: Any,
    *,
    left_on: Sequence[Hashable],
    right_on: Sequence[Hashable],
    how: str = "inner",
    suffixes: Suffixes = DEFAULT_SUFFIXES,
) -> Any:
    """Return the empty merge result (columns and dtypes) of frames like these.

    The dtypes are those of a merge in which every row has a match, as in Dask's own merge meta:
    an ``int64`` column of a left merge stays ``int64`` here. As in pandas and Dask, a partition
    with an unmatched row has that column as ``float64`` (and ``bool`` as ``object``), so that the
    computed whole equals pandas' result. Nullable and Arrow dtypes are not promoted.

    Parameters
    ----------
    left_meta, index_meta : DataFrame
        Frames with the columns of the left side and of the index (keys included); no row is read.
    left_on, right_on : sequence of labels
        The key columns on each side.
    how : {"inner", "left", "semi", "anti"}
    suffixes : tuple
        For columns of the same name on both sides, as in `pandas.DataFrame.merge`.

    Raises
    ------
    ColumnError
        When columns overlap and the suffixes do not tell them apart.

    Examples
    --------
    >>> import pandas as pd
    >>> left = pd.DataFrame({"k": [1], "x": [0.5]})
    >>> right = pd.DataFrame({"k": [1], "x": ["a"]})
    >>> merge_meta(left, right, left_on=["k"], right_on=["k"]).dtypes
    k        int64
    x_x    float64
    x_y        str
    dtype: object
    """
    if check_how(how) in {"semi", "anti"}:
        return left_meta.iloc[:0]
    return _inner_meta(left_meta, index_meta, left_on, right_on, suffixes)


def assemble(
    left: Any,
    query_rows: Any,
    right: Any,
    *,
    index_meta: Any,
    left_on: Sequence[Hashable],
    right_on: Sequence[Hashable],
    how: str = "inner",
    suffixes: Suffixes = DEFAULT_SUFFIXES,
    meta: Any = None,
    alone: bool = False,
) -> Any:
    """Return the merge result, equal to that of `pandas.DataFrame.merge`.

    Parameters
    ----------
    left : DataFrame
        The probe side, or one partition of it.
    query_rows : int64 array
        For each row of `right` the row of `left` that it matched; in any order across rows of
        `left`, in the index's order for one row of `left`. For semi and anti: the rows to keep.
    right : DataFrame or None
        The matched rows, with the columns that `needed_columns` returns (ignored for semi and
        anti).
    index_meta : DataFrame
        An empty frame like the index's rows, with the key columns and those in `right`.
    left_on, right_on, how, suffixes
        As in `merge_meta`.
    meta : DataFrame, optional
        The result of `merge_meta` for the inner merge of frames like these, if it is known.
    alone : bool
        Whether only one side has rows; pandas then compares no keys, and their types may differ.

    Returns
    -------
    DataFrame
        Rows in the order of `left`, numbered from 0; for semi and anti, rows of `left` with their
        own labels. Key columns have the dtype that pandas gives them where rows match, so a
        partition without matches has the same dtypes as the others.

    Examples
    --------
    >>> import pandas as pd
    >>> left = pd.DataFrame({"k": ["a", "b"]})
    >>> right = pd.DataFrame({"k": ["b"], "v": [1.5]})
    >>> assemble(left, [1], right[["v"]], index_meta=right[:0], left_on=["k"], right_on=["k"],
    ...          how="left")
       k    v
    0  a  NaN
    1  b  1.5
    """
    frames = frames_of(left)
    xp = frames.xp
    query_rows = xp.asarray(query_rows, dtype=xp.int64)
    if check_how(how) in {"semi", "anti"}:
        return frames.keep(left, sort_by_query_row(query_rows, len(left), xp)[0])
    right_rows = xp.arange(len(query_rows), dtype=xp.int64)
    if len(query_rows) > 1 and bool((query_rows[1:] < query_rows[:-1]).any()):
        query_rows, right_rows, _ = sort_by_query_row(query_rows, len(left), xp)
    if how == "left":
        owners, right_rows = with_unmatched(len(left), query_rows, right_rows, xp)
        query_rows = xp.arange(len(left), dtype=xp.int64) if owners is None else owners
    wanted = {*right_on, *right}
    ordered = [label for label in index_meta if label in wanted]
    if meta is None:
        of_types = _merge_meta_untyped if alone else _inner_meta
        meta = of_types(left, index_meta[ordered], left_on, right_on, suffixes)
    shared = {name for name, other in zip(right_on, left_on, strict=True) if name == other}
    moved = right[[label for label in ordered if label not in shared]]
    given, stored = frames.dtypes(left), frames.dtypes(moved)
    if frames.dtypes(meta) == [*given, *stored]:
        ours, theirs = frames.arrays(left, given), frames.arrays(moved, stored)
        full = how == "inner" or not len(right_rows) or int(right_rows.min()) >= 0
        if ours is not None and theirs is not None and full:
            matched = [gather_rows(array, right_rows) for array in theirs]
            return assemble_arrays(ours, query_rows, matched, meta)
    kept = frames.take(left, query_rows)
    dtypes = dict(zip(left, frames.dtypes(meta), strict=False))
    for label in left_on:
        if kept[label].dtype != dtypes[label]:
            try:
                kept[label] = kept[label].astype(dtypes[label])
            except ValueError as error:
                raise KeyTypeError(
                    f"key column {label!r} is {kept[label].dtype}, and becomes {dtypes[label]} by "
                    f"the merge ({error}); for its nulls, convert it with .astype('Int64')"
                ) from error
    found = frames.take_or_null(moved, right_rows)
    return frames.beside(kept, found, meta.columns)


def assemble_arrays(
    left: Sequence[Any], query_rows: Any, right: Sequence[Any], meta: Any, *, whole: Any = None
) -> Any:
    """Return the merge result from null-free columns given as arrays.

    No row of the result is unmatched.

    Parameters
    ----------
    left : sequence of arrays
        All columns, as `Frames.arrays` gives them.
    query_rows : int array
        For each row of the result its row of `left`, ascending; ignored when `whole` is given.
    right : sequence of arrays
        The matched rows, in the order of `query_rows`.
    meta : DataFrame
        The result of `merge_meta`; its dtypes are those of the arrays.
    whole : DataFrame, optional
        The frame of `left`, given when `query_rows` are all its rows, each once.
    """
    frames = frames_of(meta)
    if whole is not None:
        return frames.widened(whole, left, right, meta)
    return frames.from_arrays([*(gather_rows(array, query_rows) for array in left), *right], meta)


def _inner_meta(
    left: Any,
    right: Any,
    left_on: Sequence[Hashable],
    right_on: Sequence[Hashable],
    suffixes: Suffixes,
) -> Any:
    if not isinstance(suffixes, tuple | list) or len(suffixes) != 2:
        raise SpecError(f"suffixes={suffixes!r}; give a pair of strings, such as ('_left', None)")
    frames, pair = frames_of(left), (suffixes[0], suffixes[1])
    told = [_kind_of(left), _kind_of(right)]
    known = None if None in told else (*told, tuple(left_on), tuple(right_on), pair)
    if known in _metas:
        # The caller may change it.
        return _metas[known].copy()
    made = frames.merge_meta(left.iloc[:0], right.iloc[:0], left_on, right_on, pair)
    if known is not None:
        if len(_metas) >= _MOST_METAS:
            _metas.clear()
        _metas[known] = made.copy()
    return made


def _kind_of(frame: Any) -> tuple[Any, ...] | None:
    """Return what of a frame decides about the meta of its merges, None if it is not hashable.

    Equal dtypes of categories may have them in another order.
    """
    dtypes = frames_of(frame).dtypes(frame)
    if frame.attrs or any(hasattr(dtype, "categories") for dtype in dtypes):
        return None
    labels = frame.columns
    return type(frame), type(labels), tuple(labels.names), tuple(labels), *dtypes


def _merge_meta_untyped(
    left: Any,
    right: Any,
    left_on: Sequence[Hashable],
    right_on: Sequence[Hashable],
    suffixes: Suffixes,
) -> Any:
    """Return the merge meta when only one side has rows.

    As `_inner_meta`, but key columns whose types cannot be merged keep their dtypes.
    """
    try:
        return _inner_meta(left, right, left_on, right_on, suffixes)
    except KeyTypeError:
        alike = left.iloc[:0].reset_index(drop=True)
        for label, other in zip(left_on, right_on, strict=True):
            alike[label] = right[other].iloc[:0].reset_index(drop=True)
        meta = _inner_meta(alike, right, left_on, right_on, suffixes)
        given = left.iloc[:0].reset_index(drop=True)
        return frames_of(left).beside(given, meta.iloc[:, given.shape[1] :], meta.columns)
