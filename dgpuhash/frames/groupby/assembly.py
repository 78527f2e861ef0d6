"""Build the frames and Series returned by a groupby, with pandas' labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import SpecError
from dgpuhash.frames.groupby.grouping_keys import levels_of
from dgpuhash.frames.groupby.groups import Groups, infer_keys
from dgpuhash.frames.merge.index import index_of


def frame_of(arrays: Sequence[Any], columns: pd.Index, index: Any) -> pd.DataFrame:
    """Return a frame of arrays with these labels."""
    made = pd.DataFrame({
        place: series_of(array, index) if _is_objects(array) else array
        for place, array in enumerate(arrays)
    }, index=index, copy=False)  # fmt: skip
    made.columns = columns
    return made


def series_of(array: Any, index: Any, name: Any = None) -> pd.Series:
    """Return a Series of an array with these labels, without inferring dtypes of objects."""
    dtype = object if _is_objects(array) else None
    return pd.Series(array, index=index, name=name, dtype=dtype, copy=False)


def _is_objects(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == object


def beneath(columns: pd.Index, places: Sequence[int], labels: Sequence[Any]) -> Any:
    """Return two-level labels: column labels above, aggregate names below.

    Examples
    --------
    >>> beneath(pd.Index(["a", "b"], name="c"), [0, 1], ["sum", "min"]).tolist()
    [('a', 'sum'), ('b', 'min')]
    """
    taken = columns.take(list(places))
    levels = levels_of(taken)
    return index_of(
        [*(_objects(level) for level in levels), _objects(labels)], [*columns.names, None]
    )


def _objects(labels: Any) -> pd.Series:
    if isinstance(labels, pd.Index) and labels.dtype != object:
        return pd.Series(labels.array)
    made = np.empty(len(labels), object)
    made[:] = list(labels)
    return pd.Series(made, dtype=object).infer_objects()


def with_keys(
    columns: Sequence[Any], labels: pd.Index, groups: Groups, level: Any = None, *,
    beside: bool = False,
) -> pd.DataFrame:  # fmt: skip
    """Return columns by group as a frame numbered from 0, with the keys first.

    Keys that there is a column for are left out; with `beside` they come beside it, as
    `DataFrame.reset_index` has them. `level`: values that come once for each group, in a column
    behind the keys.

    Raises
    ------
    SpecError
        When a key beside others is called as a column.
    """
    count = None if level is None else len(level)
    if level is not None:
        labels = labels.insert(0, f"level_{len(groups.keys)}")
        columns = [np.tile(level, len(groups)), *columns]
    names: list[Any] = []
    arrays: list[Any] = []
    for place in reversed(range(len(groups.keys))):
        name, column = groups.keys[place].name, groups.columns[place]
        if name is None:
            alone = len(groups.keys) == 1 and level is None
            alone = alone and not (beside and "index" in labels)
            name = "index" if alone else f"level_{place}"
        if beside and (_full(name, labels) in [*labels] or name in names):
            raise SpecError(f"cannot insert {name}, already exists; give the result another label")
        if not beside and (name in labels or name in names):
            continue
        names.insert(0, name)
        values = infer_keys(column).array
        if count is None:
            arrays.insert(0, values.copy())
        else:
            arrays.insert(0, values.take(np.repeat(np.arange(len(column)), count)))
    index = pd.RangeIndex(len(groups) * (1 if count is None else count))
    return frame_of([*arrays, *columns], labels_beside(names, labels), index)


def labels_beside(names: Sequence[Any], labels: pd.Index) -> pd.Index:
    """Return the key labels followed by column labels of one or several levels."""
    if labels.nlevels > 1:
        levels = zip(*(_full(name, labels) for name in names), *labels, strict=True)
        return index_of([_objects(level) for level in levels], labels.names)
    for name in reversed(names):
        labels = labels.insert(0, name)
    return labels


def _full(name: Any, columns: pd.Index) -> Any:
    """Return a key's label padded to the number of levels of the column labels."""
    if columns.nlevels == 1:
        return name
    parts = name if isinstance(name, tuple) else (name,)
    return (*parts, *[""] * (columns.nlevels - len(parts)))


def index_with_level(groups: Groups, values: Any, name: Any = None) -> Any:
    """Return the groups' labels with a further level of values, one row for each."""
    rows = np.repeat(np.arange(len(groups)), len(values))
    levels = levels_of(groups.index)
    last = pd.Series(values).array.take(np.tile(np.arange(len(values)), len(groups)))
    columns = [*(pd.Series(level.array.take(rows)) for level in levels), pd.Series(last)]
    return index_of(columns, [*groups.index.names, name])


def without_keys(result: Any, levels: int) -> Any:
    """Return a frame or Series without the key levels of its index."""
    index = result.index
    parts, names = levels_of(index)[-levels:], list(index.names)[-levels:]
    return result.set_axis(index_of(parts, names), axis=0)
