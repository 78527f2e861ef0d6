"""Concatenate partitions of results without changing index labels of dtype object."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd
from dask.dataframe.dispatch import concat

from dgpuhash.distributed.cluster.dask_internals import (
    Expr,
    PartitionsFiltered,
    Repartition,
    RepartitionToFewer,
    Task,
    TaskRef,
)
from dgpuhash.distributed.cluster.expressions import SharedExpr
from dgpuhash.frames.dataframes import as_series
from dgpuhash.frames.merge.index import index_of


class ResultExpr(PartitionsFiltered, SharedExpr):
    """Expression of a result whose `compute` concatenates all partitions.

    Dask does so with pandas, which makes floats of labels that are integers and floats.
    """

    def _simplify_up(self, parent: Expr, dependents: Any) -> Expr | None:
        if type(parent) is not Repartition or not has_objects(self._meta):
            return None
        wanted = parent.operand("new_partitions")
        is_fewer = isinstance(wanted, int) and 0 < wanted < self.npartitions
        return FewerExpr(self, wanted) if is_fewer else None


class FewerExpr(RepartitionToFewer):
    """Result repartitioned into fewer partitions."""

    def _layer(self) -> dict[Any, Task]:
        edges = self._partitions_boundaries
        parts = [TaskRef((self.frame._name, number)) for number in range(self.frame.npartitions)]
        return {
            (self._name, place): Task((self._name, place), concat_rows, *parts[first:last])
            for place, (first, last) in enumerate(pairwise(edges))
        }


def has_objects(frame: Any) -> bool:
    """Return whether index labels of a pandas frame or Series are Python objects, at any level."""
    index = frame.index
    if not isinstance(index, pd.Index):
        return False
    levels = index.levels if isinstance(index, pd.MultiIndex) else [index]
    return any(level.dtype == object for level in levels)


def together(parts: list[Any]) -> Any:
    """Return partitions of a result concatenated, as `compute` does."""
    filled = [part for part in parts if len(part)] or parts[:1]
    if len(filled) == 1:
        return filled[0]
    by_levels = isinstance(filled[0].index, pd.MultiIndex) or has_objects(filled[0])
    return concat_rows(*filled) if by_levels else concat(filled, uniform=True)


def concat_rows(*parts: Any) -> Any:
    """Return frames or Series concatenated; object labels stay objects.

    Examples
    --------
    >>> parts = [pd.Series([0], index=pd.Index([label], dtype=object)) for label in (1, 0.5)]
    >>> concat_rows(*parts).index.tolist()
    [1, 0.5]
    >>> concat_rows(*(part.astype("category") for part in parts)).dtype.name
    'category'
    """
    filled = [part for part in parts if len(part)] or [parts[0]]
    if len(filled) == 1:
        return filled[0]
    levels = [
        pd.concat([as_series(part.index.get_level_values(level)) for part in filled])
        for level in range(filled[0].index.nlevels)
    ]
    index = index_of(levels, filled[0].index.names, guess=False)
    # Dask's, which unites the categories of a column.
    return concat([part.reset_index(drop=True) for part in filled]).set_axis(index, axis=0)
