"""Columns to aggregate: numbers, nulls, ranks and sort order."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.dataframes.order import sorted_rows
from dgpuhash.frames.dataframes.pandas_keys import is_plain
from dgpuhash.frames.dataframes.pandas_order import sortable
from dgpuhash.frames.dataframes.pandas_take import TakenRows
from dgpuhash.frames.dataframes.promotion import check_promoted

_NUMERIC = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
_TICKS = {"M": "datetime", "m": "timedelta"}
_MASKED: dict[str, Any] = {
    "b": pd.arrays.BooleanArray,
    "i": pd.arrays.IntegerArray,
    "u": pd.arrays.IntegerArray,
    "f": pd.arrays.FloatingArray,
}


def kind_of(dtype: Any) -> str:
    """Return the kind of a dtype, which decides how columns are aggregated.

    One of ``bool int uint float complex datetime timedelta period text category object decimal
    arrow other``.

    Examples
    --------
    >>> kind_of(pd.Int8Dtype()), kind_of(np.dtype("M8[s]")), kind_of(pd.ArrowDtype(pa.string()))
    ('int', 'datetime', 'text')
    """
    if isinstance(dtype, pd.StringDtype):
        return "text"
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    if isinstance(dtype, pd.PeriodDtype):
        return "period"
    if isinstance(dtype, pd.ArrowDtype):
        arrow = dtype.pyarrow_dtype
        if pa.types.is_string(arrow) or pa.types.is_large_string(arrow):
            return "text"
        if pa.types.is_timestamp(arrow) or pa.types.is_duration(arrow):
            return "datetime" if pa.types.is_timestamp(arrow) else "timedelta"
        if not _is_number(arrow):
            return "decimal" if pa.types.is_decimal128(arrow) else "arrow"
    if isinstance(dtype, pd.IntervalDtype | pd.SparseDtype):
        return "other"
    if dtype.kind in _TICKS:
        return _TICKS[dtype.kind]
    if dtype.kind in _NUMERIC:
        return _NUMERIC[dtype.kind]
    return "object" if dtype.kind == "O" and isinstance(dtype, np.dtype) else "other"


def _is_number(arrow: Any) -> bool:
    return bool(
        pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_boolean(arrow)
    )


def nulls_of(series: pd.Series) -> Any | None:
    """Return a mask of the nulls of a column, None if there are none.

    Examples
    --------
    >>> nulls_of(pd.Series([1.5, None])), nulls_of(pd.Series([1, 2]))
    (array([False,  True]), None)
    """
    kind = series.dtype.kind if isinstance(series.dtype, np.dtype) else "O"
    if kind in "biu":
        return None
    if kind in "fcmM":
        mask = (np.isnan if kind in "fc" else np.isnat)(series.to_numpy())
    else:
        mask = series.isna().to_numpy()
    return mask if mask.any() else None


class Values:
    """Rows of a column to aggregate.

    Parameters
    ----------
    series : Series
        Numbered from 0.

    Attributes
    ----------
    kind : str
        See `kind_of`.
    dtype : dtype
    """

    fewest = 0
    """The fewest values of which there is a result, whatever `min_count`."""
    wraps = False
    """Whether sums of spans beyond 64 bits wrap."""

    def __init__(self, series: Any) -> None:
        if isinstance(series.dtype, pd.SparseDtype):
            series = series.sparse.to_dense()
        self.series: Any = series
        self.dtype: Any = series.dtype
        self.kind: str = kind_of(series.dtype)

    def __len__(self) -> int:
        return len(self.series)

    @functools.cached_property
    def storage(self) -> str:
        """Storage of results: NumPy, masked, or Arrow."""
        if isinstance(self.dtype, np.dtype):
            return "numpy"
        if isinstance(self.dtype, pd.ArrowDtype):
            return "arrow"
        return "masked" if isinstance(self.series.array, (*_MASKED.values(),)) else "numpy"

    @functools.cached_property
    def nulls(self) -> Any | None:
        """A mask of the nulls, None if there are none."""
        return nulls_of(self.series)

    @functools.cached_property
    def there(self) -> Any | None:
        """The positions of the non-null values, None for all."""
        return None if self.nulls is None else np.flatnonzero(~self.nulls)

    @functools.cached_property
    def numbers(self) -> Any:
        """The values as NumPy numbers; datetimes and durations as int64. Undefined for nulls."""
        dtype, series = self.dtype, self.series
        if self.kind == "period":
            return series.array.asi8
        if self.kind in {"datetime", "timedelta"} and self.storage == "numpy":
            letter = "M" if self.kind == "datetime" else "m"
            return series.to_numpy(dtype=f"{letter}8[{self.unit}]").view(np.int64)
        if self.storage == "numpy":
            values = series.to_numpy()
            return values.astype(np.float32) if values.dtype == np.float16 else values
        if self.storage == "masked":
            plain = np.dtype(dtype.numpy_dtype)
            return series.to_numpy(dtype=plain, na_value=plain.type(0))
        array = pa.chunked_array(pa.array(series, from_pandas=True))
        if self.kind in {"datetime", "timedelta"}:
            array = array.cast(pa.int64())
        values = array.fill_null(False if self.kind == "bool" else 0).to_numpy()
        return values.astype(np.float32) if values.dtype == np.float16 else values

    @property
    def numbers_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the column's numbers."""
        if self.storage == "masked":
            return np.dtype(self.dtype.numpy_dtype)
        if self.storage == "arrow":
            return np.dtype(self.dtype.numpy_dtype)
        return np.dtype(self.dtype)

    @functools.cached_property
    def _extent(self) -> tuple[int, int]:
        """The minimum and maximum of integers; 0 without any."""
        there = self.numbers if self.there is None else self.numbers[self.there]
        return (int(there.min()), int(there.max())) if len(there) else (0, 0)

    @functools.cached_property
    def are_small(self) -> bool:
        """Whether float64 is exact for every sum of the integers."""
        if self.kind == "bool":
            return len(self) <= 2**53
        if self.kind not in {"int", "uint"}:
            return False
        least, most = self._extent
        return max(-least, most) * len(self) <= 2**53

    @property
    def spread(self) -> int | None:
        """The range of integers; None for other types, and where sums leave 64 bits."""
        if self.kind not in {"bool", "int", "uint"}:
            return None
        least, most = (0, 1) if self.kind == "bool" else self._extent
        return most - least if max(-least, most) * len(self) < 2**63 else None

    @functools.cached_property
    def origin(self) -> int:
        """Offset subtracted from integers so that float64 is exact; mostly 0."""
        if self.kind == "float" or self.kind == "bool":
            return 0
        least, most = self._extent
        if self.are_ticks:
            return least
        # Where the differences are no more exact, small numbers would be less so.
        exact = least >= -(2**53) and most <= 2**53
        return 0 if exact or most - least > 2**53 else least

    @functools.cached_property
    def floats(self) -> Any:
        """The numbers less `origin`, as float64; undefined for nulls."""
        if self.origin == 0:
            return self.numbers.astype(np.float64, copy=False)
        words = self.numbers.astype(np.uint64, copy=False)
        return (words - np.uint64(self.origin % 2**64)).astype(np.float64)

    @functools.cached_property
    def stray(self) -> Any | None:
        """The positions of non-null NaNs, None if there are none."""
        if self.kind != "float" or self.storage == "numpy":
            return None
        found = np.isnan(self.numbers)
        if self.nulls is not None:
            found &= ~self.nulls
        return np.flatnonzero(found) if found.any() else None

    @functools.cached_property
    def unordered(self) -> Any | None:
        """A mask of the nulls and NaNs; None if there are none."""
        if self.stray is None:
            return self.nulls
        mask = np.zeros(len(self), bool) if self.nulls is None else self.nulls.copy()
        mask[self.stray] = True
        return mask

    @functools.cached_property
    def read(self) -> Any | None:
        """The positions of the values that kernels read, None for all."""
        return None if self.skips_nan else self.there

    @property
    def skips_nan(self) -> bool:
        """Whether the nulls are NaN, which kernels skip."""
        return self.kind == "float" and self.storage == "numpy"

    @property
    def unit(self) -> str:
        """The unit of datetimes and durations."""
        if isinstance(self.dtype, pd.ArrowDtype):
            return str(self.dtype.pyarrow_dtype.unit)
        if isinstance(self.dtype, pd.DatetimeTZDtype):
            return str(self.dtype.unit)
        return str(np.datetime_data(self.dtype)[0])

    @property
    def is_number(self) -> bool:
        """Whether kernels read the values: numbers, datetimes and durations."""
        return self.kind in {"bool", "int", "uint", "float", "datetime", "timedelta", "period"}

    @property
    def are_numbers(self) -> bool:
        """Whether all objects are numbers, or null."""
        there = self.series.to_numpy() if self.there is None else self.series.to_numpy()[self.there]
        return all(isinstance(each, Number | np.bool_) for each in there)

    @property
    def are_ticks(self) -> bool:
        """Whether the values count units: datetimes, durations or periods."""
        return self.kind in {"datetime", "timedelta", "period"}

    @property
    def is_numeric(self) -> bool:
        """Whether ``numeric_only=True`` keeps the column."""
        return bool(pd.api.types.is_numeric_dtype(self.dtype))

    @functools.cached_property
    def sortable(self) -> Any:
        """Numbers in the order of the values; undefined for nulls."""
        return self.numbers if self.is_number else ranks(self.series)

    @property
    def extremes_dtype(self) -> np.dtype[Any]:
        """The dtype of the minimum and maximum of `sortable` in states."""
        dtype = self.sortable.dtype
        return dtype if dtype.kind == "f" else np.dtype("i8" if dtype.kind == "i" else "u8")

    @property
    def sums_dtype(self) -> type[np.generic]:
        """The dtype of sums of integers."""
        return np.uint64 if self.kind == "uint" else np.int64

    @functools.cached_property
    def truths(self) -> Any:
        """The truth value of each value in Python, as uint8."""
        if self.kind == "text":
            lengths = self.series.str.len()
            return (lengths.fillna(0).to_numpy(np.float64) > 0).astype(np.uint8)
        if self.kind == "category":
            # As in pandas, which has no truth of datetimes elsewhere, the first one is false.
            of_each = [
                bool(each) and not (isinstance(each, pd.Timestamp) and each.value == 0)
                for each in self.series.cat.categories
            ]
            codes = self.series.cat.codes.to_numpy()
            return np.array([*of_each, False], np.uint8)[codes]
        if self.kind == "object":
            there = self.series.notna()
            values = self.series.astype(object)
            return np.array(
                [bool(value) for value in values.where(there, False)], bool
            ).view(np.uint8)  # fmt: skip
        return (self.numbers != 0).view(np.uint8)

    def results(self, values: Any, nulls: Any = None) -> Any:
        """Return numbers as an array in this column's storage, with nulls where masked."""
        nulls = nulls if nulls is not None and nulls.any() else None
        if self.storage == "masked":
            mask = np.zeros(len(values), bool) if nulls is None else nulls
            return _MASKED[values.dtype.kind](values, mask)
        if self.storage == "arrow":
            return pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(values, mask=nulls)]))
        if nulls is None:
            return values
        if values.dtype.kind == "f":
            return np.where(nulls, values.dtype.type(np.nan), values)
        check_promoted(values[~nulls], np.dtype(np.float64), self.series.name)
        return np.where(nulls, np.nan, values.astype(np.float64))

    @property
    def counts(self) -> Callable[[Any], Any]:
        """Return counts of non-null values in this column's storage."""
        return self.results

    def sizes(self, sizes: Any) -> Any:
        """Return row counts in the integer dtype that fits this column's storage."""
        masked = self.kind == "text" and isinstance(self.dtype, pd.StringDtype)
        if masked and self.dtype.na_value is pd.NA and self.dtype.storage == "pyarrow":
            return pd.arrays.IntegerArray(sizes, np.zeros(len(sizes), bool))
        return self.results(sizes)

    def narrowed(self, sums: Any) -> Any:
        """Return sums in the dtype of the values if they all fit, as pandas does."""
        if self.kind == "bool":
            return sums
        if self.kind == "float":
            return self.cast(sums)
        narrow = sums.astype(self.numbers_dtype)
        return narrow if len(sums) == 0 or (narrow == sums).all() else sums

    def decide(self, found: Any, name: str, nulls: Any | None) -> Any:
        """Return whether ``any`` or ``all`` values of each group are true, given its `nulls`.

        None where nulls are left out.
        """
        if self.kind == "timedelta" and self.storage == "arrow":
            return found
        if nulls is None or not nulls.any():
            return self.results(found)
        if self.kind == "object":
            # pandas.NA is neither true nor false.
            for each in self.series[self.nulls]:
                bool(each)
        if self.storage == "numpy":
            return found | nulls if name == "any" else found
        return self.results(found, nulls & ~(found if name == "any" else ~found))

    def cast(self, results: Any, *, wide: Any = np.float32) -> Any:
        """Return float64 results in the column's float dtype; float64 for other numbers.

        Those of NumPy's float16 are `wide` where its digits do not have them, as in pandas.
        """
        if self.kind != "float":
            return results
        with np.errstate(over="ignore"):
            made = results.astype(self.numbers_dtype)
            if self.numbers_dtype != np.float16 or self.storage != "numpy":
                return made
            exact = results.astype(wide)
            return made if ((made == exact) | np.isnan(exact)).all() else exact

    def ticks(self, counts: Any, nulls: Any = None) -> Any:
        """Return int64 counts as datetimes, durations or periods of this column's dtype."""
        dtype: Any = self.dtype
        counts = np.ascontiguousarray(counts, np.int64)
        if nulls is not None:
            counts = np.where(nulls, np.iinfo(np.int64).min, counts)
        if self.kind == "period":
            return pd.arrays.PeriodArray(counts, dtype=dtype)
        if self.storage == "arrow":
            null = counts == np.iinfo(np.int64).min
            made = pa.array(counts, mask=null).cast(dtype.pyarrow_dtype)
            return pd.arrays.ArrowExtensionArray(pa.chunked_array([made]))
        if self.kind == "timedelta":
            return pd.Series(counts.view(f"m8[{self.unit}]")).array
        made = pd.Series(counts.view(f"M8[{self.unit}]"))
        if isinstance(dtype, pd.DatetimeTZDtype):
            made = made.dt.tz_localize("UTC").dt.tz_convert(dtype.tz)
        return made.array

    def spans(self, counts: Any, nulls: Any) -> Any:
        """Return float counts as durations in this column's unit.

        They are cut off towards zero, but for those that are whole up to the digits of a float.
        """
        counts = np.where(nulls, 0, counts)
        whole = np.rint(counts)
        near = np.abs(counts - whole) <= 1e-13 * np.abs(counts)
        made = np.where(near, whole, counts).astype(np.int64)
        made[nulls] = np.iinfo(np.int64).min
        if self.storage == "arrow":
            array = pa.array(made, mask=nulls).cast(pa.duration(self.unit))
            return pd.arrays.ArrowExtensionArray(pa.chunked_array([array]))
        return pd.Series(made.view(f"m8[{self.unit}]")).array

    def at(self, rows: Any) -> Any:
        """Return the values at positions; null for -1."""
        return take_values(self.series, rows)


