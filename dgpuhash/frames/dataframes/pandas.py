"""pandas frames: rows in host memory."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import ExtensionArray
from pandas.api.types import union_categoricals

from dgpuhash.errors import ColumnError, KeyTypeError
from dgpuhash.frames.dataframes.base import Frames
from dgpuhash.frames.dataframes.interop import is_arrow
from dgpuhash.frames.dataframes.pandas_arrow import from_arrow, storage_name, to_arrow
from dgpuhash.frames.dataframes.pandas_casts import cast
from dgpuhash.frames.dataframes.pandas_keys import key_column, utf8_error
from dgpuhash.frames.dataframes.pandas_take import TakenRows
from dgpuhash.frames.key_columns import KeyColumn

__all__ = ["PandasFrames"]

POINTER_NBYTES = 8
# What puts frames together is above the libraries of frames.
_MERGE = "dgpuhash.frames.merge.verb:merge"
# float64 represents every integer up to this magnitude.
EXACT = 2**53


class PandasFrames(Frames):
    """Functions over pandas frames."""

    name = "pandas"
    device = "cpu"

    @property
    def xp(self) -> ModuleType:
        return np

    def make(self, columns: Mapping[Hashable, Any]) -> pd.DataFrame:
        plain = {
            label: _native(
                column.array if isinstance(column, pd.Series) else _nullable_integers(column)
            )
            for label, column in columns.items()
        }
        try:
            return pd.DataFrame(plain, columns=list(plain))
        except UnicodeEncodeError as error:
            raise utf8_error(list(plain), error) from error

    def moments(self, series: Any, like: Any) -> Any:
        if not _is_arrow_temporal(like.dtype):
            return series
        try:
            array = pa.array(series, from_pandas=True)
        except (pa.ArrowException, OverflowError):
            return series
        if not pa.types.is_temporal(array.type):
            return series
        return pd.Series(array, series.index, pd.ArrowDtype(array.type), name=series.name)

    def array(self, series: Any, like: Any = None) -> Any:
        if isinstance(like, pd.Index):
            return pd.Index(series)
        if isinstance(like, ExtensionArray):
            # The column may share memory with an index.
            return series.array.copy()
        if is_arrow(like):
            array = pa.Array.from_pandas(series)
            return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        found = series.to_numpy()
        # pandas may return a read-only view of its own memory.
        return found if found.flags.writeable else found.copy()

    def series(self, values: Any, index: Any = None) -> pd.Series:
        return pd.Series(values, index=index)

    def key_column(self, series: Any, name: object) -> KeyColumn:
        return key_column(series, name)

    def arrays(self, frame: Any, dtypes: Sequence[Any] | None = None) -> list[Any] | None:
        found = []
        for position, dtype in enumerate(frame.dtypes if dtypes is None else dtypes):
            if not isinstance(dtype, np.dtype) or dtype.kind not in "biufMm" or not dtype.isnative:
                return None
            values = np.ascontiguousarray(frame.iloc[:, position].to_numpy())
            found.append(values.view(np.int64) if dtype.kind in "Mm" else values)
        return found or None

    def from_arrays(self, arrays: Sequence[Any], like: Any) -> pd.DataFrame:
        columns = {
            position: array.view(dtype)
            for position, (array, dtype) in enumerate(zip(arrays, like.dtypes, strict=True))
        }
        made = pd.DataFrame(columns, copy=False)
        made.columns = like.columns
        return _of_class(made, like)

    def take(self, frame: Any, rows: Any) -> Any:
        return _of_class(TakenRows(rows, nulls=False).frame(frame), frame)

    def take_or_null(self, frame: Any, rows: Any) -> Any:
        return _of_class(TakenRows(rows, nulls=True).frame(frame), frame)

    def keep(self, frame: Any, rows: Any) -> Any:
        return _allow_duplicate_labels(frame).take(rows)

    def concat(self, frames: Sequence[Any]) -> Any:
        frames = list(frames)
        if len(frames) == 1:
            return frames[0].set_axis(pd.RangeIndex(len(frames[0])), axis=0)
        for label in frames[0].columns:
            frames = _unite_categories(frames, label)
        return pd.concat(frames, ignore_index=True)

    def reduce(self, frame: Any, groups: Any, how: str) -> Any:
        options = {"min_count": 1} if how == "sum" else {}
        reduced = getattr(frame.groupby(groups), how)(**options)
        return reduced.reset_index(drop=True).astype(frame.dtypes)

    def beside(self, left: Any, right: Any, labels: Sequence[Hashable]) -> Any:
        joined = pd.concat([left, right], axis=1)
        joined.columns = labels if isinstance(labels, pd.Index) else pd.Index(labels)
        return joined

    def conform(self, frame: Any, like: Any) -> Any:
        changed = {
            label: cast(frame[label], like[label])
            for label in like.columns
            if frame[label].dtype != like[label].dtype
        }
        return _replaced(frame[list(like.columns)], changed)

    def merge_meta(
        self,
        left: Any,
        right: Any,
        left_on: Sequence[Hashable],
        right_on: Sequence[Hashable],
        suffixes: tuple[str | None, str | None],
    ) -> Any:
        for label, other in zip(left_on, right_on, strict=True):
            if np.float16 in (left[label].dtype, right[other].dtype):
                # pandas does not merge on float16; lookups cast it to float32.
                left, right = _widened(left, label), _widened(right, other)
        given = left, right
        left, right = _cast_object_keys(left, right, left_on, right_on)
        try:
            _refuse_mixed_moments(left, right, left_on, right_on)
            merged = resolve_name(_MERGE)(
                _sample_rows(left, 1),
                _sample_rows(right, 2),
                left_on=list(left_on),
                right_on=list(right_on),
                suffixes=suffixes,
            )
        except ValueError as error:
            if str(error).startswith("You are trying to merge on"):
                raise KeyTypeError(
                    f"pandas does not merge {[*left_on]!r} with the index's {[*right_on]!r}, of "
                    f"{_kinds(left, left_on)} and {_kinds(right, right_on)}; convert one side with "
                    ".astype"
                ) from error
            raise ColumnError(
                f"{error}; rename the columns, or give suffixes=('_left', '_right')"
            ) from error
        merged = merged.iloc[:0]
        shared = sum(label == other for label, other in zip(left_on, right_on, strict=True))
        if merged.shape[1] != left.shape[1] + right.shape[1] - shared:
            # pandas duplicates key columns whose labels are not text and get suffixes.
            both = [label for label in left_on if label in right.columns and label not in right_on]
            raise ColumnError(
                f"the key columns {both or [*left_on]!r} have the labels of other columns of the "
                "index; rename them to texts on one side"
            )
        for label, other in zip(left_on, right_on, strict=True):
            dtypes = left[label].dtype, right[other].dtype
            moments = all(_values_of(dtype).kind == "M" for dtype in dtypes)
            told = dtypes[0] == dtypes[1] or all(
                isinstance(dtype, pd.CategoricalDtype) for dtype in dtypes
            )
            if label == other and moments and not told:
                merged[label] = merged[label].astype(_merged_datetime_dtype(left, right, label))
        merged = _of_class(_restore_object_keys(merged, *given, left_on, right_on), given[0])
        merged.attrs = given[0].attrs if given[0].attrs == given[1].attrs else {}
        return merged

    def is_typed(self, series: Any) -> bool:
        return bool(series.dtype != object)

    def nbytes(self, frame: Any) -> int:
        # A Series of their sizes takes longer to make than to measure them.
        return sum(int(each.memory_usage(index=False, deep=True)) for _, each in frame.items())

    def rows_nbytes(self, frame: Any) -> int:
        plain = all(isinstance(dtype, np.dtype | pd.StringDtype) for dtype in frame.dtypes)
        return self.nbytes(frame) if plain else super().rows_nbytes(frame)

    def widest(self, frame: Any) -> dict[Hashable, int]:
        objects = [
            label
            for label in frame.columns
            if (storage_name(frame[label].dtype) or "").startswith(("object", "python"))
        ]
        return {
            label: POINTER_NBYTES
            + max(map(sys.getsizeof, frame[label].to_numpy(object)), default=0)
            for label in objects
        }

    def to_arrow(self, frame: Any) -> Any:
        return to_arrow(frame)

    def from_arrow(self, table: Any) -> Any:
        return from_arrow(table)


def _nullable_integers(column: Any) -> Any:
    """Return `column` with integers beside nulls in a nullable integer dtype.

    Converts masked arrays, and lists with an integer beyond 2**53; pandas would make floats of
    both. Raises KeyTypeError for a list of floats and such integers.
    """
    if isinstance(column, np.ma.MaskedArray):
        if column.dtype.kind in "iu" and column.ndim == 1:
            return pd.arrays.IntegerArray(column.data, np.ma.getmaskarray(column))
        return column
    if not isinstance(column, list):
        return column
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind == "mixed-integer-float":
        integers = [one for one in column if isinstance(one, int | np.integer)]
        large = [one for one in integers if abs(int(one)) > EXACT]
        if large:
            raise KeyTypeError(
                f"floats beside {large[0]} would make {float(large[0]):.0f} of it; give integers "
                "and floats apart"
            )
    if kind == "integer":
        numbers = [int(one) for one in column if not pd.isna(one)]
        low, high = min(numbers), max(numbers)
        if len(numbers) < len(column) and max(-low, high) > EXACT:
            dtype: Any = pd.Int64Dtype() if high < 2**63 else pd.UInt64Dtype()
            bounds = np.iinfo(dtype.numpy_dtype)
            # Larger integers cannot be keys.
            return pd.array(column, dtype) if bounds.min <= low and high <= bounds.max else column
    return column


def _native(column: Any) -> Any:
    """Return `column` with its numbers in this machine's byte order."""
    dtype = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype) and not dtype.isnative:
        return column.astype(dtype.newbyteorder("="))
    return column


