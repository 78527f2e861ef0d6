"""Verbs of a groupby: the columns each reads, and the kinds of states it needs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.frames.dataframes.promotion import check_promoted
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.aggregates.pairs import Moments
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.aggregates.values import Values
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.groupby.methods import GroupByBase
from dgpuhash.frames.groupby.partial.kinds import KIND_OF_PAIRS, Place, kinds_for
from dgpuhash.frames.groupby.reduction import Wanted, reduce_columns

OF_PAIRS = frozenset({"cov", "corr"})
# Verbs that aggregate: they need nothing but states.
AGGREGATING = frozenset({"agg", "aggregate", *OF_PAIRS, *AGGREGATES})
# Aggregates that are the same of rows of which equal ones were left out.
OF_DISTINCT = frozenset({"nunique", "unique", "any", "all"})
OF_ANY_ORDER = frozenset({"nunique", "median", "quantile", "count", "size", "any", "all"})
# Verbs that read no other columns than keys and what is chosen.
OF_COLUMNS = AGGREGATING | {"nlargest", "nsmallest", "value_counts"}


@dataclass(frozen=True, slots=True)
class GroupByCall:
    """A method of a GroupBy with its arguments.

    Examples
    --------
    >>> GroupByCall("sum", options={"min_count": 1})
    GroupByCall(name='sum', arguments=(), options={'min_count': 1})
    >>> GroupByCall("agg", options={"total": ("price", "sum")}).name
    'agg'
    """

    name: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def of(self, groups: Any) -> Any:
        """Return the result of the method for a groupby of any library."""
        return getattr(groups, self.name)(*self.arguments, **self.options)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        """Return a token for Dask that depends on the order of dictionaries."""
        return type(self).__name__, self.name, _in_order(self.arguments), _in_order(self.options)


def _in_order(given: Any) -> Any:
    """Return arguments with lists of pairs in place of dictionaries, to keep their order."""
    if isinstance(given, dict):
        return dict.__name__, [(label, _in_order(each)) for label, each in given.items()]
    if isinstance(given, list | tuple):
        return type(given).__name__, list(map(_in_order, given))
    return given


_WIDE = {"int": "int64", "uint": "uint64", "bool": "int64"}
# NumPy's dtypes that hold any sum or deviation of its float16.
_OF_HALVES = dict.fromkeys(("sum", "prod", "var"), "float32")
_OF_HALVES |= dict.fromkeys(("median", "std", "sem"), "float64")
_VALUES = frozenset({"min", "max", "first", "last"})


def settle_dtype(found: Any, values: Values, wanted: Wanted, *, full: bool) -> Any:
    """Return an aggregate in the dtype that it has for any values of the column.

    Sums and products of integers have 64 bits; NumPy's integers are float64, and booleans objects,
    where a group may have no value; sums and deviations of float16 are float32 or float64. Texts of
    a column of objects are objects.

    Parameters
    ----------
    found : array
    values : Values
        Of the dtype of the column.
    wanted : Wanted
    full : bool
        Whether each group has rows.
    """
    how, kind = wanted.how, values.kind
    if kind == "object" and isinstance(getattr(found, "dtype", None), pd.StringDtype):
        return found.to_numpy(dtype=object)
    if values.dtype == np.float16:
        return found.astype(_OF_HALVES.get(how, found.dtype))
    if kind not in _WIDE or not isinstance(found, np.ndarray | pd.api.extensions.ExtensionArray):
        return found
    if how in {"sum", "prod"}:
        least = wanted.options.least(0)
        lacking = least > 1 or (least == 1 and not full)
        return _as(found, values, _WIDE[kind], lacking=lacking)
    if how in _VALUES and values.storage == "numpy":
        lacking = wanted.options.least(-1) > 1 or not full
        if lacking and kind == "bool" and how in {"first", "last"}:
            return found.astype(object)
        return _as(found, values, str(values.numbers_dtype), lacking=lacking)
    if how == "quantile" and values.storage == "numpy" and not full:
        check_promoted(found, np.dtype(np.float64), values.series.name)
        return found.astype(np.float64)
    return found


def _as(found: Any, values: Values, name: str, *, lacking: bool) -> Any:
    if values.storage == "numpy":
        if lacking:
            check_promoted(found, np.dtype(np.float64), values.series.name)
        return found.astype(np.float64 if lacking else np.dtype(name))
    if values.storage == "masked":
        return found.astype({"int64": "Int64", "uint64": "UInt64"}[name])
    return found.astype(pd.ArrowDtype(pa.type_for_alias(name)))


Reduce: TypeAlias = Callable[[Any, Sequence[int], Sequence[Wanted]], list[Any]]
MomentsOf: TypeAlias = Callable[
    [Any, Sequence[int], Sequence[int], str], Callable[[int, int], Moments]
]


class Planned(GroupByBase):
    """Groupby whose aggregates come from a function of column and aggregate."""

    def __init__(
        self, frame: Any, groups: Any, reduce: Reduce, moments: MomentsOf | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(frame, groups, **options)
        self._reduce, self._pairs = reduce, moments

    def _of_columns(self, selection: Any) -> Self:
        return type(self)(
            self._frame, self._groups, self._reduce, self._pairs, as_index=self._as_index,
            selection=selection,
        )  # fmt: skip

    def _reduced(self, wanted: list[Wanted]) -> list[Any]:
        found: list[Any] = self._reduce(self, self._positions, wanted)
        return found

    @abstractmethod
    def values_of(self, place: int) -> Any:
        """Return one of the columns to aggregate."""

    def kinds_of(self, wanted: Wanted) -> tuple[str, ...] | None:
        """Return the kinds of states for an aggregate; None if it needs rows."""
        return kinds_for(self.values_of(wanted.place), wanted.how, wanted.options)

    @abstractmethod
    def settle_dtypes(self, wanted: Sequence[Wanted], *, full: bool) -> list[Any]:
        """Return aggregates of the rows, in dtypes independent of the values."""


class PlannedGroups(Planned, GroupBy):
    """Groupby of a pandas frame whose aggregates come from a function."""

    def _moments(self, places: Sequence[int], how: str) -> Callable[[int, int], Moments]:
        if self._pairs is None:
            return super()._moments(places, how)
        positions = self._positions
        return self._pairs(self, [positions[place] for place in places], places, how)

    def values_of(self, place: int) -> Values:
        """Return one of the columns to aggregate."""
        return Values(self._columns[place])

    def kinds_of(self, wanted: Wanted) -> tuple[str, ...] | None:
        """Return the kinds of states for an aggregate; None if it needs rows."""
        if wanted.how in {"idxmin", "idxmax"} and self._frame.index.nlevels > 1:
            return None
        return super().kinds_of(wanted)

    def moments(self, places: Sequence[int], how: str) -> Callable[[int, int], Moments]:
        """Return a function of the rows' moments, of two columns by number."""
        return super()._moments(places, how)

    def settle_dtypes(self, wanted: Sequence[Wanted], *, full: bool) -> list[Any]:
        """Return aggregates of the rows, in dtypes independent of the values."""
        columns = self._columns
        found = reduce_columns(self._groups, columns, wanted, self._frame.index)
        return [
            settle_dtype(array, Values(columns[each.place]), each, full=full)
            for array, each in zip(found, wanted, strict=True)
        ]