def take_values(series: pd.Series, rows: Any) -> Any:
    """Return the values at positions as an array; null for -1.

    Raises ColumnError where float64 would round an integer.

    Examples
    --------
    >>> take_values(pd.Series([1, 2]), np.array([1, -1])).tolist()
    [2.0, nan]
    """
    return TakenRows(rows, nulls=True).of(series)


def key_order(columns: list[pd.Series], *, in_runs: bool = False) -> Any:
    """Return the sort order of rows by several key columns, nulls last.

    Of rows that come `in_runs`, a few parts in order one behind the other, the runs are merged:
    that takes little memory besides the positions.

    Raises
    ------
    KeyTypeError
        When objects cannot be compared.

    Examples
    --------
    >>> key_order([pd.Series(["b", None, "a"])])
    array([2, 0, 1])
    """
    levels: list[Any] = []
    for column in columns:
        for values, nulls in _sortable(column):
            if nulls is not None:
                levels.append(nulls)
            levels.append(values)
    if not len(columns[0]):
        return np.empty(0, np.int64)
    return np.lexsort(levels[::-1]) if in_runs else sorted_rows(levels)


def ranks(column: pd.Series) -> Any:
    """Return integers in the order of a column's values; undefined for nulls.

    Raises
    ------
    KeyTypeError
        When objects cannot be compared.

    Examples
    --------
    >>> ranks(pd.Series(["b", "c", "a"]))
    array([1, 2, 0])
    """
    dtype: Any = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy().astype(np.int64)
    if isinstance(dtype, pd.StringDtype | pd.ArrowDtype):
        array = pa.chunked_array(pa.array(column, from_pandas=True))
        found = pc.rank(array, "ascending", tiebreaker="dense")
        return found.to_numpy().astype(np.int64) - 1
    return _object_ranks(column)


