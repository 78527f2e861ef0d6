"""LazyGroupBy: groupby of a Dask frame, with a lazy method for each aggregate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from dask.dataframe.dispatch import make_meta

from dgpuhash.distributed.cluster.dask_internals import new_collection
from dgpuhash.distributed.groupby.asked import Asked, Ranges
from dgpuhash.distributed.groupby.pairs import nunique_by_pairs
from dgpuhash.distributed.groupby.steps import groups_of
from dgpuhash.distributed.groupby.transform import transform_lazily
from dgpuhash.distributed.merge.verb import SEEDS
from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.frames import frames_of
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.cudf.group_by import name_functions, named_pair
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.groupby.methods import AggregateMethods
from dgpuhash.frames.groupby.partial import GroupByCall


class LazyGroupBy(AggregateMethods):
    """Groupby of a Dask frame, returned by `dgpuhash.groupby`.

    ``[column]`` and ``[columns]`` choose what is aggregated. Results are lazy frames or Series with
    a partition for each hash range of the keys.

    Examples
    --------
    >>> import dask.dataframe as dd, dgpuhash, pandas as pd
    >>> from distributed import Client
    >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
    >>> sales = pd.DataFrame({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
    >>> groups = dgpuhash.groupby(dd.from_pandas(sales, npartitions=2), "shop")
    >>> groups
    <LazyGroupBy of 2 partitions by 'shop': 2 hash ranges, columns ['price']>
    >>> sorted(groups["price"].sum().compute().items())
    [('a', 6.0), ('b', 1.0)]
    >>> client.close()
    """

    def __init__(self, frame: Any, asked: Asked, like: GroupBy, ranges: Ranges) -> None:
        self._frame, self._asked, self._like, self._ranges = frame, asked, like, ranges

    def __repr__(self) -> str:
        names = [self._asked.names.get(key.name, key.name) for key in self._keys]
        by = ", ".join(map(repr, names))
        columns = repr(self._like).rpartition("column")[2]
        parts, ranges = self._frame.npartitions, self._ranges.of_groups
        return (
            f"<LazyGroupBy of {parts:,} partition{'' if parts == 1 else 's'} by {by}: {ranges:,} "
            f"hash range{'' if ranges == 1 else 's'}, column{columns}"
        )

    @property
    def _example(self) -> GroupBy:
        return self._like

    def __getitem__(self, key: Any) -> LazyGroupBy:
        like = self._like[key]
        asked = replace(self._asked, selection=like._selection)
        return LazyGroupBy(self._frame, asked, like, self._ranges)

    def _of_asked(self, asked: Asked) -> LazyGroupBy:
        """Return a groupby of the same rows with another description."""
        return LazyGroupBy(self._frame, asked, self._like, self._ranges)

    @property
    def _keys(self) -> list[GroupingKey]:
        """The keys as an empty frame."""
        return self._like._groups.keys

    def _lazily(self, name: str, *args: Any, **options: Any) -> Any:
        """Return lazily what a method of a pandas groupby returns."""
        asked = replace(self._asked, verb=GroupByCall(name, args, options))
        return new_collection(groups_of(self._frame.expr, asked, self._ranges.of_groups, SEEDS))

    def _by_function(self, name: str, meta: Any, *args: Any, **options: Any) -> Any:
        """Return lazily the result of a method that takes functions."""
        if self._on_gpu:
            raise UnsupportedError(
                f"{name} with a Python function is not supported for Dask frames of cuDF; name "
                f"an aggregate, or "
                "convert the frame with .to_backend('pandas')"
            )
        asked = replace(self._asked, verb=GroupByCall(name, args, options))
        meta = asked.tried(self._frame._meta) if meta is None else make_meta(meta)
        asked = replace(asked, meta=meta)
        return new_collection(groups_of(self._frame.expr, asked, self._ranges.of_rows, SEEDS))

    def _of(self, how: str, engine: Any, **given: Any) -> Any:
        if engine is not None:
            given["engine"] = engine
        several = self._frame.npartitions > 1
        if how == "nunique" and several and (found := self._only_column()) is not None:
            return nunique_by_pairs(self, found, **given)
        return self._lazily(how, **given)

    def _aggregate(self, how: str, options: Options) -> Any:
        return self._lazily("agg", how, **asdict(options))

    def _only_column(self) -> Any:
        """Return the label of the column that a Series groupby aggregates; None for frames."""
        like = self._like
        if not like._one or like._frame.ndim == 1:
            return None
        dtype = like._frame[like._selection].dtype
        # As a key NaN is a null, and among values of cuDF it is none.
        apart = self._on_gpu and getattr(dtype, "kind", "O") == "f"
        return None if apart else like._selection

    @property
    def _on_gpu(self) -> bool:
        """Whether partitions are cuDF frames."""
        return frames_of(self._frame._meta).name == "cudf"

    def agg(self, func: Any = None, *args: Any, meta: Any = None, **kwargs: Any) -> Any:
        """Return aggregates by group, lazily; see `GroupBy.agg` of `dgpuhash.groupby`.

        Parameters
        ----------
        func : str, function, list, dict, optional
            The name of an aggregate, several of them or pairs of a label and a name, or a
            dictionary from columns to names or lists. A function of Python gets each column of each
            group whole, where the group belongs.
        meta : DataFrame or Series, optional
            An empty result, where functions make it. Default: they are tried with made-up rows.
        **kwargs
            Options of the aggregates; without `func`, labels with pairs of a column and a name.

        Raises
        ------
        NoSuchAggregateError, UnsupportedError, SpecError
            When there is no such aggregate, a function fails with made-up rows, or labels repeat.
        """
        if self._on_gpu:
            # A function names an aggregate there.
            func = name_functions(func)
            if func is None:
                kwargs = {label: named_pair(each) for label, each in kwargs.items()}
        if any(map(callable, _names(func, kwargs))):
            return self._by_function("agg", meta, func, *args, **kwargs)
        if func == "size":
            return self.size()
        if func == "nunique" and not args and kwargs.keys() <= {"dropna"}:
            return self.nunique(**kwargs)
        return self._lazily("agg", func, *args, **kwargs)

    aggregate = agg

    def size(self) -> Any:
        """Return the number of rows of each group."""
        return self._lazily("size")

    def unique(self) -> Any:
        """Return an array of one column's distinct values in each group."""
        return self._lazily("unique")

    def _matrices(self, how: str, least: int, ddof: int, options: Options) -> Any:
        given = {"ddof": ddof} if how == "cov" else {}
        return self._lazily(how, min_periods=least, numeric_only=options.numeric_only, **given)

    def head(self, n: int = 5) -> Any:
        """Return the first `n` rows of each group; all but the last ``-n`` if negative."""
        return self._lazily("head", n)

    def tail(self, n: int = 5) -> Any:
        """Return the last `n` rows of each group; all but the first ``-n`` if negative."""
        return self._lazily("tail", n)

    def nth(self, n: Any, dropna: str | None = None) -> Any:
        """Return the rows at given positions of each group: a number, a slice, or a list."""
        return self._lazily("nth", n, dropna=dropna)

    def nlargest(self, n: int = 5, keep: str = "first") -> Any:
        """Return the `n` largest values of one column in each group."""
        return self._lazily("nlargest", n, keep=keep)

    def nsmallest(self, n: int = 5, keep: str = "first") -> Any:
        """Return the `n` smallest values of one column in each group."""
        return self._lazily("nsmallest", n, keep=keep)

    def value_counts(self, subset: Any = None, **options: Any) -> Any:
        """Return how often each distinct row occurs in each group.

        Parameters and errors are those of `GroupBy.value_counts`.
        """
        return self._lazily("value_counts", subset, **options)

    def apply(self, func: Any, *args: Any, meta: Any = None, **kwargs: Any) -> Any:
        """Apply a function to each group, and concatenate the results.

        The rows of a group are sent to the worker that its key belongs to, and the function runs
        there, once a group.

        Parameters
        ----------
        func : function or str
            A name is that of a method.
        meta : DataFrame or Series, optional
            An empty result. Default: the function is tried with a few made-up rows.
        *args, **kwargs
            Further arguments of the function.

        Raises
        ------
        SpecError
            When there is no such function, or it fails with made-up rows.
        """
        if kwargs.pop("include_groups", False):
            raise SpecError("include_groups=True is no longer allowed.")
        if isinstance(func, str):
            return getattr(self, func)(*args, **kwargs)
        return self._by_function("apply", meta, func, *args, **kwargs)

    def transform(self, func: Any, *args: Any, meta: Any = None, **kwargs: Any) -> Any:
        """Return each group's aggregate for each of its rows, in row order and divisions.

        The groups are merged with the rows by their keys, so that the frame is read twice.

        Parameters
        ----------
        func : str or function
            The name of an aggregate. A function of Python runs where a group belongs; then rows
            come in partitions by their hash range.
        meta : DataFrame or Series, optional
            An empty result of a function. Default: it is tried with a few made-up rows.
        **kwargs
            Options of the aggregate.

        Raises
        ------
        NoSuchAggregateError, UnsupportedError, SpecError
            When there is no such aggregate, or a function fails with made-up rows.

        Notes
        -----
        dtypes do not depend on the data: where a key may be null and `dropna` leaves its rows out,
        integers and booleans are nullable.
        """
        func = name_functions(func) if self._on_gpu else func
        if callable(func):
            return self._by_function("transform", meta, func, *args, **kwargs)
        return transform_lazily(self, func, args, kwargs)


def _names(func: Any, named: dict[str, Any]) -> Iterator[Any]:
    """Yield the names and functions of the aggregates passed to `agg`."""
    if func is None:
        for each in named.values():
            yield each[1] if isinstance(each, tuple) and len(each) > 1 else each
    elif isinstance(func, Mapping):
        for each in func.values():
            yield from _names(each, {})
    elif isinstance(func, list | tuple):
        for each in func:
            yield from _names(each[1] if isinstance(each, tuple) and len(each) > 1 else each, {})
    elif func is not list:
        yield func