def _allow_duplicate_labels(frame: Any) -> Any:
    """Return the frame with duplicate labels allowed, which a flag may forbid."""
    allowed = frame.flags.allows_duplicate_labels
    return frame if allowed else frame.set_flags(allows_duplicate_labels=True)


def _unite_categories(frames: list[Any], label: Hashable) -> list[Any]:
    columns = [frame[label] for frame in frames]
    if not all(isinstance(column.dtype, pd.CategoricalDtype) for column in columns):
        return frames
    dtypes = {column.dtype for column in columns}
    if len(dtypes) == 1 or len({dtype.categories.dtype for dtype in dtypes}) > 1:
        return frames
    united = union_categoricals(
        [pd.Categorical([], dtype=column.dtype) for column in columns], ignore_order=True
    ).dtype
    return [_replaced(frame, {label: frame[label].astype(united)}) for frame in frames]


def _of_class(frame: Any, like: Any) -> Any:
    """Return `frame` in the class of `like`, with its `attrs`.

    pandas' merges keep both.
    """
    if type(like) is not pd.DataFrame:
        frame = like._constructor(frame)
    if like.attrs:
        frame.attrs = like.attrs
    return frame


def _replaced(frame: Any, columns: Mapping[Hashable, Any]) -> Any:
    if columns:
        frame = frame.copy(deep=False)
    for label, column in columns.items():
        frame[label] = column
    return frame


