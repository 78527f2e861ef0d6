"""Gather rows of pandas frames, and put two frames side by side as pandas' merge does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.errors import ColumnError, ShapeError
from dgpuhash.frames.dataframes.pandas_agreement import agree
from dgpuhash.frames.dataframes.pandas_casts import cast_exactly, is_unknown
from dgpuhash.frames.dataframes.promotion import (
    check_promoted,
    coalesce_exactly,
    first_rounded,
    nullable_frame,
    nullable_index,
    values_of_codes,
)

if TYPE_CHECKING:
    from dgpuhash.frames.dataframes.base import JoinedSide
    from dgpuhash.frames.merge.keys import KeyPair

_OBJECT = np.dtype(object)
_FEW_ROWS = 2**12
_FLOAT = np.dtype(np.float64)


class TakenRows:
    """Row positions to gather from columns; -1 gives a null.

    Parameters
    ----------
    rows : array of integers
    nulls : bool
        Whether there may be a -1.
    rounded : list, optional
        Gets the labels of columns of which integers were rounded to float64, as by pandas; without
        it they raise ColumnError.
    remedy : str, optional
        What the error advises, beside converting the column.

    Examples
    --------
    >>> TakenRows(np.array([1, -1]), nulls=True).of(pd.Series([5, 6]))
    array([ 6., nan])
    """

    def __init__(
        self, rows: Any, *, nulls: bool, rounded: list[Any] | None = None, remedy: str = ""
    ) -> None:
        self._rows, self._rounded, self._remedy = np.asarray(rows, np.intp), rounded, remedy
        self._absent: Any = None
        self._mask: Any = None
        if nulls and len(self._rows) and self._rows.min() < 0:
            self._absent = self._rows < 0

    def frame(self, frame: Any) -> Any:
        """Return these rows of a frame, numbered from 0, without a copy for all rows in order."""
        index = pd.RangeIndex(len(self._rows))
        if len(frame) == len(index) and (self._rows == np.arange(len(index))).all():
            return frame.set_axis(index, axis=0)
        if len(index) <= _FEW_ROWS:
            # By blocks of columns: of few rows most of the time is that of each column.
            made = self._by_blocks(frame)
            made.index = index
            return made
        columns = {}
        for place, (_, column) in enumerate(frame.items()):
            made = self.of(column)
            # A frame would make texts of objects.
            columns[place] = pd.Series(made, index, object) if made.dtype == object else made
        made = pd.DataFrame(columns, index=index, copy=False)
        made.columns = frame.columns
        return made

    def _by_blocks(self, frame: Any) -> Any:
        if not frame.flags.allows_duplicate_labels:
            frame = frame.set_flags(allows_duplicate_labels=True)
        if self._absent is None:
            return frame.take(self._rows)
        for label, column in frame.items():
            dtype = column.dtype
            if isinstance(dtype, np.dtype) and dtype.kind in "iu":
                self._check(column.to_numpy(), label)
            elif isinstance(dtype, pd.IntervalDtype | pd.SparseDtype):
                self._check_others(column)
        positions = pd.RangeIndex(len(frame))
        if not positions.equals(frame.index):
            frame = frame.set_axis(positions, axis=0)
        return frame.reindex(self._rows)

    def of(self, column: Any) -> Any:
        """Return these rows of a Series as an array in pandas' dtype for them."""
        dtype = column.dtype
        if isinstance(dtype, np.dtype):
            return self._of_numpy(column.to_numpy(), column.name)
        if isinstance(dtype, pd.ArrowDtype):
            return pd.arrays.ArrowExtensionArray(self._of_arrow(column))
        if isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow":
            return pd.array(self._of_arrow(column), dtype)
        made = column.array.take(self._rows, allow_fill=self._absent is not None)
        if made.dtype != dtype:
            self._check_others(column)
        return made

    def _check(self, values: Any, label: Any, cast: str = "") -> None:
        """Raise if a float64 cannot represent an integer of the rows."""
        if values.dtype.kind not in "iu" or first_rounded(values, _FLOAT) is None:
            return
        taken = values.take(self._rows[~self._absent])
        remedy = "" if cast else self._remedy
        check_promoted(taken, _FLOAT, label, cast=cast, remedy=remedy, rounded=self._rounded)

    def _check_others(self, column: Any) -> None:
        """Raise if a float64 cannot represent an integer of intervals or sparse columns."""
        array = column.array
        if isinstance(array, pd.arrays.IntervalArray):
            for ends in (array.left, array.right):
                self._check(ends.to_numpy(), column.name, "object")
        elif isinstance(array, pd.arrays.SparseArray):
            self._check(np.asarray(array), column.name, "object")

    def _of_numpy(self, values: Any, label: Any) -> Any:
        if self._absent is None:
            return values.take(self._rows)
        kind = values.dtype.kind
        if kind not in "iufmM":
            return pd.api.extensions.take(values, self._rows, allow_fill=True)
        if kind in "iu":
            self._check(values, label)
        padded = np.empty(len(values) + 1, np.float64 if kind in "iu" else values.dtype)
        padded[:-1], padded[-1] = values, "NaT" if kind in "mM" else np.nan
        # -1 is the last place.
        return padded.take(self._rows, mode="wrap")

    def _of_arrow(self, column: Any) -> Any:
        array = column.array.__arrow_array__()
        if 3 * len(self._rows) < 2 * len(array) or not self._ascend:
            return array.take(self._numbers)
        if self._mask is None:
            mask = np.zeros(len(array), bool)
            mask[self._rows] = True
            self._mask = pa.array(mask)
        # Most of the rows, in order, are copied in runs.
        return array.filter(self._mask)

    @functools.cached_property
    def _ascend(self) -> bool:
        return self._absent is None and bool((self._rows[1:] > self._rows[:-1]).all())

    @functools.cached_property
    def _numbers(self) -> Any:
        return pa.array(self._rows, mask=self._absent)


