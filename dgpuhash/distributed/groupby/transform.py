"""Aggregates of groups beside each row: merged with the rows by their keys."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dgpuhash.distributed.merge.verb import merge_lazily
from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
from dgpuhash.frames.groupby.grouping_keys import GroupingKey, grouping_keys, levels_of
from dgpuhash.frames.groupby.requests import NoSuchAggregateError, name_of
from dgpuhash.frames.merge.arguments import JoinArguments
from dgpuhash.frames.merge.index import index_of

if TYPE_CHECKING:
    from dgpuhash.distributed.groupby.asked import Asked
    from dgpuhash.distributed.groupby.group_by import LazyGroupBy

__all__ = ["keys_beside", "transformed"]


def transformed(
    groups: LazyGroupBy, func: Any, args: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """Return for each row the aggregate of its group; see `LazyGroupBy.transform`."""
    if isinstance(func, str) and func not in AGGREGATES:
        raise NoSuchAggregateError(f"'{func}' is not a valid function name for transform(name)")
    how = name_of(func)
    if how in {"list", "unique"}:
        raise UnsupportedError(f"transform({how!r}); merge groups.agg({how!r}) by the keys")
    asked, frame = groups._asked, groups._frame
    plain = groups._of_asked(replace(asked, sort=False, as_index=True, observed=True, names={}))
    found = plain.size() if how == "size" else plain.agg(how, *args, **options)
    labels: list[Any] = [found.name] if found.ndim == 1 else list(found.columns)
    labels = [asked.names.get(label, label) for label in labels]
    keys = [f"k{place}" for place in range(len(groups._keys))]
    told = _mapped(found, by_numbers, keys)
    asking = _mapped(keys_of(frame, groups), keys_beside, asked, ())
    # Where each row has its group, dtypes stay.
    whole = not asked.dropna or not any(map(_may_be_null, groups._keys))
    left = [label for label in asking.columns if label in set(keys)]
    arguments = JoinArguments("inner" if whole else "left", left_on=left, right_index=True)
    merged = merge_lazily(asking, told, arguments)
    return _mapped(merged, _rows_as, labels, found.ndim == 1, list(frame._meta.index.names))


def keys_of(frame: Any, groups: LazyGroupBy) -> Any:
    """Return the columns of a frame that are keys."""
    if frame.ndim == 1:
        return frame
    labels = {key.column for key in groups._keys if key.in_frame}
    return frame[[label for label in frame.columns if label in labels]]


def _mapped(frame: Any, function: Any, *args: Any) -> Any:
    return frame.map_partitions(function, *args, meta=function(frame._meta, *args))


def keys_beside(part: Any, asked: Asked, columns: Sequence[Hashable]) -> pd.DataFrame:
    """Return the keys of a part's rows as columns k0 and so on, and some of its columns."""
    keys = grouping_keys(part, asked.by, asked.level)
    made = {f"k{place}": key.values.array for place, key in enumerate(keys)}
    for place, label in enumerate(columns):
        made[f"v{place}"] = (part if part.ndim == 1 else part[label]).array
    return pd.DataFrame(made, index=part.index, copy=False)


def by_numbers(found: Any, keys: list[str]) -> pd.DataFrame:
    """Return aggregates with columns r0 and so on, and such names of their labels."""
    frame = found.to_frame() if found.ndim == 1 else found
    made = frame.set_axis([f"r{place}" for place in range(frame.shape[1])], axis=1)
    return made.set_axis(index_of(levels_of(frame.index), keys), axis=0)


def _rows_as(merged: pd.DataFrame, labels: list[Any], one: bool, names: list[Hashable]) -> Any:
    """Return the aggregates of rows, called as those of groups."""
    rows = merged[[f"r{place}" for place in range(len(labels))]]
    rows = rows.set_axis(rows.index.set_names(names), axis=0)
    if one:
        return rows["r0"].rename(labels[0])
    return rows.set_axis(pd.Index(labels), axis=1)


def _may_be_null(key: GroupingKey) -> bool:
    dtype = key.values.dtype
    return not (isinstance(dtype, np.dtype) and dtype.kind in "biu")