def _widened(frame: Any, label: Hashable) -> Any:
    return frame.astype({label: np.float32}) if frame[label].dtype == np.float16 else frame


def _cast_object_keys(
    left: Any, right: Any, left_on: Sequence[Hashable], right_on: Sequence[Hashable]
) -> tuple[Any, Any]:
    """Return both frames with object keys in the other side's key dtype.

    This is done where pandas does not merge objects with that dtype: the objects are nulls alone
    then, or there are no rows.
    """
    for label, other in zip(left_on, right_on, strict=True):
        dtypes = left[label].dtype, right[other].dtype
        objects = [dtype == np.dtype(object) for dtype in dtypes]
        if all(objects) or not any(objects):
            continue
        alone = [_sample_rows(meta, 1) for meta in (left[[label]], right[[other]])]
        try:
            resolve_name(_MERGE)(*alone, left_on=[label], right_on=[other])
        except ValueError:
            if objects[0]:
                left = left.astype({label: dtypes[1]})
            else:
                right = right.astype({other: dtypes[0]})
    return left, right


def _restore_object_keys(
    merged: Any, left: Any, right: Any, left_on: Sequence[Hashable], right_on: Sequence[Hashable]
) -> Any:
    """Return the merge meta with object key columns where a frame has objects."""
    shared = {other for label, other in zip(left_on, right_on, strict=True) if label == other}
    added = [label for label in right if label not in shared]
    for frame, labels, names, first in (
        (left, list(left), left_on, 0),
        (right, added, right_on, left.shape[1]),
    ):
        at = {label: first + position for position, label in enumerate(labels)}
        for label in names:
            if label in at and frame[label].dtype == np.dtype(object):
                merged.isetitem(at[label], merged.iloc[:, at[label]].astype(object))
    return merged


