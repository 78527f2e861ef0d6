"""CudfGroupBy: groupby of a cuDF frame, with a method for each aggregate."""

from __future__ import annotations

import functools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.frames.dataframes.cudf_columns import (
    array_column,
    column_of_series,
    columns_of,
    empty_column,
    has_column,
    numbered_series,
    take_columns,
    take_series,
)
from dgpuhash.frames.groupby import selections
from dgpuhash.frames.groupby.aggregates import pairs
from dgpuhash.frames.groupby.aggregates.options import (
    AggregateTypeError,
    CalledName,
    NotOfferedError,
    Options,
)
from dgpuhash.frames.groupby.aggregates.states import States
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.cudf import assembly
from dgpuhash.frames.groupby.cudf.assembly import value_counts
from dgpuhash.frames.groupby.cudf.groups import CudfGroups
from dgpuhash.frames.groupby.cudf.states import CudfStates, reduce_states
from dgpuhash.frames.groupby.cudf.values import CudfValues, check_aggregate, has_aggregate
from dgpuhash.frames.groupby.methods import GroupByBase
from dgpuhash.frames.groupby.reduction import Wanted, check_labelled, name_of
from dgpuhash.frames.merge.keys import MissingKeyError
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.typing import AggregateLike, AnyFrame


class RowMethods(ABC):
    """Methods that select rows of groups."""

    # CudfGroups, which pandas' functions of rows take for theirs.
    _groups: Any

    @property
    @abstractmethod
    def _chosen(self) -> Any:
        """The frame to select rows of: with its keys, or the selected columns."""

    def head(self, n: int = 5, *, preserve_order: bool = True) -> Any:
        """Return the first `n` rows of each group; all but the last ``-n`` if negative.

        In the order of the frame, or by group.
        """
        return self._rows(selections.rows_before(self._groups, n), preserve_order)

    def tail(self, n: int = 5, *, preserve_order: bool = True) -> Any:
        """Return the last `n` rows of each group; all but the first ``-n`` if negative.

        In the order of the frame, or by group.
        """
        return self._rows(selections.rows_behind(self._groups, n), preserve_order)

    @property
    def nth(self) -> Nth:
        """Rows at given positions of their group: ``nth(n)`` or ``nth[n]``.

        A number, a slice, or a list of these.
        """
        return Nth(self)

    def _rows(self, mask: Any, preserve_order: bool = True) -> Any:
        groups = self._groups
        if preserve_order:
            rows = groups.xp.flatnonzero(mask)
        else:
            # By the order of keys, whatever that of groups.
            rows = groups.in_key_order().rows_by_group
            rows = rows[mask[rows]]
        return self._chosen.take(rows)


class Nth:
    """Rows at given positions of their group, by a call or by an index."""

    def __init__(self, groups: RowMethods) -> None:
        self._groups = groups

    def __call__(self, n: Any, dropna: str | None = None) -> Any:
        """Return the rows at given positions: a number, a slice, or a list of these."""
        if dropna is not None:
            raise NotOfferedError("nth does not support dropna=; group frame.dropna() instead")
        return self[n]

    def __getitem__(self, n: Any) -> Any:
        groups = self._groups
        return groups._rows(selections.rows_at(groups._groups, n))


_ALIASES = {"collect": "list", "product": "prod"}
# Python's own, which name aggregates.
_BUILTINS = {sum: "sum", max: "max", min: "min"}


class _Methods:
    """Recorder that a function is called with, to find the aggregate that it calls."""

    def __getattr__(self, name: str) -> Any:
        def method(*args: Any, **kwargs: Any) -> CalledName:
            made = CalledName(_ALIASES.get(name, name))
            made.given, made.positional = kwargs, args
            return made

        return method


def name_functions(func: Any) -> Any:
    """Return the arguments of ``agg`` with names for functions that call one aggregate.

    Examples
    --------
    >>> name_functions({"v": [lambda x: x.quantile(0.25), "max"]})
    {'v': [('<lambda>', 'quantile'), 'max']}
    """
    if isinstance(func, Mapping):
        return {label: name_functions(each) for label, each in func.items()}
    if isinstance(func, list | tuple):
        return [(_title(each), _one(each)) if _is_function(each) else _one(each) for each in func]
    return _one(func)


def named_pair(pair: Any) -> Any:
    """Return a column and its aggregate, with a name in place of a function."""
    if hasattr(pair, "aggfunc"):
        return (pair.column, _one(pair.aggfunc)) if _is_function(pair.aggfunc) else pair
    if isinstance(pair, tuple) and len(pair) == 2:
        return pair[0], _one(pair[1])
    return _one(pair)


def _is_function(each: Any) -> bool:
    return callable(each) and each is not list


def _title(function: Any) -> str:
    return str(getattr(function, "__name__", function))


def _one(how: Any) -> Any:
    """Return the aggregate that a function calls; other arguments unchanged."""
    if isinstance(how, str):
        return how if type(how) is not str else _ALIASES.get(how, how)
    if not _is_function(how):
        return how
    if how in _BUILTINS:
        return _BUILTINS[how]
    try:
        found = how(_Methods())
    except Exception:
        # A function of rows, which `name_of` refuses.
        return how
    return found if isinstance(found, CalledName) else how