def take_rows(column: Any, rows: Any) -> pd.Series:
    """Return a copy of rows of a Series, numbered from 0.

    Examples
    --------
    >>> take_rows(pd.Series([5, 6]), np.array([1, 1])).tolist()
    [6, 6]
    """
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biufc":
        return pd.Series(column.to_numpy().take(rows), copy=False)
    return pd.Series(column.array.take(rows), dtype=column.dtype, copy=False)


def numbered_series(values: Any) -> Any:
    """Return a Series, an index or an array as a Series numbered from 0."""
    if type(values) is pd.Series and type(values.index) is pd.RangeIndex:
        labels = values.index
        if labels.start == 0 and labels.step == 1:
            return values
    array = values.array if isinstance(values, pd.Series | pd.Index) else values
    if isinstance(array, np.ndarray) and array.ndim != 1:
        raise ShapeError(f"a key has {array.ndim} dimensions; give a one-dimensional array")
    if type(array) is pd.arrays.NumpyExtensionArray:
        array = array.to_numpy()
    # A Series of objects stays one, even if all of them are texts.
    dtype = object if isinstance(array, np.ndarray) and array.dtype == object else None
    return pd.Series(array, dtype=dtype, copy=False)


def labels_of(values: Any, name: Hashable | None, *, guess: bool = False) -> pd.Index:
    """Return an index of an array; objects stay objects unless pandas may `guess` their type.

    A guess that would round integers is none.
    """
    if not guess:
        return pd.Index(values, dtype=values.dtype, name=name, copy=False, tupleize_cols=False)
    made = pd.Index(values, name=name, copy=False, tupleize_cols=False)
    rounds = values.dtype == _OBJECT and made.dtype.kind == "f"
    if rounds and any(isinstance(each, int) and int(float(each)) != each for each in values):
        return labels_of(values, name)
    return made


def index_of(
    levels: Sequence[Any], names: Sequence[Hashable | None], coded: Callable[..., Any], *,
    guess: bool,
) -> Any:  # fmt: skip
    """Return an index of one or several levels; see `Frames.index_of`."""
    if len(levels) == 1:
        return labels_of(levels[0].array, names[0], guess=guess)
    found = [coded(level, guess=guess) for level in levels]
    return pd.MultiIndex(
        levels=[level for level, _ in found],
        codes=[codes for _, codes in found],
        names=list(names),
        verify_integrity=False,
    )


def without(frame: Any, labels: Sequence[Hashable]) -> Any:
    """Return a frame without some columns and index levels."""
    columns = [label for label in labels if label in frame.columns]
    levels = [label for label in labels if label not in columns]
    if columns:
        kept = np.ones(frame.shape[1], bool)
        for label in columns:
            kept[frame.columns.get_loc(label)] = False
        frame = frame.take(kept.nonzero()[0], axis=1)
    if levels:
        if frame.index.nlevels == len(levels):
            frame = frame.set_axis(pd.RangeIndex(len(frame)), axis=0)
        else:
            frame = frame.set_axis(frame.index.droplevel(levels), axis=0)
    return frame


def with_dtype(frame: Any, label: Hashable, dtype: Any) -> Any:
    """Return a frame with another dtype of a column, if it has the column."""
    if label is None or label not in frame.columns or frame[label].dtype == dtype:
        return frame
    made, column = frame.copy(deep=False), frame[label]
    if isinstance(column.dtype, pd.CategoricalDtype) and dtype.kind in "biu":
        column = values_of_codes(column, nullable=not isinstance(dtype, np.dtype))
    made[label] = column.astype(dtype)
    return made


def with_key_dtypes(frame: Any, like: Any, pairs: Sequence[KeyPair]) -> Any:
    """Return a frame with the key dtypes of another one."""
    for label in {pair.name for pair in pairs}:
        if label in like.columns and frame[label].dtype != like[label].dtype and any(
            agree(pair) for pair in pairs if pair.name == label
        ):  # fmt: skip
            frame = frame.copy(deep=False)
            column, wanted = frame[label], like[label].dtype
            plain = not isinstance(wanted, pd.CategoricalDtype) and wanted != _OBJECT
            if plain and isinstance(column.dtype, pd.CategoricalDtype):
                column = values_of_codes(column, nullable=True)
            if column.dtype != wanted:
                column = _with_values(column, wanted, f"column {label!r}")
            frame[label] = column
    return frame


