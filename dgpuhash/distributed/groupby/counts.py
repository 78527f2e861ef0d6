"""`nunique` and `value_counts` of Dask frames and Series."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import dask.dataframe as dd
import pandas as pd

from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.cluster.dask_internals import Expr, Task, TaskRef, new_collection
from dgpuhash.distributed.groupby.asked import Asked
from dgpuhash.distributed.groupby.steps import groups_of
from dgpuhash.distributed.groupby.verb import ranges_of
from dgpuhash.distributed.ingest.source import check_all_partitions
from dgpuhash.distributed.merge.verb import SEEDS, hash_ranges, prepare
from dgpuhash.frames import frames_of
from dgpuhash.frames.merge.accessor import column_places
from dgpuhash.frames.merge.arguments import OnRounding

# What the column of a Series is called while its values are counted.
_SERIES = "value"


def nunique_lazily(
    frame: Any, subset: Any = None, *, dropna: bool = True, npartitions: int | None = None,
    on_rounding: OnRounding | None = None,
) -> Any:  # fmt: skip
    """Return the number of distinct values; see `IndexAccessor.nunique` and `Asked`."""
    whole = _prepare(frame)
    labels, one = _labels(whole, frame, subset)
    sizes = [
        _sizes(
            whole, label, dropna=dropna, npartitions=npartitions, on_rounding=on_rounding
        )["size"].size
        for label in labels
    ]  # fmt: skip
    if one:
        return sizes[0]
    return new_collection(NumbersExpr(tuple(labels), *(each.expr for each in sizes)))


def value_counts_lazily(
    frame: Any,
    subset: Any = None,
    *,
    normalize: bool = False,
    sort: bool = True,
    ascending: bool = False,
    dropna: bool = True,
    npartitions: int | None = None,
    on_rounding: OnRounding | None = None,
) -> Any:
    """Return how often the values of a row occur together; see `IndexAccessor.value_counts`."""
    whole = _prepare(frame)
    labels, _ = _labels(whole, frame, subset)
    names: dict[Hashable, Hashable] = {_SERIES: frame.name} if frame.ndim == 1 else {}
    # Categories that no row has count, too, other than with cuDF.
    made = _sizes(
        whole, labels, dropna=dropna, npartitions=npartitions, on_rounding=on_rounding,
        observed=frames_of(whole._meta).name == "cudf", as_index=True, names=names,
    )  # fmt: skip
    if normalize:
        made = made / made.sum()
    if sort:
        made = made.repartition(npartitions=1)
    how = ("proportion" if normalize else "count", sort, ascending)
    return made.map_partitions(in_order, *how, meta=in_order(made._meta, *how))


def _prepare(frame: Any) -> dd.DataFrame:
    """Return the frame after installing this library on its cluster."""
    prepare(client_of(None))
    check_all_partitions(frame)
    return frame.to_frame(_SERIES) if frame.ndim == 1 else frame


def _labels(whole: dd.DataFrame, frame: Any, subset: Any) -> tuple[list[Hashable], bool]:
    """Return the selected column labels, and whether a single label was given."""
    if frame.ndim == 1 or subset is None:
        return list(whole.columns), frame.ndim == 1
    column_places(whole._meta, subset)
    one = not isinstance(subset, list | tuple | pd.Index) or subset in list(whole.columns)
    return ([subset], True) if one else (list(dict.fromkeys(subset)), False)


def _sizes(
    frame: dd.DataFrame,
    by: Any,
    *,
    dropna: bool,
    npartitions: int | None,
    on_rounding: OnRounding | None,
    observed: bool = True,
    as_index: bool = False,
    names: dict[Hashable, Hashable] | None = None,
) -> Any:
    asked = Asked(
        by, sort=False, dropna=dropna, observed=observed, as_index=as_index, names=names or {},
        on_rounding=on_rounding,
    )  # fmt: skip
    workers = hash_ranges(npartitions, prepare(client_of(None)))
    ranges = ranges_of(asked.groups(frame._meta), npartitions, workers, frame.npartitions)
    return new_collection(groups_of(frame.expr, asked, ranges.of_groups, SEEDS))


def in_order(counts: pd.Series, name: str, sort: bool, ascending: bool) -> pd.Series:
    """Return counts under this name, sorted if requested."""
    if sort:
        if frames_of(counts).name == "cudf":
            counts = counts.sort_values(ascending=ascending)
        else:
            counts = counts.sort_values(ascending=ascending, kind="stable")
    return counts.rename(name)


class NumbersExpr(Expr):
    """Series of separately computed numbers, with their labels."""

    _parameters = ["labels"]  # noqa: RUF012

    @property
    def _meta(self) -> pd.Series:
        return pd.Series([], pd.Index([self.labels[0]])[:0], dtype="int64")

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _lower(self) -> None:
        return None

    def _layer(self) -> dict[Any, Task]:
        key = (self._name, 0)
        numbers = [TaskRef((each._name, 0)) for each in self.operands[1:]]
        return {key: Task(key, numbers_of, self.labels, *numbers)}


def numbers_of(labels: tuple[Hashable, ...], *numbers: int) -> pd.Series:
    """Return numbers as a Series."""
    return pd.Series(numbers, pd.Index(list(labels)), dtype="int64")
