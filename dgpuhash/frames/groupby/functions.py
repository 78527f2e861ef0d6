"""Apply user functions to one group at a time; slow beside named aggregates."""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from dgpuhash.errors import SpecError
from dgpuhash.frames.groupby import assembly
from dgpuhash.frames.groupby.aggregates.values import take_values
from dgpuhash.frames.groupby.grouping_keys import levels_of
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.frames.merge.index import index_of
from dgpuhash.typing import AnyFrame

Function: TypeAlias = Callable[..., Any]


class NoFunctionError(SpecError, TypeError):
    """An argument that should be a function and is not."""


class FunctionMethods(ABC):
    """Groupby methods that take a function."""

    _frame: Any
    _groups: Groups
    _as_index: bool
    _selection: Any

    @property
    @abstractmethod
    def _data(self) -> Any:
        """The columns to aggregate."""

    def apply(self, func: Callable[..., Any] | str, *args: Any, **kwargs: Any) -> AnyFrame:
        """Apply a function to each group, and concatenate the results.

        It is called once a group, with a frame or Series whose attribute ``name`` is the key: slow
        where groups are many. Scalars make a Series, Series of the same labels the rows of a frame,
        and others and frames are put one behind the other, beneath the keys.

        Parameters
        ----------
        func : function or str
            A name is that of a method.
        *args, **kwargs
            Further arguments of the function.

        Raises
        ------
        SpecError
            When there is no function or method.

        Examples
        --------
        >>> import dgpuhash, pandas as pd
        >>> sales = pd.DataFrame({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
        >>> groups = dgpuhash.groupby(sales, "shop")
        >>> groups.apply(lambda rows: rows["price"].max() - rows["price"].min()).to_dict()
        {'a': 1.0, 'b': 0.0}
        """
        if isinstance(func, str):
            return getattr(self, func)(*args, **kwargs)
        if not callable(func):
            raise NoFunctionError(f"cannot apply {func!r}; give a function, or a method's name")
        func = bound(func, args, kwargs)
        values = []
        for key, part in zip(self._groups.index, _parts(self._groups, self._data), strict=True):
            # As pandas tells the key.
            object.__setattr__(part, "name", key)
            values.append(func(part))
        return self._of_column(values) if self._data.ndim == 1 else self._of_frame(values)

    def _of_column(self, values: list[Any]) -> Any:
        """Combine a function's results for the groups of one column."""
        data, index = self._data, self._groups.index
        if not values:
            return pd.Series([], name=data.name, index=index, dtype=data.dtype)
        if isinstance(values[0], dict):
            return self._of_dictionaries(values)
        if isinstance(values[0], pd.Series | pd.DataFrame):
            return self._behind_each_other(values)
        made = pd.Series(values, index=index, name=data.name)
        return made if self._as_index else self._with_keys(made.to_frame())

    def _of_frame(self, values: list[Any]) -> Any:
        """Combine a function's results for the groups of a frame."""
        data, index = self._data, self._groups.index if self._as_index else None
        found = [each for each in values if each is not None]
        if not found:
            made = data.iloc[:0]
            return made.set_axis(pd.RangeIndex(0) if values or index is None else index, axis=0)
        first = found[0]
        if isinstance(first, pd.DataFrame):
            return self._behind_each_other(values)
        if isinstance(first, pd.Series):
            return self._rows_of(values, first, index)
        if isinstance(first, np.ndarray | pd.Index):
            several = isinstance(self._selection, list)
            name = tuple(self._selection) if several else self._selection
            return pd.Series(values, index=index, name=name)
        if self._as_index:
            return pd.Series(values, index=index)
        label = None if isinstance(self._selection, list) else self._selection
        return self._with_keys(pd.DataFrame({0: values}).set_axis([label], axis=1))

    def _rows_of(self, values: list[Any], first: pd.Series, index: Any) -> Any:
        """Return Series with equal labels as rows of a frame, others concatenated."""
        filled = [pd.Series(index=first.index) if each is None else each for each in values]
        if not all(each.index.equals(first.index) for each in filled):
            return self._behind_each_other(filled)
        stacked = np.vstack([np.asarray(each) for each in filled])
        columns, names = first.index.copy(), {each.name for each in filled}
        if columns.name is None and len(names) == 1:
            columns.name = names.pop()
        rows: Any = stacked.tolist() if stacked.dtype == object else stacked
        made = pd.DataFrame(rows, index=index, columns=columns)
        return made if self._as_index else self._with_keys(made)

    def _behind_each_other(self, values: list[Any]) -> Any:
        """Concatenate frames or Series, with their keys as first index levels."""
        there = [place for place, each in enumerate(values) if each is not None]
        parts = [values[place] for place in there]
        if all(isinstance(each, pd.Series) for each in parts):
            # Keys as names would be made an index.
            names = {each.name for each in parts}
            parts = [each.rename(None) for each in parts]
            made: Any = pd.concat(parts)
            of_column = self._data.ndim == 1
            made.name = self._data.name if of_column else names.pop() if len(names) == 1 else None
        else:
            made = pd.concat(parts)
        if self._as_index:
            rows = np.repeat(there, [len(values[place]) for place in there])
            index = self._groups.index
            keys = [pd.Series(level.array.take(rows)) for level in levels_of(index)]
            labels = [pd.Series(level.array) for level in levels_of(made.index)]
            made.index = index_of([*keys, *labels], [*index.names, *made.index.names])
        return made

    def _of_dictionaries(self, values: list[Any]) -> pd.Series:
        """Concatenate the values of dictionaries, with the keys above theirs."""
        table = pd.DataFrame(values)
        columns = pd.concat([table.iloc[:, place] for place in range(table.shape[1])])
        order = np.arange(table.size).reshape(table.shape[::-1]).T.ravel()
        index = assembly.index_with_level(self._groups, table.columns)
        return columns.take(order).set_axis(index).rename(self._data.name)

    def _with_keys(self, made: pd.DataFrame) -> pd.DataFrame:
        columns = [made.iloc[:, place].array for place in range(made.shape[1])]
        return assembly.with_keys(columns, made.columns, self._groups)


