"""``nunique`` by pairs of a key and a value, each of which has an owner of its own."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from dgpuhash.distributed.cluster.dask_internals import new_collection
from dgpuhash.distributed.groupby.asked import Asked
from dgpuhash.distributed.groupby.steps import groups_of
from dgpuhash.distributed.groupby.transform import keys_beside, keys_of
from dgpuhash.distributed.merge.verb import SEEDS
from dgpuhash.frames.groupby.partial import Verb

if TYPE_CHECKING:
    from dgpuhash.distributed.groupby.group_by import LazyGroupBy

__all__ = ["nunique_by_pairs"]


def nunique_by_pairs(groups: LazyGroupBy, column: Hashable, dropna: bool = True) -> Any:
    """Return the number of different values of a column in each group.

    Pairs of a key and a value are distinct where the hash of the pair says, so that a key with many
    values is spread; then the values of each key are counted.
    """
    asked, frame = groups._asked, groups._frame
    keys = [f"k{place}" for place in range(len(groups._keys))]
    if frame.ndim == 2:
        needed = {column, *keys_of(frame, groups).columns}
        frame = frame[[label for label in frame.columns if label in needed]]
    meta = keys_beside(frame._meta, asked, [column])
    pairs = frame.map_partitions(keys_beside, asked, [column], meta=meta)
    distinct = Asked([*keys, "v0"], sort=False, dropna=False, as_index=False)
    found = groups_of(pairs.expr, distinct, groups._ranges.of_pairs, SEEDS)
    known = asked.names
    names: dict[Hashable, Hashable] = {"v0": known.get(column, column)}
    for key, each in zip(keys, groups._keys, strict=True):
        names[key] = known.get(each.name, each.name)
    counted = replace(
        asked, by=keys, level=None, selection="v0", verb=Verb("count" if dropna else "size"),
        names=names,
    )  # fmt: skip
    made = new_collection(groups_of(found, counted, groups._ranges.of_groups, SEEDS))
    # Counts of columns of Arrow are of Arrow, and numbers of values are not.
    return made.astype("int64") if isinstance(made.dtype, pd.ArrowDtype) else made
