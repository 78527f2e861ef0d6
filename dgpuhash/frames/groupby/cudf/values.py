"""CudfValues: a cuDF column to aggregate, with its numbers, nulls and result dtypes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.dataframes import frames_named
from dgpuhash.frames.dataframes.cudf_columns import (
    array_column,
    column_of_series,
    empty_column,
    integers,
    key_values,
    null_mask,
    ranked_column,
    series_of_column,
    sorted_order,
    take_columns,
    type_name,
)
from dgpuhash.frames.groupby.aggregates.options import AggregateTypeError
from dgpuhash.tables.columns.aggregates import ColumnReduction

if TYPE_CHECKING:
    from dgpuhash.frames.dataframes.base import Frames

_KINDS = {
    "BOOL8": "bool",
    "INT": "int",
    "UINT": "uint",
    "FLOAT": "float",
    "TIMESTAMP": "datetime",
    "DURATION": "timedelta",
    "STRING": "text",
    "DICTIONARY": "category",
    "DECIMAL": "decimal",
}
_OF_ANYTHING = {"count", "size", "first", "last", "list"}
_OF_KEYS = _OF_ANYTHING | {"nunique", "unique"}
_OF_ORDERED = _OF_KEYS | {"min", "max"}
# Aggregates of values that are no numbers.
_OFFERED = {
    "datetime": _OF_ORDERED | {"idxmin", "idxmax"},
    "timedelta": _OF_ORDERED | {"idxmin", "idxmax", "sum", "mean"},
    "text": _OF_ORDERED | {"sum", "any", "all"},
    "category": _OF_KEYS - {"list"},
    "decimal": _OF_ORDERED - {"unique"} | {"idxmin", "idxmax", "sum"},
    "other": _OF_ANYTHING,
}


class NoReductionError(AggregateTypeError, RuntimeError):
    """An aggregate that datetimes and durations do not support, with libcudf's class."""


