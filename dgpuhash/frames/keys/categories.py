"""Encode categories unknown to Dask as text with type and value, and unite them."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from typing import Any

import pandas as pd

from dgpuhash.errors import ColumnError
from dgpuhash.frames.dataframes.pandas_casts import UNKNOWN, is_unknown
from dgpuhash.frames.dataframes.tagged import text_of, text_of_typed, value_of_typed


def as_texts(column: Any, name: object = None) -> Any:
    """Return a categorical column with text categories, for `as_values`.

    Parameters
    ----------
    column : categorical Series or CategoricalIndex
    name : label
        What errors call it.

    Raises
    ------
    KeyTypeError
        When a category is of no type that keys have.

    Examples
    --------
    >>> column = as_texts(pd.Series([7, 8], dtype="category"))
    >>> column.cat.categories.dtype == "str", as_values(column).tolist()
    (True, [7, 8])
    """
    return _rename_categories(
        column, [text_of_typed(value, name) for value in column.dtype.categories], "str"
    )


def as_values(column: Any) -> Any:
    """Return a categorical column with the original values of `as_texts`' categories."""
    if is_unknown(column.dtype):
        # Nothing was found.
        chosen: Any = column if isinstance(column, pd.Index) else column.cat
        column = chosen.remove_categories([UNKNOWN])
    return _rename_categories(column, [value_of_typed(text) for text in column.dtype.categories])


def _rename_categories(column: Any, values: list[Any], dtype: Any = None) -> Any:
    """Return a categorical column with other categories, if their values or dtype differ."""
    categories = column.dtype.categories
    same = all(value is old for value, old in zip(values, categories, strict=True))
    if same and (dtype is None or categories.dtype == dtype):
        return column
    made = pd.Index(values, dtype=dtype) if dtype else _index_of(values)
    if isinstance(column, pd.Index):
        return column.rename_categories(made)  # type: ignore[attr-defined]
    return column.cat.rename_categories(made)


def _index_of(values: list[Any]) -> pd.Index:
    """Return values as an Index of a dtype that keeps them unchanged."""
    made = pd.Index(values, dtype=object, tupleize_cols=False)
    typed = made.infer_objects()
    return typed if _are_same(typed, made) else made


def _are_same(one: pd.Index, other: pd.Index) -> bool:
    return all(text_of(ours) == text_of(theirs) for ours, theirs in zip(one, other, strict=True))


def in_dtype(categories: pd.Index, dtype: Any) -> pd.Index | None:
    """Return categories in a dtype, or None if it cannot represent them.

    Examples
    --------
    >>> in_dtype(pd.Index([1.0, 2.0]), "int64").tolist(), in_dtype(pd.Index([2.5]), "int64")
    ([1, 2], None)
    """
    if not len(categories):
        return pd.Index([], dtype=dtype)
    try:
        made = categories.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return None
    return made if _are_same(made, categories) else None


def with_texts(frame: pd.DataFrame, dtypes: pd.Series, like: pd.Index) -> pd.DataFrame:
    """Return a frame with text for the categories that are unknown in these dtypes and labels."""
    made = frame
    for place, (label, dtype) in enumerate(dtypes.items()):
        column = frame.iloc[:, place] if is_unknown(dtype) else None
        if column is not None and isinstance(column.dtype, pd.CategoricalDtype):
            made = made.copy(deep=False) if made is frame else made
            made.isetitem(place, as_texts(column, label))
    if is_unknown(like.dtype) and isinstance(frame.index, pd.CategoricalIndex):
        made = made.set_axis(as_texts(frame.index, frame.index.name), axis=0)
    return made


def together(categories: Iterable[pd.Index]) -> pd.Index:
    """Return the distinct values of categories, in order of appearance.

    Examples
    --------
    >>> together([pd.Index([2, 1]), pd.Index([1.0, 0.5])]).tolist()
    [2.0, 1.0, 0.5]
    """
    there = [each[each != UNKNOWN] for each in categories]
    there = [each for each in there if len(each)] or there[:1]
    if len({each.dtype for each in there}) == 1:
        made = there[0]
        for each in there[1:]:
            more = each[made.get_indexer(each) < 0]
            made = made.append(more) if len(more) else made
        return made
    return _index_of(list(dict.fromkeys(value for each in there for value in each)))


def in_one_order(categories: Iterable[pd.Index], name: object) -> pd.Index:
    """Return ordered categories merged in an order that keeps every given order.

    Raises
    ------
    ColumnError
        When two contradict each other, or do not tell which of two values is less.

    Examples
    --------
    >>> in_one_order([pd.Index(["b", "c"]), pd.Index(["a", "b"])], "k").tolist()
    ['a', 'b', 'c']
    """
    there = list(categories)
    whole, sorter = together(there), TopologicalSorter[int]()
    for each in there:
        places = whole.get_indexer(each[each != UNKNOWN]).tolist()
        for place, value in enumerate(places):
            sorter.add(value, *places[max(place - 1, 0) : place])
    order: list[int] = []
    try:
        sorter.prepare()
        while sorter.is_active() and len(least := sorter.get_ready()) == 1:
            order += least
            sorter.done(*least)
    except CycleError:
        order.clear()
    if len(order) < len(whole):
        raise ColumnError(
            f"column {name!r} has ordered categories whose order differs between partitions or "
            f"is unknown, such as {reprlib.repr(there[0].tolist())}; give all partitions one "
            "order, or none with .cat.as_unordered()"
        )
    return whole.take(order)


def unite_categories(left: pd.Series, right: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return two categorical columns with the union of their categories, the left one's first."""
    both = together(side.cat.categories for side in (left, right))
    return left.cat.set_categories(both), right.cat.set_categories(both)
