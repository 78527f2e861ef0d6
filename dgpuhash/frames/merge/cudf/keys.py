"""Keys of cuDF frames: which are compared, as what, and what becomes of their dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.key_columns import check_comparable
from dgpuhash.frames.merge.agreement import IncomparableError
from dgpuhash.frames.merge.comparable import Compared

__all__ = ["agreed", "cast", "comparable", "type_name", "unscaled"]

_UNITS = ("s", "ms", "us", "ns")
_DECIMALS = {"DECIMAL32": "INT32", "DECIMAL64": "INT64", "DECIMAL128": "INT64"}


def comparable(left: Any, right: Any, name: object) -> list[tuple[Compared, Compared]]:
    """Return the columns of both sides that are equal where these keys are.

    Decimals of one scale are compared as the integers that they are stored as.

    Raises
    ------
    KeyTypeError
        When both sides have rows and no value of one can equal one of the other, or they cannot be
        keys.
    """
    if any(not _is_plain(side.dtype) and type_name(side) in _DECIMALS for side in (left, right)):
        if left.dtype != right.dtype:
            raise KeyTypeError(
                "Decimal columns can only be merged with decimal columns of the same precision and "
                f"scale; key {name!r} is {left.dtype} and {right.dtype}: convert one side with "
                ".astype"
            )
        halves = zip(unscaled(left), unscaled(right), strict=True)
        return [(Compared(ours, name), Compared(theirs, name)) for ours, theirs in halves]
    ours, theirs = Compared(left, name), Compared(right, name)
    if len(left) and len(right):
        types = ours.column.type, theirs.column.type
        try:
            check_comparable(name, *types)
        except KeyTypeError as error:
            raise IncomparableError(
                f"You are trying to merge on {left.dtype} and {right.dtype} columns for key "
                f"'{name}'. If you wish to proceed convert one side with .astype"
            ) from error
    return [(ours, theirs)]


def type_name(series: Any) -> str:
    """Return libcudf's name for the type of a column."""
    import pylibcudf

    if _is_categorical(series.dtype):
        return "DICTIONARY32"
    return str(pylibcudf.TypeId(series.to_pylibcudf()[0].type().id()).name)


def unscaled(series: Any) -> list[Any]:
    """Return the integers that a column of decimals is stored as: one a value, or two halves."""
    import pylibcudf as plc

    column, kind = series.to_pylibcudf()[0], type_name(series)
    halves = 2 if kind == "DECIMAL128" else 1
    frames, n = frames_of(series), column.size()
    if n == 0:
        return [frames.series(frames.xp.empty(0, np.int64))] * halves
    type_ = plc.DataType(getattr(plc.TypeId, _DECIMALS[kind]))
    whole = plc.Column(type_, n * halves, column.data(), None, 0, column.offset() * halves, [])
    values, there = frames.array(type(series).from_pylibcudf(whole)), series.notna()
    return [frames.series(values[half::halves].copy()).where(there) for half in range(halves)]


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


def _is_plain(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "biufmM"


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
