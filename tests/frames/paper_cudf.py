"""Simulated cuDF: pandas frames with the cuDF methods of `CudfFrames`.

It shows whether the code of `CudfFrames` runs and means what it says; only GPU tests show what cuDF
does.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.frames.dataframes import cudf_columns

__all__ = ["DataFrame", "TextColumn", "install", "nullable", "simulate_columns"]

KINDS = {"i": "INT", "u": "UINT", "f": "FLOAT", "b": "BOOL"}
TIMES = {"M": "TIMESTAMP", "m": "DURATION"}
UNITS = {"s": "SECONDS", "ms": "MILLISECONDS", "us": "MICROSECONDS", "ns": "NANOSECONDS"}


class Memory(np.ndarray):
    """Host bytes with the interface of GPU memory."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self.__array_interface__)


class Column:
    """Simulated column of pylibcudf."""

    def __init__(self, series: pd.Series) -> None:
        self.series = series

    def type(self) -> Any:
        """Return libcudf's name for the dtype, as its own id."""
        dtype = self.series.dtype
        kind = getattr(dtype, "kind", "O") if isinstance(dtype, np.dtype) else "O"
        if kind in TIMES:
            name = f"{TIMES[kind]}_{UNITS[np.datetime_data(dtype)[0]]}"
        elif kind in KINDS:
            name = f"{KINDS[kind]}{8 * dtype.itemsize}"
        else:
            name = "STRING"
        return SimpleNamespace(id=lambda: name, dtype=dtype)

    def null_count(self) -> int:
        """Return the number of nulls; NaN is no null."""
        return 0 if self.type().id().startswith("FLOAT") else int(self.series.isna().sum())

    def size(self) -> int:
        """Return the number of rows."""
        return len(self.series)

    def offset(self) -> int:
        """Return the offset of the first row."""
        return 0

    def data(self) -> Memory:
        """Return the bytes of all rows."""
        return np.ascontiguousarray(self.series.to_numpy()).view("u1").view(Memory)


class TextColumn:
    """Simulated column of pylibcudf with the strings of an Arrow array."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def type(self) -> Any:
        """Return libcudf's name for strings, as its own id."""
        return SimpleNamespace(id=lambda: "STRING")

    def null_count(self) -> int:
        """Return the number of nulls."""
        return int(self.array.null_count)

    def size(self) -> int:
        """Return the number of rows."""
        return len(self.array)

    def offset(self) -> int:
        """Return the offset of the first row."""
        return int(self.array.offset)

    def data(self) -> Memory | None:
        """Return the bytes of all strings, None where there are none."""
        letters = self.array.buffers()[2]
        return np.frombuffer(letters, "u1").view(Memory) if letters and letters.size else None

    def child(self, _: int) -> Column:
        """Return where the strings begin and end."""
        width = "i8" if pa.types.is_large_string(self.array.type) else "i4"
        return Column(pd.Series(np.frombuffer(self.array.buffers()[1], width)))


class OfMemory(Column):
    """Simulated constructor of pylibcudf columns."""

    def __init__(self, type_: Any, size: int, data: Memory, *nothing: Any) -> None:
        super().__init__(pd.Series(np.asarray(data).view(type_.dtype)[:size]))

    @staticmethod
    def from_cuda_array_interface(array: Any) -> Column:
        """Return a column of an array."""
        return Column(pd.Series(array))

    @staticmethod
    def of(series: pd.Series) -> Column:
        """Return the column of a Series."""
        return Column(pd.Series(series))


class DataFrame(pd.DataFrame):
    """Simulated cuDF frame."""

    @property
    def _constructor(self) -> type[DataFrame]:
        return DataFrame

    def to_pylibcudf(self) -> tuple[Any, dict[str, Any]]:
        """Return the frame's table, and metadata that the table lacks."""
        columns = [Column(self.iloc[:, number]) for number in range(self.shape[1])]
        return SimpleNamespace(columns=lambda: columns), {}

    @classmethod
    def from_pylibcudf(cls, table: Any, about: Any) -> DataFrame:
        """Return a frame of a table."""
        return cls({own: each.series for own, each in zip(about["columns"], table, strict=True)})


class OwnColumn(pd.Series):
    """Simulated column of cuDF's own, numbered from 0."""

    @property
    def _constructor(self) -> type[OwnColumn]:
        return OwnColumn

    def to_pylibcudf(self) -> Any:
        """Return the column of pylibcudf."""
        return sys.modules["pylibcudf"].Column.of(self)


def numbered(values: Any) -> OwnColumn:
    """Return values as a column."""
    return OwnColumn(pd.Series(values).reset_index(drop=True))


class Columns(dict[Any, pd.Series]):
    """Simulated columns of a frame by their labels."""

    def __init__(self, frame: pd.DataFrame) -> None:
        columns = (numbered(frame.iloc[:, place]) for place in range(frame.shape[1]))
        super().__init__(zip(frame.columns, columns, strict=True))
        self.names, self.columns = tuple(self), tuple(self.values())
        self.multiindex = frame.columns.nlevels > 1
        self.nlevels = frame.columns.nlevels