def with_dtypes(frame: Any, like: Any, *, kept: bool) -> Any:
    """Return a result with the dtypes of another; see `Frames.with_dtypes`."""
    for place, (own, wanted) in enumerate(zip(frame.dtypes, like.dtypes, strict=True)):
        if own != wanted and not isinstance(wanted, pd.CategoricalDtype):
            # As a Series: of an array of objects pandas makes texts.
            column = frame.iloc[:, place]
            if not kept or cast_exactly(column, wanted) is not None:
                frame.isetitem(place, _with_values(column, wanted, f"column {column.name!r}"))
    index: Any = frame.index
    wanted = like.index.dtype
    if index.nlevels == 1 and index.dtype != wanted:
        if not isinstance(wanted, pd.CategoricalDtype):
            labels = _with_values(index.to_series(), wanted, f"index {index.name!r}")
            frame.index = labels_of(labels.array, index.name)
        elif is_unknown(wanted) and not isinstance(index.dtype, pd.CategoricalDtype):
            # Of two sides' categories, which are others.
            frame.index = pd.CategoricalIndex(index)
    return frame


def _with_values(column: pd.Series, wanted: Any, what: str) -> pd.Series:
    if wanted == np.float64 and column.dtype.kind in "iu":
        check_promoted(column.array, wanted, column.name, remedy="give promote='nullable'")
    made = column.astype(wanted) if wanted == _OBJECT else cast_exactly(column, wanted)
    if made is None:
        raise cannot_hold(what, column.dtype, wanted)
    return made


def cannot_hold(what: str, own: Any, wanted: Any) -> ColumnError:
    """Return the error for a partition whose values do not fit the promised dtype."""
    return ColumnError(
        f"{what} of a partition is {own}, but Dask's meta says {wanted}, which cannot represent "
        f"its values; give the frame its true dtypes (meta=, .astype)"
    )


def nullable(frame: Any, but: Collection[Hashable] = (), levels: Any = None) -> Any:
    """Return a frame whose integers and booleans can hold nulls; see `Frames.nullable`."""
    made = nullable_frame(frame, but)
    return made if levels is None else made.set_axis(nullable_index(made.index, levels), axis=0)


def null_labels(like: pd.Index, n: int) -> pd.Index:
    """Return null index labels of a given number and dtype."""
    nulls = numbered_series(like[:0]).reindex(np.full(n, -1))
    return labels_of(nulls.array, like.name)


def take_labels(
    side: JoinedSide, other: JoinedSide, promote: str, rounded: list[Any] | None
) -> pd.Index:
    """Return the labels of one side's rows; see `Frames.take_labels`."""
    index, rows = side.frame.index, side.rows
    if rows is None:
        return index
    if not (side.stays or len(index)):
        # Without any, pandas takes those of the other side.
        return other.frame.index if other.rows is None else other.frame.index.take(other.rows)
    several = isinstance(index, pd.MultiIndex) or isinstance(other.frame.index, pd.MultiIndex)
    if several or not side.lacks:
        return index.take(rows)
    taken = TakenRows(rows, nulls=True, rounded=rounded).of(numbered_series(index))
    return labels_of(taken, index.name)


def take_level(side: JoinedSide, name: Hashable, promote: str, rounded: list[Any] | None) -> Any:
    """Return one index level of a side's rows; null for absent rows."""
    taken = TakenRows(side.all_rows(np), nulls=True, rounded=rounded)
    return taken.of(numbered_series(side.frame.index.get_level_values(name)))


def complete_labels(side: JoinedSide, pairs: Sequence[KeyPair], name: str, how: str) -> pd.Index:
    """Return the index labels of a side without absent rows; see `Frames.complete_labels`."""
    index: Any = side.frame.index
    return index if side.rows is None else index.take(side.rows)


def one_key(
    left: Any, right: Any, sides: Sequence[JoinedSide], how: str, dtype: Any, label: Hashable,
    rounded: list[Any] | None, *, of_levels: bool = False,
) -> pd.Series:  # fmt: skip
    """Return a key for each row, the left one if present; see `Frames.one_key`."""
    ours, theirs = (side.all_rows(np) for side in sides)
    if of_levels:
        return coalesce_exactly(left, right, ours, theirs, label, rounded)
    gone = ours < 0
    if gone.all() and (len(ours) or sides[0].rows is not None):
        return take_rows(right, theirs)
    if not gone.any() and len(ours) and (theirs < 0).all():
        return take_rows(left, ours)
    kinds = left.dtype, right.dtype
    if kinds[0] != kinds[1] and all(isinstance(each, pd.DatetimeTZDtype) for each in kinds):
        right = right.dt.tz_convert(kinds[0].tz)
    plain = isinstance(left.dtype, np.dtype) and left.dtype.kind in "biufmM"
    if plain and left.dtype == right.dtype and len(left):
        # -1 takes the last row, which the right one replaces.
        values = left.to_numpy().take(ours, mode="wrap")
        values[gone] = right.to_numpy().take(theirs[gone])
        return pd.Series(values, copy=False)
    return coalesce_exactly(left, right, ours, theirs, label, rounded)
