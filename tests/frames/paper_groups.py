"""Simulated cuDF for groupbys: pandas frames with what ours calls of cuDF, pylibcudf and CuPy.

It shows whether our code runs and means what it says; only GPU tests show what cuDF does. Columns
of nullable dtypes stand for those of cuDF's.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from frames.paper_cudf import KINDS, TIMES, UNITS, Memory, nullable, simulate_columns

from dgpuhash.frames.dataframes import cudf as cudf_frames
from dgpuhash.frames.dataframes import cudf_columns
from dgpuhash.frames.dataframes.pandas import PandasFrames
from dgpuhash.frames.groupby.cudf import groups, ranked, values
from dgpuhash.frames.groupby.partial.cudf import plan

__all__ = ["DataFrame", "install"]


class Series(pd.Series):
    """Simulated cuDF Series."""

    @property
    def _constructor(self) -> type[Series]:
        return Series

    @property
    def _constructor_expanddim(self) -> type[DataFrame]:
        return DataFrame

    def set_axis(self, *_: Any, **__: Any) -> Any:
        """Raise as cuDF, which has no such method."""
        raise AttributeError("set_axis")

    def to_pandas(self) -> pd.Series:
        """Return the Series of pandas."""
        return pd.Series(self)


class DataFrame(pd.DataFrame):
    """Simulated cuDF frame."""

    @property
    def _constructor(self) -> type[DataFrame]:
        return DataFrame

    @property
    def _constructor_sliced(self) -> type[Series]:
        return Series

    def set_axis(self, *_: Any, **__: Any) -> Any:
        """Raise as cuDF, which has no such method."""
        raise AttributeError("set_axis")

    def to_pylibcudf(self) -> tuple[Any, dict[str, Any]]:
        """Return the frame's table, and metadata that the table lacks."""
        columns = [Column(self.iloc[:, number]) for number in range(self.shape[1])]
        return SimpleNamespace(columns=lambda: columns), {}

    @classmethod
    def from_pylibcudf(cls, table: Any, about: Any) -> DataFrame:
        """Return a frame of a table."""
        return cls({own: each.series for own, each in zip(about["columns"], table, strict=True)})

    def to_pandas(self) -> pd.DataFrame:
        """Return the frame of pandas."""
        return pd.DataFrame(self)

    def to_arrow(self, *, preserve_index: bool) -> Any:
        """Return an Arrow table."""
        return pa.Table.from_pandas(pd.DataFrame(self), preserve_index=preserve_index)

    @classmethod
    def from_arrow(cls, data: Any) -> DataFrame:
        """Return a frame of an Arrow table."""
        return cls(data.to_pandas())


class Column:
    """Simulated column of pylibcudf."""

    def __init__(self, series: Any) -> None:
        self.series = pd.Series(series).reset_index(drop=True)

    def type(self) -> Any:
        """Return libcudf's name for the dtype, as its own id."""
        dtype = self.series.dtype
        own = dtype if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", None)
        kind = own.kind if isinstance(own, np.dtype) else "O"
        name = "STRING"
        if kind in TIMES:
            name = f"{TIMES[kind]}_{UNITS[np.datetime_data(own)[0]]}"
        elif kind in KINDS:
            name = f"{KINDS[kind]}{8 * own.itemsize}"
        return SimpleNamespace(id=lambda: name, dtype=dtype)

    def null_count(self) -> int:
        """Return the number of nulls."""
        return int(self.series.isna().sum())

    def size(self) -> int:
        """Return the number of rows."""
        return len(self.series)

    def offset(self) -> int:
        """Return the offset of the first row."""
        return 0

    def data(self) -> Memory:
        """Return the bytes of all rows."""
        return np.ascontiguousarray(self.series.to_numpy()).view("u1").view(Memory)


class OfMemory(Column):
    """Simulated constructor of pylibcudf columns."""

    def __init__(self, type_: Any, size: int, data: Memory, *nothing: Any) -> None:
        super().__init__(pd.Series(np.asarray(data).view(type_.dtype)[:size]))

    @staticmethod
    def from_cuda_array_interface(array: Any) -> Column:
        """Return a column of a contiguous array."""
        assert array.flags.c_contiguous
        return Column(np.array(array))

    @staticmethod
    def of(series: pd.Series) -> Column:
        """Return the column of a Series."""
        return Column(pd.Series(series))


def _sorted_order(table: Any, orders: Any, nulls: Any) -> Column:
    keys = [each.series.rank(method="dense", na_option="bottom").to_numpy() for each in table]
    return Column(np.lexsort(keys[::-1]).astype(np.int32))


