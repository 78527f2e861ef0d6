"""``value_counts`` of the rows of each group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import ColumnError, SpecError, UnsupportedError
from dgpuhash.frames.dataframes import as_series
from dgpuhash.frames.dataframes.pandas_take import take_rows
from dgpuhash.frames.groupby import assembly
from dgpuhash.frames.groupby.aggregates.values import Values, key_order
from dgpuhash.frames.groupby.grouping_keys import GroupingKey, levels_of
from dgpuhash.frames.groupby.groups import Groups, numbered
from dgpuhash.frames.merge.index import index_of


def value_counts(
    groups: Groups,
    data: Any,
    *,
    subset: Sequence[Any] | None,
    bins: Any,
    as_index: bool,
    like: pd.Index | None,
    **options: bool,
) -> Any:
    """Return how often each distinct value, or row of a frame, occurs in each group.

    Parameters
    ----------
    groups : Groups
    data : Series or DataFrame
    subset : list of labels or None
        The columns of the frame that are counted, None for all.
    bins : sequence of numbers or None
        Edges of intervals in which the values of a Series are counted.
    as_index : bool
        Whether keys and values are the labels, or columns of a frame.
    like : Index or None
        The labels of that frame are of its dtype.
    **options
        ``normalize sort ascending dropna``, as pandas has them.

    Raises
    ------
    ColumnError
        When a column is called as the result.
    SpecError
        When a label of `subset` is a key, or none of a column.
    UnsupportedError
        When `bins` is a number, or for several columns or categories.
    """
    column = as_series(data) if data.ndim == 1 else None
    if bins is None:
        found = _counts(groups, _counted_columns(groups, data, subset), column=column, **options)
    elif column is None:
        raise UnsupportedError("bins= works on one column; select it with [column]")
    else:
        found = _count_in_bins(groups, column.rename(data.name), bins, **options)
    return found if as_index else _as_frame(found, like)


def _counts(
    groups: Groups, columns: Sequence[tuple[Any, pd.Series]], *, column: pd.Series | None,
    normalize: bool, sort: bool, ascending: bool, dropna: bool,
) -> pd.Series:  # fmt: skip
    """Return how often each distinct row of some columns occurs in each group.

    Parameters
    ----------
    groups : Groups
    columns : sequence of (label, Series)
        Numbered from 0. All categories of a categorical one are counted, also those not there.
    column : Series or None
        The only column that was chosen, to whose dtype the counts belong.
    normalize : bool
        Whether counts are divided by those of the group.
    sort, ascending : bool
        Whether the counts of a group are sorted, and in which order; otherwise values come in order
        of first appearance. Groups come in order where theirs do.
    dropna : bool
        Whether rows with a null in one of the columns are left out.
    """
    keys, n = groups.keys, len(groups.keys)
    values = [GroupingKey(label, column) for label, column in columns]
    found = Groups(
        [*keys, *values],
        len(keys[0].values),
        sort=[*groups.sorts, *[False] * len(values)],
        dropna=[*groups.drops, *[dropna] * len(values)],
        observed=[groups.is_observed] * n + [False] * len(values),
    )
    counts = found.sizes
    order = np.arange(len(counts))
    if sort:
        order = np.argsort(counts if ascending else -counts, kind="stable")
    if all(groups.sorts) and len(order):
        order = order[key_order([take_rows(column, order) for column in found.columns[:n]])]
    index, counts = found.index.take(order), counts[order]
    result = pd.Series(_as_stored_dtype(counts, column), index=index, name=_name(normalize))
    if normalize:
        own, _ = numbered([take_rows(each, order) for each in found.columns[:n]])
        # Of a group without rows the share is 0.
        result = result / np.maximum(np.bincount(own, weights=counts, minlength=1)[own], 1)
    return result


def _as_stored_dtype(counts: Any, column: pd.Series | None) -> Any:
    """Return counts in the integer dtype that fits a column's storage."""
    if column is None:
        return counts
    values = Values(column)
    return values.sizes(counts)


