"""Groupby objects for Dask frames: run supported aggregates in this library, others in Dask."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
from dask.typing import no_default
from distributed import Client
from pandas.api.types import is_scalar

from dgpuhash.dask.answering import answering
from dgpuhash.dask.verbs import hash_ranges, rounding_of
from dgpuhash.distributed.cluster.dask_internals import Aggregation, GroupBy, SeriesGroupBy
from dgpuhash.distributed.groupby.verb import groupby_lazily
from dgpuhash.errors import UnsupportedError

# Of Dask's groups, by the names of their methods.
AGGREGATES = (
    "aggregate", "apply", "corr", "count", "cov", "first", "head", "idxmax", "idxmin", "last",
    "max", "mean", "median", "min", "nunique", "prod", "size", "std", "sum", "tail", "transform",
    "unique", "value_counts", "var",
)  # fmt: skip
# Those that ours has not.
OTHERS = (
    "bfill", "cumcount", "cumprod", "cumsum", "ffill", "get_group", "rolling", "shift",
)  # fmt: skip
# Dask has two classes of this name.
_IN_PIECES = (dd.Aggregation, Aggregation)
# Arguments of Dask and Dask-cuDF that say how they are to compute.
_OF_DASK = {"split_every", "shuffle_method", "shuffle_backend", "fused"}


def groupby_in_place(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for `groupby` of frames and Series.

    With ``sort=True`` one hash range is sorted, and split into `split_out` partitions. A number as
    `split_out` is that of hash ranges otherwise; `split_every` and `shuffle_method` are for Dask
    alone.
    """

    @functools.wraps(original)
    def groupby(self: Any, by: Any, *args: Any, **given: Any) -> Any:
        if "as_index" in given:
            # Dask-cuDF warns, or refuses it; Dask has no such argument.
            original(self, by, *args, **given)
            del given["as_index"]
        return answering.answer(
            "groupby",
            lambda client: _answer(
                _Rows(self, by, client, *args, **given),
                functools.partial(original, self, by, *args, **given),
            ),
            lambda: original(self, by, *args, **given),
            begins=True,
        )

    return groupby


class _Rows:
    """Rows to group: the arguments of Dask's groupby, and the selected columns."""

    def __init__(
        self,
        frame: Any,
        by: Any,
        client: Client,
        group_keys: bool = True,
        sort: bool | None = None,
        observed: bool | None = None,
        dropna: bool | None = None,
    ) -> None:
        self.frame: Any = frame
        self.by: Any = by
        self.group_keys: bool = group_keys
        self.sort: bool | None = sort
        self.observed: bool = observed is None or observed
        self.dropna: bool = dropna is None or dropna
        self.chosen: list[Any] = []
        # What Dask would tell as soon as that.
        self.groups(client)

    def groups(self, client: Client, ranges: int | None = None) -> Any:
        """Return this library's groupby with a number of hash ranges; one if sorted."""
        if self.sort:
            ranges = 1
        made: Any = groupby_lazily(
            self.frame, self.by, sort=bool(self.sort), dropna=self.dropna, observed=self.observed,
            npartitions=ranges, client=client, on_rounding=rounding_of(self.frame, client),
        )  # fmt: skip
        return functools.reduce(lambda groups, key: groups[key], self.chosen, made)

    def of(self, key: Any, client: Client) -> _Rows:
        """Return the rows with other selected columns."""
        # As in Dask, which has no labels that are tuples here.
        key = list(key) if isinstance(key, tuple) else key
        made = object.__new__(_Rows)
        vars(made).update(vars(self), chosen=[*self.chosen, key])
        made.groups(client)
        return made

    @property
    def is_series(self) -> bool:
        """Whether one column is aggregated."""
        return isinstance(self.frame, dd.Series) or bool(self.chosen and is_scalar(self.chosen[-1]))


def _answer(rows: _Rows, theirs: Callable[[], Any]) -> Any:
    return (AnsweredSeriesGroupBy if rows.is_series else AnsweredGroupBy)(rows, theirs)


