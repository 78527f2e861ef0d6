"""Build the cuDF frames and Series returned by a groupby; ``value_counts``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from dgpuhash.errors import ColumnError, UnsupportedError
from dgpuhash.frames.dataframes import cudf_columns, frames_named
from dgpuhash.frames.dataframes.cudf_columns import (
    array_column,
    column_of_series,
    index_of_columns,
    series_of_column,
    take_columns,
)
from dgpuhash.frames.groupby.assembly import labels_beside
from dgpuhash.frames.groupby.cudf.groups import CudfGroups, column_of_key
from dgpuhash.frames.groupby.cudf.values import CudfValues
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.groupby.value_counts import labels_to_count


def frame_of(columns: Sequence[Any], labels: Any, index: Any) -> Any:
    """Return a frame of columns or Series with these labels."""
    made = cudf_columns.frame_of(
        enumerate(column_of_series(each).copy(deep=False) for each in columns), index
    )
    made.columns = labels
    return made


def series_of(column: Any, index: Any, name: Any = None) -> Any:
    """Return a Series of a column or Series with these labels and this name."""
    return series_of_column(column_of_series(column), name, index)


def with_keys(
    columns: Sequence[Any], labels: Any, groups: CudfGroups, level: Any = None, *,
    beside: bool = False,
) -> Any:  # fmt: skip
    """Return a frame numbered from 0, with the keys as its first columns.

    Keys that there is a column for are left out, whatever `beside`. `level`: values that come once
    for each group, in a column behind the keys.
    """
    import cudf

    keys, names = groups.columns, [key.name for key in groups.keys]
    if level is not None:
        keys, last = _repeat_rows(keys, level)
        keys, names = [*keys, last], [*names, None]
    chosen: dict[Any, Any] = {}
    for place, (name, column) in enumerate(zip(names, keys, strict=True)):
        if name is None:
            name = "index" if len(names) == 1 else f"level_{place}"
        if name not in labels:
            chosen.setdefault(name, column)
    made = [*chosen.values(), *columns]
    titles = labels_beside(list(chosen), labels)
    return frame_of(made, titles, cudf.RangeIndex(len(made[0]) if made else len(groups)))


def index_with_level(groups: CudfGroups, values: Any, name: Any = None) -> Any:
    """Return the groups' labels with a further level of values, one row for each."""
    keys, last = _repeat_rows(groups.columns, values)
    return index_of_columns([*keys, last], [*(key.name for key in groups.keys), name])


def _repeat_rows(keys: list[Any], values: Any) -> tuple[list[Any], Any]:
    """Return columns with each row repeated per value, and the values beside them."""
    frames = frames_named("cudf")
    xp: Any = frames.xp
    groups, count = len(keys[0]), len(values)
    rows, places = xp.repeat(xp.arange(groups), count), xp.tile(xp.arange(count), groups)
    last = column_of_series(frames.series(list(values)))
    return take_columns(keys, rows, nulls=False), take_columns([last], places, nulls=False)[0]


def value_counts(
    groups: CudfGroups,
    columns: Sequence[tuple[Any, CudfValues]],
    *,
    subset: Sequence[Any] | None,
    as_index: bool,
    normalize: bool,
    sort: bool,
    ascending: bool,
    dropna: bool,
) -> Any:
    """Return how often each distinct row of some columns occurs in each group.

    Parameters
    ----------
    groups : CudfGroups
    columns : list of (label, CudfValues)
    subset : list of labels or None
        The columns that are counted, None for all.
    as_index : bool
        Whether keys and values are the labels, or columns of a frame.
    normalize, sort, ascending, dropna : bool
        As cuDF has them.

    Raises
    ------
    ColumnError, SpecError
        When a column is called as the result, or `subset` names a key or no column.
    UnsupportedError
        When values are categories.
    """
    xp: Any = groups.xp
    values = _counted_columns(groups, columns, subset)
    keys = groups.keys
    found = CudfGroups(
        [*keys, *values], groups.rows, sort=False, dropna=[*groups.drops, *[dropna] * len(values)]
    )
    counts = found.sizes
    own = groups.codes[found.first_rows]
    order = xp.arange(len(counts))
    if sort:
        order = groups.backend.stable_order(counts if ascending else -counts)
    if groups.sorts:
        order = order[groups.backend.stable_order(own[order])]
    name = "proportion" if normalize else "count"
    result: Any = counts[order]
    if normalize:
        totals = xp.bincount(own, weights=counts, minlength=len(groups))
        result = result / totals[own[order]]
    columns_of = take_columns(found.columns, order, nulls=False)
    names = [key.name for key in found.keys]
    column = array_column(result)
    if as_index:
        return series_of(column, index_of_columns(columns_of, names), name)
    if name in names:
        raise ColumnError(f"Column label '{name}' is duplicate of result column")
    titles = [f"level_{at}" if each is None else each for at, each in enumerate(names)]
    import cudf

    labels = pd.Index([*titles, name])
    return frame_of([*columns_of, column], labels, cudf.RangeIndex(len(order)))


def _counted_columns(
    groups: CudfGroups, columns: Sequence[tuple[Any, CudfValues]], subset: Sequence[Any] | None
) -> list[GroupingKey]:
    """Return the columns to count, as keys."""
    keys = {key.name for key in groups.keys}
    wanted = labels_to_count([label for label, _ in columns], subset, keys)
    made = []
    for label, values in columns:
        if label not in wanted:
            continue
        if values.kind == "category":
            raise UnsupportedError(
                f"value_counts of the categories of {label!r}; convert them with .astype('str')"
            )
        made.append(GroupingKey(label, column_of_key(values.series)))
    return made
