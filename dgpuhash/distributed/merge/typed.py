"""Results whose categories Dask does not know, each with categories of the same dtype."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd

from dgpuhash.distributed.cluster.dask_internals import Expr, Task, TaskRef
from dgpuhash.frames.keys.categories import is_unknown
from dgpuhash.frames.merge.partition import PartitionPlan

__all__ = ["TypedExpr", "has_unknown_categories"]


def has_unknown_categories(plan: PartitionPlan) -> bool:
    """Return whether columns of a merge have categories that only the partitions know."""
    return not plan.is_filter and any(is_unknown(dtype) for dtype in plan.meta.dtypes)


class TypedExpr(Expr):
    """Merge of two sides, whose unknown categories have the dtypes of the first partitions' ones.

    A partition that has found nothing knows no category, and Dask puts no others together.
    """

    _parameters = ["frame", "plan", "left", "right"]  # noqa: RUF012

    @property
    def _meta(self) -> Any:
        return self.frame._meta

    def _divisions(self) -> tuple[Any, ...]:
        return tuple(self.frame.divisions)

    def _lower(self) -> None:
        return None

    def _layer(self) -> dict[Any, Task]:
        types = f"dgpuhash-categories-{self.deterministic_token}"
        labels = tuple(tuple(side) for side in self.plan.plan.labels)
        sides = (self.left, self.right)
        firsts = [TaskRef((side._name, 0)) for side in sides]
        columns = tuple(
            tuple(side.columns.get_indexer(like.columns).tolist())
            for side, like in zip((each._meta for each in sides), self._planned, strict=True)
        )
        graph: dict[Any, Task] = {types: Task(types, types_of, labels, columns, *firsts)}
        for number in range(self.frame.npartitions):
            key = (self._name, number)
            graph[key] = Task(key, typed, TaskRef((self.frame._name, number)), TaskRef(types))
        return graph

    @property
    def _planned(self) -> tuple[Any, Any]:
        return self.plan.plan.left, self.plan.plan.right


def types_of(
    labels: tuple[tuple[Hashable, ...], ...], columns: tuple[tuple[int, ...], ...], *firsts: Any
) -> dict[Hashable, Any]:
    """Return the dtypes of the categories that columns of the result get from these partitions."""
    return {
        label: frame.dtypes.iloc[place].categories.dtype
        for names, places, frame in zip(labels, columns, firsts, strict=True)
        for label, place in zip(names, places, strict=True)
        if isinstance(frame.dtypes.iloc[place], pd.CategoricalDtype)
    }


def typed(frame: Any, types: dict[Hashable, Any]) -> Any:
    """Return a partition of the result with categories of these dtypes."""
    made = frame
    for place, (label, dtype) in enumerate(frame.dtypes.items()):
        known = isinstance(dtype, pd.CategoricalDtype) and label in types
        if known and dtype.categories.dtype != types[label]:
            made = made.copy(deep=False) if made is frame else made
            column = made.iloc[:, place]
            made.isetitem(
                place, column.cat.rename_categories(dtype.categories.astype(types[label]))
            )
    return made
