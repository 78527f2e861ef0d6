"""``value_counts`` of the rows of each group of a cuDF frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from dgpuhash.errors import ColumnError, UnsupportedError
from dgpuhash.frames.dataframes.cudf_columns import array_column, index_of_columns, take_columns
from dgpuhash.frames.groupby.cudf import assembly
from dgpuhash.frames.groupby.cudf.groups import CudfGroups
from dgpuhash.frames.groupby.cudf.keys import column_of_key
from dgpuhash.frames.groupby.cudf.values import CudfValues
from dgpuhash.frames.groupby.grouping_keys import GroupingKey
from dgpuhash.frames.groupby.value_counts import labels_to_count


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
    """Return how often the values of a row of columns occur together in each group.

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
    values = _counted(groups, columns, subset)
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
        return assembly.series_of(column, index_of_columns(columns_of, names), name)
    if name in names:
        raise ColumnError(f"Column label '{name}' is duplicate of result column")
    titles = [f"level_{at}" if each is None else each for at, each in enumerate(names)]
    import cudf

    labels = pd.Index([*titles, name])
    return assembly.frame_of([*columns_of, column], labels, cudf.RangeIndex(len(order)))


def _counted(
    groups: CudfGroups, columns: Sequence[tuple[Any, CudfValues]], subset: Sequence[Any] | None
) -> list[GroupingKey]:
    """Return the columns that are counted, as keys."""
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
