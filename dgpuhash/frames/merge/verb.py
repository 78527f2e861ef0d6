"""Entry point ``dgpuhash.merge``: join two frames with pandas' semantics."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
import pandas as pd

from dgpuhash.errors import KeyTypeError, SpecError
from dgpuhash.frames.dataframes import frames_of, frames_of_type
from dgpuhash.frames.labels import column_labels
from dgpuhash.frames.merge.arguments import (
    JoinArguments,
    MergeOptions,
    Suffixes,
    check_promote,
    join_kind,
    uniques_of,
)
from dgpuhash.frames.merge.distinct import filter_rows
from dgpuhash.frames.merge.keys import JoinKeys, MergeError
from dgpuhash.frames.merge.kinds import (
    PANDAS,
    check_domains,
    from_pandas,
    remedies_of_library,
    sides_of_one_library,
    with_arrow_dtypes,
)
from dgpuhash.frames.merge.result import MergePlan
from dgpuhash.frames.merge.rows import first_repeat, sorted_by_key
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.typing import (
    AnyFrame,
    Build,
    Frame,
    JoinKeysLike,
    MergeHow,
    NamedColumn,
    Promote,
    Validate,
)

if TYPE_CHECKING:
    from distributed import Client


# Merges Dask frames; the room of frames knows nothing of Dask.
_LAZILY = "dgpuhash.distributed.merge.verb:merge_lazily"


class NotAFrameError(KeyTypeError):
    """A side of a merge that is not a frame."""


@overload
def merge(
    left: pd.DataFrame | pd.Series,
    right: pd.DataFrame | pd.Series,
    how: MergeHow = "inner",
    on: JoinKeysLike | None = None,
    left_on: JoinKeysLike | None = None,
    right_on: JoinKeysLike | None = None,
    **options: Unpack[MergeOptions],
) -> pd.DataFrame: ...


@overload
def merge(
    left: Frame | NamedColumn,
    right: Frame | NamedColumn,
    how: MergeHow = "inner",
    on: JoinKeysLike | None = None,
    left_on: JoinKeysLike | None = None,
    right_on: JoinKeysLike | None = None,
    **options: Unpack[MergeOptions],
) -> AnyFrame: ...


@function_translates_memory_errors
def merge(
    left: Frame | NamedColumn,
    right: Frame | NamedColumn,
    how: MergeHow = "inner",
    on: JoinKeysLike | None = None,
    left_on: JoinKeysLike | None = None,
    right_on: JoinKeysLike | None = None,
    left_index: bool = False,
    right_index: bool = False,
    sort: bool = False,
    suffixes: Suffixes = ("_x", "_y"),
    indicator: bool | str = False,
    validate: Validate | None = None,
    *,
    nulls_equal: bool = True,
    columns: Sequence[Hashable] | None = None,
    promote: Promote | None = None,
    build: Build = "auto",
    npartitions: int | None = None,
    client: Client | None = None,
) -> AnyFrame:
    """Return the rows of two frames side by side where their keys are equal.

    Parameters
    ----------
    left, right : DataFrame or named Series, of pandas, cuDF, polars, PyArrow, narwhals or Dask
        Polars and PyArrow frames have no index, and keep their types, such as integers with nulls.
        cuDF frames are merged on their GPU; a frame of the host beside one is copied to it.
        A pandas frame beside a Dask one is one partition; where it is the indexed side and small,
        every worker gets a copy.
    how : {"inner", "left", "right", "outer", "cross", "semi", "anti", "left_anti", "right_anti"}
        Which rows without a match are kept; names of Dask and cuDF are known too. Semi and
        anti return rows of `left` with their labels and columns, those with a match or without one;
        ``"left_anti"`` and ``"right_anti"`` have the columns of both sides, as in pandas.
    on : label, list of labels or arrays, optional
        Columns or index levels of both sides; default: the columns that both have.
    left_on, right_on : label, list of labels or arrays, optional
        Those of each side, where their names differ.
    left_index, right_index : bool
        Whether a side is compared by its index.
    sort : bool
        Whether rows are sorted by their keys, nulls last. Otherwise they have the order of `left`,
        for ``"right"`` that of `right`; ``"outer"`` is always sorted.
    suffixes : pair of str or None
        For columns of the same name on both sides.
    indicator : bool or str
        A column, called ``"_merge"`` or so, that tells on which side a row was found.
    validate : str, optional
        ``"1:1"``, ``"1:m"``, ``"m:1"`` or ``"m:m"``, as in pandas: which keys are unique.
    nulls_equal : bool
        Whether nulls match each other, as in pandas; False as in SQL.
    columns : list of labels, optional
        Columns of `right` to keep beside its keys; default: all.
    promote : {"nullable", "pandas"}, optional
        What integers and booleans become on a side that may lack rows. ``"nullable"``: Int64,
        boolean and so on, from dtypes alone; the default of Dask frames. ``"pandas"``: float64 and
        object where rows lack, of Dask frames everywhere; the default of others. A value is never
        rounded: where a float64 cannot hold an integer, that raises ColumnError.
    build : {"auto", "left", "right", "replicate"}
        Of Dask frames: the side that is indexed on the workers, which the other one's partitions
        ask; rows have the order of that other one. Replicate: the right side, whole on each worker,
        unless its rows without a match are wanted or keys are to be unique.
        Auto: the right side; the left one for ``how="right"``, and for inner merges if it has one
        partition and the right side more; none where both sides have known divisions of their keys.
    npartitions : int, optional
        Of Dask frames: hash ranges of the indexed side; default: the number of workers.
    client : distributed.Client, optional
        Of Dask frames; default: the current one.

    Returns
    -------
    DataFrame
        Of the library of `left`, but cuDF's where one side is. Of pandas and cuDF frames: order and
        labels are those of `pandas.merge`, and dtypes too, as far as cuDF has them. Of a Dask
        frame: a lazy one, with the partitions of the side that asks, in its order, and for outer
        merges one more for each hash range, with rows that nothing matches. Its dtypes do not
        depend on the data: see `promote`.

    Raises
    ------
    MergeError
        When arguments exclude each other, suffixes do not tell columns apart, or `validate` fails.
    ColumnError, ShapeError, KeyTypeError, SpecError
        When a key is missing, arrays have another length, keys are never equal or cannot be keys,
        an argument is unknown, or an integer would be rounded.
    UnsupportedError
        When there is no client for Dask frames, or `build` does not suit `how`; when a frame of
        polars is lazy, an index is named that a side does not have, or Arrow cannot hold a column.
    OutOfMemoryError
        When the result does not fit the memory.

    Examples
    --------
    >>> import dgpuhash, pandas as pd
    >>> planes = pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [55, 182]})
    >>> flights = pd.DataFrame({"flight": [7, 8], "tailnum": ["N2", "N9"]})
    >>> dgpuhash.merge(flights, planes, how="outer", indicator=True)
       flight tailnum  seats      _merge
    0     NaN      N1   55.0  right_only
    1     7.0      N2  182.0        both
    2     8.0      N9    NaN   left_only
    """
    kind = join_kind(how)
    check_promote(promote)
    for name, given in (("left_index", left_index), ("right_index", right_index)):
        if not isinstance(given, bool | np.bool_):
            raise SpecError(f"{name} parameter must be of type bool, not {type(given)}")
    asked = JoinArguments(
        kind, on, left_on, right_on, bool(left_index), bool(right_index), suffixes, indicator,
        nulls_equal, None if columns is None else tuple(column_labels(columns)), promote,
    )  # fmt: skip
    # Of the type: frames look for an attribute among their columns.
    lazy = hasattr(type(left), "__dask_graph__"), hasattr(type(right), "__dask_graph__")
    if any(lazy):
        ours, theirs = (
            side if one else as_frame(with_arrow_dtypes(side))
            for side, one in zip((left, right), lazy, strict=True)
        )
        return resolve_name(_LAZILY)(
            ours, theirs, asked, unique=uniques_of(validate), sort=sort, build=build,
            npartitions=npartitions, client=client,
        )  # fmt: skip
    ours, theirs, library = left, right, PANDAS
    if type(left) is not type(right) or frames_of_type(type(left)) is None:
        ours, theirs, library = sides_of_one_library(
            left, right, left_index=asked.left_index, right_index=asked.right_index,
            suffixes=suffixes,
        )  # fmt: skip
    ours, theirs = as_frame(ours), as_frame(theirs)
    if columns is not None:
        theirs = asked.narrowed(theirs)
    frames = frames_of(ours)
    levels = frames.label_levels(ours), frames.label_levels(theirs)
    if levels[0] != levels[1]:
        raise MergeError(
            f"Not allowed to merge between different levels. ({levels[0]} levels on the left, "
            f"{levels[1]} on the right)"
        )
    keys = asked.keys(ours, theirs)
    if library.library != "pandas":
        check_domains(keys, library)
    if kind in {"semi", "anti"}:
        keys.check_agreement()
        if validate is not None:
            _check(validate, keys)
        kept = filter_rows(ours, keys, kind, nulls_equal=nulls_equal)
        return kept if library is PANDAS else from_pandas(kept, library)
    joined = asked.joined
    plan = MergePlan.of(
        ours, theirs, keys, joined, suffixes=suffixes, indicator=indicator,
        promote=promote or "pandas",
    )  # fmt: skip
    if validate is not None:
        _check(validate, keys)
    pairs = asked.pairs(keys, ours, theirs)
    if sort and keys.pairs and joined != "outer":
        pairs = sorted_by_key(pairs, keys)
    index = plan.index(pairs)
    if kind.endswith("_anti"):
        other, size = ("right", len(theirs)) if joined == "left" else ("left", len(ours))
        kept = pairs.rows(other, size) < 0
        index, pairs = index[kept], pairs.kept(kept, len(ours), len(theirs))
    if library is PANDAS:
        return plan.frame(pairs, index)
    with remedies_of_library(library):
        return from_pandas(plan.frame(pairs, index), library)


def as_frame(given: Any) -> Any:
    """Return a frame unchanged, and a Series as a frame of one column."""
    if isinstance(given, pd.DataFrame):
        return given
    try:
        frames = frames_of(given)
    except KeyTypeError:
        raise NotAFrameError(
            f"Can only merge Series or DataFrame objects, a {type(given)} was passed"
        ) from None
    if given.ndim == 2:
        return given
    if given.name is None:
        raise MergeError("Cannot merge a Series without a name")
    return frames.to_frame(given)


def _check(validate: str, keys: JoinKeys) -> None:
    """Raise MergeError if keys that must be unique repeat."""
    wanted = uniques_of(validate) if keys.pairs else (False, False)
    places = [place for place, unique in enumerate(wanted) if unique]
    doubled = [place for place in places if first_repeat(keys.sides[place]) >= 0]
    if not doubled:
        return
    many = {(True, True): "one-to-one", (True, False): "one-to-many", (False, True): "many-to-one"}
    which = (
        "either left or right dataset"
        if len(doubled) == 2
        else f"{('left', 'right')[doubled[0]]} dataset"
    )
    told = "".join(_duplicates(place, keys) for place in doubled)
    end = "." if len(doubled) == 2 else ""
    line = "\n" if wanted == (False, True) else ""
    raise MergeError(
        f"Merge keys are not unique in {which}; not a {many[wanted]} merge{end}{line}{told}"
    )


def _duplicates(place: int, keys: JoinKeys) -> str:
    """Return the first rows of a side with a repeated key, as text."""
    frame: Any = keys.frames[place]
    side = ("left", "right")[place]
    columns = [getattr(pair, side) for pair in keys.pairs]
    frame, *columns = map(frames_of(frame).to_pandas, (frame, *columns))
    rows: list[int] = []
    seen: set[Any] = set()
    for row, key in enumerate(frame.itertuples(index=False, name=None)):
        if key in seen:
            rows.append(row)
        seen.add(key)
        if len(rows) == 5:
            break
    told = pd.DataFrame({place: column.iloc[rows] for place, column in enumerate(columns)})
    labels = [getattr(pair, f"{side}_label") for pair in keys.pairs]
    told.columns = [0 if label is None else label for label in labels]
    return f"\nDuplicates in {side}:\n {told.to_string(index=False)} ..."
