"""Build indexes from their levels."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes import as_series, frames_of
from dgpuhash.frames.dataframes.pandas_order import sortable
from dgpuhash.frames.dataframes.pandas_take import labels_of


def index_of(levels: Sequence[Any], names: Sequence[Hashable | None], *, guess: bool = True) -> Any:
    """Return an index of one or several levels, given as Series, arrays or indexes.

    Levels of objects get the type that pandas may `guess`, where that changes no value.
    """
    columns = [as_series(level) for level in levels]
    return frames_of(columns[0]).index_of(columns, names, _level_of, guess=guess)


def _level_of(column: Any, *, guess: bool) -> tuple[Any, Any]:
    """Return a column's distinct values, sorted if possible, and each row's code.

    pandas' own constructors would hash them.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return pd.CategoricalIndex(column.cat.categories, dtype=column.dtype), column.cat.codes
    from dgpuhash.frames.merge.distinct import numbered

    absent = column.isna().to_numpy()
    present = np.flatnonzero(~absent) if absent.any() else slice(None)
    some = column.iloc[present]
    codes = np.full(len(column), -1, np.int64)
    try:
        numbers, heads = numbered(some.to_frame(0))
        # Only different values are sorted: in labels of groups they are few.
        different = some.iloc[heads]
        values, nulls = sortable(different)
    except KeyTypeError:
        found = dict.fromkeys(some)
        places = {value: place for place, value in enumerate(found)}
        codes[present] = [places[value] for value in some]
        level = pd.Series(list(found), dtype=column.dtype)
        return labels_of(level.array, None, guess=guess), codes
    rows = np.arange(len(values)) if nulls is None else np.flatnonzero(~nulls)
    order = rows[np.argsort(values[rows], kind="stable")]
    ordered = values[order]
    first = np.ones(len(order), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    rank = np.full(len(values), -1, np.int64)
    rank[order] = np.cumsum(first) - 1
    codes[present] = rank[numbers]
    return labels_of(different.iloc[order[first]].array, None, guess=guess), codes