def bound(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Function:
    """Return a function of one argument, with further arguments bound."""
    return functools.partial(_call, func, args, kwargs) if args or kwargs else func


def _call(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any], part: Any) -> Any:
    return func(part, *args, **kwargs)


def _parts(groups: Groups, data: Any) -> Iterator[Any]:
    """Yield the rows of each group of a frame or Series."""
    ordered = data.take(groups.order)
    for start, end in itertools.pairwise(groups.starts):
        yield ordered.iloc[start:end]


def by_group(groups: Groups, column: pd.Series, func: Function) -> Any:
    """Return a function's value for each group of a column, in a dtype for the column.

    Parameters
    ----------
    groups : Groups
    column : Series
        With the labels of the rows.
    func : function
        Of a Series.
    """
    if not len(groups):
        return column.array[:0]
    found = np.empty(len(groups), object)
    for place, part in enumerate(_parts(groups, column)):
        made = func(part)
        if isinstance(made, pd.Series | pd.Index):
            made = made.array
            made = made[0] if len(made) == 1 else made
        found[place] = made
    made = pd.Series(column.array._cast_pointwise_result(found))
    return made.to_numpy() if isinstance(made.dtype, np.dtype) else made.array


def transform_by_function(groups: Groups, data: Any, func: Function) -> Any:
    """Return a function's results for each group, aligned with the group's rows.

    Of a frame it is called for each column of each group. Rows in no group have nulls.
    """
    made = []
    for key, part in zip(groups.index, _parts(groups, data), strict=True):
        object.__setattr__(part, "name", key)
        if data.ndim == 1:
            made.append(pd.Series(func(part), index=part.index).rename(None))
        elif len(part):
            made.append(_like(part, part.apply(func, axis=0)))
    if not made:
        return data if data.ndim == 2 else pd.Series(np.nan, data.index, name=data.name)
    together: Any = pd.concat(made, ignore_index=True)
    rows = np.full(len(groups.codes), -1, np.int64)
    rows[groups.order] = np.arange(len(groups.order))
    if data.ndim == 1:
        return assembly.series_of(take_values(together, rows), data.index, data.name)
    arrays = [take_values(together.iloc[:, place], rows) for place in range(together.shape[1])]
    return assembly.frame_of(arrays, data.columns, data.index)


def _like(part: pd.DataFrame, made: Any) -> Any:
    """Return a function's results for a group's columns, aligned with its rows."""
    if isinstance(made, pd.Series):
        rows = np.tile(made.to_numpy(), (len(part), 1))
        return pd.DataFrame(rows, index=part.index, columns=part.columns)
    return made.reindex(part.index)