class Requirements:
    """Columns and kinds of states that a verb needs, recorded in a trial run.

    Attributes
    ----------
    kinds : dict or None
        By the position of a column, in order; None where rows are needed.
    positions : set of int
        The columns that are read.
    hows : set
        The aggregates.
    of_numbers : bool
        Whether all of these columns are numbers.
    """

    def __init__(self, *, full: bool) -> None:
        self.kinds: dict[Place, tuple[str, ...]] | None = {}
        self.positions: set[int] = set()
        self.hows: set[Any] = set()
        self.of_numbers: bool = True
        self._full = full

    def reduce(
        self, groups: Any, positions: Sequence[int], wanted: Sequence[Wanted]
    ) -> list[Any]:  # fmt: skip
        """Return the aggregates of no rows, or of rows of nulls."""
        for each in wanted:
            place = positions[each.place]
            self.positions.add(place)
            self.hows.add(each.how)
            self.of_numbers &= groups.values_of(each.place).is_number
            self._add(place, groups.kinds_of(each))
        return groups.settle_dtypes(wanted, full=self._full)

    def _add(self, place: Place, kinds: Sequence[str] | None) -> None:
        if kinds is None or self.kinds is None:
            self.kinds = None
        else:
            self.kinds[place] = tuple(dict.fromkeys([*self.kinds.get(place, ()), *kinds]))

    def moments(
        self, groups: PlannedGroups, positions: Sequence[int], places: Sequence[int], how: str
    ) -> Callable[[int, int], Moments]:
        """Return a function of the moments of no rows, of two columns by number."""
        columns, pair = groups._columns, KIND_OF_PAIRS[how]
        self.positions.update(positions)
        self.of_numbers &= all(Values(columns[place]).is_number for place in places)
        if not all(Values(columns[place]).is_number for place in places):
            self.kinds = None
        else:
            for first, (place, position) in enumerate(zip(places, positions, strict=True)):
                values = Values(columns[place])
                if values.kind == "float" and (values.storage != "numpy" or how == "corr"):
                    # A NaN that is no null is none of a pair, either.
                    self._add((position, position), (pair,))
                else:
                    self._add(position, kinds_for(values, "var", Options()))
                for other in positions[first + 1 :]:
                    self._add((position, other), (pair,))
        return groups.moments(places, how)
