"""Convert partitions between nullable dtypes and pandas' promoted ones.

Dask's verbs take their meta from rows that lack nothing, and a partition that lacks a value has
what pandas made of its integers (float64) and booleans (object).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.frames.dataframes.pandas_casts import cast_exactly
from dgpuhash.frames.dataframes.promotion import check_promoted, nullable_dtype

_FLOAT = np.dtype(np.float64)


@dataclass(frozen=True)
class PandasDtypes:
    """Function that replaces nullable dtypes by pandas' classic ones; see `with_plain`.

    Attributes
    ----------
    like : pandas DataFrame or Series
    on_rounding : callable
        Is called with the labels of columns of which integers were rounded.
    labels_only : bool
        Whether only the labels of rows are converted.
    """

    like: Any
    on_rounding: Callable[[list[Hashable | None]], None]
    labels_only: bool = False
    # What Dask calls its tasks.
    __name__ = "pandas-dtypes"

    def __call__(self, rows: Any) -> Any:
        rounded: list[Hashable | None] = []
        if self.labels_only:
            labels = _plain_index(rows.index, self.like.index, rounded)
            made = rows if labels is rows.index else rows.set_axis(labels, axis=0)
        else:
            made = with_plain(rows, self.like, rounded)
        if rounded:
            self.on_rounding(rounded)
        return made


def with_nullable(frame: Any, like: Any) -> Any:
    """Return a partition with promoted integers and booleans as nullable ones.

    Parameters
    ----------
    frame : pandas DataFrame
    like : pandas DataFrame
        With the dtypes that the partition should have; columns are compared by position.

    Examples
    --------
    >>> part = pd.DataFrame({"n": [1.0, None], "f": pd.Series([True, None], dtype=object)})
    >>> with_nullable(part, pd.DataFrame({"n": [1], "f": [True]})).dtypes.tolist()
    [Int64Dtype(), BooleanDtype]
    """
    made = frame
    for place, wanted in enumerate(like.dtypes):
        column = _as_nullable(frame.iloc[:, place], wanted)
        if column is not None:
            made = frame.copy(deep=False) if made is frame else made
            made.isetitem(place, column.array)
    if frame.index.nlevels == 1 and frame.index.dtype != like.index.dtype:
        labels = _as_nullable(frame.index.to_series(), like.index.dtype)
        if labels is not None:
            made = made.set_axis(pd.Index(labels.array, name=frame.index.name), axis=0)
    return made


def _as_nullable(column: pd.Series, wanted: Any) -> Any:
    """Return a promoted column in the nullable dtype of `wanted`, or None."""
    if column.dtype == wanted or column.dtype.kind not in "fO":
        return None
    dtype = nullable_dtype(wanted)
    return None if dtype is None else cast_exactly(column, dtype)


def with_plain(frame: Any, like: Any, rounded: list[Hashable | None]) -> Any:
    """Return a frame or Series with classic dtypes in place of nullable ones.

    Integers without a null have NumPy's dtype, and others float64; booleans bool or object.

    Parameters
    ----------
    frame : pandas DataFrame or Series
    like : pandas DataFrame or Series
        What is nullable here stays; columns are compared by position.
    rounded : list
        Gets the labels of columns of which integers are rounded.

    Examples
    --------
    >>> part = pd.DataFrame({"n": pd.array([1, None]), "m": pd.array([2, 3])})
    >>> with_plain(part, pd.DataFrame({"n": [1], "m": [1]}), []).dtypes.tolist()
    [dtype('float64'), dtype('int64')]
    """
    if frame.ndim == 1:
        if _stays(frame.dtype, like.dtype):
            made = frame
        else:
            array = plain_array(frame.array, frame.name, rounded)
            made = pd.Series(array, frame.index, array.dtype, frame.name, copy=False)
    else:
        made = frame
        for place, (label, dtype) in enumerate(frame.dtypes.items()):
            if not _stays(dtype, like.dtypes.iloc[place]):
                made = frame.copy(deep=False) if made is frame else made
                array = plain_array(frame.iloc[:, place].array, label, rounded)
                made.isetitem(place, pd.Series(array, made.index, array.dtype, copy=False))
    index = _plain_index(made.index, like.index, rounded)
    return made if index is made.index else made.set_axis(index, axis=0)


def _stays(dtype: Any, like: Any) -> bool:
    return not is_nullable(dtype) or is_nullable(like)


def is_nullable(dtype: Any) -> bool:
    """Return whether a dtype is a pandas nullable number or boolean."""
    # Arrow's dtypes have NumPy's, too.
    return isinstance(dtype, pd.BooleanDtype) or (
        hasattr(dtype, "numpy_dtype") and not isinstance(dtype, pd.ArrowDtype)
    )


def _plain_index(index: Any, like: Any, rounded: list[Hashable | None]) -> Any:
    if index.nlevels == 1:
        if _stays(index.dtype, like.dtype):
            return index
        return pd.Index(plain_array(index.array, index.name, rounded), name=index.name, copy=False)
    likes = like.levels if like.nlevels == index.nlevels else [like] * index.nlevels
    levels = [
        _plain_index(level, other, rounded)
        for level, other in zip(index.levels, likes, strict=True)
    ]
    if all(ours is theirs for ours, theirs in zip(levels, index.levels, strict=True)):
        return index
    return pd.MultiIndex(levels, index.codes, names=index.names, verify_integrity=False)


def plain_array(array: Any, label: Hashable | None, rounded: list[Hashable | None]) -> np.ndarray:
    """Return a nullable array in the classic dtype that pandas would use."""
    plain = np.dtype(bool) if isinstance(array.dtype, pd.BooleanDtype) else array.dtype.numpy_dtype
    if not array.isna().any():
        return np.asarray(array.to_numpy(dtype=plain))
    if plain.kind in "iu":
        check_promoted(array, _FLOAT, label, rounded=rounded)
        plain = _FLOAT
    dtype = np.dtype(object) if plain.kind == "b" else plain
    return np.asarray(array.to_numpy(dtype=dtype, na_value=np.nan))
