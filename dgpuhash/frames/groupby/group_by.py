"""GroupBy: groupby of a pandas frame, with a method for each aggregate."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from dgpuhash.errors import SpecError
from dgpuhash.frames.dataframes import as_series
from dgpuhash.frames.groupby import assembly, selections
from dgpuhash.frames.groupby.aggregates import pairs
from dgpuhash.frames.groupby.aggregates.options import AggregateTypeError, Options
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.aggregates.values import Values, take_values
from dgpuhash.frames.groupby.functions import FunctionMethods, bound, transform_by_function
from dgpuhash.frames.groupby.methods import GroupByBase
from dgpuhash.frames.groupby.reduction import NoSuchAggregateError, Wanted, name_of, reduce_columns
from dgpuhash.frames.groupby.value_counts import value_counts
from dgpuhash.frames.merge.keys import MissingKeyError
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.typing import AnyFrame


class GroupBy(GroupByBase, FunctionMethods):
    """Groupby of a pandas frame, returned by `dgpuhash.groupby`.

    ``[column]`` aggregates one column to a Series, ``[columns]`` several to a frame; otherwise all
    columns beside the keys are aggregated. Arguments, labels and dtypes are those of pandas.

    Examples
    --------
    >>> import dgpuhash, pandas as pd
    >>> sales = pd.DataFrame({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
    >>> groups = dgpuhash.groupby(sales, "shop")
    >>> groups
    <GroupBy of 3 rows by 'shop': 2 groups, columns ['price']>
    >>> groups["price"].max().to_dict()
    {'a': 3.5, 'b': 1.0}
    """

    def _known(self, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) > 1:
            raise SpecError(
                "Cannot subset columns with a tuple with more than one element. Use a list instead."
            )
        labels = self._frame.columns
        if isinstance(key, list | np.ndarray | pd.Index | pd.Series):
            missing = [label for label in key if label not in labels]
            if missing:
                raise MissingKeyError(f"Columns not found: {str(missing)[1:-1]}")
            return list(key)
        if key not in labels:
            raise MissingKeyError(f"Column not found: {key}")
        # The first level of several columns, which keep their labels.
        return [key] if labels.nlevels > 1 else key

    def _chosen(self, frame: Any) -> Any:
        """Return the columns to aggregate of a frame with these columns."""
        if frame.ndim == 1:
            return frame
        if self._selection is not None:
            return frame[self._selection]
        return frame.loc[:, [label not in self._apart for label in frame.columns]]

    @functools.cached_property
    def _data(self) -> Any:
        return self._chosen(self._frame)

    @functools.cached_property
    def _like(self) -> Any:
        """Empty frame of the columns to aggregate."""
        return self._chosen(self._frame.iloc[:0])

    @property
    def _positions(self) -> list[int]:
        """The positions in the frame of the columns to aggregate."""
        if self._frame.ndim == 1:
            return [0]
        labels, chosen = self._frame.columns, self._selection
        if chosen is None:
            return [place for place, label in enumerate(labels) if label not in self._apart]
        if labels.nlevels == 1 and labels.is_unique:
            chosen = chosen if isinstance(chosen, list) else [chosen]
            return [labels.get_loc(label) for label in chosen]
        numbers = pd.DataFrame([range(len(labels))], columns=labels)
        return [int(each) for each in np.ravel(self._chosen(numbers))]

    @property
    def _columns(self) -> list[pd.Series]:
        frame = self._frame
        index = frame.index
        columns = [frame]
        if frame.ndim == 2:
            columns = [frame.iloc[:, place] for place in self._positions]
        numbered = type(index) is pd.RangeIndex and index.start == 0 and index.step == 1
        return columns if numbered else list(map(as_series, columns))

    @property
    def _labels(self) -> Any:
        return pd.Index([self._like.name]) if self._one else self._like.columns

    def _places(self, how: str, options: Options) -> list[int]:
        """Return the positions of the columns that support an aggregate."""
        if not options.numeric_only:
            return list(range(len(self._positions)))
        if self._one and how in {"idxmin", "idxmax"}:
            raise TypeError(f"{how}() got an unexpected keyword argument 'numeric_only'")
        numeric = [place for place, each in enumerate(self._columns) if Values(each).is_numeric]
        if self._one and not numeric:
            raise AggregateTypeError(
                f"SeriesGroupBy.sem called with numeric_only=True and dtype {self._like.dtype}"
                if how == "sem"
                else f"Cannot use numeric_only=True with SeriesGroupBy.{how} and non-numeric "
                "dtypes."
            )
        return numeric

    def _moments(self, places: Sequence[int], how: str) -> Callable[[int, int], pairs.Moments]:
        columns = self._columns
        floats = [pairs.floats(self._groups, columns[place], how) for place in places]
        return pairs.moments_of_all(self._groups, floats)

    def _pairs_without_index(self, columns: list[Any], labels: Any, groups: Any) -> Any:
        index = assembly.index_with_level(groups, labels, labels.name)
        return assembly.without_keys(assembly.frame_of(columns, labels, index), labels.nlevels)

    def _reduced(self, wanted: list[Wanted]) -> list[Any]:
        return reduce_columns(self._groups, self._columns, wanted, self._frame.index)

    def _in_frame(self, place: int, array: Any) -> Any:
        """Return object results in the dtype that pandas gives them in frames."""
        if self._one or not isinstance(self._like.dtypes.iloc[place], np.dtype):
            return array
        texts = isinstance(getattr(array, "dtype", None), pd.StringDtype)
        return array.to_numpy(dtype=object) if texts else array

    def _function(self, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        return bound(func, args, given)

    def _resolve_name(self, func: Any) -> Any:
        if isinstance(func, str) and func not in AGGREGATES:
            raise NoSuchAggregateError(f"'{func}' is not a valid function name for transform(name)")
        return name_of(func)

    def _transform(self, func: Any) -> Any:
        return transform_by_function(self._groups, self._data, func)

    def _by_row(self, columns: list[Any], names: Any) -> list[Any]:
        return [
            take_values(assembly.series_of(each, None, name), self._groups.codes)
            for each, name in zip(columns, names, strict=True)
        ]

    def head(self, n: int = 5) -> Any:
        """Return the first `n` rows of each group; all but the last ``-n`` if negative."""
        return self._rows(selections.rows_before(self._groups, n))

    def tail(self, n: int = 5) -> Any:
        """Return the last `n` rows of each group; all but the first ``-n`` if negative."""
        return self._rows(selections.rows_behind(self._groups, n))

    def nth(self, n: int | slice | Sequence[int | slice], dropna: str | None = None) -> AnyFrame:
        """Return the rows at given positions of each group: a number, a slice, or a list.

        Rows with ``"any"`` or ``"all"`` nulls are not counted where `dropna` says so.
        """
        if not dropna:
            return self._rows(selections.rows_at(self._groups, n))
        if dropna not in {"any", "all"}:
            raise SpecError(
                "For a DataFrame or Series groupby.nth, dropna must be either None, 'any' or "
                f"'all', (was passed {dropna})."
            )
        chosen = self._frame if self._selection is None else self._data
        there = chosen.notna()
        if there.ndim == 2:
            there = there.all(axis=1) if dropna == "any" else there.any(axis=1)
        return self._rows(selections.rows_at_of(self._groups, there.to_numpy(), n))

    def _rows(self, mask: Any) -> Any:
        return (self._frame if self._selection is None else self._data)[mask]

    def nlargest(self, n: int = 5, keep: Literal["first", "last", "all"] = "first") -> Any:
        """Return the `n` largest values of one column in each group."""
        return self._extremes("nlargest", n, keep)

    def nsmallest(self, n: int = 5, keep: Literal["first", "last", "all"] = "first") -> Any:
        """Return the `n` smallest values of one column in each group."""
        return self._extremes("nsmallest", n, keep)

    def _extremes(self, how: str, n: int, keep: str) -> Any:
        if not self._one:
            raise AttributeError(f"{how} works on one column; select it with [column]")
        found = selections.extremes(self._groups, self._data, n, keep, how)
        return found if self._as_index else assembly.without_keys(found, self._data.index.nlevels)

    def unique(self) -> Any:
        """Return an array of one column's distinct values in each group."""
        if not self._one:
            raise AttributeError("unique works on one column; select it with [column]")
        return self._aggregate("unique", Options())

    @function_translates_memory_errors
    def value_counts(
        self,
        subset: Sequence[Hashable] | None = None,
        *,
        normalize: bool = False,
        sort: bool = True,
        ascending: bool = False,
        bins: int | Sequence[float] | None = None,
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
        bins : sequence of numbers, optional
            Edges of intervals, in which the values of one column are counted.
        dropna : bool
            Whether rows with a null are left out.

        Raises
        ------
        ColumnError, SpecError, UnsupportedError
            When a column is called as the result, `subset` names a key or no column, or `bins` is a
            number.
        """
        return value_counts(
            self._groups, self._data, subset=subset, bins=bins, as_index=self._as_index,
            like=None if self._frame.ndim == 1 else self._frame.columns,
            normalize=normalize, sort=sort, ascending=ascending, dropna=dropna,
        )  # fmt: skip