def _count_in_bins(
    groups: Groups, column: pd.Series, bins: Any, *, normalize: bool, sort: bool, ascending: bool,
    dropna: bool,
) -> pd.Series:  # fmt: skip
    """Return the number of values of a column in each interval, by group.

    Values in no interval count as nulls: with `dropna` groups of such alone are left out. Counts
    are divided by the rows of the group, nulls included, as pandas does.
    """
    if not np.iterable(bins) or isinstance(column.dtype, pd.CategoricalDtype):
        raise UnsupportedError(
            f"value_counts of {column.dtype} with bins={bins!r} is not supported; give the edges "
            "of the bins, and a column of numbers"
        )
    edges: Any = bins
    placed: Any = pd.cut(groups.kept(column), edges, include_lowest=True)
    intervals = placed.cat.categories
    places, codes = placed.cat.codes.to_numpy().astype(np.int64), groups.kept_codes
    there = places >= 0
    size = len(groups), len(intervals)
    counts = np.bincount(codes[there] * size[1] + places[there], minlength=size[0] * size[1])
    counts = counts.reshape(size)
    rows = np.flatnonzero(counts.sum(axis=1) if dropna else groups.sizes)
    counts = counts[rows]
    order = np.tile(np.arange(size[1]), (len(rows), 1))
    if sort:
        order = np.argsort(counts if ascending else -counts, axis=1, kind="stable")
        counts = np.take_along_axis(counts, order, axis=1)
    result = counts.reshape(-1)
    repeated = np.repeat(rows, size[1])
    if normalize:
        result = result / groups.sizes[repeated]
    levels = [pd.Series(level.array.take(repeated)) for level in levels_of(groups.index)]
    levels.append(pd.Series(intervals.array.take(order.reshape(-1))))
    index = index_of(levels, [*groups.index.names, column.name])
    return pd.Series(result, index=index, name=_name(normalize))


def _as_frame(counts: pd.Series, labels: pd.Index | None) -> pd.DataFrame:
    """Return counts as a frame numbered from 0, with labels as first columns.

    `labels` are those of the frame that was grouped, of whose dtype the new ones are.
    """
    index = counts.index
    names = [
        f"level_{place}" if name is None else name for place, name in enumerate(index.names)
    ]  # fmt: skip
    if len(names) == 1 and index.names[0] is None:
        names = ["index"]
    if counts.name in names:
        raise ColumnError(f"Column label '{counts.name}' is duplicate of result column")
    arrays = [level.array for level in levels_of(index)]
    dtype = None if labels is None else labels.dtype
    columns = pd.Index(names, dtype=dtype).insert(len(names), counts.name)
    return assembly.frame_of([*arrays, counts.array], columns, pd.RangeIndex(len(counts)))


def _counted_columns(
    groups: Groups, data: Any, subset: Sequence[Any] | None
) -> list[tuple[Any, pd.Series]]:
    """Return the labels and values of the columns to count."""
    keys = {key.name for key in groups.keys if key.in_frame}
    if data.ndim == 1:
        return [] if data.name in keys else [(data.name, as_series(data))]
    wanted = labels_to_count(data.columns, subset, keys)
    return [
        (label, as_series(data.iloc[:, place]))
        for place, label in enumerate(data.columns)
        if label in wanted
    ]


def labels_to_count(there: Iterable[Any], subset: Sequence[Any] | None, keys: set[Any]) -> set[Any]:
    """Return the labels of the columns to count: those of `subset`, without keys.

    Raises
    ------
    SpecError
        When a label of `subset` is a key, or none of a column.
    """
    wanted = set(there)
    if subset is not None:
        if clashing := set(subset) & keys:
            raise SpecError(f"Keys {clashing} in subset cannot be in the groupby column keys.")
        if missing := set(subset) - wanted:
            raise SpecError(f"Keys {missing} in subset do not exist in the DataFrame.")
        wanted = set(subset)
    return wanted - keys


def _name(normalize: bool) -> str:
    return "proportion" if normalize else "count"