def _object_ranks(column: pd.Series) -> Any:
    """Return the ranks of Python objects: numbers before text, as in pandas."""
    nulls = column.isna().to_numpy()
    places: dict[Any, int] = {}
    numbers = [
        -1 if null else places.setdefault(value, len(places))
        for value, null in zip(column, nulls, strict=True)
    ]
    try:
        ordered = _sort(list(places))
    except TypeError as error:
        raise KeyTypeError(
            f"objects that cannot be compared ({error}); group with sort=False, or convert them "
            "with .astype('str')"
        ) from error
    rank = np.empty(len(places) + 1, np.int64)
    for place, value in enumerate(ordered):
        rank[places[value]] = place
    return rank[np.array(numbers, np.int64)]


def _sort(values: list[Any]) -> list[Any]:
    if len(values) == 1:
        # Raises where there is no order.
        operator.lt(values[0], values[0])
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=lambda value: (isinstance(value, str), value))


def _sortable(column: pd.Series) -> list[tuple[Any, Any | None]]:
    """Return NumPy-sortable arrays, the first most significant, and masks of nulls."""
    dtype: Any = column.dtype
    if is_plain(dtype):
        return [sortable(column)]
    if isinstance(dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        return [(codes, codes < 0)]
    arrow = isinstance(dtype, pd.ArrowDtype) and (
        pa.types.is_decimal(dtype.pyarrow_dtype)
        or pa.types.is_binary(dtype.pyarrow_dtype)
        or pa.types.is_time(dtype.pyarrow_dtype)
    )
    objects = isinstance(dtype, np.dtype) and dtype.kind == "O"
    objects = objects and pd.api.types.infer_dtype(column, skipna=True) != "string"
    if arrow or objects:
        return [(ranks(column), column.isna().to_numpy())]
    found = frames_of(column).key_columns(column, column, column.name)
    return [sortable(ours.series) for ours, _ in found]
