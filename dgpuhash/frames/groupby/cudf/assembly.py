"""Results of a groupby as cuDF frames and Series, with cuDF's labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgpuhash.frames.dataframes import cudf_columns, frames_named
from dgpuhash.frames.dataframes.cudf_columns import (
    column_of_series,
    index_of_columns,
    series_of_column,
    take_columns,
)
from dgpuhash.frames.groupby.assembly import labels_beside
from dgpuhash.frames.groupby.cudf.groups import CudfGroups


def frame_of(columns: Sequence[Any], labels: Any, index: Any) -> Any:
    """Return a frame of columns or Series with these labels."""
    made = cudf_columns.frame_of(
        enumerate(column_of_series(each).copy(deep=False) for each in columns), index
    )
    made.columns = labels
    return made


def series_of(column: Any, index: Any, name: Any = None) -> Any:
    """Return a Series of a column or Series with these labels and this name."""
    return series_of_column(column_of_series(column), name, index)


def with_keys(
    columns: Sequence[Any], labels: Any, groups: CudfGroups, level: Any = None, *,
    beside: bool = False,
) -> Any:  # fmt: skip
    """Return a frame numbered from 0, with the keys as its first columns.

    Keys that there is a column for are left out, whatever `beside`. `level`: values that come once
    for each group, in a column behind the keys.
    """
    import cudf

    keys, names = groups.columns, [key.name for key in groups.keys]
    if level is not None:
        keys, last = _repeated(keys, level)
        keys, names = [*keys, last], [*names, None]
    chosen: dict[Any, Any] = {}
    for place, (name, column) in enumerate(zip(names, keys, strict=True)):
        if name is None:
            name = "index" if len(names) == 1 else f"level_{place}"
        if name not in labels:
            chosen.setdefault(name, column)
    made = [*chosen.values(), *columns]
    titles = labels_beside(list(chosen), labels)
    return frame_of(made, titles, cudf.RangeIndex(len(made[0]) if made else len(groups)))


def index_with_level(groups: CudfGroups, values: Any, name: Any = None) -> Any:
    """Return the labels of groups, each once for each of some values, which are the last level."""
    keys, last = _repeated(groups.columns, values)
    return index_of_columns([*keys, last], [*(key.name for key in groups.keys), name])


def _repeated(keys: list[Any], values: Any) -> tuple[list[Any], Any]:
    """Return columns with each row as often as there are values, and the values beside them."""
    frames = frames_named("cudf")
    xp: Any = frames.xp
    groups, count = len(keys[0]), len(values)
    rows, places = xp.repeat(xp.arange(groups), count), xp.tile(xp.arange(count), groups)
    last = column_of_series(frames.series(list(values)))
    return take_columns(keys, rows, nulls=False), take_columns([last], places, nulls=False)[0]
