"""Grouped `nunique` by distinct (key, value) pairs, each with an owner of its own."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
from pandas.api.extensions import ExtensionDtype

from dgpuhash.distributed.cluster.dask_internals import new_collection
from dgpuhash.distributed.groupby.asked import Asked
from dgpuhash.distributed.groupby.steps import groups_of
from dgpuhash.distributed.groupby.transform import keys_beside, keys_of
from dgpuhash.distributed.merge.verb import SEEDS
from dgpuhash.frames.dataframes.partition_dtypes import PandasDtypes, with_nullable
from dgpuhash.frames.dataframes.promotion import nullable_frame
from dgpuhash.frames.groupby.partial import GroupByCall
from dgpuhash.frames.merge.index import index_of

if TYPE_CHECKING:
    from dgpuhash.distributed.groupby.group_by import LazyGroupBy


def nunique_by_pairs(groups: LazyGroupBy, column: Hashable, dropna: bool = True) -> Any:
    """Return the number of distinct values of a column in each group.

    Pairs of a key and a value are distinct where the hash of the pair says, so that a key with many
    values is spread; then the values of each key are counted.
    """
    asked, frame = groups._asked, groups._frame
    keys = [f"k{place}" for place in range(len(groups._keys))]
    if frame.ndim == 2:
        needed = {column, *keys_of(frame, groups).columns}
        frame = frame[[label for label in frame.columns if label in needed]]
    meta = keys_beside(frame._meta, asked, [column])
    pairs = frame.map_partitions(
        keys_beside, asked, [column], meta=meta, enforce_metadata=False
    )  # fmt: skip
    if asked.on_rounding is not None:
        pairs = pairs.map_partitions(as_nullable, meta, meta=as_nullable(meta, meta))
    distinct = Asked([*keys, "v0"], sort=False, dropna=False, as_index=False)
    found = groups_of(pairs.expr, distinct, groups._ranges.of_pairs, SEEDS)
    known = asked.names
    names: dict[Hashable, Hashable] = {"v0": known.get(column, column)}
    for key, each in zip(keys, groups._keys, strict=True):
        names[key] = known.get(each.name, each.name)
    counted = replace(
        asked, by=keys, level=None, selection="v0", verb=GroupByCall("count" if dropna else "size"),
        as_index=True, names=names, on_rounding=None,
    )  # fmt: skip
    made = new_collection(groups_of(found, counted, groups._ranges.of_groups, SEEDS))
    # Counts of nullable and Arrow columns have such dtypes, and numbers of values have not.
    made = made.astype("int64") if isinstance(made.dtype, ExtensionDtype) else made
    if not dropna:
        # The size of a group is called by no column.
        made = made.rename(names["v0"])
    if asked.on_rounding is not None:
        labels = index_of([meta[key] for key in keys], keys)
        shown = PandasDtypes(meta["v0"].set_axis(labels), asked.on_rounding)
        made = made.map_partitions(shown, meta=shown(made._meta))
    if asked.as_index:
        return made
    return made.map_partitions(keys_as_columns, meta=keys_as_columns(made._meta))


def as_nullable(part: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Return a partition with nullable integers and booleans, undoing promotions."""
    return nullable_frame(with_nullable(part, like))


def keys_as_columns(counts: Any) -> Any:
    """Return counts by group as a frame with the keys first, as `with_keys` does."""
    frame, index = counts.to_frame().reset_index(drop=True), counts.index
    for place in reversed(range(index.nlevels)):
        label = index.names[place]
        if label is None:
            label = "index" if index.nlevels == 1 else f"level_{place}"
        if label not in frame.columns:
            frame.insert(0, label, index.get_level_values(place))
    return frame