def refuse(function: Any, names: Iterable[str]) -> None:
    """Raise UnsupportedError for a function that is no aggregate, listing all names."""
    raise UnsupportedError(
        f"the function {getattr(function, '__name__', function)!r} is not a supported aggregate; "
        f"give one of the names {', '.join(names)}"
    )


def without_repeats(func: Any) -> Any:
    """Return the arguments of ``agg`` without repeated aggregates, as cuDF does."""
    if not isinstance(func, Mapping):
        return func
    made = {}
    for label, hows in func.items():
        if isinstance(hows, list | tuple) and len(dict.fromkeys(hows)) < len(hows):
            import cudf

            if cudf.get_option("mode.pandas_compatible"):
                raise NotOfferedError("Duplicate aggregations per column are not supported.")
            warnings.warn(
                "Duplicate aggregations per column found. The resulting duplicate columns will be "
                "dropped.",
                UserWarning,
                stacklevel=3,
            )
            hows = list(dict.fromkeys(hows))
        made[label] = hows
    return made


# Of no rows their results have the dtype of the column, as cuDF's have.
_OF_OWN_DTYPE = {"sum", "prod", "mean", "median", "var", "std"}


class NothingToAggregateError(AggregateTypeError, pd.errors.DataError):
    """An aggregate that no column supports."""


