"""cuDF frames: rows in GPU memory."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.errors import ColumnError, KeyTypeError, UnsupportedError
from dgpuhash.frames.dataframes.base import Compared, Frames
from dgpuhash.frames.dataframes.cudf_casts import exact_cast
from dgpuhash.frames.dataframes.cudf_columns import (
    array_column,
    columns_of,
    frame_of,
    index_of_column,
    is_numbered,
    keep_columns,
    key_column,
    plain_array,
    series_of_column,
    take_columns,
    type_name,
    unscaled,
    with_attributes,
)
from dgpuhash.frames.dataframes.pandas_arrow import METADATA, arrow_names
from dgpuhash.frames.dataframes.remedies import astype
from dgpuhash.frames.key_columns import IncomparableError, KeyColumn, LogicalType
from dgpuhash.tables.select import row_numbers


class CudfFrames(Frames):
    """Functions over cuDF frames.

    Every cuDF column can hold nulls, so no dtype is promoted.
    """

    name = "cudf"
    device = "cuda"
    promotion = "nullable"

    def __init__(self) -> None:
        import cudf
        import cupy

        self._cudf: Any = cudf
        self._cp: Any = cupy

    @property
    def xp(self) -> ModuleType:
        return self._cp

    def dtypes(self, frame: Any) -> list[Any]:
        # `frame.dtypes` builds a pandas Series on each call: 0.2 to 0.4 ms, where this takes 1 µs.
        told = getattr(frame, "_dtypes", None)
        return super().dtypes(frame) if told is None else [dtype for _, dtype in told]

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
                f"column {series.name!r} is {dtype}{nulls}, which a CuPy array cannot hold; ask "
                "with a cuDF Series or DataFrame, such as cudf.Series(keys)"
            )
        if not series.has_nulls:
            return series.to_cupy()
        floating = np.dtype(getattr(dtype, "numpy_dtype", dtype)) if kind == "f" else np.float64
        values = series.fillna(0).to_cupy().astype(floating)
        return self._cp.where(
            series.isna().to_cupy().astype(bool), values.dtype.type("nan"), values
        )

    def series(self, values: Any, index: Any = None) -> Any:
        return self._cudf.Series(values, index=index)

    def column(self, frame: Any, label: Hashable) -> Any | None:
        columns = columns_of(frame)
        if columns.multiindex:
            return frame[label] if label in frame.columns else None
        found = columns.get(label)
        return None if found is None else series_of_column(found, label)

    def label_levels(self, frame: Any) -> int:
        return max(1, columns_of(frame).nlevels)

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
        decimals = [
            side for side in (left, right)
            if not isinstance(side.dtype, np.dtype) and type_name(side).startswith("DECIMAL")
        ]  # fmt: skip
        if not decimals:
            return [(left, right)]
        if left.dtype != right.dtype:
            raise KeyTypeError(
                "Decimal columns can only be merged with decimal columns of the same precision and "
                f"scale; key {name!r} is {left.dtype} and {right.dtype}: convert one side with "
                ".astype"
            )
        # Those of one scale are compared as the integers that they are stored as.
        return zip(unscaled(left), unscaled(right), strict=True)

    def unlike(
        self, left: Compared, right: Compared, error: KeyTypeError
    ) -> tuple[Compared, Compared]:
        if not (len(left.series) and len(right.series)):
            return left, right
        # Raises where one of them cannot be a key.
        assert left.column.type != right.column.type
        raise IncomparableError(
            f"You are trying to merge on {left.series.dtype} and {right.series.dtype} columns for "
            f"key '{left.name}'. If you wish to proceed convert one side with .astype"
        ) from error

    def arrays(self, frame: Any, dtypes: Sequence[Any] | None = None) -> list[Any] | None:
        found = self._plain(frame, self.dtypes(frame) if dtypes is None else dtypes)
        return None if not found or any(array is None for array in found) else found

    def _plain(self, frame: Any, dtypes: Sequence[Any]) -> list[Any]:
        """Return each column as an array; None for a column that cannot be one."""
        columns = (column.to_pylibcudf() for column in columns_of(frame).values())
        return list(map(plain_array, columns, dtypes))

    def from_arrays(self, arrays: Sequence[Any], like: Any) -> Any:
        if not len(arrays) or not len(arrays[0]):
            return like.iloc[:0].reset_index(drop=True)
        columns, index = columns_of(like), self._cudf.RangeIndex(len(arrays[0]))
        made = map(array_column, arrays, columns.values())
        return frame_of(zip(columns, made, strict=True), index, like=like)

    def widened(self, frame: Any, arrays: Sequence[Any], added: Sequence[Any], like: Any) -> Any:
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
        found = take_columns(columns.values(), rows, nulls=nulls)
        labels = self._cudf.RangeIndex(len(rows))
        return frame_of(zip(columns, found, strict=True), labels, like=frame)

    def keep(self, frame: Any, rows: Any) -> Any:
        index, columns = frame.index, columns_of(frame)
        found = take_columns(columns.values(), rows, nulls=False)
        if type(index) is self._cudf.RangeIndex:
            labels = index_of_column(array_column(rows * index.step + index.start), index.name)
        else:
            labels = index.take(rows)
        made = frame_of(zip(columns, found, strict=True), labels, like=frame)
        return with_attributes(made, frame)

    def keep_where(self, frame: Any, mask: Any) -> Any:
        index, columns = frame.index, columns_of(frame)
        numbers = array_column(row_numbers(backend.get(self.device), len(mask)))
        *found, rows = keep_columns([*columns.values(), numbers], mask)
        if is_numbered(index):
            labels = index_of_column(rows, index.name)
        else:
            labels = index.take(plain_array(rows.to_pylibcudf(), rows.dtype))
        made = frame_of(zip(columns, found, strict=True), labels, like=frame)
        return with_attributes(made, frame)

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
