"""Aggregate methods of all groupbys, with pandas' options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd

from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.frames.groupby import assembly
from dgpuhash.frames.groupby.aggregates import pairs
from dgpuhash.frames.groupby.aggregates.options import NotOfferedError, Options, options_of
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.frames.groupby.reduction import NoSuchAggregateError, Request, Wanted, requests
from dgpuhash.frames.merge.keys import MissingKeyError
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.typing import AggregateLike, AnyFrame, Frame, NamedColumn

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.cudf.groups import CudfGroups


class AggregateMethods(ABC):
    """Methods for each aggregate of columns and pairs of columns; columns as attributes."""

    # Without this, Python would iterate by numbers as labels of columns.
    __iter__ = None

    @property
    @abstractmethod
    def _example(self) -> GroupByBase:
        """This groupby, or an empty one like it."""

    @abstractmethod
    def __getitem__(self, key: Any) -> Self:
        """Return the groupby with a column, or a list of columns, selected."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        frame, selection = self._example._frame, self._example._selection
        if frame.ndim == 2 and selection is None and name in frame.columns:
            return self[name]
        there = sorted(each for each in dir(type(self)) if not each.startswith("_"))
        kind = type(self).__name__ if self._example is not self else "GroupBy"
        raise AttributeError(f"a {kind} has no {name!r}; there is {', '.join(there)}")

    @abstractmethod
    def _aggregate(self, how: str, options: Options) -> Any:
        """Return one aggregate of all columns."""

    def _of(self, how: str, engine: Any, **given: Any) -> Any:
        if engine is not None:
            raise UnsupportedError(
                f"engine={engine!r} of {how}: dgpuhash has one engine; leave engine= out"
            )
        return self._aggregate(how, Options(**given))

    def count(self) -> Any:
        """Return the number of non-null values."""
        return self._of("count", None)

    def sum(
        self, numeric_only: bool = False, min_count: int = 0, skipna: bool = True,
        engine: str | None = None,
    ) -> Any:  # fmt: skip
        """Return the sums, null for fewer than `min_count` values."""
        return self._of(
            "sum", engine, numeric_only=numeric_only, min_count=min_count, skipna=skipna
        )

    def prod(self, numeric_only: bool = False, min_count: int = 0, skipna: bool = True) -> Any:
        """Return the products, null for fewer than `min_count` values."""
        return self._of("prod", None, numeric_only=numeric_only, min_count=min_count, skipna=skipna)

    def mean(
        self, numeric_only: bool = False, skipna: bool = True, engine: str | None = None
    ) -> Any:
        """Return the means."""
        return self._of("mean", engine, numeric_only=numeric_only, skipna=skipna)

    def median(self, numeric_only: bool = False, skipna: bool = True) -> Any:
        """Return the medians."""
        return self._of("median", None, numeric_only=numeric_only, skipna=skipna)

    def var(
        self, ddof: int = 1, numeric_only: bool = False, skipna: bool = True,
        engine: str | None = None,
    ) -> Any:  # fmt: skip
        """Return the variances, from deviations from the means."""
        return self._of("var", engine, ddof=ddof, numeric_only=numeric_only, skipna=skipna)

    def std(
        self, ddof: int = 1, numeric_only: bool = False, skipna: bool = True,
        engine: str | None = None,
    ) -> Any:  # fmt: skip
        """Return the standard deviations."""
        return self._of("std", engine, ddof=ddof, numeric_only=numeric_only, skipna=skipna)

    def sem(self, ddof: int = 1, numeric_only: bool = False, skipna: bool = True) -> Any:
        """Return the standard errors of the means."""
        return self._of("sem", None, ddof=ddof, numeric_only=numeric_only, skipna=skipna)

    def min(
        self, numeric_only: bool = False, min_count: int = -1, skipna: bool = True,
        engine: str | None = None,
    ) -> Any:  # fmt: skip
        """Return the smallest values."""
        return self._of(
            "min", engine, numeric_only=numeric_only, min_count=min_count, skipna=skipna
        )

    def max(
        self, numeric_only: bool = False, min_count: int = -1, skipna: bool = True,
        engine: str | None = None,
    ) -> Any:  # fmt: skip
        """Return the largest values."""
        return self._of(
            "max", engine, numeric_only=numeric_only, min_count=min_count, skipna=skipna
        )

    def first(self, numeric_only: bool = False, min_count: int = -1, skipna: bool = True) -> Any:
        """Return the first non-null values."""
        return self._of(
            "first", None, numeric_only=numeric_only, min_count=min_count, skipna=skipna
        )

    def last(self, numeric_only: bool = False, min_count: int = -1, skipna: bool = True) -> Any:
        """Return the last non-null values."""
        return self._of("last", None, numeric_only=numeric_only, min_count=min_count, skipna=skipna)

    def any(self, skipna: bool = True) -> Any:
        """Return whether any value is true."""
        return self._of("any", None, skipna=skipna)

    def all(self, skipna: bool = True) -> Any:
        """Return whether all values are true."""
        return self._of("all", None, skipna=skipna)

    def nunique(self, dropna: bool = True) -> Any:
        """Return the number of distinct values."""
        return self._of("nunique", None, dropna=dropna)

    def quantile(
        self, q: float | Sequence[float] = 0.5, interpolation: str = "linear",
        numeric_only: bool = False,
    ) -> Any:  # fmt: skip
        """Return the quantiles; one row for each of several ``q``."""
        return self._of(
            "quantile", None, q=q, interpolation=interpolation, numeric_only=numeric_only
        )

    def idxmin(self, skipna: bool = True, numeric_only: bool = False) -> Any:
        """Return the index labels of the first rows with the smallest values."""
        return self._of("idxmin", None, skipna=skipna, numeric_only=numeric_only)

    def idxmax(self, skipna: bool = True, numeric_only: bool = False) -> Any:
        """Return the index labels of the first rows with the largest values."""
        return self._of("idxmax", None, skipna=skipna, numeric_only=numeric_only)

    def cov(
        self, min_periods: int | None = None, ddof: int = 1, numeric_only: bool = False
    ) -> Any:  # fmt: skip
        """Return the covariances of all pairs of columns in each group."""
        return self._matrices("cov", min_periods or 1, ddof, Options(numeric_only=numeric_only))

    def corr(
        self, method: str = "pearson", min_periods: int = 1, numeric_only: bool = False
    ) -> Any:  # fmt: skip
        """Return Pearson's correlations of all pairs of columns in each group."""
        if method != "pearson":
            raise NotOfferedError(
                f"Only pearson correlation is currently supported: corr with method={method!r}"
            )
        return self._matrices("corr", min_periods, 1, Options(numeric_only=numeric_only))

    @abstractmethod
    def _matrices(self, how: str, least: int, ddof: int, options: Options) -> Any:
        """Return covariances or correlations, with a minimum number of rows for each pair."""


