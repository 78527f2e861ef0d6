"""Grouped `transform`: merge each row with the aggregates of its group."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dgpuhash.distributed.merge.verb import merge_lazily
from dgpuhash.errors import UnsupportedError
from dgpuhash.frames import frames_of
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.cudf.groups import grouping_keys as keys_on_gpu
from dgpuhash.frames.groupby.grouping_keys import GroupingKey, grouping_keys, levels_of
from dgpuhash.frames.groupby.reduction import NoSuchAggregateError, name_of
from dgpuhash.frames.merge.arguments import JoinArguments
from dgpuhash.frames.merge.index import index_of

if TYPE_CHECKING:
    from dgpuhash.distributed.groupby.asked import Asked
    from dgpuhash.distributed.groupby.group_by import LazyGroupBy


def transform_lazily(
    groups: LazyGroupBy, func: Any, args: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """Return for each row the aggregate of its group; see `LazyGroupBy.transform`."""
    if isinstance(func, str) and func not in AGGREGATES:
        raise NoSuchAggregateError(f"'{func}' is not a valid function name for transform(name)")
    how = name_of(func)
    if how in {"list", "unique"}:
        raise UnsupportedError(
            f"transform({how!r}) is not supported; merge groups.agg({how!r}) by the keys"
        )
    asked, frame = groups._asked, groups._frame
    on_gpu = frames_of(frame._meta).name == "cudf"
    # With nulls every row has a group, and its dtype; on a GPU such rows are masked at the end.
    drops = asked.dropna and not on_gpu
    plain = replace(asked, sort=False, as_index=True, observed=True, names={}, dropna=drops)
    plain_groups = groups._of_asked(plain)
    found = (
        plain_groups.size() if how == "size" else plain_groups.agg(how, *args, **options)
    )  # fmt: skip
    labels: list[Any] = [found.name] if found.ndim == 1 else list(found.columns)
    labels = [asked.names.get(label, label) for label in labels]
    keys = [f"k{place}" for place in range(len(groups._keys))]
    told = _map(found, by_numbers, keys)
    asking = _map(keys_of(frame, groups), keys_beside, asked, ())
    # Where each row has its group, dtypes stay.
    promoted = asked.on_rounding is not None
    nullable = promoted or any(map(_may_be_null, groups._keys))
    whole = on_gpu or not (asked.dropna and nullable)
    left = [label for label in asking.columns if label in set(keys)]
    arguments = JoinArguments(
        "inner" if whole else "left", left_on=left, right_index=True,
        promote="each" if promoted else None, on_rounding=asked.on_rounding,
    )  # fmt: skip
    masked = left if on_gpu and asked.dropna else []
    columns = [f"r{place}" for place in range(len(labels))]
    # Without the keys, whose categories the partitions need not agree on then.
    merged = merge_lazily(asking, told, arguments)[columns + masked]
    names = list(frame._meta.index.names)
    return _map(merged, _rows_as, labels, found.ndim == 1, names, masked)


def keys_of(frame: Any, groups: LazyGroupBy) -> Any:
    """Return the key columns of a frame."""
    if frame.ndim == 1:
        return frame
    labels = {key.column for key in groups._keys if key.in_frame}
    return frame[[label for label in frame.columns if label in labels]]


def _map(frame: Any, function: Any, *args: Any) -> Any:
    return frame.map_partitions(function, *args, meta=function(frame._meta, *args))


def keys_beside(part: Any, asked: Asked, columns: Sequence[Hashable]) -> pd.DataFrame:
    """Return a partition's keys as columns k0, k1, … and some of its columns."""
    if frames_of(part).name == "cudf":
        found: dict[Hashable, Any] = {
            f"k{place}": key.values
            for place, key in enumerate(keys_on_gpu(part, asked.by, asked.level))
        }
        for place, label in enumerate(columns):
            found[f"v{place}"] = part if part.ndim == 1 else part[label]
        return beside_labels(part, found)  # type: ignore[no-any-return]
    keys = grouping_keys(part, asked.by, asked.level)
    made = {f"k{place}": key.values.array for place, key in enumerate(keys)}
    for place, label in enumerate(columns):
        made[f"v{place}"] = (part if part.ndim == 1 else part[label]).array
    return pd.DataFrame(made, index=part.index, copy=False)


def by_numbers(found: Any, keys: list[str]) -> pd.DataFrame:
    """Return aggregates with columns r0, r1, … and index levels k0, k1, …."""
    frame = found.to_frame() if found.ndim == 1 else found
    made = frame.copy(deep=False)
    made.columns = [f"r{place}" for place in range(frame.shape[1])]
    if frames_of(frame).name == "cudf":
        made.index = frame.index.set_names(keys)
    else:
        made.index = index_of(levels_of(frame.index), keys)
    return made


def _rows_as(
    merged: pd.DataFrame, labels: list[Any], one: bool, names: list[Hashable], masked: list[str]
) -> Any:
    """Return the aggregates of rows under the groups' labels; null for null keys."""
    rows = merged[[f"r{place}" for place in range(len(labels))]].copy(deep=False)
    nulls = [merged[key].isna() for key in masked]
    if nulls:
        there = ~functools.reduce(lambda ours, theirs: ours | theirs, nulls)
        for label in rows.columns:
            rows[label] = rows[label].where(there)
    rows.index = rows.index.set_names(names)
    if one:
        return rows["r0"].rename(labels[0])
    rows.columns = pd.Index(labels)
    return rows


def beside_labels(part: Any, columns: Mapping[Hashable, Any]) -> Any:
    """Return a cuDF frame of columns with the index labels of a partition's rows."""
    made = frames_of(part).make(columns)
    made.index = part.index
    return made


def _may_be_null(key: GroupingKey) -> bool:
    dtype = key.values.dtype
    return not (isinstance(dtype, np.dtype) and dtype.kind in "biu")