class CudfValues:
    """Rows of a cuDF column to aggregate.

    Parameters
    ----------
    values : column, or cudf.Series numbered from 0

    Attributes
    ----------
    column : column
    own : column of pylibcudf
    kind : str
        ``bool int uint float datetime timedelta text category decimal other``
    dtype : dtype
    """

    storage = "cudf"
    """Floats have NaNs that are no nulls."""
    fewest = 1
    """The fewest values of which there is a result, whatever `min_count`."""
    wraps = True
    """Whether sums of spans beyond 64 bits wrap."""
    sums_dtype = np.int64
    """The dtype of sums of numbers that are no floats."""

    def __init__(self, values: Any) -> None:
        self.column: Any = column_of_series(values)
        self.own: Any = self.column.to_pylibcudf()
        self.dtype: Any = self.column.dtype
        self.frames: Frames = frames_named("cudf")
        self.xp: Any = self.frames.xp
        name = type_name(self.own, self.dtype)
        self.kind: str = next(
            (kind for text, kind in _KINDS.items() if name.startswith(text)), "other"
        )

    def __len__(self) -> int:
        return len(self.column)

    @property
    def series(self) -> Any:
        """The values as a Series numbered from 0."""
        return series_of_column(self.column)

    @property
    def is_number(self) -> bool:
        """Whether kernels read the values: numbers, datetimes and durations."""
        return self.kind in {"bool", "int", "uint", "float", "datetime", "timedelta"}

    @property
    def are_ticks(self) -> bool:
        """Whether the values count units: datetimes or durations."""
        return self.kind in {"datetime", "timedelta"}

    @property
    def are_small(self) -> bool:
        """Whether means follow from integer sums, as for less than 64 bits."""
        return self.kind in {"bool", "int", "uint"} and self.numbers.dtype.itemsize < 8

    @property
    def numbers_dtype(self) -> Any:
        """The dtype of the numbers."""
        return self.numbers.dtype

    @property
    def extremes_dtype(self) -> Any:
        """The dtype of the minimum and maximum of `sortable` in states."""
        return self.sortable.dtype

    @property
    def is_numeric(self) -> bool:
        """Whether ``numeric_only=True`` keeps the column."""
        return self.kind in {"bool", "int", "uint", "float", "decimal"}

    @functools.cached_property
    def _read(self) -> Any:
        return key_values(self.own, self.dtype, None)

    @property
    def numbers(self) -> Any:
        """The values as an array; datetimes and durations as counts. Undefined for nulls."""
        return self._read.values

    @functools.cached_property
    def nulls(self) -> Any | None:
        """A mask of the nulls, without NaNs; None if there are none."""
        return null_mask(self.own)

    @functools.cached_property
    def presence(self) -> Any | None:
        """A float32 for each row, NaN for nulls, which kernels skip."""
        return None if self.nulls is None else null_marks(self.nulls, self.xp)

    def filled(self, value: Any) -> Any:
        """Return the numbers with a value in place of nulls."""
        if self.nulls is None:
            return self.numbers
        return self.xp.where(self.nulls, self.numbers.dtype.type(value), self.numbers)

    @functools.cached_property
    def stray(self) -> Any | None:
        """A mask of non-null NaNs, None if there are none."""
        if self.kind != "float" or not len(self):
            return None
        least = self.filled(0).min()
        # The least of numbers one of which is NaN is NaN.
        return self.xp.isnan(self.filled(0)) if bool(self.xp.isnan(least)) else None

    @functools.cached_property
    def bounds(self) -> tuple[int, int]:
        """The minimum and maximum integer, or 0 with nulls or without rows."""
        there = self.filled(0)
        return (int(there.min()), int(there.max())) if len(there) else (0, 0)

    @property
    def sums_fit(self) -> bool:
        """Whether no sum of the integers leaves 64 bits."""
        return max(map(abs, self.bounds)) * len(self) < 2**63

    @functools.cached_property
    def origin(self) -> int:
        """Offset subtracted from integers so that float64 is exact; mostly 0."""
        if self.kind == "timedelta" and len(self):
            return int(self.numbers.min()) if self.nulls is None else int(self.filled(0).min())
        if self.kind not in {"int", "uint"} or self.numbers.dtype.itemsize < 8 or not len(self):
            return 0
        least, most = self.bounds
        exact = least >= -(2**53) and most <= 2**53
        return 0 if exact or most - least > 2**53 else least

    @functools.cached_property
    def floats(self) -> Any:
        """The numbers less `origin` as float64, NaN for nulls."""
        if self.origin == 0:
            made = self.numbers.astype(np.float64, copy=False)
        else:
            words = self.numbers.astype(np.uint64) - np.uint64(self.origin % 2**64)
            made = words.astype(np.float64)
        return made if self.nulls is None else self.xp.where(self.nulls, np.nan, made)

    @functools.cached_property
    def sortable(self) -> Any:
        """Numbers in the order of the values; undefined for nulls."""
        return self.numbers if self.is_number else self._ranks[1]

    @functools.cached_property
    def _ranks(self) -> tuple[Any, Any]:
        """The sort order of the rows, and the rank of each row."""
        order = sorted_order([ranked_column(self.column)])
        rank = self.xp.empty(len(order), np.int64)
        rank[order] = self.xp.arange(len(order))
        return order, rank

    def row_of_rank(self, rank: Any) -> Any:
        """Return the rows at ranks of a column of non-numbers."""
        return self._ranks[0][rank]

    @functools.cached_property
    def truths(self) -> Any:
        """The truth value of each value, as uint8; undefined for nulls."""
        if self.kind == "text":
            lengths = self.series.str.len().fillna(0).astype("int64")
            return (self.frames.array(lengths) > 0).view(np.uint8)
        return (self.numbers != 0).view(np.uint8)

    def reduction(self, name: str) -> ColumnReduction:
        """Return the reduction of rows to words of groups by its name."""
        if name == "count":
            return ColumnReduction(self.presence, "f4", "one", "sum")
        if name in {"first", "last"}:
            reading = "u1" if self.presence is None else "f4"
            fold = "least" if name == "first" else "greatest"
            return ColumnReduction(self.presence, reading, "row", fold)
        if name in {"sum", "square"}:
            return reduction_of(self.filled(0), "integer" if name == "sum" else name, "sum")
        if name == "total":
            plain = self.nulls is None and self.origin == 0
            return reduction_of(self.numbers if plain else self.floats, "real", "compensated")
        if name == "pair":
            return reduction_of(self.xp.ascontiguousarray(self.floats), "real", "pair")
        if name == "magnitude":
            return reduction_of(self.xp.abs(self.floats), "real", "compensated")
        if name == "nonzero":
            return reduction_of((self.xp.abs(self.floats) > 0).view(np.uint8), "integer", "sum")
        if name == "stray":
            return reduction_of(self.stray, "integer", "sum")
        if name == "is stray":
            return reduction_of(self.stray, "truth", "greatest")
        if name in {"high", "low"}:
            filled = self.filled(0)
            part = filled >> 32 if name == "high" else filled & filled.dtype.type(2**32 - 1)
            return reduction_of(part.astype(np.int64), "integer", "sum")
        if name in {"any", "all"}:
            column = self.truths
            if self.nulls is not None:
                column = self.xp.where(self.nulls, np.uint8(name == "all"), column)
            return reduction_of(column, "truth", "greatest" if name == "any" else "least")
        return reduction_of(self._extremes_of(name), "rank", name)

    def _extremes_of(self, name: str) -> Any:
        """Return the numbers whose minimum or maximum is needed."""
        column, nulls = self.sortable, self.nulls
        if nulls is None:
            return column
        kind = column.dtype.kind
        if kind == "f":
            worst = column.dtype.type("nan")
        elif kind == "b":
            worst = name == "least"
        else:
            info = np.iinfo(column.dtype)
            worst = column.dtype.type(info.max if name == "least" else info.min)
        return self.xp.where(nulls, worst, column)

    def counts(self, counts: Any) -> Any:
        """Return numbers of values as a column."""
        return self.plain(counts) if self.kind in {"text", "other"} else self.results(counts)

    def sizes(self, sizes: Any) -> Any:
        """Return row counts as a column, in the dtype that fits this column."""
        dtype = self.dtype
        masked = isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA
        found = self.counts(sizes)
        return as_dtype(found, "Int64") if masked and dtype.storage == "pyarrow" else found

    def narrowed(self, sums: Any) -> Any:
        """Return sums or products of floats in their dtype, others unchanged."""
        if self.kind != "float":
            return sums
        with np.errstate(over="ignore"):
            return sums.astype(self.numbers.dtype, copy=False)

    def cast(self, results: Any, *, wide: Any = None) -> Any:
        """Return means and deviations unchanged, as float64."""
        return results

    def decide(self, found: Any, name: str, nulls: Any | None) -> Any:
        """Return whether ``any`` or ``all`` values of each group are true, given its `nulls`.

        None where nulls are left out.
        """
        if name == "any" and nulls is not None:
            found |= nulls
        return self.plain(found) if self.kind == "text" else self.results(found)

    def results(self, values: Any, void: Any = None) -> Any:
        """Return an array as a column in this column's family of dtypes, null where masked."""
        made = self.plain(values, void)
        if isinstance(self.dtype, np.dtype):
            return made
        from cudf.utils.dtypes import get_dtype_of_same_kind

        source = self.dtype
        if self.kind == "category":
            return made
        if isinstance(source, pd.DatetimeTZDtype):
            source = np.dtype(f"M8[{source.unit}]")
        wanted = get_dtype_of_same_kind(source, made.dtype)
        return made if wanted == made.dtype else as_dtype(made, wanted)

    def plain(self, values: Any, void: Any = None) -> Any:
        """Return an array as a column of its own dtype, null where masked."""
        return self._with_nulls(array_column(values), void)

    def _with_nulls(self, column: Any, void: Any) -> Any:
        if void is None or not bool(void.any()):
            return column
        return column_of_series(series_of_column(column).where(self.frames.series(~void)))

    def ticks(self, counts: Any, void: Any = None) -> Any:
        """Return counts as datetimes or durations of this column's dtype."""
        if not len(counts):
            return empty_column(self.dtype)
        counts = self.xp.ascontiguousarray(counts.astype(self.numbers.dtype, copy=False))
        return self._with_nulls(array_column(counts, self.column), void)

    def at(self, rows: Any) -> Any:
        """Return the values at positions; null for -1."""
        return take_columns([self.column], rows, nulls=True)[0]

    @property
    def unscaled(self) -> list[Any]:
        """The stored integers of decimals, 0 for nulls: one a value, or two halves."""
        return [self.frames.array(each.fillna(0).astype("int64")) for each in integers(self.series)]


