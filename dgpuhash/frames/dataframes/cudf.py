"""cuDF implementation of `Frames`: rows in GPU memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dgpuhash import backend
from dgpuhash.errors import ColumnError, KeyTypeError, UnsupportedError
from dgpuhash.frames.dataframes.base import Frames, JoinedSide
from dgpuhash.frames.dataframes.cudf_columns import (
    array_column,
    column_of_series,
    columns_of,
    frame_of,
    index_of,
    index_of_columns,
    integers,
    is_numbered,
    key_column,
    numbered_series,
    order_of,
    plain_array,
    series_of_column,
    series_of_key,
    take_columns,
    take_series,
    type_name,
)
from dgpuhash.frames.dataframes.pandas_arrow import METADATA, arrow_names
from dgpuhash.frames.dataframes.pandas_take import cannot_hold
from dgpuhash.frames.dataframes.promotion import check_promoted
from dgpuhash.frames.dataframes.remedies import astype
from dgpuhash.frames.key_columns import IncomparableError, KeyColumn, LogicalType
from dgpuhash.tables.arguments.exact import float_bound
from dgpuhash.tables.select import rows_where

if TYPE_CHECKING:
    from dgpuhash.frames.merge.keys import JoinKeys, KeyPair
    from dgpuhash.frames.merge.result import MergePlan

_UNITS = ("s", "ms", "us", "ns")


class CudfFrames(Frames):
    """Functions over cuDF frames.

    Every cuDF column can hold nulls, so no dtype is promoted.
    """

    name = "cudf"
    device = "cuda"
    promotion = "nullable"
    selects_pairs = True
    rounds_keys = False

    def __init__(self) -> None:
        import cudf
        import cupy

        self._cudf: Any = cudf
        self.xp: Any = cupy

    def dtypes(self, frame: Any) -> list[Any]:
        # `frame.dtypes` builds a pandas Series on each call: 0.2 to 0.4 ms, where this takes 1 µs.
        return [column.dtype for column in columns_of(frame).columns]

    def make(self, columns: Mapping[Hashable, Any]) -> Any:
        return self._cudf.DataFrame(
            {
                label: column.reset_index(drop=True) if hasattr(column, "iloc") else column
                for label, column in columns.items()
            }
        )

    def array(self, series: Any, like: Any = None) -> Any:
        if isinstance(like, self._cudf.Index):
            return self._cudf.Index(series)
        dtype = series.dtype
        kind = getattr(dtype, "kind", "O")
        if kind not in "biuf" or (kind == "b" and series.has_nulls):
            nulls = " with nulls" if kind == "b" else ""
            raise UnsupportedError(
                f"column {series.name!r} is {dtype}{nulls}, which a CuPy array cannot represent; "
                f"pass the keys as a cuDF Series or DataFrame, such as cudf.Series(keys)"
            )
        if not series.has_nulls:
            return series.to_cupy()
        floating = np.dtype(getattr(dtype, "numpy_dtype", dtype)) if kind == "f" else np.float64
        values = series.fillna(0).to_cupy().astype(floating)
        return self.xp.where(series.isna().to_cupy().astype(bool), values.dtype.type("nan"), values)

    def series(self, values: Any, index: Any = None) -> Any:
        return self._cudf.Series(values, index=index)

    def column(self, frame: Any, label: Hashable) -> Any | None:
        columns = columns_of(frame)
        if columns.multiindex:
            return frame[label] if label in frame.columns else None
        found = columns.get(label)
        return None if found is None else series_of_column(found, label)

    def key_values(self, frame: Any, label: Hashable) -> Any | None:
        columns = columns_of(frame)
        if not columns.multiindex:
            return columns.get(label)
        column = self.column(frame, label)
        return column if column is None or column.ndim > 1 else numbered_series(column)

    def label_levels(self, frame: Any) -> int:
        columns = columns_of(frame)
        return max(1, columns.nlevels) if columns.multiindex else 1

    def key_column(self, series: Any, name: object) -> KeyColumn:
        return key_column(series, name)

    def key_type(self, series: Any, name: object) -> LogicalType:
        # A slice takes longer than reading columns other than categories, which are gathered.
        if isinstance(series.dtype, self._cudf.CategoricalDtype):
            series = series[:0]
        return key_column(series, name).type

    def typed(
        self, left: Any, right: Any, name: object, as_text: bool | None
    ) -> Iterable[tuple[Any, Any]]:
        columns = [column_of_series(side) for side in (left, right)]
        if not any(
            type_name(column.to_pylibcudf(), column.dtype).startswith("DECIMAL")
            for column in columns
            if not isinstance(column.dtype, np.dtype)
        ):
            return [(left, right)]
        if left.dtype != right.dtype:
            raise KeyTypeError(
                "Decimal columns can only be merged with decimal columns of the same precision and "
                f"scale; key {name!r} is {left.dtype} and {right.dtype}: convert one side with "
                ".astype"
            )
        # Those of one scale are compared as the integers that they are stored as.
        return zip(*(integers(series_of_key(side)) for side in (left, right)), strict=True)

    def unlike(self, left: Any, right: Any, name: object, error: KeyTypeError) -> tuple[Any, Any]:
        if not (len(left) and len(right)):
            return left, right
        # Raises where one of them cannot be a key.
        assert self.key_column(left, name).type != self.key_column(right, name).type
        raise IncomparableError(
            f"You are trying to merge on {left.dtype} and {right.dtype} columns for key '{name}'. "
            "If you wish to proceed convert one side with .astype"
        ) from error

    def arrays(self, frame: Any, dtypes: Sequence[Any] | None = None) -> list[Any] | None:
        columns = [column.to_pylibcudf() for column in columns_of(frame).columns]
        found = list(map(plain_array, columns, self.dtypes(frame) if dtypes is None else dtypes))
        return None if not found or any(array is None for array in found) else found

    def from_arrays(self, arrays: Sequence[Any], like: Any) -> Any:
        if not len(arrays) or not len(arrays[0]):
            return like.iloc[:0].reset_index(drop=True)
        columns, index = columns_of(like), self._cudf.RangeIndex(len(arrays[0]))
        made = map(array_column, arrays, columns.columns)
        return frame_of(zip(columns.names, made, strict=True), index, like=like)

    def append(self, frame: Any, arrays: Sequence[Any], added: Sequence[Any], like: Any) -> Any:
        # Shallow copies are copy-on-write: the first write to either frame copies its data.
        kept = frame.copy(deep=False).reset_index(drop=True)
        labels = list(like)
        if not added:
            return kept
        return self.beside(kept, self.from_arrays(added, like[labels[len(arrays) :]]), labels)

    def take(self, frame: Any, rows: Any) -> Any:
        return self._rows(frame, rows, nulls=False)

    def take_or_null(self, frame: Any, rows: Any, rounded: list[Any] | None = None) -> Any:
        return self._rows(frame, rows, nulls=True)

    def _rows(self, frame: Any, rows: Any, *, nulls: bool) -> Any:
        columns = columns_of(frame)
        found = take_columns(columns.columns, rows, nulls=nulls)
        labels = self._cudf.RangeIndex(len(rows))
        return frame_of(zip(columns.names, found, strict=True), labels, like=frame)

    def check_takeable(self, frame: Any) -> None:
        pass

    def keep_where(self, frame: Any, found: Any, kind: str) -> Any:
        if kind == "anti":
            # Eight rows at once: CuPy's ~ takes 0.6 ms longer for 2^27 rows.
            eights = found[: len(found) // 8 * 8].view(np.uint64)
            eights ^= np.uint64(0x0101010101010101)
            rest = found[8 * len(eights) :]
            rest ^= True
        return self.keep(frame, rows_where(backend.get(self.device), found))

    def keep(self, frame: Any, rows: Any) -> Any:
        columns = take_columns(columns_of(frame).columns, rows, nulls=False)
        index = frame.index
        if type(index) is self._cudf.RangeIndex:
            numbers = rows if is_numbered(index) else rows * index.step + index.start
            labels = index_of_columns([array_column(numbers)], [index.name])
        else:
            labels = index.take(rows)
        names = columns_of(frame).names
        made = frame_of(zip(names, columns, strict=True), labels, like=frame)
        if frame.attrs or not frame.flags.allows_duplicate_labels:
            frame._propagate_metadata(made)
        return made

    def concat(self, frames: Sequence[Any]) -> Any:
        if len(frames) == 1:
            return frames[0].reset_index(drop=True)
        return self._cudf.concat(list(frames), ignore_index=True)

    def reduce(self, frame: Any, groups: Any, how: str) -> Any:
        grouped = frame.nans_to_nulls().groupby(self._cudf.Series(groups), sort=True)
        reduced, counts = getattr(grouped, how)(), grouped.count()
        for label in frame.columns:
            # cuDF sums a group of nulls to 0; make it null.
            column = reduced[label].where(counts[label] > 0)
            reduced[label] = column.astype(frame[label].dtype)
        return reduced.reset_index(drop=True)

    def beside(self, left: Any, right: Any, labels: Sequence[Hashable]) -> Any:
        joined, given = left.copy(deep=False), list(left)
        if given != list(labels[: len(given)]):
            joined.columns = list(labels[: len(given)])
        for label, own in zip(labels[len(given) :], list(right), strict=True):
            joined[label] = right[own]
        return joined

    def conform(self, frame: Any, like: Any) -> Any:
        labels = list(like)
        if not len(frame):
            # A reader that finds no rows cannot infer dtypes.
            return like.iloc[:0].set_index(frame.index)
        conformed = frame[labels].copy(deep=False)
        for label in labels:
            wanted, own = like[label].dtype, frame[label].dtype
            if wanted == own or (
                isinstance(wanted, self._cudf.CategoricalDtype) and wanted.name == own.name
            ):
                continue
            cast = exact_cast(frame[label], wanted)
            if cast is not None:
                conformed[label] = cast
            elif wanted.kind not in "biuf" or own.kind not in "biuf":
                raise ColumnError(
                    f"column {label!r} is {own}, and the index stores it as {wanted}; convert it "
                    f"with {astype(wanted)} before inserting"
                )
        return conformed

    # Merges.

    def labels(self, frame: Any) -> Any:
        columns = columns_of(frame)
        return frame.columns if columns.multiindex else list(columns.names)

    def without(self, frame: Any, labels: Sequence[Hashable]) -> Any:
        own, index = columns_of(frame), frame.index
        columns = dict(zip(own.names, own.columns, strict=True))
        levels = [label for label in labels if columns.pop(label, None) is None]
        if levels:
            every = len(levels) == index.nlevels
            index = self.range_index(len(frame)) if every else index.droplevel(levels)
        return frame_of(columns.items(), index, like=frame)

    def to_pandas(self, values: Any) -> Any:
        return values.to_pandas()

    def agree(self, pair: KeyPair, how: str, *, nullable: bool = False) -> tuple[Any, Any] | None:
        if not pair.is_one_column:
            return None
        dtype = key_dtype(pair.left, pair.right, how)
        return dtype, dtype

    def with_dtype(self, frame: Any, label: Hashable, dtype: Any) -> Any:
        columns = columns_of(frame)
        column = columns.get(label)
        if column is None or column.dtype == dtype:
            return frame
        # By position: cuDF would assign a Series by row labels.
        made = column_of_series(cast(series_of_column(column), dtype))
        return frame_of({**dict(columns), label: made}.items(), frame.index, like=frame)

    def with_planned_keys(
        self, left: Any, right: Any, keys: JoinKeys, plan: MergePlan
    ) -> tuple[Any, Any]:
        return self.with_agreed_keys(left, right, keys, plan.how)

    def with_dtypes(self, frame: Any, like: Any, *, kept: bool) -> Any:
        for label in like.columns:
            wanted, own = like[label].dtype, frame[label].dtype
            if own != wanted:
                numbers = own.kind in "iuf" and wanted.kind in "iuf"
                if not numbers or exact_cast(frame[label], wanted) is not None:
                    frame[label] = cast(frame[label], wanted)
                elif not kept:
                    raise cannot_hold(f"column {label!r}", own, wanted)
        if frame.index.nlevels == 1 and frame.index.dtype != like.index.dtype:
            labels = cast(numbered_series(frame.index), like.index.dtype)
            frame.index = index_of([labels], [like.index.name])
        return frame

    def key_order(self, keys: JoinKeys, places: Any) -> Any:
        columns = []
        for pair in keys.pairs:
            dtype = key_dtype(pair.left, pair.right, "outer")
            both = self._of_both(pair.left, pair.right, dtype, places)
            if hasattr(dtype, "categories"):
                both = both.cat.codes.astype("int64").fillna(-1)
            columns.append(both)
        return order_of(columns)

    def row_order(self, rows: Any) -> Any:
        return self.xp.argsort(rows, kind="stable")

    def index_of(
        self, levels: Sequence[Any], names: Sequence[Hashable | None], coded: Callable[..., Any],
        *, guess: bool,
    ) -> Any:  # fmt: skip
        return index_of(levels, names)

    def range_index(self, n: int) -> Any:
        return self._cudf.RangeIndex(n)

    def take_labels(
        self, side: JoinedSide, other: JoinedSide, promote: str, rounded: list[Any] | None
    ) -> Any:
        index = side.frame.index
        if side.rows is None:
            return index
        levels = range(index.nlevels)
        taken = [self.take_level(side, level, promote, rounded) for level in levels]
        return index_of(taken, list(index.names))

    def take_level(
        self, side: JoinedSide, name: Hashable, promote: str, rounded: list[Any] | None
    ) -> Any:
        labels = numbered_series(side.frame.index.get_level_values(name))
        taken = take_series(labels, side.rows, nulls=True)
        if promote != "pandas" or not side.lacks:
            return taken
        return series_of_column(_promote(column_of_series(taken), taken.name))

    def complete_labels(
        self, side: JoinedSide, pairs: Sequence[KeyPair], name: str, how: str
    ) -> Any:
        keys = [cast(getattr(pair, name), key_dtype(pair.left, pair.right, how)) for pair in pairs]
        taken = [take_series(key, side.rows, nulls=True) for key in keys]
        return index_of(taken, list(side.frame.index.names))

    def one_key(
        self, left: Any, right: Any, sides: Sequence[JoinedSide], how: str, dtype: Any,
        label: Hashable, rounded: list[Any] | None, *, of_levels: bool = False,
    ) -> Any:  # fmt: skip
        dtype = key_dtype(left, right, how) if dtype is None else dtype
        if how == "right":
            return take_series(cast(right, dtype), sides[1].rows, nulls=True)
        ours = sides[0].rows
        if not sides[0].lacks:
            return take_series(cast(left, dtype), ours, nulls=True)
        places = self.xp.where(ours >= 0, ours, sides[1].all_rows(self.xp) + len(left))
        return self._of_both(left, right, dtype, places)

    def _of_both(self, left: Any, right: Any, dtype: Any, places: Any) -> Any:
        """Return values of two key columns at positions, of which the right ones come last."""
        whole = self._cudf.concat([cast(left, dtype), cast(right, dtype)], ignore_index=True)
        return take_series(whole, places).rename(left.name)

    def categories(self, codes: Any, values: Sequence[str]) -> Any:
        texts = self._cudf.Series(list(values)).take(codes).reset_index(drop=True)
        return texts.astype(self._cudf.CategoricalDtype(list(values)))

    def join_sides(
        self, sides: Sequence[JoinedSide], keys: Mapping[int, Any], labels: Any, index: Any,
        added: Sequence[tuple[int | None, Hashable, Any]], promote: str,
        rounded: list[Any] | None,
    ) -> Any:  # fmt: skip
        columns: list[Any] = []
        for side in sides:
            own, first = columns_of(side.frame).columns, len(columns)
            others = [column for place, column in enumerate(own, first) if place not in keys]
            taken = take_columns(others, side.rows, nulls=side.lacks)
            if side.lacks and promote == "pandas":
                names = (each for place, each in enumerate(labels) if place not in keys)
                taken = list(map(_promote, taken, names))
            rest = iter(taken)
            for place in range(first, first + len(own)):
                columns.append(column_of_series(keys[place]) if place in keys else next(rest))
        parts = list(zip(labels, columns, strict=True))
        for at, label, series in added:
            parts.insert(len(parts) if at is None else at, (label, column_of_series(series)))
        named = dict(parts)
        if len(named) < len(parts):
            twice = [label for label, n in Counter(label for label, _ in parts).items() if n > 1]
            raise UnsupportedError(
                f"the result would have two columns called {twice[0]!r}, which cuDF does not "
                f"support; give other suffixes="
            )
        made, like = frame_of(parts, index), sides[0].frame
        if not parts:
            made.columns = like.columns.append(sides[1].frame.columns)
        elif columns_of(like).multiindex:
            levels = columns_of(like).nlevels
            made.columns = type(like.columns).from_tuples(
                [
                    label if isinstance(label, tuple) else (label, *[""] * (levels - 1))
                    for label in named
                ],
                names=like.columns.names,
            )
        return made

    def nbytes(self, frame: Any) -> int:
        # `frame.memory_usage` would build a Series on the device.
        return sum(int(frame[label].memory_usage(index=False)) for label in frame)

    def to_arrow(self, frame: Any) -> Any:
        labels = list(frame.columns)
        named = frame.copy(deep=False)
        named.columns = arrow_names(labels)
        table = named.to_arrow(preserve_index=False)
        about = {"labels": labels, "strings": [None] * len(labels)}
        return table.replace_schema_metadata(
            {**_pandas_metadata(table), METADATA: json.dumps(about).encode()}
        )

    def from_arrow(self, table: Any) -> Any:
        about = json.loads((table.schema.metadata or {}).get(METADATA, b"{}"))
        frame = self._cudf.DataFrame.from_arrow(table)
        if about:
            frame.columns = about["labels"]
        return frame


def _promote(column: Any, name: Hashable | None) -> Any:
    """Return a column of a side with absent rows, plain integers as floats."""
    if not isinstance(column.dtype, np.dtype) or column.dtype.kind not in "iu":
        return column
    series = series_of_column(column)
    if column.dtype.itemsize == 8 and series.count():
        ends = series.min(), series.max()
        if int(ends[0]) < -(2**53) or int(ends[1]) > 2**53:
            check_promoted(
                series.dropna().to_numpy(), np.dtype(np.float64), name,
                remedy="give promote='nullable'",
            )  # fmt: skip
    return column_of_series(series.astype(np.float64))


def _pandas_metadata(table: Any) -> dict[bytes, bytes]:
    """Return schema metadata by which pandas restores the dtypes.

    cuDF gives the dtype of a categorical's values where pandas expects that of its codes.
    """
    metadata = dict(table.schema.metadata or {})
    if b"pandas" not in metadata:
        return metadata
    described = json.loads(metadata[b"pandas"])
    for column in described["columns"]:
        kind = table.schema.field(column["field_name"]).type
        if hasattr(kind, "index_type"):
            column["numpy_type"] = str(kind.index_type)
    return {**metadata, b"pandas": json.dumps(described).encode()}


def key_dtype(left: Any, right: Any, how: str) -> Any:
    """Return the dtype that cuDF gives to a key column of both sides.

    A side whose rows all stay keeps its dtype; where both may lack rows, or only rows of both stay,
    it is the common one. Categories of one side, or others of each, become their values.

    Raises
    ------
    KeyTypeError
        When categoricals differ in their order.
    """
    ours, theirs = left.dtype, right.dtype
    categorical = _is_categorical(ours), _is_categorical(theirs)
    if all(categorical):
        if _same_categories(ours, theirs) and ours.ordered == theirs.ordered:
            return ours
        if ours.ordered or theirs.ordered:
            raise KeyTypeError(
                "Merging on categorical variables with mismatched ordering is ambiguous; convert "
                "both sides to one dtype with .astype"
            )
        if set(ours.categories.to_pandas()) == set(theirs.categories.to_pandas()):
            return ours
    if all(categorical):
        return _common(ours.categories.dtype, theirs.categories.dtype)
    if any(categorical):
        return _values_dtype(ours if categorical[0] else theirs)
    if all(isinstance(dtype, pd.DatetimeTZDtype) for dtype in (ours, theirs)):
        finer = max(ours, theirs, key=lambda dtype: _UNITS.index(dtype.unit))
        return pd.DatetimeTZDtype(finer.unit, (theirs if how == "right" else ours).tz)
    if ours == theirs or how == "left":
        return ours
    if how == "right":
        return theirs
    if bool(len(left)) != bool(len(right)) and _is_text(ours) != _is_text(theirs):
        return ours
    return _common(ours, theirs)


def cast(series: Any, dtype: Any) -> Any:
    """Return a column in another dtype; categoricals are cast by their values."""
    if series.dtype == dtype and not _is_categorical(dtype):
        return series
    if _is_categorical(series.dtype):
        if _is_categorical(dtype) and _same_categories(series.dtype, dtype):
            return series
        series = series.astype(_values_dtype(series.dtype))
    if all(isinstance(each, pd.DatetimeTZDtype) for each in (series.dtype, dtype)):
        moments = series.dt.tz_convert("UTC").dt.tz_localize(None).astype(f"M8[{dtype.unit}]")
        return moments.dt.tz_localize("UTC").dt.tz_convert(str(dtype.tz))
    return series.astype(dtype)


def _is_categorical(dtype: Any) -> bool:
    import cudf

    return isinstance(dtype, cudf.CategoricalDtype)


def _same_categories(left: Any, right: Any) -> bool:
    """Return whether two dtypes have the same categories in the same order."""
    ours, theirs = left.categories.to_pandas(), right.categories.to_pandas()
    return bool(ours.dtype == theirs.dtype and ours.equals(theirs))


def _values_dtype(dtype: Any) -> Any:
    return dtype.categories.dtype if _is_categorical(dtype) else dtype


def _is_text(dtype: Any) -> bool:
    return getattr(dtype, "kind", "O") in "OU"


def _common(left: Any, right: Any) -> Any:
    """Return a dtype that represents the values of both."""
    from cudf.utils.dtypes import find_common_type

    if left == right or (_is_text(left) and _is_text(right)):
        return left
    numeric = all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in (left, right))
    if numeric and left.kind == right.kind:
        return max(left, right, key=lambda dtype: dtype.itemsize)
    return find_common_type((left, right))


def exact_cast(series: Any, dtype: Any) -> Any:
    """Return `series` as `dtype`, or None when a value would change.

    Also None when the kinds of the two dtypes differ and one is not numeric.
    """
    numeric = series.dtype.kind in "biuf" and dtype.kind in "biuf"
    if not numeric and series.dtype.kind != dtype.kind:
        return None
    try:
        cast = series.astype(dtype)
        back = cast.astype(series.dtype)
        # Null text and NaN compare as unequal, and other nulls as null: count them as equal.
        same = (back == series).fillna(False) | (cast.isna() & series.isna())
        if {series.dtype.kind, dtype.kind} == {"i", "u"}:
            # Casting -1 to unsigned and back gives -1 again: compare the signs too.
            same &= ((cast < 0) == (series < 0)).fillna(True)
        elif series.dtype.kind in "iu" and dtype.kind == "f":
            # The largest integer rounds up as a float and saturates back: compare with the bound.
            own = np.dtype(getattr(series.dtype, "numpy_dtype", series.dtype))
            same &= (cast < float_bound(own)).fillna(True)
    except (ValueError, TypeError, OverflowError):
        return None
    return cast if bool(same.all()) else None
