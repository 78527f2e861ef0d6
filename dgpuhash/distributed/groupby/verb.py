"""Entry point of `dgpuhash.groupby` for Dask frames and Series."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from distributed import Client

from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.groupby.asked import Asked, Ranges
from dgpuhash.distributed.groupby.group_by import LazyGroupBy
from dgpuhash.distributed.groupby.keys import with_keys
from dgpuhash.distributed.ingest.source import check_all_partitions
from dgpuhash.distributed.merge.verb import hash_ranges, prepare
from dgpuhash.frames.dataframes.pandas_casts import is_unknown
from dgpuhash.frames.groupby.group_by import GroupBy
from dgpuhash.frames.merge.arguments import OnRounding

# Groups that one worker tells faster than several.
FEW_GROUPS = 2**12
# Partitions of the source for one of the result.
PARTS = 4


def groupby_lazily(
    frame: Any,
    by: Any = None,
    *,
    level: Any = None,
    sort: bool = True,
    dropna: bool = True,
    observed: bool = True,
    as_index: bool = True,
    npartitions: int | None = None,
    client: Client | None = None,
    on_rounding: OnRounding | None = None,
) -> LazyGroupBy:
    """Return the lazy groupby of a Dask frame or Series; see `dgpuhash.groupby`.

    Partitions of cuDF are reduced on their GPU, and their states folded on those of the owners.
    `on_rounding` is that of `Asked`.
    """
    client = client_of(client)
    there = prepare(client)
    check_all_partitions(frame)
    frame, by, selection, names = with_keys(frame, by)
    asked = Asked(
        by, level, bool(sort), bool(dropna), bool(observed), bool(as_index), names=names,
        on_rounding=on_rounding,
    )  # fmt: skip
    like = asked.groups(frame._meta)
    workers = hash_ranges(npartitions, there)
    ranges = ranges_of(like, npartitions, workers, frame.npartitions)
    made = LazyGroupBy(frame, asked, like, ranges)
    return made if selection is None else made[selection]


def ranges_of(like: GroupBy, npartitions: int | None, ranges: int, parts: int) -> Ranges:
    """Return the numbers of hash ranges of groups.

    They are `ranges`, or a fourth of the source's partitions where that is more: then a partition
    of the result is at most as large as four of them, whatever the number of groups. There is 1
    where dtypes tell that groups are few, and where categories that no row has are groups: of
    several ranges, each would have them. Groups of one partition have 1.

    Parameters
    ----------
    like : GroupBy
        The groups, without rows.
    npartitions : int, optional
        What a user asks for.
    ranges : int
        That, or the number of workers.
    parts : int
        The number of partitions of the source.
    """
    if not getattr(like._groups, "is_observed", True):
        return Ranges(1, 1, ranges)
    if npartitions is not None:
        return Ranges(ranges, ranges, ranges)
    sizes = [_most_values(key.values.dtype) for key in like._groups.keys]
    spread = 1 if math.prod(sizes) <= FEW_GROUPS else max(ranges, parts // PARTS)
    return Ranges(1 if parts == 1 else spread, spread, max(spread, ranges))


def _most_values(dtype: Any) -> float:
    """Return the number of possible values of a dtype, null included."""
    if isinstance(dtype, pd.CategoricalDtype):
        return math.inf if is_unknown(dtype) else len(dtype.categories) + 1
    if hasattr(dtype, "categories"):
        # Of cuDF: each partition may have others.
        return math.inf
    return 3 if dtype.kind == "b" else math.inf
