"""Categories that only the partitions know, as texts that tell type and value."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes.pandas_casts import UNKNOWN

__all__ = ["as_texts", "as_values", "is_unknown", "united", "with_texts"]

# Begins texts that stand for something else; texts of the user that begin so get _TEXT before them.
_MARK = "\0"
_TEXT = f"{_MARK}s"
_KINDS: dict[str, tuple[Any, Callable[[Any], str], Callable[[str], Any]]] = {
    f"{_MARK}b": (bool | np.bool_, str, lambda text: text == "True"),
    f"{_MARK}i": (int | np.integer, str, int),
    f"{_MARK}f": (float | np.floating, lambda value: repr(float(value)), float),
    f"{_MARK}t": (pd.Timestamp, lambda value: value.isoformat(), pd.Timestamp),
    f"{_MARK}d": (pd.Timedelta, lambda value: value.isoformat(), pd.Timedelta),
    f"{_MARK}a": (datetime.date, lambda value: value.isoformat(), datetime.date.fromisoformat),
    f"{_MARK}m": (decimal.Decimal, str, decimal.Decimal),
}


def is_unknown(dtype: Any) -> bool:
    """Return whether a dtype is one of categories that Dask's meta does not tell."""
    return isinstance(dtype, pd.CategoricalDtype) and UNKNOWN in dtype.categories


def as_texts(column: Any, *, compared: bool) -> Any:
    """Return a categorical column with texts as categories, from which `as_values` makes it again.

    Parameters
    ----------
    column : categorical Series or CategoricalIndex
    compared : bool
        Whether numbers that are equal get one text, whatever their type.

    Raises
    ------
    KeyTypeError
        When categories are no texts, numbers, moments, dates, decimals or booleans.

    Examples
    --------
    >>> column = as_texts(pd.Series([7, 8], dtype="category"), compared=True)
    >>> column.cat.categories.tolist(), as_values(column).tolist()
    (['\\x00i7', '\\x00i8'], [7, 8])
    """
    categories = column.dtype.categories
    texts = [_text(value, compared=compared) for value in categories]
    if all(text is value for text, value in zip(texts, categories, strict=True)):
        return column
    return _renamed(column, pd.Index(texts, dtype="str"))


def _text(value: Any, *, compared: bool) -> Any:
    if isinstance(value, str):
        return f"{_TEXT}{value}" if value.startswith(_MARK) else value
    if compared and isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    if compared and isinstance(value, bool | np.bool_):
        value = int(value)
    for mark, (types, told, _) in _KINDS.items():
        if isinstance(value, types):
            return f"{mark}{told(value)}"
    raise KeyTypeError(
        f"a category is {value!r}, of type {type(value).__name__}, and Dask does not know the "
        "categories; tell it with .categorize() or .cat.as_known() of the column"
    )


def as_values(column: Any) -> Any:
    """Return a categorical column with the categories that texts of `as_texts` stand for."""
    if is_unknown(column.dtype):
        # Nothing was found.
        chosen: Any = column if isinstance(column, pd.Index) else column.cat
        column = chosen.remove_categories([UNKNOWN])
    categories = column.dtype.categories
    values = [_value(text) for text in categories]
    if all(value is text for value, text in zip(values, categories, strict=True)):
        return column
    return _renamed(column, pd.Index(values, tupleize_cols=False))


def _value(text: Any) -> Any:
    if not isinstance(text, str) or not text.startswith(_MARK):
        return text
    if text.startswith(_TEXT):
        return text[len(_TEXT) :]
    return _KINDS[text[:2]][2](text[2:])


def _renamed(column: Any, categories: pd.Index) -> Any:
    if isinstance(column, pd.Index):
        return column.rename_categories(categories)  # type: ignore[attr-defined]
    return column.cat.rename_categories(categories)


def with_texts(
    frame: pd.DataFrame, dtypes: pd.Series, compared: set[Hashable], kept: set[Hashable]
) -> pd.DataFrame:
    """Return a frame with texts for the categories that are unknown in these dtypes.

    Those of `compared` labels are compared with others, and `kept` ones stay. None stands for the
    index.
    """
    made = frame
    for place, (label, dtype) in enumerate(dtypes.items()):
        column = frame.iloc[:, place]
        if (
            is_unknown(dtype)
            and label not in kept
            and isinstance(column.dtype, pd.CategoricalDtype)
        ):
            made = made.copy(deep=False) if made is frame else made
            made.isetitem(place, as_texts(column, compared=label in compared))
    asked = None in compared or frame.index.name in compared
    if isinstance(frame.index, pd.CategoricalIndex) and asked:
        made = made.set_axis(as_texts(frame.index, compared=True), axis=0)
    return made


def united(left: pd.Series, right: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return two categorical columns with the categories of both, those of the left one first."""
    ours, theirs = (side.cat.categories for side in (left, right))
    ours, theirs = (each[each != UNKNOWN] for each in (ours, theirs))
    more = theirs[~theirs.isin(ours)]
    both = ours.append(more) if len(ours) and len(more) else (ours if len(ours) else more)
    return left.cat.set_categories(both), right.cat.set_categories(both)