def series_of_array(array: Any) -> Any:
    """Return a Series on the memory of an array, keeping its NaNs."""
    return series_of_column(array_column(array))


def as_dtype(values: Any, dtype: Any) -> Any:
    """Return a column of a column's or Series' values in another dtype."""
    return column_of_series(series_of_column(column_of_series(values)).astype(dtype))


def reduction_of(column: Any, term: str, fold: str) -> ColumnReduction:
    """Return the reduction of an array by the kernels' term and fold."""
    kind = "u" if column.dtype.kind == "b" else column.dtype.kind
    return ColumnReduction(column, f"{kind}{column.dtype.itemsize}", term, fold)


def null_marks(mask: Any, xp: Any) -> Any:
    """Return a float32 for each row: NaN where masked, else 0."""
    made = xp.zeros(len(mask), np.float32)
    made[mask] = np.nan
    return made


def has_aggregate(values: CudfValues, how: str) -> bool:
    """Return whether values support an aggregate."""
    return how in _OFFERED.get(values.kind, {how})


def check_aggregate(values: CudfValues, how: str) -> None:
    """Raise AggregateTypeError or UnsupportedError if values do not support an aggregate."""
    if has_aggregate(values, how):
        return
    if values.kind in {"datetime", "timedelta"}:
        raise NoReductionError(f"{values.dtype} type does not support {how} operations")
    if values.kind in {"text", "category"}:
        raise AggregateTypeError(f"{values.dtype} type does not support {how} operations")
    raise UnsupportedError(
        f"{how} of {values.dtype} is not supported; use one of "
        f"{', '.join(sorted(_OFFERED[values.kind]))}"
    )


def list_column(series: Any, ends: Any) -> Any:
    """Return a Series of lists: the values of a Series, cut at positions from 0 on."""
    import pylibcudf as plc

    offsets = plc.Column.from_cuda_array_interface(ends.astype(np.int32))
    child = series.to_pylibcudf()[0]
    type_ = plc.DataType(plc.TypeId.LIST)
    column = plc.Column(type_, len(ends) - 1, None, None, 0, 0, [offsets, child])
    series_type = type(series)
    if type_name(child, series.dtype) not in {"LIST", "STRUCT"}:
        return series_type.from_pylibcudf(column)
    from cudf.core.column import ColumnBase
    from cudf.core.dtypes import ListDtype

    # libcudf's columns do not have the names of fields.
    return series_type._from_column(ColumnBase.create(column, ListDtype(series.dtype)))
