"""``value_counts`` of the rows of each group of a cuDF frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import ColumnError, SpecError, UnsupportedError
from dgpuhash.frames.dataframes.cudf_columns import index_of, take_series
from dgpuhash.frames.groupby.cudf import assembly
from dgpuhash.frames.groupby.cudf.groups import CudfGroups
from dgpuhash.frames.groupby.grouping_keys import GroupingKey

__all__ = ["value_counts"]


def value_counts(
    groups: CudfGroups,
    columns: Sequence[tuple[Any, Any]],
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
    columns : list of (label, Series)
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
    columns_of = [take_series(column, order) for column in found.columns]
    names = [key.name for key in found.keys]
    series = groups.frames.series(result)
    if as_index:
        return assembly.series_of(series, index_of(columns_of, names), name)
    if name in names:
        raise ColumnError(f"Column label '{name}' is duplicate of result column")
    titles = [f"level_{at}" if each is None else each for at, each in enumerate(names)]
    import cudf

    labels = pd.Index([*titles, name])
    return assembly.frame_of([*columns_of, series], labels, cudf.RangeIndex(len(order)))


def _counted(
    groups: CudfGroups, columns: Sequence[tuple[Any, Any]], subset: Sequence[Any] | None
) -> list[GroupingKey]:
    """Return the columns that are counted, as keys."""
    keys = {key.name for key in groups.keys}
    there = {label for label, _ in columns}
    if subset is not None:
        if clashing := set(subset) & keys:
            raise SpecError(f"Keys {clashing} in subset cannot be in the groupby column keys.")
        if missing := set(subset) - there:
            raise SpecError(f"Keys {missing} in subset do not exist in the DataFrame.")
    made = []
    for label, series in columns:
        if label in keys or (subset is not None and label not in subset):
            continue
        if hasattr(series.dtype, "categories"):
            raise UnsupportedError(
                f"value_counts of the categories of {label!r}; convert them with .astype('str')"
            )
        floating = isinstance(series.dtype, np.dtype) and series.dtype.kind == "f"
        made.append(GroupingKey(label, series.nans_to_nulls() if floating else series))
    return made
