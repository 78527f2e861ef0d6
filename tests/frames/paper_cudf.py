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

__all__ = ["DataFrame", "install"]

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


class OfMemory(Column):
    """Simulated constructor of pylibcudf columns."""

    def __init__(self, type_: Any, size: int, data: Memory, *nothing: Any) -> None:
        super().__init__(pd.Series(np.asarray(data).view(type_.dtype)[:size]))

    @staticmethod
    def from_cuda_array_interface(array: Any) -> Column:
        """Return a column of an array."""
        return Column(pd.Series(array))


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


def install(monkeypatch: Any) -> None:
    """Replace `cudf`, `pylibcudf` and `cupy` by simulated modules."""
    cudf, pylibcudf = ModuleType("cudf"), ModuleType("pylibcudf")
    cudf.__dict__.update(
        DataFrame=DataFrame, Series=pd.Series, Index=pd.Index, RangeIndex=pd.RangeIndex,
        CategoricalDtype=pd.CategoricalDtype, concat=pd.concat,
    )  # fmt: skip
    pylibcudf.__dict__.update(
        Column=OfMemory, Table=list, TypeId=lambda name: SimpleNamespace(name=name)
    )
    for name, module in {"cudf": cudf, "pylibcudf": pylibcudf, "cupy": np}.items():
        monkeypatch.setitem(sys.modules, name, module)
