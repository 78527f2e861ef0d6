"""pandas frames: rows in host memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Hashable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import ExtensionArray
from pandas.api.types import union_categoricals

from dgpuhash.errors import ColumnError, KeyTypeError, UnsupportedError
from dgpuhash.frames.columns import KeyColumn
from dgpuhash.frames.dataframes.arrow_objects import check_given_back, objects_of
from dgpuhash.frames.dataframes.base import Frames
from dgpuhash.frames.dataframes.foreign import is_arrow
from dgpuhash.frames.dataframes.pandas_keys import key_column, not_utf8

__all__ = ["PandasFrames", "arrow_names"]

METADATA = b"dgpuhash"
POINTER_NBYTES = 8
# The category that Dask's empty frames have in place of those that only partitions know.
UNKNOWN = "__UNKNOWN_CATEGORIES__"


class PandasFrames(Frames):
    """Functions over pandas frames."""

    name = "pandas"
    device = "cpu"

    @property
    def xp(self) -> ModuleType:
        return np

    def make(self, columns: Mapping[Hashable, Any]) -> pd.DataFrame:
        plain = {
            label: column.array if isinstance(column, pd.Series) else column
            for label, column in columns.items()
        }
        try:
            return pd.DataFrame(plain, columns=list(plain))
        except UnicodeEncodeError as error:
            raise not_utf8(list(plain), error) from error

    def array(self, series: Any, like: Any = None) -> Any:
        if isinstance(like, pd.Index):
            return pd.Index(series)
        if isinstance(like, ExtensionArray):
            return series.array
        if is_arrow(like):
            array = pa.Array.from_pandas(series)
            return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        return series.to_numpy()

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
        return made

    def take(self, frame: Any, rows: Any) -> Any:
        if len(rows) == len(frame) and _is_range(rows):
            taken = frame.copy(deep=False)
        else:
            taken = frame.take(rows)
        taken.index = pd.RangeIndex(len(taken))
        return taken

    def take_or_null(self, frame: Any, rows: Any) -> Any:
        if not len(rows) or rows.min() >= 0:
            return self.take(frame, rows)
        numbered = frame.set_axis(pd.RangeIndex(len(frame)), axis=0)
        # The label -1 is in no RangeIndex, so reindex fills those rows as a left merge does.
        taken = numbered.reindex(rows)
        taken.index = pd.RangeIndex(len(taken))
        return taken

    def keep(self, frame: Any, rows: Any) -> Any:
        return frame.take(rows)

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
            label: _cast(frame[label], like[label])
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
                # pandas does not merge on them; they stand as what they are looked up as.
                left, right = _widened(left, label), _widened(right, other)
        try:
            merged = _specimen(left, 1).merge(
                _specimen(right, 2),
                how="inner",
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
            if str(error).startswith("Big-endian"):
                raise KeyTypeError(
                    f"pandas does not merge columns of another byte order ({error}); convert them "
                    "with .astype(dtype.newbyteorder('='))"
                ) from error
            raise ColumnError(
                f"{error}; rename the columns, or give suffixes=('_left', '_right')"
            ) from error
        merged = merged.iloc[:0]
        shared = sum(label == other for label, other in zip(left_on, right_on, strict=True))
        if merged.shape[1] != left.shape[1] + right.shape[1] - shared:
            # Of keys whose labels are no texts, and which take suffixes, pandas makes more columns.
            both = [label for label in left_on if label in right.columns and label not in right_on]
            raise ColumnError(
                f"the key columns {both or [*left_on]!r} have the labels of other columns of the "
                "index; rename them to texts on one side"
            )
        for label, other in zip(left_on, right_on, strict=True):
            dtype, index_dtype = left[label].dtype, right[other].dtype
            if label == other and dtype != index_dtype and dtype.kind == index_dtype.kind == "M":
                # pandas decides by rows that match, which those above need not do.
                alone = _specimen(left[[label]], 1).merge(_specimen(right[[label]], 2), on=label)
                merged[label] = merged[label].astype(alone[label].dtype)
        return merged

    def is_typed(self, series: Any) -> bool:
        return bool(series.dtype != object)

    def nbytes(self, frame: Any) -> int:
        return int(frame.memory_usage(index=False, deep=True).sum())

    def widest(self, frame: Any) -> dict[Hashable, int]:
        objects = [
            label
            for label in frame.columns
            if (_storage(frame[label].dtype) or "").startswith(("object", "python"))
        ]
        return {
            label: POINTER_NBYTES
            + max(map(sys.getsizeof, frame[label].to_numpy(object)), default=0)
            for label in objects
        }

    def to_arrow(self, frame: Any) -> Any:
        labels = list(frame.columns)
        named = frame.set_axis(arrow_names(labels), axis=1)
        try:
            table = pa.Table.from_pandas(named, preserve_index=False)
        except UnicodeEncodeError as error:
            raise not_utf8(labels, error) from error
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:
            raise UnsupportedError(
                f"a column cannot be written to Arrow ({error}); convert mixed object and sparse "
                f"columns with astype first; the columns are {labels!r}"
            ) from error
        about = {"labels": labels, "strings": [_storage(t) for t in frame.dtypes]}
        made = table.replace_schema_metadata(
            {**(table.schema.metadata or {}), METADATA: json.dumps(about).encode()}
        )
        check_given_back(frame, made, self.from_arrow)
        return made

    def from_arrow(self, table: Any) -> Any:
        about = json.loads((table.schema.metadata or {}).get(METADATA, b"{}"))
        if not about:
            return table.to_pandas()
        stored = dict(zip(table.column_names, about["strings"], strict=True))
        frame = _with_arrow_columns(table, [name for name in stored if stored[name] == "arrow"])
        for position, storage in enumerate(stored.values()):
            dtype = _stored_dtype(storage)
            label = frame.columns[position]
            objects = objects_of(table.column(position)) if dtype == np.dtype(object) else None
            if objects is not None:
                frame[label] = pd.Series(objects, frame.index, object)
            elif dtype is not None and frame[label].dtype != dtype:
                frame[label] = _restored(frame[label], dtype)
        return frame.set_axis(pd.Index(about["labels"]), axis=1)


def arrow_names(labels: Sequence[Hashable]) -> list[str]:
    """What columns are called in Arrow: as they are; numbered where labels are no texts, or double.

    Raises
    ------
    UnsupportedError
        When a label is neither text nor a number.
    """
    odd = [label for label in labels if not isinstance(label, str | int)]
    if odd:
        raise UnsupportedError(f"column labels {odd!r} cannot be saved; rename them to strings")
    texts = [label for label in labels if isinstance(label, str)]
    return texts if len(set(texts)) == len(labels) else list(map(str, range(len(labels))))


def _with_arrow_columns(table: Any, arrow: Sequence[str]) -> Any:
    """As ``table.to_pandas()``, with these columns as they are, which have no names of dtypes."""
    about = table.schema.pandas_metadata
    about["columns"] = [column for column in about["columns"] if column["name"] not in arrow]
    plain = table.drop_columns(arrow).replace_schema_metadata({"pandas": json.dumps(about)})
    columns = plain.to_pandas().to_dict("series")
    columns |= {name: pd.Series(pd.arrays.ArrowExtensionArray(table[name])) for name in arrow}
    return pd.DataFrame({name: columns[name] for name in table.column_names})


def _is_range(rows: np.ndarray) -> bool:
    return bool((rows == np.arange(len(rows))).all())


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


def _replaced(frame: Any, columns: Mapping[Hashable, Any]) -> Any:
    if columns:
        frame = frame.copy(deep=False)
    for label, column in columns.items():
        frame[label] = column
    return frame


def _cast(series: Any, like: Any) -> Any:
    """`series` as the dtype of `like` when the values survive; numbers that do not are kept.

    Beside truth values these would be objects.
    """
    wanted, own, remedy = like.dtype, series.dtype, ""
    if _family(wanted) == _family(own):
        if isinstance(wanted, pd.CategoricalDtype):
            return series if isinstance(own, pd.CategoricalDtype) else series.astype("category")
        cast = _exact_cast(series, wanted)
        if cast is not None:
            return cast
        bools = any(map(pd.api.types.is_bool_dtype, (own, wanted)))
        if _family(own) == "number" and not bools:
            if _go_together(wanted, own):
                return series
            remedy = (
                "Arrow does not round numbers: build the index from, and insert, columns of "
                "pandas' own, such as .astype('Float64')"
            )
    remedy = remedy or f"convert it with .astype({str(wanted)!r}) before inserting"
    if isinstance(wanted, pd.CategoricalDtype) and UNKNOWN in wanted.categories:
        remedy = "its categories were not known: build the index from .cat.as_known() of the column"
    if str(wanted) == "bool" and series.isna().any():
        remedy = "for its nulls, build the index from .astype('boolean') of the column"
    raise ColumnError(
        f"column {series.name!r} is {own}, and the index stores it as {wanted}; {remedy}"
    )


def _go_together(stored: Any, added: Any) -> bool:
    """Whether pandas makes one column of such numbers, whichever they are, and of more to come."""
    if isinstance(stored, pd.ArrowDtype):
        return stored.kind == added.kind and stored.kind in "iuf"
    return not isinstance(added, pd.ArrowDtype)


def _exact_cast(series: Any, dtype: Any) -> Any:
    """`series` as `dtype`, or None when a value would change."""
    try:
        cast = series.astype(dtype)
        back = cast.astype(series.dtype)
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return None
    same = (back == series).fillna(False) | (cast.isna() & series.isna())
    if all(map(pd.api.types.is_integer_dtype, (series.dtype, dtype))):
        # -1 becomes the largest unsigned number, and -1 again.
        same &= ((cast < 0) == (series < 0)).fillna(True)
    return cast if same.all() else None


def _widened(frame: Any, label: Hashable) -> Any:
    return frame.astype({label: np.float32}) if frame[label].dtype == np.float16 else frame


def _kinds(frame: Any, labels: Sequence[Hashable]) -> str:
    return ", ".join(str(frame[label].dtype) for label in labels)


def _specimen(meta: Any, rows: int) -> Any:
    """`rows` equal rows with the columns of `meta`: pandas decides dtypes by rows, not by types."""
    columns = {position: _sample(meta.iloc[:0, position]) for position in range(meta.shape[1])}
    frame = pd.DataFrame(columns, index=pd.RangeIndex(1), columns=range(meta.shape[1]))
    frame = pd.concat([frame] * rows, ignore_index=True)
    frame.columns = meta.columns
    return frame


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
    return pd.array([None], dtype=dtype)


def _restored(series: Any, dtype: Any) -> Any:
    if dtype != np.dtype(object):
        return series.astype(dtype)
    return series.astype(object).where(series.notna(), None)


def _family(dtype: Any) -> str:
    """Dtypes of one family hold the same kind of value."""
    if pd.api.types.is_numeric_dtype(dtype):
        return "number"
    if isinstance(dtype, pd.CategoricalDtype):
        return _family(dtype.categories.dtype)
    if _is_text(dtype):
        return "string or object"
    return str(dtype.kind)


def _is_text(dtype: Any) -> bool:
    if isinstance(dtype, pd.ArrowDtype):
        return str(dtype.pyarrow_dtype) in {"string", "large_string"}
    return isinstance(dtype, pd.StringDtype) or pd.api.types.is_object_dtype(dtype)


def _storage(dtype: Any) -> str | None:
    if isinstance(dtype, pd.StringDtype):
        return f"{dtype.storage} {'nan' if dtype.na_value is np.nan else 'NA'}"
    if isinstance(dtype, pd.ArrowDtype):
        return "arrow"
    return "object" if dtype == np.dtype(object) else None


def _stored_dtype(storage: str | None) -> Any:
    if storage is None or storage == "arrow":
        return None
    if storage == "object":
        return np.dtype(object)
    where, _, null = storage.partition(" ")
    return pd.StringDtype(where, na_value=np.nan if null == "nan" else pd.NA)
