"""Dtypes of keys in merges of pandas frames, with pandas' warnings."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype, is_bool_dtype, is_numeric_dtype, is_string_dtype

from dgpuhash.frames.dataframes.pandas_casts import is_unknown
from dgpuhash.frames.dataframes.promotion import nullable_dtype
from dgpuhash.frames.key_columns import IncomparableError

if TYPE_CHECKING:
    from dgpuhash.frames.merge.keys import KeyPair

# pandas' own text, so that warning filters match both.
MESSAGE = (
    "You are merging on int and float columns where the float values are not equal to their int "
    "representation."
)
# Packages whose stack frames lie between the user's call and this module.
_OWN = {"dgpuhash", "contextlib", "functools"}
_OBJECT = np.dtype(object)
# What pandas infers of columns that it merges with columns of numbers, and with text.
_NUMBERS = frozenset({"integer", "mixed-integer", "boolean", "empty"})
_TEXTS = frozenset({"string", "unicode", "mixed", "bytes", "empty"})


def agree(pair: KeyPair, how: str = "inner", *, nullable: bool = False) -> tuple[Any, Any] | None:
    """Return both sides' dtypes of a key in the result; None to leave both unchanged.

    Those of categories of integers and booleans are nullable, if they hold nulls or `nullable`.

    Raises
    ------
    IncomparableError
        When no value of one side can equal one of the other.

    Warns
    -----
    UserWarning
        When integers meet floats that are no integers.
    """
    left, right = pair.left.dtype, pair.right.dtype
    if left == right or bool(len(pair.left)) != bool(len(pair.right)):
        return None
    if is_numeric_dtype(left) and is_numeric_dtype(right):
        return _numbers_agree(pair, left, right)
    texts = [_is_text(dtype) for dtype in (left, right)]
    if any(texts) and _text_agrees(pair, texts) is False:
        raise _incomparable(pair)
    moments = [_moment(dtype) for dtype in (left, right)]
    # pandas compares a moment of Arrow with whatever is no moment.
    alone = [dtype for dtype, moment in zip((left, right), moments, strict=True) if moment]
    if alone and not (len(alone) == 1 and isinstance(alone[0], pd.ArrowDtype)):
        if moments[0] == moments[1]:
            return None
        if not _has_periods(left, right):
            raise _incomparable(pair)
    if left == _OBJECT and right == _OBJECT:
        return None
    return _values_dtype(pair.left, nullable), _values_dtype(pair.right, nullable)


def _numbers_agree(pair: KeyPair, left: Any, right: Any) -> tuple[Any, Any] | None:
    if left.kind == right.kind:
        return None
    kinds = {"u": "i"}
    ours, theirs = kinds.get(left.kind, left.kind), kinds.get(right.kind, right.kind)
    if {ours, theirs} == {"i", "f"}:
        floats, integers = (pair.left, right) if ours == "f" else (pair.right, left)
        if isinstance(integers, pd.SparseDtype):
            integers = integers.subtype
        plain = integers if isinstance(integers, np.dtype) else integers.numpy_dtype
        if has_non_integers(floats, np.dtype(plain)):
            warnings.warn(MESSAGE, UserWarning, stacklevel=caller_stacklevel())
        return None
    if infer_dtype(pair.left, skipna=False) == infer_dtype(pair.right, skipna=False):
        return None
    return _OBJECT, _OBJECT


def _text_agrees(pair: KeyPair, texts: list[bool]) -> bool | None:
    """Return False for text with numbers, None if neither side has numbers."""
    other = pair.right.dtype if texts[0] else pair.left.dtype
    if is_bool_dtype(other):
        return True
    if not is_numeric_dtype(other):
        return None
    inferred = [infer_dtype(column, skipna=False) for column in (pair.left, pair.right)]
    if all(each in _NUMBERS for each in inferred):
        return True
    return (inferred[0] in _TEXTS) == (inferred[1] in _TEXTS)


def _is_text(dtype: Any) -> bool:
    return bool(dtype == _OBJECT or is_string_dtype(dtype))


def _moment(dtype: Any) -> str:
    """Return the kind of datetime of a dtype, "" for other dtypes."""
    if isinstance(dtype, pd.DatetimeTZDtype):
        return "zone"
    if isinstance(dtype, pd.PeriodDtype):
        return str(dtype)
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        return str(dtype.kind)
    if isinstance(dtype, pd.ArrowDtype) and dtype.kind in "mM":
        return "zone" if getattr(dtype.pyarrow_dtype, "tz", None) else str(dtype.kind)
    return ""


def _has_periods(left: Any, right: Any) -> bool:
    """Return whether periods are merged with other periods, datetimes or durations.

    Only their nulls are equal.
    """
    dtypes = left, right
    plain = all(isinstance(dtype, pd.PeriodDtype | np.dtype) for dtype in dtypes)
    return plain and any(isinstance(dtype, pd.PeriodDtype) for dtype in dtypes)


def _values_dtype(column: Any, nullable: bool) -> Any:
    if not isinstance(column.dtype, pd.CategoricalDtype) or is_unknown(column.dtype):
        return _OBJECT
    dtype = column.dtype.categories.dtype
    lacks = nullable or column.isna().any()
    return (nullable_dtype(dtype) if lacks else None) or dtype


def _incomparable(pair: KeyPair) -> IncomparableError:
    return IncomparableError(
        f"You are trying to merge on {pair.left.dtype} and {pair.right.dtype} columns for key "
        f"'{pair.name}'. If you wish to proceed you should use pd.concat, or convert one side "
        "with .astype"
    )


def has_non_integers(column: Any, integers: np.dtype[Any]) -> bool:
    """Return whether some non-null floats are not integers of a dtype.

    Examples
    --------
    >>> import pandas as pd
    >>> whole, large = pd.Series([1.0, None]), pd.Series([300.0])
    >>> has_non_integers(whole, np.dtype("i1")), has_non_integers(large, np.dtype("i1"))
    (False, True)
    """
    floats = column.to_numpy(np.float64, na_value=np.nan)
    with np.errstate(invalid="ignore"):
        same = floats.astype(integers) == floats
    return not bool((same | np.isnan(floats)).all())


def caller_stacklevel() -> int:
    """Return the ``stacklevel`` of the first caller outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and _root(frame) in _OWN:
        level, frame = level + 1, frame.f_back
    return level


def _root(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