def nullable(dtype: Any) -> Any:
    """Return the dtype of numbers that may be null."""
    plain = isinstance(dtype, np.dtype) and dtype.kind in "iufb"
    return pd.array(np.zeros(1, dtype)).dtype if plain else dtype


def simulate_columns(monkeypatch: Any, frame_type: Any, series_type: Any) -> None:
    """Replace the functions of `cudf_columns` everywhere by those of pandas' Series."""

    def series_of_column(column: Any, name: Any = None, index: Any = None) -> Any:
        made = series_type(numbered(column).array, copy=True).rename(name)
        return made if index is None else series_type(made.array, index=index, name=name)

    def as_numbered(values: Any) -> Any:
        if isinstance(values, series_type) and is_numbered(values.index):
            return values
        return series_of_column(values, getattr(values, "name", None))

    def take_columns(columns: Any, rows: Any, *, nulls: bool) -> list[pd.Series]:
        columns = [numbered(column) for column in columns]
        if rows is None:
            return [column.copy() for column in columns]
        rows = np.asarray(rows, np.int64)
        if nulls and (rows < 0).any():
            columns = [
                column.astype(nullable(column.dtype)) if column.dtype.kind in "iub" else column
                for column in columns
            ]
            return [column.reindex(rows).reset_index(drop=True) for column in columns]
        return [column.take(rows).reset_index(drop=True) for column in columns]

    def is_numbered(index: Any) -> bool:
        return type(index) is pd.RangeIndex and index.start == 0 and index.step == 1

    def frame_of(columns: Any, index: Any, like: Any = None) -> Any:
        pairs = list(columns)
        made = frame_type({place: numbered(each) for place, (_, each) in enumerate(pairs)})
        labels = pd.Index([label for label, _ in pairs], dtype=None if pairs else object)
        made = made if pairs else frame_type(index=range(len(index)))
        made.columns = labels if like is None or not pairs else labels.set_names(like.columns.names)
        made.index = index
        return made

    def array_column(array: Any, like: Any = None) -> pd.Series:
        assert array.flags.c_contiguous
        made = numbered(np.array(array))
        return made if like is None or like.dtype.kind not in "mM" else made.astype(like.dtype)

    def index_of_columns(columns: Any, names: Any) -> Any:
        if len(columns) == 1:
            return pd.Index(numbered(columns[0]), name=names[0])
        frame = pd.DataFrame(dict(enumerate(map(numbered, columns))))
        return pd.MultiIndex.from_frame(frame, names=list(names))

    def series_of_key(values: Any, name: Any = None) -> Any:
        return series_of_column(values, name) if isinstance(values, OwnColumn) else values

    def take_series(series: Any, rows: Any, *, nulls: bool = False) -> Any:
        return series_of_column(take_columns([series], rows, nulls=nulls)[0], series.name)

    simulated = {
        "array_column": array_column,
        "column_of_series": numbered,
        "columns_of": Columns,
        "column_over": lambda own, _: numbered(own.series),
        "empty_column": lambda dtype: numbered(pd.Series([], dtype=dtype)),
        "frame_of": frame_of,
        "index_of_columns": index_of_columns,
        "series_of_column": series_of_column,
        "series_of_key": series_of_key,
        "shared_column": lambda column: numbered(column).copy(),
        "is_numbered": is_numbered,
        "numbered_series": as_numbered,
        "take_columns": take_columns,
        "take_series": take_series,
    }
    monkeypatch.setattr(OwnColumn, "__module__", "cudf.paper")
    own = {name: getattr(cudf_columns, name) for name in simulated}
    for module in [each for name, each in sys.modules.items() if name.startswith("dgpuhash.")]:
        for name, each in simulated.items():
            if getattr(module, name, None) is own[name]:
                monkeypatch.setattr(module, name, each)


def install(monkeypatch: Any) -> None:
    """Replace `cudf`, `pylibcudf` and `cupy` by simulated modules."""
    cudf, pylibcudf = ModuleType("cudf"), ModuleType("pylibcudf")
    cudf.__dict__.update(
        DataFrame=DataFrame, Series=pd.Series, Index=pd.Index, RangeIndex=pd.RangeIndex,
        CategoricalDtype=pd.CategoricalDtype, concat=pd.concat,
    )  # fmt: skip
    pylibcudf.__dict__.update(
        Column=OfMemory, Table=list, TypeId=lambda name: SimpleNamespace(name=name),
        unary=SimpleNamespace(is_null=lambda column: Column(column.array.is_null().to_pandas())),
    )  # fmt: skip
    for name, module in {"cudf": cudf, "pylibcudf": pylibcudf, "cupy": np}.items():
        monkeypatch.setitem(sys.modules, name, module)
    simulate_columns(monkeypatch, DataFrame, pd.Series)