class CudfGroupBy(GroupByBase, RowMethods):
    """Groupby of a cuDF frame, returned by `dgpuhash.groupby`.

    Arguments are those of a groupby of pandas frames; dtypes and labels of results are cuDF's. All
    is computed on the GPU of the frame.
    """

    _assembly: ClassVar[Any] = assembly
    _plain_sizes: ClassVar[bool] = True
    # All of them raise where there is no other.
    _left_out: ClassVar[frozenset[str]] = frozenset({"other", "decimal"})

    def _known(self, key: Any) -> Any:
        several = isinstance(key, list | np.ndarray | pd.Index)
        missing = [
            label for label in (key if several else [key]) if not has_column(self._frame, label)
        ]
        if missing:
            raise MissingKeyError(f"Columns not found: {str(missing)[1:-1]}")
        return list(key) if several else key

    @functools.cached_property
    def _data(self) -> Any:
        """The columns to aggregate."""
        frame = self._frame
        if frame.ndim == 1:
            return frame
        if self._selection is not None:
            return frame[self._selection]
        return frame[[label for label in frame.columns if label not in self._apart]]

    @property
    def _like(self) -> Any:
        return self._data

    @functools.cached_property
    def _one(self) -> bool:  # type: ignore[override]
        """Whether one column is aggregated to a Series."""
        if self._frame.ndim == 1 or self._selection is None or isinstance(self._selection, list):
            return bool(self._frame.ndim == 1)
        return not columns_of(self._frame).multiindex or bool(self._data.ndim == 1)

    @property
    def _name(self) -> Any:
        """The name of a result of one column."""
        frame = self._frame
        if frame.ndim == 2 and not columns_of(frame).multiindex:
            return self._selection
        return self._data.name

    @property
    def _positions(self) -> list[int]:
        """The positions in the frame of the columns to aggregate."""
        if self._frame.ndim == 1:
            return [0]
        labels = list(self._frame.columns)
        return [labels.index(label) for label in self._labels]

    @property
    def _chosen(self) -> Any:
        return self._frame if self._selection is None else self._data

    @functools.cached_property
    def _columns(self) -> list[CudfValues]:
        if not self._one:
            return [CudfValues(each) for each in columns_of(self._data).values()]
        if self._frame.ndim == 1 or columns_of(self._frame).multiindex:
            return [CudfValues(self._data)]
        return [CudfValues(columns_of(self._frame)[self._selection])]

    @functools.cached_property
    def _labels(self) -> Any:
        return pd.Index([self._name]) if self._one else self._data.columns

    def _places(self, how: str, options: Options) -> list[int]:
        """Return the positions of the columns that support an aggregate."""
        places = list(range(len(self._columns)))
        if options.numeric_only:
            return [place for place in places if self._columns[place].is_numeric]
        kept = [
            place for place in places
            if self._columns[place].kind not in self._left_out or self._offers(place, how)
        ]  # fmt: skip
        if places and not kept:
            raise NothingToAggregateError("All requested aggregations are unsupported.")
        return kept

    def _reduced(self, wanted: list[Wanted]) -> list[Any]:
        known: dict[int, CudfStates] = {}
        needs: list[tuple[CudfStates, tuple[str, ...]]] = []
        for place, how, *_ in wanted:
            if place not in known:
                known[place] = CudfStates(self._columns[place], self._groups, place)
            check_aggregate(self._columns[place], how)
            needs.append((known[place], AGGREGATES[how].states))
        try:
            sizes = False
            for place, how, *_ in wanted:
                sizes |= how == "size"
                aggregate = AGGREGATES[how]
                deviating = "moment" in aggregate.states and not known[place].squares_add_up
                if deviating or aggregate.needs_rows:
                    self._groups.number()
            reduce_states(self._groups, needs, sizes=sizes)
            found = []
            for place, how, options, _ in wanted:
                made = AGGREGATES[how].result(known[place], options)
                if AGGREGATES[how].labels:
                    made = labels_of(known[place], how, options, made, self._frame.index)
                if how in _OF_OWN_DTYPE and not len(made):
                    made = empty_column(self._columns[place].dtype)
                found.append(made)
            return found
        finally:
            self._groups.forget()

    @property
    def _groups_of_pairs(self) -> CudfGroups:
        # As in cuDF, whatever the order of groups.
        return self._groups.in_key_order()

    def _places_of_pairs(self, how: str, options: Options) -> list[int]:
        columns = enumerate(self._columns)
        places = [place for place, each in columns if each.is_numeric or not options.numeric_only]
        kinds = {self._columns[place].kind for place in places}
        if self._groups.rows and not kinds <= {"bool", "int", "uint", "float"}:
            what = "Covariance" if how == "cov" else "Correlation"
            raise AggregateTypeError(f"{what} accepts only numerical column-pairs")
        return places

    def _moments(self, places: Sequence[int], how: str) -> Callable[[int, int], pairs.Moments]:
        groups: Any = self._groups_of_pairs
        floats = [
            groups.only_of_groups(self._columns[place].floats) if groups.rows
            else groups.xp.empty(0) for place in places
        ]  # fmt: skip
        return lambda one, other: pairs.moments(groups, floats[one], floats[other])

    def _pairs_without_index(self, columns: list[Any], labels: Any, groups: Any) -> Any:
        return assembly.with_keys(columns, labels, groups, labels)

    def _column(self, array: Any) -> Any:
        return array_column(self._groups.xp.ascontiguousarray(array))

    def agg(self, func: AggregateLike | None = None, *args: Any, **kwargs: Any) -> AnyFrame:
        """Return aggregates by group; see `GroupByBase.agg`."""
        if isinstance(func, Mapping) and self._one and self._selection is not None:
            # cuDF takes a dictionary of a column that is chosen by itself, too.
            return _one_column(self._of_columns([self._selection]).agg(func, *args, **kwargs))
        if func is None:
            kwargs = {label: named_pair(each) for label, each in kwargs.items()}
        return super().agg(name_functions(without_repeats(func)), *args, **kwargs)

    def _function(self, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        refuse(func, AGGREGATES)

    def _offers(self, place: int, how: str) -> bool:
        values = self._columns[place]
        return values.kind not in self._left_out or has_aggregate(values, how)

    def _resolve_name(self, func: Any) -> Any:
        if not (isinstance(func, str) or callable(func)):
            raise UnnamedError("Aggregation must be a named aggregation or a callable")
        return name_of(name_functions(func))

    def _by_row(self, columns: list[Any], names: Any) -> list[Any]:
        return take_columns(list(map(column_of_series, columns)), self._groups.codes, nulls=True)

    @property
    def _sizes(self) -> Any:
        return array_column(self._groups.sizes)

    def unique(self) -> Any:
        """Return a list of the distinct values of each group."""
        return self._aggregate("unique", Options())

    @function_translates_memory_errors
    def value_counts(
        self,
        subset: Any = None,
        normalize: bool = False,
        sort: bool = True,
        ascending: bool = False,
        dropna: bool = True,
    ) -> Any:
        """Return how often each distinct row occurs in each group.

        Parameters
        ----------
        subset : list of labels, optional
            The columns; by default all.
        normalize : bool
            Whether counts are divided by those of the group.
        sort, ascending : bool
            Whether the counts of a group are sorted, and in which order.
        dropna : bool
            Whether rows with a null are left out.

        Raises
        ------
        ColumnError, SpecError, UnsupportedError
            When a column is called as the result, `subset` names a key or no column, or values are
            categories.
        """
        labels = list(self._labels)
        return value_counts(
            self._groups, list(zip(labels, self._columns, strict=True)), subset=subset,
            as_index=self._as_index, normalize=normalize, sort=sort, ascending=ascending,
            dropna=dropna,
        )  # fmt: skip


def _one_column(made: Any) -> Any:
    """Return a column's aggregates without its label, as cuDF does; one as a Series."""
    if made.shape[1] == 1:
        return made.iloc[:, 0]
    if made.columns.nlevels > 1:
        made.columns = [title for _, title in made.columns]
    return made


def labels_of(states: States, how: str, options: Options, rows: Any, index: Any) -> Any:
    """Return the index labels of rows, -1 for none; positions for several levels."""
    if not options.skipna:
        raise SpecError(f"{how} does not support skipna=False")
    check_labelled(how, options, nulls=False, lacking=bool(len(rows) and int(rows.min()) < 0))
    if index.nlevels > 1:
        return states.values.plain(rows)
    return take_series(numbered_series(index), rows, nulls=True)


class UnnamedError(SpecError, TypeError):
    """An argument that is neither the name of an aggregate nor a function."""