class _Answered:
    """Base of both groupby objects; other attributes are those of Dask's groupby."""

    def __init__(self, rows: _Rows, theirs: Callable[[], Any]) -> None:
        # Dask's are made only where they are asked for.
        self._rows, self._make = rows, theirs

    def __getattr__(self, name: str) -> Any:
        if name in ("_rows", "_make", "_theirs") or name.startswith("__"):
            raise AttributeError(name)
        frame = self._rows.frame
        if not name.startswith("_") and isinstance(frame, dd.DataFrame) and name in frame.columns:
            return self[name]
        return getattr(self._theirs, name)

    @functools.cached_property
    def _theirs(self) -> Any:
        """Dask's own groupby object."""
        return self._make()

    def __getitem__(self, key: Any) -> Any:
        return answering.answer(
            "groupby",
            lambda client: _answer(self._rows.of(key, client), lambda: self._theirs[key]),
            lambda: self._theirs[key],
            begins=True,
        )


def _method(name: str) -> Callable[..., Any]:
    """Return a groupby method that this library or Dask runs."""
    base = SeriesGroupBy if hasattr(SeriesGroupBy, name) else GroupBy
    dasks = getattr(base, name)
    parameters = inspect.signature(dasks)
    verb = f"groupby.{'agg' if name == 'aggregate' else name}"

    @functools.wraps(dasks)
    def method(self: Any, *args: Any, **given: Any) -> Any:
        def ours(client: Client) -> Any:
            if name in OTHERS:
                raise UnsupportedError(f"groupbys of dgpuhash have no method {name}")
            call = parameters.bind(self, *args, **given)
            made = _aggregate(self._rows, name, call, client)
            if "meta" in parameters.parameters and callable(call.arguments["func"]):
                self._warn_if_no_meta(call.arguments.get("meta", no_default), name)
            return made

        return answering.answer(verb, ours, lambda: getattr(self._theirs, name)(*args, **given))

    return method


def _aggregate(rows: _Rows, name: str, call: inspect.BoundArguments, client: Client) -> Any:
    """Return this library's aggregate for the arguments of Dask's method."""
    defaults = call.signature.parameters
    given = dict(list(call.arguments.items())[1:])
    args = given.pop("args", ())
    given |= given.pop("kwargs", {})
    ranges = hash_ranges(given.pop("split_out", None))
    kept = {
        label: value
        for label, value in given.items()
        if label not in _OF_DASK
        and not (label in defaults and value is defaults[label].default)
        and value is not no_default
    }
    if name in ("first", "last") and kept.pop("sort", None):
        raise UnsupportedError(f"{name}(sort=True) is not supported; sort the frame")
    if name in ("apply", "transform") and not rows.group_keys:
        raise UnsupportedError(f"{name} with group_keys=False is not supported")
    first = [kept.pop(label) for label in ("arg", "func") if label in kept]
    if any(isinstance(each, _IN_PIECES) for each in _each([*first, *kept.values()])):
        raise UnsupportedError(
            "a dask.dataframe.Aggregation is not supported; use the names of aggregates"
        )
    groups = rows.groups(client, ranges)
    made = getattr(groups, "agg" if name == "aggregate" else name)(*first, *args, **kept)
    if rows.sort and ranges is not None and made.npartitions == 1 < ranges:
        made = made.repartition(npartitions=ranges)
    return made


def _each(func: Any) -> list[Any]:
    """Return all aggregates within lists and dictionaries."""
    if isinstance(func, dict):
        func = list(func.values())
    if isinstance(func, list | tuple):
        return [found for each in func for found in _each(each)]
    return [func]


class AnsweredGroupBy(_Answered, GroupBy):
    """Groupby of a Dask frame; this library or Dask runs each aggregate."""


class AnsweredSeriesGroupBy(_Answered, SeriesGroupBy):
    """Groupby of one column; this library or Dask runs each aggregate."""


for _kind in (AnsweredGroupBy, AnsweredSeriesGroupBy):
    for _name in (*AGGREGATES, *OTHERS):
        if hasattr(_kind, _name):
            setattr(_kind, _name, _method(_name))
