"""Groups of a cuDF frame's rows: what is aggregated, and every aggregate as a method."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.frames.dataframes.cudf_columns import (
    array_column,
    column_of_series,
    columns_of,
    empty_column,
    has_column,
    numbered,
    take_columns,
    take_series,
)
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.aggregates.refusals import AggregateTypeError
from dgpuhash.frames.groupby.aggregates.states import States
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.cudf import assembly
from dgpuhash.frames.groupby.cudf.functions import (
    named,
    named_pair,
    options_for,
    refuse,
    without_repeats,
)
from dgpuhash.frames.groupby.cudf.rows import PairMethods, RowMethods
from dgpuhash.frames.groupby.cudf.states import CudfStates, reduce_states
from dgpuhash.frames.groupby.cudf.value_counts import value_counts
from dgpuhash.frames.groupby.cudf.values import CudfValues, check_aggregate, has_aggregate
from dgpuhash.frames.groupby.methods import RowGroups
from dgpuhash.frames.groupby.reduction import check_labelled
from dgpuhash.frames.groupby.requests import NoSuchAggregateError, name_of, requests
from dgpuhash.frames.merge.keys import MissingKeyError
from dgpuhash.tables.memory_errors import function_translates_memory_errors

# Of columns of other dtypes a result has none; all of them raise where there is no other.
_LEFT_OUT = {"other", "decimal"}


# Of no rows their results have the dtype of the column, as cuDF's have.
_OF_OWN_DTYPE = {"sum", "prod", "mean", "median", "var", "std"}


class NothingToAggregateError(AggregateTypeError, pd.errors.DataError):
    """An aggregate that no column has."""


class CudfGroupBy(RowGroups, RowMethods, PairMethods):
    """Groups of the rows of a cuDF frame, made by `dgpuhash.groupby`.

    Arguments are those of a groupby of pandas frames; dtypes and labels of results are cuDF's. All
    is computed on the GPU of the frame.
    """

    def __getitem__(self, key: Any) -> CudfGroupBy:
        if self._frame.ndim == 1:
            raise MissingKeyError(f"Column not found: {key}")
        if self._selection is not None:
            raise IndexError(f"Column(s) {self._selection} already selected")
        several = isinstance(key, list | np.ndarray | pd.Index)
        missing = [
            label for label in (key if several else [key]) if not has_column(self._frame, label)
        ]
        if missing:
            raise MissingKeyError(f"Columns not found: {str(missing)[1:-1]}")
        return self._of_columns(list(key) if several else key)

    def _of_columns(self, selection: Any) -> CudfGroupBy:
        """Return these groups with other columns to aggregate."""
        return CudfGroupBy(self._frame, self._groups, as_index=self._as_index, selection=selection)

    @functools.cached_property
    def _data(self) -> Any:
        """What is aggregated."""
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
        """Whether one column is aggregated, to a Series."""
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
    def _chosen(self) -> Any:
        return self._frame if self._selection is None else self._data

    def _of_all(self) -> CudfGroupBy:
        """Return these groups with the keys among what is aggregated."""
        made = CudfGroupBy(self._frame, self._groups, as_index=self._as_index)
        made._apart = set()
        return made

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
        """Return the positions of the columns that an aggregate takes."""
        places = list(range(len(self._columns)))
        if options.numeric_only:
            return [place for place in places if self._columns[place].is_numeric]
        kept = [
            place
            for place in places
            if self._columns[place].kind not in _LEFT_OUT
            or has_aggregate(self._columns[place], how)
        ]
        if places and not kept:
            raise NothingToAggregateError("All requested aggregations are unsupported.")
        return kept

    @function_translates_memory_errors
    def _reduced(self, wanted: Sequence[tuple[int, str, Options]]) -> list[Any]:
        """Return for each position, name and options a column of the values of all groups."""
        known: dict[int, CudfStates] = {}
        needs: list[tuple[CudfStates, tuple[str, ...]]] = []
        for place, how, _ in wanted:
            if place not in known:
                known[place] = CudfStates(self._columns[place], self._groups, place)
            check_aggregate(self._columns[place], how)
            needs.append((known[place], AGGREGATES[how].states))
        try:
            sizes = False
            for place, how, _ in wanted:
                sizes |= how == "size"
                aggregate = AGGREGATES[how]
                deviating = "moment" in aggregate.states and not known[place].squares_add_up
                if deviating or aggregate.needs_rows:
                    self._groups.number()
            reduce_states(self._groups, needs, sizes=sizes)
            found = []
            for place, how, options in wanted:
                made = AGGREGATES[how].result(known[place], options)
                if AGGREGATES[how].labels:
                    made = labels_of(known[place], how, options, made, self._frame.index)
                if how in _OF_OWN_DTYPE and not len(made):
                    made = empty_column(self._columns[place].dtype)
                found.append(made)
            return found
        finally:
            self._groups.forget()

    def _made(self, columns: list[Any], labels: Any) -> Any:
        """Return columns by group as a frame, with the keys where they belong."""
        if not self._as_index:
            return assembly.with_keys(columns, labels, self._groups)
        return assembly.frame_of(columns, labels, self._groups.index)

    def _aggregated(self, how: str, options: Options) -> Any:
        """Return one aggregate of all columns."""
        places = self._places(how, options)
        columns = self._reduced([(place, how, options) for place in places])
        groups = self._groups
        if how == "quantile" and not pd.api.types.is_scalar(options.q):
            level, labels = np.asarray(options.q, np.float64), self._labels.take(places)
            if not self._as_index:
                return assembly.with_keys(columns, labels, groups, level)
            index = assembly.index_with_level(groups, level)
            if self._one:
                return assembly.series_of(columns[0], index, self._name)
            return assembly.frame_of(columns, labels, index)
        if self._one and self._as_index:
            return assembly.series_of(columns[0], groups.index, self._name)
        return self._made(columns, self._labels.take(places))

    def agg(self, func: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return aggregates by group.

        Parameters
        ----------
        func : str, list, dict or function, optional
            The name of an aggregate, several of them or pairs of a label and a name, or a
            dictionary from columns to names or lists. A function such as
            ``lambda x: x.quantile(0.25)`` names an aggregate, too.
        **kwargs
            Options of the aggregates; without `func`, labels with pairs of a column and a name.

        Raises
        ------
        NoSuchAggregateError, UnsupportedError, SpecError
            When there is no such aggregate, it is another function, or labels repeat.
        AggregateTypeError
            When values of a dtype do not have the aggregate.
        """
        for option in ("engine", "engine_kwargs"):
            if kwargs.pop(option, None) is not None:
                raise UnsupportedError(f"{option}=: kernels of this library aggregate; leave it")
        if isinstance(func, Mapping) and self._one and self._selection is not None:
            # cuDF takes a dictionary of a column that is chosen by itself, too.
            return _one_column(self._of_columns([self._selection]).agg(func, *args, **kwargs))
        func = named(without_repeats(func))
        if func is list or isinstance(func, str):
            how: str = name_of(func) if func is list else func  # type: ignore[assignment]
            if how == "size":
                return self.size()
            if how in AGGREGATES:
                return self._aggregated(how, options_for(how, kwargs, args))
            if not hasattr(type(self), how):
                raise NoSuchAggregateError(
                    f"no aggregate {how!r}; there is {', '.join(AGGREGATES)}"
                )
            return getattr(self, how)(*args, **kwargs)
        if callable(func):
            refuse(func, AGGREGATES)
        given: dict[str, Any] = kwargs
        asked: Mapping[str, Any] = {}
        if func is None:
            given, asked = {}, {label: named_pair(each) for label, each in kwargs.items()}
        if self._frame.ndim == 2 and self._selection is None and not isinstance(func, list):
            # Keys can be named, too.
            return self._of_all()._requested(func, asked, given, args)
        return self._requested(func, asked, given, args)

    aggregate = agg

    def _requested(
        self, func: Any, asked: Mapping[str, Any], given: dict[str, Any], args: tuple[Any, ...]
    ) -> Any:
        found = requests(None if self._one else self._labels, func, asked)
        if isinstance(func, list):
            found = [
                each for each in found
                if self._columns[each.place].kind not in _LEFT_OUT
                or has_aggregate(self._columns[each.place], each.how)
            ]  # fmt: skip
        wanted = [
            (
                each.place,
                str(each.how),
                options_for(each.how, {**given, **(each.given or {})}, args),
            )
            for each in found
        ]
        columns = self._reduced(wanted)
        titles = [each.label for each in found]
        places = [each.place for each in found]
        if self._one or (found and all(each.is_named for each in found)):
            labels: Any = pd.Index(titles)
        elif isinstance(func, list) or any(title is not None for title in titles):
            labels = self._beneath(places, titles)
        else:
            labels = self._labels.take(places)
        return self._made(columns, labels)

    def _beneath(self, places: list[int], titles: list[Any]) -> Any:
        """Return labels of two levels: those of columns, and beneath them those of aggregates."""
        above = [each if isinstance(each, tuple) else (each,) for each in self._labels.take(places)]
        pairs_of = [(*each, title) for each, title in zip(above, titles, strict=True)]
        return pd.MultiIndex.from_tuples(pairs_of, names=[*self._labels.names, None])

    def transform(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Return for each row the aggregate of its group, with the labels of the frame.

        Parameters
        ----------
        func : str or function
            The name of an aggregate, or a function that names one.
        **kwargs
            Its options.
        """
        if not (isinstance(func, str) or callable(func)):
            raise UnnamedError("Aggregation must be a named aggregation or a callable")
        how = name_of(named(func))
        if callable(how):
            refuse(how, AGGREGATES)
        if how in {"list", "unique"}:
            raise UnsupportedError(f"transform({how!r}); merge groups.agg({how!r}) by the keys")
        options = options_for(how, kwargs, args)
        groups, index = self._groups, self._frame.index
        if how == "size":
            name = self._name if self._one else None
            sizes = take_columns([array_column(groups.sizes)], groups.codes, nulls=True)[0]
            return assembly.series_of(sizes, index, name)
        places = self._places(how, options)
        found = self._reduced([(place, str(how), options) for place in places])
        rows = take_columns(list(map(column_of_series, found)), groups.codes, nulls=True)
        if self._one:
            return assembly.series_of(rows[0], index, self._name)
        return assembly.frame_of(rows, self._labels.take(places), index)

    def size(self) -> Any:
        """Return the number of rows of each group."""
        groups = self._groups
        if self._one:
            sizes = self._reduced([(0, "size", Options())])[0]
        else:
            sizes = array_column(groups.sizes)
        if self._as_index:
            name = self._name if self._one else None
            return assembly.series_of(sizes, groups.index, name)
        return assembly.with_keys([sizes], pd.Index(["size"]), groups)

    def unique(self) -> Any:
        """Return a list of the different values of each group."""
        return self._aggregated("unique", Options())

    @function_translates_memory_errors
    def value_counts(
        self,
        subset: Any = None,
        normalize: bool = False,
        sort: bool = True,
        ascending: bool = False,
        dropna: bool = True,
    ) -> Any:
        """Return how often the values of a row occur together in each group.

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
    """Return aggregates of a column without its label, as cuDF has them; a Series of one."""
    if made.shape[1] == 1:
        return made.iloc[:, 0]
    if made.columns.nlevels > 1:
        made.columns = [title for _, title in made.columns]
    return made


def labels_of(states: States, how: str, options: Options, rows: Any, index: Any) -> Any:
    """Return the labels of rows, -1 for none; of labels of several levels their positions."""
    if not options.skipna:
        raise SpecError(f"{how} with skipna=False")
    check_labelled(how, options, nulls=False, lacking=bool(len(rows) and int(rows.min()) < 0))
    if index.nlevels > 1:
        return states.values.plain(rows)
    return take_series(numbered(index), rows, nulls=True)


class UnnamedError(SpecError, TypeError):
    """What is neither the name of an aggregate nor a function."""
