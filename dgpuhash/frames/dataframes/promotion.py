"""Promote pandas columns with absent rows: to nullable dtypes, or to exact floats."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.errors import ColumnError
from dgpuhash.tables.arguments.exact import cast_exactly

_FLOAT = np.dtype(np.float64)
_MASKED: dict[str, Any] = {
    "b": pd.arrays.BooleanArray,
    "i": pd.arrays.IntegerArray,
    "u": pd.arrays.IntegerArray,
}


def nullable_dtype(dtype: Any) -> Any:
    """Return the nullable dtype for NumPy integers and booleans, None for other dtypes.

    Examples
    --------
    >>> nullable_dtype(np.dtype("uint8")), nullable_dtype(np.dtype(bool))
    (UInt8Dtype(), BooleanDtype)
    """
    if not isinstance(dtype, np.dtype) or dtype.kind not in _MASKED:
        return None
    return pd.array(np.empty(0, dtype.newbyteorder("="))).dtype


def as_nullable(values: Any) -> Any:
    """Return a nullable copy of a NumPy integer or boolean array."""
    values = values.astype(values.dtype.newbyteorder("="), copy=True)
    return _MASKED[values.dtype.kind](values, np.zeros(len(values), bool))


def nullable_frame(frame: Any, but: Collection[Hashable] = (), kinds: str = "biu") -> Any:
    """Return a frame with nullable integers and booleans, except in some columns."""
    made = frame
    for place, (label, dtype) in enumerate(frame.dtypes.items()):
        if nullable_dtype(dtype) is not None and dtype.kind in kinds and label not in but:
            made = frame.copy(deep=False) if made is frame else made
            made.isetitem(place, as_nullable(frame.iloc[:, place].to_numpy()))
    return made


def nullable_index(index: Any, but: Collection[Hashable] = ()) -> Any:
    """Return an index with nullable integers and booleans, except in some levels."""
    if index.nlevels > 1:
        levels: Any = [
            level if level.name in but else nullable_index(level) for level in index.levels
        ]
        if [level.dtype for level in levels] == [level.dtype for level in index.levels]:
            return index
        return pd.MultiIndex(levels, index.codes, names=index.names, verify_integrity=False)
    if index.name in but or nullable_dtype(index.dtype) is None:
        return index
    return pd.Index(as_nullable(index.to_numpy()), name=index.name, copy=False)


def nullable_rows(rows: Any) -> Any:
    """Return a frame or Series with nullable integers and booleans, labels included."""
    if rows.ndim == 2:
        made = nullable_frame(rows)
    elif nullable_dtype(rows.dtype) is None:
        made = rows
    else:
        made = pd.Series(as_nullable(rows.to_numpy()), rows.index, name=rows.name, copy=False)
    return made.set_axis(nullable_index(made.index), axis=0)


def first_rounded(values: Any, target: Any) -> Any:
    """Return the first integer that a float dtype cannot represent, or None.

    Parameters
    ----------
    values : array of integers
        Of NumPy, or a nullable or Arrow array, whose nulls are passed over.
    target : dtype

    Examples
    --------
    >>> first_rounded(np.array([1, 2**53 + 1]), np.dtype("float64"))
    9007199254740993
    """
    if not isinstance(values, np.ndarray):
        values = values[~values.isna()].to_numpy(dtype=getattr(values.dtype, "numpy_dtype", None))
    if target.kind != "f" or values.dtype.kind not in "iu" or not len(values):
        return None
    if 8 * values.dtype.itemsize <= np.finfo(target).nmant + 1:
        return None
    most = 2 ** (np.finfo(target).nmant + 1)
    if -most <= int(values.min()) and int(values.max()) <= most:
        return None
    exact = cast_exactly(values, target, np)[1]
    return None if exact is None or exact.all() else int(values[~exact][0])


def check_promoted(
    values: Any, target: Any, label: Hashable, *, cast: str = "", remedy: str = "",
    rounded: list[Any] | None = None,
) -> None:  # fmt: skip
    """Raise ColumnError when a float dtype changes one of a column's integers.

    Parameters
    ----------
    values : array of integers
    target : NumPy dtype
    label : label
        Of the column, for the message.
    cast : str, optional
        The dtype that holds the values; default: the nullable one.
    remedy : str, optional
        What to do, beside converting the column to that.
    rounded : list, optional
        Gets the label in place of the error.
    """
    first = first_rounded(values, target)
    if first is not None and rounded is not None:
        rounded.append(label)
    elif first is not None:
        cast = cast or ("UInt64" if values.dtype.kind == "u" else "Int64")
        convert = f"convert it with .astype({cast!r}) before"
        column = "a column of integers" if label is None else f"column {label!r}"
        raise ColumnError(
            f"{column} becomes {target}, which rounds its {first} to {int(target.type(first))}; "
            f"{f'{remedy}, or {convert}' if remedy else convert}"
        )


def values_of_codes(column: Any, *, nullable: bool) -> Any:
    """Return the values of a categorical in its categories' dtype, without rounding.

    Examples
    --------
    >>> column = pd.Series(pd.Categorical([2**53 + 1, None]))
    >>> values_of_codes(column, nullable=True).tolist()
    [9007199254740993, <NA>]
    """
    categories: Any = column.cat.categories
    nullable = nullable and nullable_dtype(categories.dtype) is not None
    values = as_nullable(categories.to_numpy()) if nullable else categories.array
    codes = column.cat.codes.to_numpy()
    return pd.Series(values.take(codes, allow_fill=bool((codes < 0).any())), column.index)


def coalesce_exactly(
    left: Any, right: Any, ours: Any, theirs: Any, label: Hashable,
    rounded: list[Any] | None = None,
) -> pd.Series:  # fmt: skip
    """Return a column with nulls filled from another column, numbered from 0.

    Parameters
    ----------
    left, right : Series
    ours, theirs : arrays of integers
        The rows of each; where the first is -1 the second counts.
    label, rounded
        As in `check_promoted`.

    Raises
    ------
    ColumnError
        See `concat_exactly`.
    """
    gone = ours < 0
    places = np.empty(len(ours), np.intp)
    places[np.concatenate([np.flatnonzero(~gone), np.flatnonzero(gone)])] = np.arange(len(ours))
    # Of names that are tuples pandas would make a MultiIndex.
    parts = [left.take(ours[~gone]).rename(None), right.take(theirs[gone]).rename(None)]
    return concat_exactly(parts, label, rounded).take(places).reset_index(drop=True)


def concat_exactly(
    columns: Sequence[Any], label: Hashable, rounded: list[Any] | None = None
) -> pd.Series:
    """Return columns concatenated in pandas' dtype, without rounding.

    `rounded` is as in `check_promoted`.

    Raises
    ------
    ColumnError
        When an integer would be rounded, or no dtype of pandas holds the values of all columns.

    Examples
    --------
    >>> codes = pd.Series(pd.Categorical([2**53 + 1, None]))
    >>> concat_exactly([codes, pd.Series([1], dtype="Int64")], "k").tolist()
    [9007199254740993, <NA>, 1]
    """
    dtypes = [column.dtype for column in columns]
    if all(dtype == dtypes[0] for dtype in dtypes):
        return pd.concat(columns, ignore_index=True)
    try:
        target = pd.concat([_no_values(column) for column in columns]).dtype
        # Of no values pandas has objects for complex numbers beside others.
        numbers = [dtype for dtype in dtypes if dtype.kind == "c"]
        made = _as_they_are(columns, (numbers or [target])[0], label, rounded)
        check_concat(made, target, label, rounded)
        result = pd.concat(made, ignore_index=True)
        check_concat(made, result.dtype, label, rounded)
        return result
    except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError) as error:
        if isinstance(error, ColumnError):
            raise
        raise ColumnError(
            f"column {label!r} is {' and '.join(map(str, dtypes))}, and pandas has no dtype for "
            f"the values of both; convert both with .astype('object') first"
        ) from error


def _no_values(column: Any) -> Any:
    values = column.cat.categories if hasattr(column, "cat") else column
    return pd.Series(values[:0].array)


def _as_they_are(
    columns: Sequence[Any], target: Any, label: Hashable, rounded: list[Any] | None
) -> list[Any]:
    """Return columns of several dtypes that pandas concatenates exactly.

    pandas casts the nulls of categories by way of floats, and dates to datetimes.
    """
    made = [_without_categories(column, target, label, rounded) for column in columns]
    dates = [
        isinstance(column.dtype, pd.ArrowDtype) and pa.types.is_date(column.dtype.pyarrow_dtype)
        for column in made
    ]
    if any(dates):
        common = made[0].dtype if all(dates) else np.dtype(object)
        return [column.astype(common) for column in made]
    return made


def _without_categories(
    column: Any, target: Any, label: Hashable, rounded: list[Any] | None
) -> Any:
    """Return the values of a categorical in a dtype that keeps them in a concatenation."""
    dtype: Any = column.dtype
    if not isinstance(dtype, pd.CategoricalDtype):
        return column
    categories: Any = dtype.categories
    codes, values = column.cat.codes.to_numpy(), categories.array
    nulls = bool((codes < 0).any())
    if isinstance(categories.dtype, pd.IntervalDtype):
        if isinstance(target, pd.IntervalDtype):
            _check_intervals(values, label, rounded)
        else:
            values = categories.astype(object).array
    elif isinstance(categories.dtype, np.dtype) and categories.dtype.kind not in "mM":
        if categories.dtype.kind not in "iu" or target.kind not in "iufc":
            return column
        if not nulls:
            return pd.Series(categories.to_numpy().take(codes))
        taken = values_of_codes(column, nullable=True).array
        floats = isinstance(target, np.dtype)
        plain = _FLOAT if floats else target.numpy_dtype
        check_promoted(taken, plain, label, cast="object", rounded=rounded)
        return pd.Series(taken.to_numpy(plain, na_value=np.nan) if floats else taken.astype(target))
    return pd.Series(values.take(codes, allow_fill=nulls))


def check_concat(
    columns: Sequence[Any], dtype: Any, label: Hashable, rounded: list[Any] | None = None
) -> None:
    """Raise ColumnError if the common dtype of these columns rounds integers.

    `rounded` is as in `check_promoted`.
    """
    for column in columns if isinstance(dtype, pd.IntervalDtype) else ():
        if dtype.subtype.kind == "f" and isinstance(column.dtype, pd.IntervalDtype):
            _check_intervals(column.array, label, rounded)
    plain = dtype.subtype if isinstance(dtype, pd.SparseDtype) else dtype
    target = getattr(plain, "numpy_dtype", plain)
    if getattr(target, "kind", "") == "c":
        target = np.empty(0, target).real.dtype
    for column in columns if getattr(target, "kind", "") == "f" else ():
        if column.dtype.kind in "iu":
            masked = hasattr(column.dtype, "numpy_dtype")
            check_promoted(
                column.array if masked else np.asarray(column), target, label, cast="object",
                rounded=rounded,
            )  # fmt: skip


def _check_intervals(array: Any, label: Hashable, rounded: list[Any] | None = None) -> None:
    """Raise ColumnError when float64 rounds an end of integer intervals.

    `rounded` is as in `check_promoted`.
    """
    for ends in (array.left, array.right):
        if ends.dtype.kind in "iu":
            check_promoted(ends.to_numpy(), _FLOAT, label, cast="object", rounded=rounded)
