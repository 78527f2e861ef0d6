"""Give merge results with unknown categoricals one categorical dtype across partitions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.distributed.cluster.dask_internals import Expr, Projection, Task, TaskRef
from dgpuhash.errors import ColumnError
from dgpuhash.frames.dataframes.pandas_casts import is_unknown
from dgpuhash.frames.keys.categories import in_dtype
from dgpuhash.frames.merge.partition import PartitionPlan


def has_unknown_categories(plan: PartitionPlan) -> bool:
    """Return whether the result has categoricals whose categories Dask does not know."""
    return not plan.is_filter and any(is_unknown(dtype) for dtype in plan.meta.dtypes)


class TypedExpr(Expr):
    """Merge whose unknown categories get the dtype of the first partition's categories.

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

    def _simplify_up(self, parent: Expr, dependents: Any) -> Expr | None:
        """Return the projection of columns without the dtypes of dropped ones."""
        if not isinstance(parent, Projection):
            return None
        columns = parent.operand("columns")
        frame = self.frame[columns if isinstance(columns, list) else [columns]]
        if not any(map(is_unknown, frame._meta.dtypes)):
            return type(parent)(self.frame, *parent.operands[1:])
        if len(frame.columns) == len(self.columns):
            return None
        return type(parent)(type(self)(frame, *self.operands[1:]), *parent.operands[1:])

    def _layer(self) -> dict[Any, Task]:
        types = f"dgpuhash-categories-{self.deterministic_token}"
        sides = (self.left, self.right)
        firsts = [TaskRef((side._name, 0)) for side in sides]
        planned = self.plan.plan.left, self.plan.plan.right
        columns = [
            list(zip(names, side._meta.columns.get_indexer(like.columns).tolist(), strict=True))
            for names, side, like in zip(self.plan.plan.labels, sides, planned, strict=True)
        ]
        for pair in self.plan.keys.pairs:
            # One column for both sides.
            if pair.left_label == pair.right_label and pair.right_label in self.right.columns:
                place = list(self.right.columns).index(pair.right_label)
                columns[1].append((pair.name, place))
        graph: dict[Any, Task] = {types: Task(types, types_of, columns, *firsts)}
        for number in range(self.frame.npartitions):
            key = (self._name, number)
            graph[key] = Task(
                key, with_categories, TaskRef((self.frame._name, number)), TaskRef(types)
            )
        return graph


def types_of(
    columns: Sequence[Sequence[tuple[Hashable, int]]], *firsts: Any
) -> dict[Hashable, Any]:
    """Return the category dtypes of result columns, from these partitions.

    `columns` are the labels in the result of each partition's columns. Values of two dtypes are
    objects, and so are those of columns whose dtype neither partition knows.
    """
    dtypes: dict[Hashable, set[Any]] = {}
    for places, frame in zip(columns, firsts, strict=True):
        for label, place in places:
            dtype = frame.dtypes.iloc[place]
            if isinstance(dtype, pd.CategoricalDtype):
                known = dtypes.setdefault(label, set())
                if _knows_dtype(dtype, len(frame)):
                    known.add(dtype.categories.dtype)
    return {
        label: known.pop() if len(known) == 1 else np.dtype(object)
        for label, known in dtypes.items()
    }


def _knows_dtype(dtype: pd.CategoricalDtype, rows: int) -> bool:
    """Return whether a partition's category dtype holds for all partitions.

    Dask puts its meta in place of an empty partition, and pandas infers float64 or object from
    nulls alone.
    """
    known = dtype.categories.dtype
    if len(dtype.categories):
        return not is_unknown(dtype)
    return not (isinstance(known, np.dtype) and known.kind in ("fO" if rows else "O"))


def with_categories(frame: Any, types: dict[Hashable, Any]) -> Any:
    """Return a partition of the result with these category dtypes.

    Raises
    ------
    ColumnError
        When its categories are no values of them.
    """
    made = frame
    for place, (label, dtype) in enumerate(frame.dtypes.items()):
        known = isinstance(dtype, pd.CategoricalDtype) and label in types
        if known and dtype.categories.dtype != types[label]:
            made = made.copy(deep=False) if made is frame else made
            column = made.iloc[:, place].cat.remove_unused_categories()
            categories = in_dtype(column.cat.categories, types[label])
            if categories is None:
                raise ColumnError(
                    f"column {label!r} has categories of {dtype.categories.dtype} in a partition, "
                    f"and of {types[label]} in the first one, which Dask cannot concatenate; "
                    f"give all partitions one dtype, or call .cat.as_known() on the column"
                )
            made.isetitem(place, column.cat.rename_categories(categories))
    return made
