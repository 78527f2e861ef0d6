"""What ``agg`` is asked for: names, lists, dictionaries and named aggregates, read as one list."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dgpuhash.errors import SpecError
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.functions import title_of, titles
from dgpuhash.frames.merge.keys import MissingKeyError


class NoSuchAggregateError(SpecError, AttributeError):
    """An aggregate that there is not."""


class RepeatedAggregateError(SpecError, pd.errors.SpecificationError):
    """Names of results that do not tell them apart."""


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
    """Return the name of an aggregate; a function as it is.

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
        raise NoSuchAggregateError(f"no aggregate {how!r}; there is {', '.join(AGGREGATES)}")
    return how


def requests(columns: pd.Index | None, func: Any, named: Mapping[str, Any]) -> list[Request]:
    """Return the columns of the result that an ``agg`` asks for.

    Parameters
    ----------
    columns : Index or None
        The labels of the columns that can be aggregated; None: a single one, without a label.
    func : list, dict or None
    named : dict
        The keyword arguments, where `func` is None.
    """
    if func is None:
        return _named(columns, named)
    if isinstance(func, Mapping):
        if columns is None:
            raise RepeatedAggregateError("nested renamer is not supported")
        return _by_column(columns, func)
    wanted = _titled(func)
    if columns is not None:
        _check_distinct([label for label, _ in wanted])
    return [
        Request(place, how, label)
        for place in range(1 if columns is None else len(columns))
        for label, how in wanted
    ]


def _titled(hows: Any) -> list[tuple[Hashable, Any]]:
    """Return the labels and names of a list: of names, functions, or pairs of a label and these."""
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
        wanted = _titled(hows if isinstance(hows, list | tuple) else [hows])
        for place in _places(columns, label):
            made.extend(Request(place, how, title if several else None) for title, how in wanted)
    return made


def _named(columns: pd.Index | None, named: Mapping[str, Any]) -> list[Request]:
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
    """An ``agg`` without a function, or whose keyword arguments are no aggregates."""
