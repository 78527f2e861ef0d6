"""Cast pandas columns exactly to the dtypes of an index's columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.errors import ColumnError
from dgpuhash.frames.dataframes.promotion import values_of_codes
from dgpuhash.frames.dataframes.remedies import astype, cast_remedy
from dgpuhash.tables.arguments.exact import float_bound

# Placeholder category in Dask's meta frames when only the partitions know the categories.
UNKNOWN = "__UNKNOWN_CATEGORIES__"


def is_unknown(dtype: Any) -> bool:
    """Return whether a dtype is a categorical with categories unknown to Dask."""
    return isinstance(dtype, pd.CategoricalDtype) and UNKNOWN in dtype.categories


def cast(series: Any, like: Any) -> Any:
    """Return `series` in the dtype of `like`, if no value changes.

    Numbers that would change keep their dtype where pandas can concatenate the two dtypes; booleans
    do not, since the result would be of dtype object. Raises ColumnError for any other column.
    """
    wanted, own, remedy = like.dtype, series.dtype, ""
    if not len(series):
        # A reader that finds no rows cannot infer dtypes.
        return pd.Series(like.iloc[:0].array, index=series.index, name=series.name)
    if own == np.dtype(object) and wanted != own and series.isna().all():
        # Untyped nulls take the index's dtype, or the one that pandas promotes it to for nulls.
        typed = pd.Series(like.iloc[:0].array).reindex(range(len(series)))
        series = pd.Series(typed.array, index=series.index, name=series.name)
        own = series.dtype
        if own == wanted:
            return series
    categorical = isinstance(wanted, pd.CategoricalDtype)
    if categorical:
        remedy = f"convert it to categories of {wanted.categories.dtype} before inserting"
    if _family(wanted) == _family(own):
        found = _categorical(series, wanted) if categorical else _round_trip(series, wanted)
        if found is not None:
            return found
        odd = categorical or isinstance(own, pd.CategoricalDtype)
        bools = any(map(pd.api.types.is_bool_dtype, (own, wanted)))
        if _family(own) == "number" and not bools and not odd:
            if _can_concat(wanted, own):
                return series
            remedy = (
                "Arrow does not round numbers: build the index from, and insert, columns of "
                "pandas' own, such as .astype('Float64')"
            )
        if str(wanted.kind) in "Mm" and not categorical:
            remedy = f"build the index from {astype(own)} of it, which holds these times"
    remedy = remedy or cast_remedy(series, wanted, "the index")
    if categorical and wanted.ordered:
        remedy = "it lacks some: build the index from .cat.as_unordered() of the column"
    if categorical and UNKNOWN in wanted.categories:
        remedy = "its categories were not known: build the index from .cat.as_known() of the column"
    if str(wanted) == "bool" and series.isna().any():
        remedy = "for its nulls, build the index from .astype('boolean') of the column"
    raise ColumnError(
        f"column {series.name!r} is {own}, and the index stores it as {wanted}; {remedy}"
    )


def _categorical(series: Any, wanted: Any) -> Any:
    """Return `series` as a categorical that fits `wanted`, or None.

    Its categories have the dtype of those of `wanted`. None when a category would change. Ordered
    categories become those of `wanted`, since two orders cannot be combined; None when one is
    missing.
    """
    if not isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype("category")
    own, dtype = series.cat.categories, wanted.categories.dtype
    if UNKNOWN not in wanted.categories:
        if wanted.ordered:
            used = series.cat.remove_unused_categories().cat.categories
            recoded = series.cat.set_categories(wanted.categories, ordered=True)
            return recoded if used.isin(wanted.categories).all() else None
        series = series.cat.as_unordered()
    if own.dtype == dtype or UNKNOWN in wanted.categories:
        return series
    found = _round_trip(pd.Series(own), dtype)
    return None if found is None else series.cat.rename_categories(pd.Index(found))


def _can_concat(stored: Any, added: Any) -> bool:
    """Return whether pandas concatenates the two numeric dtypes into one.

    This must hold for all values, those of rows inserted later included.
    """
    if isinstance(stored, pd.ArrowDtype):
        return stored.kind == added.kind and stored.kind in "iuf"
    return not isinstance(added, pd.ArrowDtype)


def _round_trip(series: Any, dtype: Any) -> Any:
    """Return `series` as `dtype`, or None when a value would change.

    NaN is the null of NumPy's floats.
    """
    if isinstance(series.dtype, pd.CategoricalDtype) and getattr(dtype, "kind", "O") in "biufc":
        series = values_of_codes(series, nullable=True)
    nans = _nan_mask(series)
    if nans is not None and nans.any() and pd.api.types.is_float_dtype(dtype):
        cast = _round_trip(series.mask(nans), dtype)
        return cast if cast is None or isinstance(dtype, np.dtype) else _with_nans(cast, nans)
    try:
        cast = series.astype(dtype)
        back = cast.astype(series.dtype)
        same = (back == series).fillna(False) | (cast.isna() & series.isna())
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return None
    if pd.api.types.is_integer_dtype(series.dtype):
        # Casting -1 to unsigned and back gives -1 again: compare the signs too.
        same &= ((cast < 0) == (series < 0)).fillna(True)
        if pd.api.types.is_float_dtype(dtype):
            # The largest integer rounds up as a float and may saturate back: compare the bound.
            own = series.dtype if isinstance(series.dtype, np.dtype) else series.dtype.numpy_dtype
            same &= (cast < float_bound(own)).fillna(True)
    return cast if same.all() else None


def cast_exactly(series: Any, dtype: Any) -> Any:
    """Return `series` as another dtype of the same kind, or None if a value would change.

    Examples
    --------
    >>> cast_exactly(pd.Series([1.0, None]), pd.Int64Dtype()).tolist()
    [1, <NA>]
    >>> cast_exactly(pd.Series([2**53 + 1], dtype="category"), np.dtype(float)) is None
    True
    >>> cast_exactly(pd.Series([1.5]), pd.Int64Dtype()) is None
    True
    >>> cast_exactly(pd.Series([True, None], dtype=object), np.dtype(bool)) is None
    True
    """
    own = series.dtype
    objects = np.dtype(object)
    if own == objects and dtype != own:
        # By what the values are: "1" is no number, and 1 is no text.
        series = series.infer_objects()
        if series.dtype == objects and not isinstance(dtype, pd.StringDtype):
            series = series.convert_dtypes()
        own = series.dtype
    bools = [pd.api.types.is_bool_dtype(each) for each in (own, dtype)]
    if series.notna().any() and (_family(own) != _family(dtype) or bools[0] != bools[1]):
        return None
    if isinstance(dtype, pd.StringDtype) and own == objects:
        texts = all(isinstance(value, str) for value in series[series.notna()])
        return series.astype(dtype) if texts else None
    return _round_trip(series, dtype)


def _nan_mask(series: Any) -> np.ndarray | None:
    """Return a mask of NaN values that are not null.

    None for dtypes that do not distinguish them.
    """
    if isinstance(series.dtype, np.dtype) or not pd.api.types.is_float_dtype(series.dtype):
        return None
    return np.asarray(np.isnan(series.to_numpy(np.float64, na_value=0.0)))


def _with_nans(series: Any, nans: np.ndarray) -> Any:
    """Return nullable or Arrow floats with NaN instead of null at `nans`."""
    dtype = series.dtype
    values = series.to_numpy(dtype.numpy_dtype, na_value=np.nan)
    nulls = series.isna().to_numpy() & ~nans
    if isinstance(dtype, pd.ArrowDtype):
        array: Any = pd.array(pa.array(values, dtype.pyarrow_dtype, mask=nulls), dtype)
    else:
        array = pd.arrays.FloatingArray(values, nulls)
    return pd.Series(array, series.index, name=series.name)


def _family(dtype: Any) -> str:
    """Return the family of a dtype; dtypes of one family represent the same values."""
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
