"""Dtypes of cuDF columns: the one of a key of two sides, and casts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import KeyTypeError
from dgpuhash.tables.arguments.exact import float_bound

_UNITS = ("s", "ms", "us", "ns")


def agreed(left: Any, right: Any, how: str) -> Any:
    """Return the dtype of a key column that both sides share, as cuDF gives it.

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
    """Return a column in another dtype, values of categories by their values."""
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
    """Return the dtype that holds the values of both."""
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
