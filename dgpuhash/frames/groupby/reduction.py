"""Resolve the arguments of ``agg``, and compute the aggregates of each column."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dgpuhash.errors import KeyTypeError, SpecError
from dgpuhash.frames.groupby.aggregates.options import AggregateTypeError, Options, check_aggregate
from dgpuhash.frames.groupby.aggregates.states import States, states_of
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.aggregates.values import Values, ranks
from dgpuhash.frames.groupby.functions import by_group
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.frames.merge.keys import MissingKeyError


class NoSuchAggregateError(SpecError, AttributeError):
    """The name of an unknown aggregate."""


class RepeatedAggregateError(SpecError, pd.errors.SpecificationError):
    """Names of results that are not distinct."""


@dataclass(frozen=True, slots=True)
class Request:
    """One column of the result.

    Attributes
    ----------
    place : int
        The position of the column that is aggregated.
    how : str or function
    label : label or None
        What its column is called, beneath the label of the column that it aggregates or, where
        `is_named`, alone. None: as that column.
    is_named : bool
    given : dict
        Options of this one.
    args : tuple
        Its arguments by position.
    """

    place: int
    how: Any
    label: Hashable | None = None
    is_named: bool = False
    given: Any = None
    args: tuple[Any, ...] = ()


def name_of(how: Any) -> Any:
    """Return the name of an aggregate; a function unchanged.

    Raises
    ------
    NoSuchAggregateError
        When there is none of that name.
    """
    if how is list:
        return "list"
    if callable(how):
        return how
    if not isinstance(how, str) or how not in AGGREGATES:
        raise NoSuchAggregateError(
            f"there is no aggregate {how!r}; the aggregates are {', '.join(AGGREGATES)}"
        )
    return how


def requests(columns: pd.Index | None, func: Any, named: Mapping[str, Any]) -> list[Request]:
    """Return the columns of the result for the arguments of ``agg``.

    Parameters
    ----------
    columns : Index or None
        The labels of the columns that can be aggregated; None: a single one, without a label.
    func : list, dict or None
    named : dict
        The keyword arguments, where `func` is None.
    """
    if func is None:
        return _named_requests(columns, named)
    if isinstance(func, Mapping):
        if columns is None:
            raise RepeatedAggregateError("nested renamer is not supported")
        return _by_column(columns, func)
    wanted = _titles(func)
    if columns is not None:
        _check_distinct([label for label, _ in wanted])
    return [
        Request(place, how, label)
        for place in range(1 if columns is None else len(columns))
        for label, how in wanted
    ]


def title_of(func: Any) -> str:
    """Return the column label for the results of a function.

    Examples
    --------
    >>> title_of(len), title_of(functools.partial(len))
    ('len', 'len')
    """
    if hasattr(func, "__name__"):
        return str(func.__name__)
    return title_of(func.func) if isinstance(func, functools.partial) else type(func).__name__


def titles(wanted: list[Any]) -> list[Any]:
    """Return column labels, with lambdas numbered unless there is only one.

    Examples
    --------
    >>> titles(["<lambda>", "sum", "<lambda>"]), titles(["<lambda>"])
    (['<lambda_0>', 'sum', '<lambda_1>'], ['<lambda>'])
    """
    if len(wanted) < 2:
        return wanted
    number = itertools.count()
    return [f"<lambda_{next(number)}>" if each == "<lambda>" else each for each in wanted]


def _titles(hows: Any) -> list[tuple[Hashable, Any]]:
    """Return the labels and names in a list of names, functions or (label, aggregate) pairs."""
    made: list[tuple[Hashable, Any]] = []
    for each in hows:
        if isinstance(each, tuple | list):
            made.append((each[0], name_of(each[1])))
        else:
            how = name_of(each)
            made.append((title_of(how) if callable(how) else how, how))
    labels = titles([label for label, _ in made])
    return [(label, how) for label, (_, how) in zip(labels, made, strict=True)]


def _check_distinct(labels: list[Any]) -> None:
    if len(set(labels)) < len(labels):
        raise RepeatedAggregateError(
            "Function names must be unique if there is no new column names assigned"
        )


def _places(columns: pd.Index, label: Any) -> list[int]:
    found = [place for place, each in enumerate(columns) if each == label]
    if not found:
        raise MissingKeyError(f"Label(s) [{label!r}] do not exist")
    return found


def _by_column(columns: pd.Index, func: Mapping[Any, Any]) -> list[Request]:
    if any(isinstance(each, Mapping) for each in func.values()):
        raise RepeatedAggregateError("nested renamer is not supported")
    missing = [label for label in func if label not in columns]
    if missing:
        raise MissingKeyError(f"Label(s) {missing} do not exist")
    several = any(isinstance(each, list | tuple) for each in func.values())
    made: list[Request] = []
    for label, hows in func.items():
        wanted = _titles(hows if isinstance(hows, list | tuple) else [hows])
        for place in _places(columns, label):
            made.extend(Request(place, how, title if several else None) for title, how in wanted)
    return made


def _named_requests(columns: pd.Index | None, named: Mapping[str, Any]) -> list[Request]:
    if not named:
        raise NothingNamedError(
            "Must provide 'func' or named aggregation **kwargs."
            if columns is None
            else "Must provide 'func' or tuples of '(column, aggfunc)."
        )
    made = []
    for label, each in named.items():
        given: dict[str, Any] = {}
        args: tuple[Any, ...] = ()
        place = 0
        how = each
        if columns is None and hasattr(each, "aggfunc"):
            received = type(each).__name__
            raise NothingNamedError(f"func is expected but received {received} in **kwargs.")
        if hasattr(each, "aggfunc") or (isinstance(each, tuple) and columns is not None):
            if hasattr(each, "aggfunc"):
                column, how = each.column, each.aggfunc
                given = dict(getattr(each, "kwargs", None) or {})
                args = tuple(getattr(each, "args", None) or ())
            elif len(each) == 2:
                column, how = each
            else:
                raise NothingNamedError("Must provide 'func' or tuples of '(column, aggfunc).")
            if columns is not None:
                # Of columns with one label the first, as pandas has it.
                place = _places(columns, column)[0]
        elif columns is not None:
            raise NothingNamedError("Must provide 'func' or tuples of '(column, aggfunc).")
        if columns is None and isinstance(how, list | tuple):
            raise NothingNamedError(
                f"func is expected but received {type(how).__name__} in **kwargs."
            )
        made.append(Request(place, name_of(how), label, is_named=True, given=given, args=args))
    return made


class NothingNamedError(SpecError, TypeError):
    """An ``agg`` without a function, or with keyword arguments that are no aggregates."""


# What objects of one kind are aggregated as.
_OBJECTS: dict[str, Any] = {
    "boolean": "boolean",
    "integer": "Int64",
    "floating": "float64",
    "mixed-integer-float": "float64",
    "empty": "float64",
}


# Aggregates of objects whose results are values, or need not fit 64 bits.
_OF_VALUES = {"min", "max", "sum", "prod"}
# What sums and products of no objects are.
_OF_NONE = {"sum": 0, "prod": 1}


class Wanted(NamedTuple):
    """A requested aggregate of one column.

    Attributes
    ----------
    place : int
        The position of the column.
    how : str or function
    options : Options
    label : label or None
        What the column is called, for a function.
    """

    place: int
    how: Any
    options: Options
    label: Any = None


def reduce_columns(
    groups: Groups, columns: Sequence[pd.Series], wanted: Sequence[Wanted], index: Any
) -> list[Any]:
    """Return the values of all groups for each requested aggregate.

    Parameters
    ----------
    groups : Groups
    columns : list of Series
        Numbered from 0.
    wanted : list of Wanted
    index : Index
        The labels of the rows, for aggregates that give labels.

    Raises
    ------
    AggregateTypeError, UnsupportedError
        When values of a dtype do not have an aggregate.
    """
    functions = {
        place: by_group(groups, columns[each.place].set_axis(index).rename(each.label), each.how)
        for place, each in enumerate(wanted)
        if callable(each.how)
    }
    if functions:
        named = iter(_by_name(groups, columns, [w for w in wanted if not callable(w.how)], index))
        return [functions[at] if at in functions else next(named) for at in range(len(wanted))]
    return _by_name(groups, columns, wanted, index)


def _by_name(
    groups: Groups, columns: Sequence[pd.Series], wanted: Sequence[Wanted], index: Any
) -> list[Any]:
    """Return the aggregates with a name."""
    for each in wanted:
        if AGGREGATES[each.how].labels:
            check_observed(groups, each.how)
    known: dict[int, Values] = {}
    numbers: dict[tuple[int, str], Values] = {}
    read: list[Values] = []
    for each in wanted:
        if each.place not in known:
            known[each.place] = Values(groups.kept(columns[each.place]))
        values, aggregate = known[each.place], AGGREGATES[each.how]
        if aggregate.numbers and values.kind == "object":
            key = each.place, each.how if each.how in _OF_VALUES else ""
            if key not in numbers:
                numbers[key] = _numbers_of(values, key[1])
            values = numbers[key]
        check_aggregate(values, each.how)
        if values.kind == "object" and {"least", "greatest"} & {*aggregate.states}:
            _check_order(values, each.how)
        read.append(values)
    needs: dict[int, tuple[Values, dict[str, None]]] = {}
    for each, values in zip(wanted, read, strict=True):
        states = AGGREGATES[each.how].states
        needs.setdefault(id(values), (values, {}))[1].update(dict.fromkeys(states))
    made = dict(zip(needs, states_of(groups, list(needs.values())), strict=True))
    found = []
    for each, values in zip(wanted, read, strict=True):
        aggregate, of_column = AGGREGATES[each.how], made[id(values)]
        results = aggregate.result(of_column, each.options)
        if aggregate.labels:
            results = _labels(each, of_column, results, index)
        elif values is not known[each.place] and values.kind != "text":
            results = _as_objects(results, object if aggregate.objects else np.float64)
            if each.how in _OF_NONE:
                results = _as_of_python(results, of_column, each.how)
        found.append(results)
    return found


def _numbers_of(values: Values, how: str) -> Values:
    """Return objects in their common dtype: numbers, or text for extremes.

    They stay objects where an integer would become a float, or results may not fit 64 bits.
    """
    inferred, texts = pd.api.types.infer_dtype(values.series, skipna=True), how in {"min", "max"}
    if texts and inferred == "string":
        return Values(values.series.astype("str"))
    if inferred not in _OBJECTS or (how in _OF_VALUES and inferred == "mixed-integer-float"):
        return values
    if inferred == "integer" and how in {"sum", "prod"} and _may_overflow(values.series, how):
        return values
    try:
        return Values(values.series.astype(_OBJECTS[inferred]))
    except (OverflowError, TypeError, ValueError):
        return values


def _may_overflow(numbers: pd.Series, how: str) -> bool:
    """Return whether a sum or product of these integers may exceed 63 bits."""
    sizes = [abs(int(each)) for each in numbers.dropna()]
    if how == "sum":
        return sum(sizes) >= 2**63
    return sum(math.log2(each) for each in sizes if each > 1) >= 63


def _check_order(values: Values, how: str) -> None:
    """Raise AggregateTypeError if objects cannot be compared."""
    try:
        ranks(values.series)
    except KeyTypeError as error:
        message = f"agg function failed [how->{how},dtype->{values.dtype}]"
        if how in {"idxmin", "idxmax"}:
            message = str(error.__cause__)
            message = message.replace("'<'", "'>'") if how == "idxmax" else message
        raise AggregateTypeError(message) from error


def _as_objects(results: Any, dtype: Any) -> Any:
    if isinstance(results, np.ndarray):
        return results.astype(dtype)
    return results.to_numpy(dtype=dtype, na_value=np.nan)


def _as_of_python(results: Any, states: States, how: str) -> Any:
    """Return sums or products of objects with Python's types for no or one value."""
    there, count = ~pd.isna(results), states.count
    results[there & (count == 0)] = _OF_NONE[how]
    if states.values.kind == "bool":
        # In products a null is 1.
        alone = there & (count == 1) & ((states.groups.sizes == 1) | (how == "sum"))
        results[alone] = results[alone].astype(bool)
    return results


def check_observed(groups: Groups, how: str) -> None:
    """Raise SpecError if a group without rows needs an index label."""
    if not groups.is_observed and (groups.sizes == 0).any():
        raise SpecError(
            f"Can't get {how} of an empty group due to unobserved categories. Specify "
            "observed=True in groupby instead."
        )


def check_labelled(how: str, options: Options, *, nulls: bool, lacking: bool) -> None:
    """Raise SpecError if nulls count, or a group has no values."""
    if nulls and not options.skipna:
        raise SpecError(f"{how} with skipna=False encountered an NA value.")
    if lacking:
        raise SpecError(f"{how} with skipna=True encountered all NA values in a group.")


def _labels(wanted: Wanted, states: States, rows: Any, index: Any) -> Any:
    """Return the index labels of rows, numbered among those in a group."""
    how = wanted.how
    check_labelled(
        how, wanted.options, nulls=states.values.nulls is not None,
        lacking=bool(len(rows) and rows.min() < 0),
    )  # fmt: skip
    if states.groups.rows is not None:
        rows = states.groups.rows[rows]
    labels = index.to_flat_index() if isinstance(index, pd.MultiIndex) else index
    return labels.array.take(rows)
