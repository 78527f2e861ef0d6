"""What frames of pandas and cuDF hold prices and days as, and how they are read from Parquet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

__all__ = ["CUDF", "EXACT", "FLOATS", "Frame", "Library", "on_host"]

# A DataFrame of pandas or cuDF, or a lazy one of Dask.
Frame: TypeAlias = Any


@dataclass(frozen=True)
class Library:
    """What a library of frames has for prices, days, means and shares.

    Attributes
    ----------
    read : callable
        Returns a frame of some columns of files.
    made : callable
        Returns a frame of an Arrow table.
    real : dtype
        Of means.
    share : dtype or None
        Of shares such as 0.07, so that products of prices with them have few digits; None where
        prices are floats.
    number, day : callable
        Return a number, or the text of one, and a day as what columns are compared with.
    least : int
        Rows from which a sum is no null; 0 where Dask has no such sums.
    block_nbytes : callable
        Returns the most bytes of a partition of several files.
    """

    read: Callable[[Sequence[Path], Sequence[str]], Frame]
    made: Callable[[pa.Table], Frame]
    real: Any
    share: Any
    number: Callable[[Any], Any]
    day: Callable[[date], Any]
    least: int = 1
    block_nbytes: Callable[[], int] = lambda: 0

    def shares(self, column: Any) -> Any:
        """Return a column of shares as numbers of few digits."""
        return column if self.share is None else column.astype(self.share)


def _read(made: Callable[[pa.Table], Frame], files: Sequence[Path], columns: Sequence[str]) -> Any:
    return made(ds.dataset(list(map(str, files)), format="parquet").to_table(list(columns)))


def _exact(table: pa.Table) -> pd.DataFrame:
    # Their dtypes are those which Dask gives them.
    return table.to_pandas(types_mapper=_dtype, split_blocks=True, self_destruct=True)


def _dtype(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind) or pa.types.is_date(kind):
        return pd.ArrowDtype(kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return pd.StringDtype("pyarrow") if is_text or pa.types.is_string_view(kind) else None


def _floats(table: pa.Table) -> pd.DataFrame:
    frame = _exact(table)
    wanted = {
        name: "float64" if pa.types.is_decimal(dtype.pyarrow_dtype) else "datetime64[s]"
        for name, dtype in frame.dtypes.items()
        if isinstance(dtype, pd.ArrowDtype)
    }
    return frame.astype(wanted)


def _cudf(table: pa.Table) -> Any:
    import cudf

    views = [pa.types.is_string_view(each.type) for each in table.schema]
    kinds = [
        pa.field(each.name, pa.string()) if view else each
        for view, each in zip(views, table.schema, strict=True)
    ]
    return _with_floats(cudf.DataFrame.from_arrow(table.cast(pa.schema(kinds))))


def _read_cudf(files: Sequence[Path], columns: Sequence[str]) -> Any:
    import cudf

    return _with_floats(cudf.read_parquet(list(map(str, files)), columns=list(columns)))


def _block_of_gpu() -> int:
    """Return what Dask-cuDF takes, unless it is told: a 32nd of the memory of a GPU."""
    import cupy

    return int(cupy.cuda.Device().mem_info[1]) // 32


def _with_floats(frame: Any) -> Any:
    for name in frame.columns:
        if type(frame[name].dtype).__name__.startswith("Decimal"):
            frame[name] = frame[name].astype("float64")
    return frame


#: pandas, with Arrow's decimals and dates. Arrow casts decimals to its own floats without making
#: Python objects.
EXACT = Library(
    partial(_read, _exact), _exact, pd.ArrowDtype(pa.float64()),
    pd.ArrowDtype(pa.decimal128(4, 2)), Decimal, lambda day: day,
)  # fmt: skip
#: cuDF: prices are floats, as groups on several GPUs add decimals where the rows of a group are.
CUDF = Library(
    _read_cudf, _cudf, "float64", None, float, pd.Timestamp, least=0, block_nbytes=_block_of_gpu
)  # fmt: skip
#: pandas, with what cuDF has.
FLOATS = Library(partial(_read, _floats), _floats, "float64", None, float, pd.Timestamp)


def on_host(answer: Frame) -> pd.DataFrame:
    """Return an answer as a pandas frame, with dates in place of moments."""
    answer = answer.compute() if hasattr(answer, "compute") else answer
    answer = answer.to_pandas() if hasattr(answer, "to_pandas") else answer
    moments = answer.select_dtypes("datetime")
    return answer.assign(**{name: moments[name].dt.date for name in moments})
