"""Aggregates of the columns of a frame by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import KeyTypeError, SpecError
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.aggregates.refusals import AggregateTypeError, check_aggregate
from dgpuhash.frames.groupby.aggregates.states import States, states_of
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.aggregates.values import Values
from dgpuhash.frames.groupby.functions import aggregated
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.frames.groupby.order import ranks

__all__ = ["Wanted", "check_labelled", "check_observed", "reduced"]

# What objects of one kind are aggregated as.
_OBJECTS: dict[str, Any] = {
    "boolean": "boolean",
    "integer": "Int64",
    "floating": "float64",
    "mixed-integer-float": "float64",
    "empty": "float64",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """An aggregate of one column.

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


def reduced(
    groups: Groups, columns: Sequence[pd.Series], wanted: Sequence[Wanted], index: Any
) -> list[Any]:
    """Return for each wanted aggregate the values of all groups.

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
        place: aggregated(groups, columns[each.place].set_axis(index).rename(each.label), each.how)
        for place, each in enumerate(wanted)
        if callable(each.how)
    }
    if functions:
        named = iter(_named(groups, columns, [w for w in wanted if not callable(w.how)], index))
        return [functions[at] if at in functions else next(named) for at in range(len(wanted))]
    return _named(groups, columns, wanted, index)


def _named(
    groups: Groups, columns: Sequence[pd.Series], wanted: Sequence[Wanted], index: Any
) -> list[Any]:
    """Return aggregates that have a name."""
    for each in wanted:
        if AGGREGATES[each.how].labels:
            check_observed(groups, each.how)
    known: dict[int, Values] = {}
    numbers: dict[tuple[int, bool], Values] = {}
    read: list[Values] = []
    for each in wanted:
        if each.place not in known:
            known[each.place] = Values(groups.kept(columns[each.place]))
        values, aggregate = known[each.place], AGGREGATES[each.how]
        if aggregate.numbers and values.kind == "object":
            key = each.place, each.how in {"min", "max"}
            if key not in numbers:
                numbers[key] = _numbers_of(values, texts=key[1])
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
        found.append(results)
    return found


def _numbers_of(values: Values, *, texts: bool) -> Values:
    """Return objects as what all of them are: numbers, or texts where these are wanted."""
    inferred = pd.api.types.infer_dtype(values.series, skipna=True)
    if texts and inferred == "string":
        return Values(values.series.astype("str"))
    if inferred not in _OBJECTS:
        return values
    try:
        return Values(values.series.astype(_OBJECTS[inferred]))
    except (OverflowError, TypeError, ValueError):
        return values


def _check_order(values: Values, how: str) -> None:
    """Raise AggregateTypeError unless objects can be compared."""
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


def check_observed(groups: Groups, how: str) -> None:
    """Raise SpecError where a group has no rows, whose labels are wanted."""
    if not groups.is_observed and (groups.sizes == 0).any():
        raise SpecError(
            f"Can't get {how} of an empty group due to unobserved categories. Specify "
            "observed=True in groupby instead."
        )


def check_labelled(how: str, options: Options, *, nulls: bool, lacking: bool) -> None:
    """Raise SpecError where nulls are there that count, or a group lacks values."""
    if nulls and not options.skipna:
        raise SpecError(f"{how} with skipna=False encountered an NA value.")
    if lacking:
        raise SpecError(f"{how} with skipna=True encountered all NA values in a group.")


def _labels(wanted: Wanted, states: States, rows: Any, index: Any) -> Any:
    """Return the labels of rows, which are positions among those that are in a group."""
    how = wanted.how
    check_labelled(
        how, wanted.options, nulls=states.values.nulls is not None,
        lacking=bool(len(rows) and rows.min() < 0),
    )  # fmt: skip
    if states.groups.rows is not None:
        rows = states.groups.rows[rows]
    labels = index.to_flat_index() if isinstance(index, pd.MultiIndex) else index
    return labels.array.take(rows)