class GroupByBase(AggregateMethods):
    """Groupby of a frame of any library, with a method for each aggregate.

    Parameters
    ----------
    frame : DataFrame or Series
    groups : Groups or CudfGroups
    as_index : bool
        Whether keys are labels of results, not columns.
    selection : label or list of labels, optional
        The columns that are aggregated; default: all but keys.
    """

    _assembly: ClassVar[Any] = assembly
    """The module of functions that put results together."""
    _left_out: ClassVar[frozenset[str]] = frozenset()
    """The kinds of columns of which results have none where they lack an aggregate."""
    _plain_sizes: ClassVar[bool] = False
    """Whether sizes by row are int64, whatever the dtype of the column that is chosen."""

    def __init__(
        self, frame: Frame | NamedColumn, groups: Groups | CudfGroups, *, as_index: bool = True,
        selection: Hashable | Sequence[Hashable] = None,
    ) -> None:  # fmt: skip
        self._frame: Any = frame
        self._groups: Any = groups
        self._as_index, self._selection = as_index, selection
        self._apart = {key.column for key in groups.keys if key.in_frame}

    def __len__(self) -> int:
        return self.ngroups

    def __repr__(self) -> str:
        names = ", ".join(repr(key.name) for key in self._groups.keys)
        what = repr(self._like.name) if self._one else str(list(self._like.columns))
        columns = f"column {what}" if self._one else f"columns {what}"
        rows, groups = len(self._frame), len(self)
        counted = f"{groups:,} group{'' if groups == 1 else 's'}"
        return f"<GroupBy of {rows:,} rows by {names}: {counted}, {columns}>"

    @property
    def _example(self) -> GroupByBase:
        return self

    def __getitem__(self, key: Hashable | Sequence[Hashable]) -> Self:
        if self._frame.ndim == 1:
            raise MissingKeyError(f"Column not found: {key}")
        if self._selection is not None:
            raise IndexError(f"Column(s) {self._selection} already selected")
        return self._of_columns(self._known(key))

    @abstractmethod
    def _known(self, key: Any) -> Any:
        """Return a label or list of labels of columns; raise where one is missing."""

    def _of_columns(self, selection: Any) -> Self:
        """Return the groupby with other columns selected; None: all but keys."""
        return type(self)(
            self._frame, self._groups, as_index=self._as_index, selection=selection
        )  # fmt: skip

    def _of_all(self) -> Self:
        """Return the groupby with the keys among the selected columns."""
        made = self._of_columns(None)
        made._apart = set()
        return made

    @property
    @abstractmethod
    def _like(self) -> Any:
        """The selected columns, or an empty frame of them."""

    @property
    @abstractmethod
    def _positions(self) -> list[int]:
        """The positions in the frame of the columns to aggregate."""

    @property
    def ngroups(self) -> int:
        """The number of groups."""
        return len(self._groups)

    @property
    def _one(self) -> bool:
        """Whether one column is aggregated to a Series."""
        return bool(self._like.ndim == 1)

    @property
    def _name(self) -> Any:
        """The name of a result of one column."""
        return self._like.name

    @property
    @abstractmethod
    def _labels(self) -> Any:
        """The labels of the columns to aggregate."""

    @abstractmethod
    def _places(self, how: str, options: Options) -> list[int]:
        """Return the positions of the columns that support an aggregate."""

    @abstractmethod
    def _reduced(self, wanted: list[Wanted]) -> list[Any]:
        """Return the values of all groups for each requested aggregate."""

    @abstractmethod
    def _function(self, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """Return a function of a group with these arguments."""

    def _frame_of(
        self, columns: list[Any], labels: Any, level: Any = None, *, beside: bool = False
    ) -> Any:  # fmt: skip
        """Return columns by group as a frame, with the keys as columns or index.

        `level`: values that come once for each group. `beside`: columns that are called as a key do
        not replace it.
        """
        groups, put = self._groups, self._assembly
        if not self._as_index:
            return put.with_keys(columns, labels, groups, level, beside=beside)
        index = groups.index if level is None else put.index_with_level(groups, level)
        return put.frame_of(columns, labels, index)

    @function_translates_memory_errors
    def _aggregate(self, how: Any, options: Options) -> Any:
        """Return one aggregate of all columns."""
        places, level = self._places(how, options), None
        columns = self._reduced([self._wanted(place, how, options) for place in places])
        if how == "quantile" and not pd.api.types.is_scalar(options.q):
            level = np.asarray(options.q, np.float64)
        if self._one and self._as_index:
            groups, put = self._groups, self._assembly
            index = groups.index if level is None else put.index_with_level(groups, level)
            return put.series_of(columns[0], index, self._name)
        columns = [self._in_frame(place, each) for place, each in zip(places, columns, strict=True)]
        return self._frame_of(columns, self._labels.take(places), level)

    def _in_frame(self, place: int, column: Any) -> Any:
        """Return results of a column in the dtype that frames give them."""
        return column

    def agg(self, func: AggregateLike | None = None, *args: Any, **kwargs: Any) -> AnyFrame:
        """Return aggregates by group.

        Parameters
        ----------
        func : str, function, list, dict, optional
            The name of an aggregate, several of them or pairs of a label and a name, or a
            dictionary from columns to names or lists. A function of Python is called with each
            column of each group, a Series: slow where groups are many. Of cuDF frames it names an
            aggregate, as ``lambda x: x.quantile(0.25)`` does.
        **kwargs
            Options of the aggregates; without `func`, labels with pairs of a column and a name.

        Raises
        ------
        NoSuchAggregateError, UnsupportedError, SpecError
            When there is no such aggregate, an engine is named, or labels repeat.
        AggregateTypeError
            When values of a dtype do not have the aggregate.

        Examples
        --------
        >>> import dgpuhash, pandas as pd
        >>> sales = pd.DataFrame({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
        >>> dgpuhash.groupby(sales, "shop").agg({"price": "mean"})["price"].tolist()
        [3.0, 1.0]
        """
        if "axis" in kwargs and isinstance(func, str):
            raise SpecError(f"Operation {func} does not support axis={kwargs['axis']}")
        for option in ("engine", "engine_kwargs"):
            if kwargs.pop(option, None) is not None:
                raise UnsupportedError(f"{option}=: dgpuhash has one engine; leave {option}= out")
        if func is list or isinstance(func, str):
            how: Any = func if isinstance(func, str) else "list"
            if how not in AGGREGATES and not hasattr(type(self), how):
                raise NoSuchAggregateError(
                    f"there is no aggregate {how!r}; the aggregates are {', '.join(AGGREGATES)}"
                )
            if how == "size":
                return self.size()
            if how not in AGGREGATES:
                return getattr(self, how)(*args, **kwargs)
            return self._aggregate(how, options_of(how, kwargs, args))
        if callable(func):
            return self._aggregate(self._function(func, args, kwargs), Options())
        named, options = ({}, kwargs) if func is not None else (kwargs, {})
        if self._frame.ndim == 2 and self._selection is None and not isinstance(func, list | tuple):
            # Keys can be named, too.
            return self._of_all()._requests(func, named, options, args)
        return self._requests(func, named, options, args)

    def aggregate(self, func: AggregateLike | None = None, *args: Any, **kwargs: Any) -> AnyFrame:
        """Return aggregates by group; see `agg`."""
        return self.agg(func, *args, **kwargs)

    @function_translates_memory_errors
    def _requests(
        self, func: Any, named: dict[str, Any], given: dict[str, Any], args: tuple[Any, ...]
    ) -> Any:
        one, several = self._one, isinstance(func, list | tuple)
        asked = requests(None if one else self._labels, func, named)
        if several and self._left_out:
            asked = self._offered(asked)
        wanted = []
        for each in asked:
            options = {**given, **(each.given or {})}
            positional = each.args or args
            if callable(each.how):
                function = self._function(each.how, positional, options)
                wanted.append(self._wanted(each.place, function, Options()))
            else:
                found = options_of(each.how, options, positional)
                wanted.append(Wanted(each.place, each.how, found))
        columns = self._reduced(wanted)
        places, labels = [each.place for each in asked], [each.label for each in asked]
        if one or (asked and all(each.is_named for each in asked)):
            titles = pd.Index(labels)
        elif several or any(label is not None for label in labels) or (func and not asked):
            titles = assembly.beneath(self._labels, places, labels)
        else:
            titles = self._labels.take(places)
            if titles.dtype == object and titles.nlevels == 1:
                titles = pd.Index(list(titles), name=titles.name, tupleize_cols=False)
        return self._frame_of(columns, titles, beside=one or several)

    def _wanted(self, place: int, how: Any, options: Options) -> Wanted:
        return Wanted(place, how, options, self._labels[place] if callable(how) else None)

    def _offered(self, asked: list[Request]) -> list[Request]:
        """Return the listed aggregates that a column's dtype supports."""
        return [each for each in asked if self._offers(each.place, each.how)]

    def _offers(self, place: int, how: str) -> bool:
        """Return whether a column supports an aggregate; raise if its whole kind should."""
        return True

    @function_translates_memory_errors
    def transform(self, func: Callable[..., Any] | str, *args: Any, **kwargs: Any) -> AnyFrame:
        """Return each group's aggregate, or a function's results, for each of its rows.

        Parameters
        ----------
        func : str or function
            The name of an aggregate. A function of Python is called with each column of each group,
            and returns a value or one for each row: slow where groups are many. Of cuDF frames it
            names an aggregate.
        **kwargs
            Its options.

        Examples
        --------
        >>> import dgpuhash, pandas as pd
        >>> sales = pd.DataFrame({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
        >>> dgpuhash.groupby(sales, "shop")["price"].transform("sum").tolist()
        [6.0, 1.0, 6.0]
        """
        how = self._resolve_name(func)
        if callable(how):
            return self._transform(self._function(how, args, kwargs))
        if how in {"list", "unique"}:
            raise UnsupportedError(f"no transform({how!r}); merge groups.agg({how!r}) by the keys")
        options = options_of(how, kwargs, args)
        index, name = self._frame.index, self._name if self._one else None
        if how == "size" and (self._plain_sizes or not self._one):
            sizes = self._by_row([self._sizes], [name])[0]
            return self._assembly.series_of(sizes, index, name)
        places = self._places(how, options)
        names = self._labels.take(places)
        found = self._reduced([Wanted(place, how, options) for place in places])
        found = self._by_row(found, names)
        if self._one:
            return self._assembly.series_of(found[0], index, name)
        return self._assembly.frame_of(found, names, index)

    @abstractmethod
    def _resolve_name(self, func: Any) -> Any:
        """Return the aggregate name or function that ``transform`` was called with."""

    def _transform(self, func: Any) -> Any:
        """Return a function's results for each group, aligned with the group's rows."""
        raise UnsupportedError(f"{func} is not an aggregate; use {', '.join(AGGREGATES)}")

    @abstractmethod
    def _by_row(self, columns: list[Any], names: Any) -> list[Any]:
        """Return each group's values for each of its rows."""

    @property
    def _sizes(self) -> Any:
        """A column of the number of rows of each group."""
        return self._groups.sizes

    @function_translates_memory_errors
    def size(self) -> Any:
        """Return the number of rows of each group."""
        one = self._one
        sizes = self._reduced([Wanted(0, "size", Options())])[0] if one else self._sizes
        if self._as_index:
            return self._assembly.series_of(
                sizes, self._groups.index, self._name if one else None
            )  # fmt: skip
        return self._frame_of([sizes], pd.Index(["size"]))

    @function_translates_memory_errors
    def _matrices(self, how: str, least: int, ddof: int, options: Options) -> Any:
        if self._one:
            raise UnsupportedError(f"{how} needs two columns; select both with [columns]")
        groups, places = self._groups_of_pairs, self._places_of_pairs(how, options)
        made = pairs.matrices(groups, len(places), self._moments(places, how), how, least, ddof)
        labels = self._labels.take(places)
        columns = [self._column(made[:, :, place].reshape(-1)) for place in range(len(places))]
        if not self._as_index:
            return self._pairs_without_index(columns, labels, groups)
        index = self._assembly.index_with_level(groups, labels, labels.name)
        return self._assembly.frame_of(columns, labels, index)

    @property
    def _groups_of_pairs(self) -> Any:
        """The groups in the order of the matrices."""
        return self._groups

    def _places_of_pairs(self, how: str, options: Options) -> list[int]:
        """Return the positions of the columns for `cov` and `corr`."""
        return self._places(how, options)

    @abstractmethod
    def _moments(self, places: Sequence[int], how: str) -> Callable[[int, int], pairs.Moments]:
        """Return a function of the moments of two of these columns, by number."""

    @abstractmethod
    def _pairs_without_index(self, columns: list[Any], labels: Any, groups: Any) -> Any:
        """Return the groups' matrices concatenated, with the keys not in the index."""

    def _column(self, array: Any) -> Any:
        """Return an array as a column of results."""
        return array
