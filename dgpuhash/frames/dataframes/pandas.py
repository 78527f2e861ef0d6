"""pandas implementation of `Frames`: rows in host memory."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import ExtensionArray
from pandas.api.types import union_categoricals

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes import pandas_take as join
from dgpuhash.frames.dataframes.base import Frames, JoinedSide
from dgpuhash.frames.dataframes.interop import is_arrow
from dgpuhash.frames.dataframes.order import sorted_rows
from dgpuhash.frames.dataframes.pandas_agreement import agree
from dgpuhash.frames.dataframes.pandas_arrow import from_arrow, storage_name, to_arrow
from dgpuhash.frames.dataframes.pandas_casts import cast
from dgpuhash.frames.dataframes.pandas_checks import check_takeable
from dgpuhash.frames.dataframes.pandas_keys import (
    are_compared_as_text,
    is_plain,
    key_column,
    of_one_type,
    only_nulls,
    typed_columns,
)
from dgpuhash.frames.dataframes.pandas_order import key_order
from dgpuhash.frames.dataframes.promotion import check_concat, check_promoted
from dgpuhash.frames.dataframes.tagged import tag_values, utf8_error
from dgpuhash.frames.key_columns import KeyColumn, LogicalType

if TYPE_CHECKING:
    from dgpuhash.frames.merge.keys import JoinKeys
    from dgpuhash.frames.merge.result import MergePlan

POINTER_NBYTES = 8
# float64 represents every integer up to this magnitude.
EXACT = 2**53


class PandasFrames(Frames):
    """Functions over pandas frames."""

    name = "pandas"
    device = "cpu"
    promotion = "pandas"
    selects_pairs = False
    rounds_keys = True
    xp = np

    def make(self, columns: Mapping[Hashable, Any]) -> pd.DataFrame:
        plain = {
            label: _native(
                column.array if isinstance(column, pd.Series) else _nullable_integers(column)
            )
            for label, column in columns.items()
        }
        try:
            # Naming texts again takes longer than all else, and pandas means others otherwise.
            texts = all(isinstance(label, str) for label in plain)
            return pd.DataFrame(plain, columns=None if texts and plain else list(plain))
        except UnicodeEncodeError as error:
            raise utf8_error(list(plain), error) from error

    def of_columns(self, columns: dict[Hashable, Any]) -> pd.DataFrame:
        return pd.DataFrame(columns, copy=False)

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
        if hasattr(series.dtype, "numpy_dtype") and found.dtype.kind == "f":
            # NumPy has no integers with nulls.
            remedy = "give the keys as a Series"
            check_promoted(series.array, found.dtype, series.name, cast="object", remedy=remedy)
        # pandas may return a read-only view of its own memory.
        return found if found.flags.writeable else found.copy()

    def series(self, values: Any, index: Any = None) -> pd.Series:
        return pd.Series(values, index=index)

    def column(self, frame: Any, label: Hashable) -> Any | None:
        return frame[label] if label in frame.columns else None

    def key_values(self, frame: Any, label: Hashable) -> Any | None:
        column = self.column(frame, label)
        return column if column is None or column.ndim > 1 else join.numbered_series(column)

    label_levels = attrgetter("columns.nlevels")  # type: ignore[assignment]

    def key_type(self, series: Any, name: object) -> LogicalType:
        return self.key_column(series[:0] if self.is_typed(series) else series, name).type

    def key_column(self, series: Any, name: object) -> KeyColumn:
        return key_column(series, name)

    def typed(
        self, left: Any, right: Any, name: object, as_text: bool | None
    ) -> Iterable[tuple[Any, Any]]:
        if not as_text and is_plain(left.dtype) and is_plain(right.dtype):
            return [(left, right)]
        if as_text is None:
            left, right = of_one_type(left), of_one_type(right)
            as_text = are_compared_as_text(left.dtype, right.dtype)
        if as_text:
            return [(tag_values(left, name), tag_values(right, name))]
        return typed_columns(left, right)

    def unlike(self, left: Any, right: Any, name: object, error: KeyTypeError) -> tuple[Any, Any]:
        return only_nulls(left, 0), only_nulls(right, 1)

    def compares_as_text(self, left: Any, right: Any) -> bool:
        return are_compared_as_text(left, right)

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
        return _of_class(join.TakenRows(rows, nulls=False).frame(frame), frame)

    def take_or_null(self, frame: Any, rows: Any, rounded: list[Any] | None = None) -> Any:
        remedy = "give promote='nullable'"
        taken = join.TakenRows(rows, nulls=True, rounded=rounded, remedy=remedy)
        return _of_class(taken.frame(frame), frame)

    def keep(self, frame: Any, rows: Any) -> Any:
        return frame.take(rows)

    def keep_where(self, frame: Any, found: Any, kind: str) -> Any:
        mask = found if kind == "semi" else ~found
        return frame.copy(deep=False) if mask.all() else frame.take(mask.nonzero()[0])

    def concat(self, frames: Sequence[Any]) -> Any:
        frames = list(frames)
        if len(frames) == 1:
            return frames[0].set_axis(pd.RangeIndex(len(frames[0])), axis=0)
        dtypes = [list(frame.dtypes) for frame in frames]
        if all(each == dtypes[0] for each in dtypes):
            return pd.concat(frames, ignore_index=True)
        for label in frames[0].columns:
            frames = _unite_categories(frames, label)
        made = pd.concat(frames, ignore_index=True)
        for place, dtype in enumerate(made.dtypes):
            if getattr(dtype, "kind", "") == "f":
                check_concat([frame.iloc[:, place] for frame in frames], dtype, made.columns[place])
        return made

    def reduce(self, frame: Any, groups: Any, how: str) -> Any:
        options = {"min_count": 1} if how == "sum" else {}
        reduced = getattr(frame.groupby(groups), how)(**options)
        return reduced.reset_index(drop=True).astype(frame.dtypes)

    def beside(self, left: Any, right: Any, labels: Sequence[Hashable]) -> Any:
        joined = pd.concat([left, right], axis=1)
        joined.columns = labels if isinstance(labels, pd.Index) else pd.Index(labels)
        return joined

    labels = attrgetter("columns")  # type: ignore[assignment]
    range_index = staticmethod(pd.RangeIndex)  # type: ignore[assignment]
    agree = staticmethod(agree)
    check_takeable = staticmethod(check_takeable)  # type: ignore[assignment]
    without = staticmethod(join.without)  # type: ignore[assignment]
    with_dtype = staticmethod(join.with_dtype)  # type: ignore[assignment]
    with_dtypes = staticmethod(join.with_dtypes)  # type: ignore[assignment]
    nullable = staticmethod(join.nullable)  # type: ignore[assignment]
    key_order = staticmethod(key_order)  # type: ignore[assignment]
    index_of = staticmethod(join.index_of)  # type: ignore[assignment]
    take_labels = staticmethod(join.take_labels)  # type: ignore[assignment]
    take_level = staticmethod(join.take_level)  # type: ignore[assignment]
    complete_labels = staticmethod(join.complete_labels)  # type: ignore[assignment]
    one_key = staticmethod(join.one_key)  # type: ignore[assignment]

    def to_frame(self, series: Any) -> Any:
        # pandas would hash the parts of a label that is a tuple.
        names = series.name if isinstance(series.name, tuple) else (series.name,)
        levels: Any = [join.labels_of(pd.Series([name]).array, None, guess=True) for name in names]
        codes = [[-int(level.hasnans)] for level in levels]
        frame = pd.DataFrame({0: series})
        frame.columns = (
            pd.MultiIndex(levels, codes, verify_integrity=False) if len(levels) > 1 else levels[0]
        )
        return frame

    def to_pandas(self, values: Any) -> Any:
        return values

    def with_planned_keys(
        self, left: Any, right: Any, keys: JoinKeys, plan: MergePlan
    ) -> tuple[Any, Any]:
        pairs = plan.keys.pairs
        ours = join.with_key_dtypes(left, plan.left, pairs)
        return ours, join.with_key_dtypes(right, plan.right, pairs)

    def row_order(self, rows: Any) -> Any:
        return sorted_rows([rows])

    def categories(self, codes: Any, values: Sequence[str]) -> Any:
        return pd.Categorical.from_codes(codes, categories=pd.Index(values))

    def join_sides(
        self, sides: Sequence[JoinedSide], keys: Mapping[int, Any], labels: Any, index: Any,
        added: Sequence[tuple[int | None, Hashable, Any]], promote: str,
        rounded: list[Any] | None,
    ) -> Any:  # fmt: skip
        order, first = sorted(keys), 0
        parts = [keys[place] for place in order]
        for side in sides:
            frame, rows = side.frame, side.rows
            places = range(first, first + frame.shape[1])
            others = [place for place in places if place not in keys]
            if len(others) < len(places):
                frame = frame.take([place - first for place in others], axis=1)
            order, first = order + others, places.stop
            if rows is None:
                parts.append(frame.copy(deep=False))
            else:
                parts.append(self.take_or_null(frame, rows, rounded))
        for part in parts:
            # Of one object pandas compares no labels.
            part.index = index
        result: Any = pd.concat(parts, axis=1, ignore_index=True)
        if order != sorted(order):
            result = result.take(np.argsort(order), axis=1)
        result.columns = labels
        for place, label, values in added:
            if place is None:
                result[label] = values
            else:
                result.insert(place, label, values.set_axis(index))
        left, right = sides[0].frame, sides[1].frame
        result.attrs = left.attrs if left.attrs == right.attrs else {}
        if not (left.flags.allows_duplicate_labels and right.flags.allows_duplicate_labels):
            result.flags.allows_duplicate_labels = False
        return result

    def conform(self, frame: Any, like: Any) -> Any:
        changed = {
            label: cast(frame[label], like[label])
            for label in like.columns
            if frame[label].dtype != like[label].dtype
        }
        return _replace(frame[list(like.columns)], changed)

    def is_typed(self, series: Any) -> bool:
        return bool(series.dtype != object)

    def nbytes(self, frame: Any) -> int:
        # A Series of their sizes takes longer to make than to measure them.
        return sum(int(each.memory_usage(index=False, deep=True)) for _, each in frame.items())

    def rows_nbytes(self, frame: Any) -> int:
        numbers = [each for each in frame.dtypes if isinstance(each, np.dtype) and each.kind != "O"]
        if len(numbers) < frame.shape[1]:
            return super().rows_nbytes(frame)
        return len(frame) * sum(each.itemsize for each in numbers)

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
                f"the integer {large[0]} would be rounded to {float(large[0]):.0f} in a column "
                f"with floats; give integers and floats in separate calls"
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


def _unite_categories(frames: list[Any], label: Hashable) -> list[Any]:
    columns = [frame[label] for frame in frames]
    if not all(isinstance(column.dtype, pd.CategoricalDtype) for column in columns):
        return frames
    if len({column.dtype for column in columns}) == 1:
        return frames
    # Without categories their type tells nothing.
    dtypes = [column.dtype for column in columns if len(column.dtype.categories)]
    if len({dtype.categories.dtype for dtype in dtypes}) > 1:
        return frames
    united = union_categoricals(
        [pd.Categorical([], dtype=dtype) for dtype in dtypes], ignore_order=True
    ).dtype
    return [_replace(frame, {label: frame[label].astype(united)}) for frame in frames]


def _of_class(frame: Any, like: Any) -> Any:
    """Return `frame` in the class of `like`, with its `attrs`.

    pandas' merges keep both.
    """
    if type(like) is not pd.DataFrame:
        frame = like._constructor(frame)
    if like.attrs:
        frame.attrs = like.attrs
    return frame


def _replace(frame: Any, columns: Mapping[Hashable, Any]) -> Any:
    if columns:
        frame = frame.copy(deep=False)
    for label, column in columns.items():
        frame[label] = column
    return frame


def _is_arrow_temporal(dtype: Any) -> bool:
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_temporal(dtype.pyarrow_dtype)