def _kinds(frame: Any, labels: Sequence[Hashable]) -> str:
    return ", ".join(str(frame[label].dtype) for label in labels)


def _sample_rows(meta: Any, rows: int) -> Any:
    """Return `rows` equal sample rows with the columns of `meta`.

    pandas derives the dtypes of a merge from rows, not only from dtypes.
    """
    columns = {position: _sample(meta.iloc[:0, position]) for position in range(meta.shape[1])}
    frame = pd.DataFrame(columns, index=pd.RangeIndex(1), columns=range(meta.shape[1]))
    frame = pd.concat([frame] * rows, ignore_index=True)
    frame.columns = meta.columns
    return frame


def _refuse_mixed_moments(
    left: Any, right: Any, left_on: Sequence[Hashable], right_on: Sequence[Hashable]
) -> None:
    """Raise ValueError where a moment of Arrow meets one of pandas, which merges no such keys."""
    for label, other in zip(left_on, right_on, strict=True):
        dtypes = left[label].dtype, right[other].dtype
        arrow = [isinstance(dtype, pd.ArrowDtype) for dtype in dtypes]
        if arrow[0] != arrow[1] and all(dtype.kind in "mM" for dtype in dtypes):
            raise ValueError("You are trying to merge on moments of Arrow and of pandas")


def _merged_datetime_dtype(left: Any, right: Any, label: Hashable) -> Any:
    """Return the dtype that pandas gives to datetime keys when rows match."""
    alone = [_at_epoch(frame[[label]]) for frame in (left, right)]
    samples = _sample_rows(alone[0], 1), _sample_rows(alone[1], 2)
    return resolve_name(_MERGE)(*samples, on=[label]).dtypes.iloc[0]


def _at_epoch(meta: Any) -> Any:
    """Return the one-column `meta`, with the epoch as a category's sample."""
    dtype = meta.dtypes.iloc[0]
    if not isinstance(dtype, pd.CategoricalDtype):
        return meta
    epoch = pd.Index(_sample(pd.Series([], dtype=dtype.categories.dtype)))
    return meta.astype(pd.CategoricalDtype(epoch, dtype.ordered))


def _is_arrow_temporal(dtype: Any) -> bool:
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_temporal(dtype.pyarrow_dtype)


def _values_of(dtype: Any) -> Any:
    return dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype


def _sample(empty: Any) -> Any:
    dtype = empty.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return pd.Categorical.from_codes([0 if len(dtype.categories) else -1], dtype=dtype)
    if isinstance(dtype, pd.StringDtype):
        return pd.array(["a"], dtype=dtype)
    if isinstance(dtype, np.dtype):
        if dtype.kind in "mM":
            return np.zeros(1, dtype)
        return pd.Series(["a"], dtype=object) if dtype.kind == "O" else np.ones(1, dtype)
    if isinstance(dtype, pd.DatetimeTZDtype):
        return pd.Series([pd.Timestamp(0, tz=dtype.tz)]).astype(dtype)
    if isinstance(dtype, pd.IntervalDtype):
        ends = pd.Index(_sample(pd.Series([], dtype=dtype.subtype)))
        return pd.arrays.IntervalArray.from_arrays(ends, ends, closed=dtype.closed or "right")
    if isinstance(dtype, pd.SparseDtype):
        return pd.array([dtype.fill_value], dtype=dtype)
    if _is_arrow_temporal(dtype):
        return pd.array(pa.array([0], dtype.pyarrow_dtype), dtype)
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_boolean(dtype.pyarrow_dtype):
        return pd.array(pa.array([True]), dtype)
    return pd.array([None], dtype=dtype)