def _gathered(table: Any, places: Column, _: Any) -> Any:
    rows = places.series.to_numpy()
    assert (rows >= 0).all()
    columns = [Column(each.series.take(rows)) for each in table]
    return SimpleNamespace(columns=lambda: columns)


def _plain_array(column: Column, dtype: Any) -> Any:
    known = isinstance(dtype, np.dtype) and dtype.kind in "biufmM"
    if not known or column.null_count():
        return None
    array = column.series.to_numpy()
    return array.view("i8") if dtype.kind in "mM" else array


def _array(self: Any, series: Any, like: Any = None) -> Any:
    plain = pd.Series(series)
    own = getattr(plain.dtype, "numpy_dtype", None)
    if isinstance(plain.dtype, np.dtype) or own is None:
        return plain.to_numpy()
    if plain.isna().any():
        return plain.to_numpy(dtype=np.float64, na_value=np.nan)
    return plain.to_numpy(dtype=own)


def _of_same_kind(source: Any, dtype: Any) -> Any:
    return nullable(dtype) if hasattr(source, "numpy_dtype") else dtype


def _with_nulls(self: Any, series: Any, void: Any) -> Any:
    if void is None or not bool(np.any(void)):
        return series
    return series.astype(nullable(series.dtype)).where(pd.Series(~np.asarray(void)))


def _list_column(series: Any, ends: Any) -> Series:
    rows = list(series)
    lists = [rows[start:end] for start, end in pairwise(ends)]
    return Series(lists, dtype=object)


def install(monkeypatch: Any) -> None:
    """Replace cuDF, pylibcudf and CuPy, and what of ours reads the memory of their columns."""
    cudf, pylibcudf = ModuleType("cudf"), ModuleType("pylibcudf")
    dtypes = ModuleType("cudf.utils.dtypes")
    dtypes.__dict__.update(
        get_dtype_of_same_kind=_of_same_kind,
        find_common_type=lambda found: np.result_type(*found),
    )
    cudf.__dict__.update(
        DataFrame=DataFrame, Series=Series, Index=pd.Index, RangeIndex=pd.RangeIndex,
        MultiIndex=pd.MultiIndex, CategoricalDtype=pd.CategoricalDtype, Grouper=pd.Grouper,
        concat=pd.concat, get_option=lambda _: False, __path__=[],
    )  # fmt: skip
    pylibcudf.__dict__.update(
        Column=OfMemory, Table=list, TypeId=lambda name: SimpleNamespace(name=name),
        unary=SimpleNamespace(is_null=lambda column: Column(column.series.isna())),
        copying=SimpleNamespace(
            gather=_gathered, OutOfBoundsPolicy=SimpleNamespace(NULLIFY=0, DONT_CHECK=1)
        ),
        sorting=SimpleNamespace(stable_sorted_order=_sorted_order),
        types=SimpleNamespace(
            Order=SimpleNamespace(ASCENDING=0), NullOrder=SimpleNamespace(AFTER=0)
        ),
    )  # fmt: skip
    for name, module in {
        "cudf": cudf, "cudf.utils": ModuleType("cudf.utils"), "cudf.utils.dtypes": dtypes,
        "pylibcudf": pylibcudf, "cupy": np,
    }.items():  # fmt: skip
        monkeypatch.setitem(sys.modules, name, module)
    for kind in (Series, DataFrame):
        monkeypatch.setattr(kind, "__module__", "cudf.paper")
    of_series = {
        "to_pylibcudf": lambda self: (Column(self), {}),
        "from_pylibcudf": classmethod(lambda cls, column, *_: Series(column.series)),
        "has_nulls": property(lambda self: bool(self.isna().any())),
        "nans_to_nulls": lambda self: self,
        "to_cupy": lambda self: _array(None, self),
    }
    for name, each in of_series.items():
        monkeypatch.setattr(pd.Series, name, each, raising=False)
    keys = lambda series, name: PandasFrames().key_column(pd.Series(series), name)  # noqa: E731
    monkeypatch.setattr(cudf_frames, "key_column", keys)
    frames = cudf_frames.CudfFrames
    monkeypatch.setattr(frames, "device", "cpu")
    monkeypatch.setattr(frames, "array", _array)
    monkeypatch.setattr(values.CudfValues, "_with_nulls", _with_nulls)
    values_of = lambda own, _, name: PandasFrames().key_column(own.series, name)  # noqa: E731
    for module in (cudf_frames, cudf_columns, groups, values, plan):
        for name, each in {"plain_array": _plain_array, "key_values": values_of}.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, each)
    simulate_columns(monkeypatch, DataFrame, Series)
    for module in (values, ranked):
        monkeypatch.setattr(module, "list_column", _list_column)
