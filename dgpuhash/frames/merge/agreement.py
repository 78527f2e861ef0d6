"""Which dtypes of keys may be merged, and what becomes of the columns then, as in pandas."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import infer_dtype, is_bool_dtype, is_numeric_dtype, is_string_dtype

from dgpuhash.errors import ColumnError, KeyTypeError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.dataframes.pandas_casts import is_unknown
from dgpuhash.frames.dataframes.promotion import nullable_dtype
from dgpuhash.frames.int_float_warning import MESSAGE, caller_stacklevel, has_non_integers
from dgpuhash.frames.key_columns import IncomparableError
from dgpuhash.frames.keys.categories import united
from dgpuhash.frames.merge.keys import JoinKeys, KeyPair, as_series

__all__ = [
    "agree",
    "index_keys",
    "matched_keys",
    "reconcile_keys",
    "with_all_categories",
]

_OBJECT = np.dtype(object)
# What pandas infers of columns that it merges with columns of numbers, and with text.
_NUMBERS = frozenset({"integer", "mixed-integer", "boolean", "empty"})
_TEXTS = frozenset({"string", "unicode", "mixed", "bytes", "empty"})


def agree(pair: KeyPair, *, nullable: bool = False) -> tuple[Any, Any] | None:
    """Return the dtypes that the columns of both sides get, None where they stay as they are.

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
    """Return False where text meets numbers, None where neither side is numbers."""
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
    """Return what kind of moment a dtype holds, "" for others."""
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
    """Return whether periods meet other periods, datetimes or durations, which pandas merges.

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


def index_keys(
    left: Any, left_on: Sequence[Hashable], stored: Any, right_on: Sequence[Hashable], *,
    labelled: bool = True,
) -> JoinKeys:  # fmt: skip
    """Return the keys of a merge with an index, by columns that it compares.

    Parameters
    ----------
    left : DataFrame
    left_on : sequence of labels
    stored : DataFrame
        The rows of the index, or a few rows like them.
    right_on : sequence of labels
        Its key columns.
    labelled : bool
        Whether they are columns of the right side, too.

    Raises
    ------
    ColumnError
        When a key has the label of another column of the index, and would be there twice.
    KeyTypeError
        When a datetime or duration of Arrow meets one of NumPy: pandas merges no such keys.
    """
    columns, twice = set(stored) if labelled else set(), []
    pairs, column = [], frames_of(left).column
    for ours, theirs in zip(left_on, right_on, strict=True):
        values = as_series(column(left, ours)), as_series(column(stored, theirs))
        pair = KeyPair(ours, ours, theirs if labelled else None, *values)
        dtypes = [value.dtype for value in values]
        if pair.is_one_column and ours != theirs and ours in columns:
            twice.append(ours)
        arrow = [isinstance(dtype, pd.ArrowDtype) for dtype in dtypes]
        if arrow[0] != arrow[1] and all(dtype.kind in "mM" for dtype in dtypes):
            raise KeyTypeError(
                f"pandas does not merge {ours!r} with the index's {theirs!r}, of {dtypes[0]} and "
                f"{dtypes[1]}; convert one side with .astype"
            )
        pairs.append(pair)
    if twice:
        raise ColumnError(
            f"the key columns {twice!r} have the labels of other columns of the index; rename them "
            "to texts on one side"
        )
    return JoinKeys(pairs)


def reconcile_keys(keys: JoinKeys) -> JoinKeys:
    """Return the keys of an index, without values where these would not agree.

    An index compares objects of nulls alone with keys of every dtype, and warns itself about floats
    that meet integers.
    """
    pairs = []
    for pair in keys.pairs:
        sides = pair.left, pair.right
        kinds = {getattr(side.dtype, "kind", "O") for side in sides}
        nulls = any(side.dtype == _OBJECT and side.isna().all() for side in sides)
        alone = sides[0].dtype != sides[1].dtype and (
            nulls or ("f" in kinds and not kinds.isdisjoint("iu"))
        )
        if alone:
            # A side without rows agrees with any other, but for one without rows.
            none = pair.right if len(pair.left) else pair.left
            pair = replace(pair, right=none[:0])
        pairs.append(pair)
    return JoinKeys(pairs)


def matched_keys(keys: JoinKeys, probing: str, query_rows: Any, *, fetched: bool) -> JoinKeys:
    """Return the keys of a partition, which ask for rows of the other side, and of what they found.

    Values of found rows are those of the rows that they match: in the dtype of their side where it
    is another one, or their labels are `fetched`.
    """
    pairs, left_probes = [], probing == "left"
    for pair in keys.pairs:
        mine, theirs = (pair.left, pair.right) if left_probes else (pair.right, pair.left)
        values = mine
        if fetched or mine.dtype != theirs.dtype:
            values = _cast_key(mine.take(query_rows).reset_index(drop=True), theirs.dtype)
        left, right = (mine, values) if left_probes else (values, mine)
        pairs.append(replace(pair, left=left, right=right))
    return JoinKeys(pairs, keys.left_index, keys.right_index)


def _cast_key(values: pd.Series, dtype: Any) -> pd.Series:
    if is_unknown(dtype):
        return values
    try:
        return values.astype(dtype)
    except (TypeError, ValueError, pa.ArrowException):
        return values


def with_all_categories(
    left: pd.DataFrame, right: pd.DataFrame, keys: JoinKeys, chosen: Sequence[bool]
) -> tuple[pd.DataFrame, pd.DataFrame, JoinKeys]:
    """Return both sides and their keys, of which the chosen ones have the categories of both."""
    pairs = []
    for pair, one in zip(keys.pairs, chosen, strict=True):
        dtypes = pair.left.dtype, pair.right.dtype
        if not (one and all(isinstance(dtype, pd.CategoricalDtype) for dtype in dtypes)):
            pairs.append(pair)
            continue
        ours, theirs = united(pair.left, pair.right)
        pairs.append(replace(pair, left=ours, right=theirs))
        left = _with_categories(left, pair.left_label, ours)
        right = _with_categories(right, pair.right_label, theirs)
    return left, right, JoinKeys(pairs, keys.left_index, keys.right_index)


def _with_categories(frame: pd.DataFrame, label: Hashable, like: pd.Series) -> pd.DataFrame:
    if label is None or label not in frame.columns:
        return frame
    made = frame.copy(deep=False)
    made[label] = made[label].cat.set_categories(like.cat.categories)
    return made
