"""Add computed keys (functions, mappings, lazy Series) to a Dask frame as columns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.dataframe.dispatch import meta_nonempty

from dgpuhash.distributed.groupby.transform import beside_labels
from dgpuhash.errors import UnsupportedError
from dgpuhash.frames import frames_of
from dgpuhash.frames.groupby.cudf.groups import grouping_keys as keys_on_gpu
from dgpuhash.frames.groupby.grouping_keys import grouping_keys


def with_keys(frame: Any, by: Any) -> tuple[Any, Any, Any, dict[Hashable, Hashable]]:
    """Return a frame with all keys as columns, and their labels there.

    Parameters
    ----------
    frame : Dask DataFrame or Series
    by : Any
        As for `dgpuhash.groupby`; lazy Series and Indexes are of the same rows.

    Returns
    -------
    frame
        With what is none yet as columns; of a Series then a frame, too.
    by
        With their labels.
    selection : label or None
        The column that the values of a Series are then.
    names : dict
        What these columns are called in results.

    Raises
    ------
    UnsupportedError
        When a key is an array or a frame of another library.
    """
    several = isinstance(by, list | tuple) and not (
        isinstance(by, tuple) and frame.ndim == 2 and by in list(frame.columns)
    )
    keys: list[Any] = list(by) if several else [by]
    for key in keys:
        library = type(key).__module__.partition(".")[0]
        own = library in {"cudf", "cupy"}
        if own or isinstance(key, np.ndarray | pd.Series | pd.Index | pd.DataFrame):
            raise UnsupportedError(
                f"a {type(key).__name__} cannot be a key of a Dask frame; make it a column with "
                f".assign(), and name that column"
            )
    if not any(isinstance(key, dd.Series) or _is_of_labels(key) for key in keys):
        return frame, by, None, {}
    names: dict[Hashable, Hashable] = {}
    selection: Hashable | None = None
    made = frame
    if frame.ndim == 1:
        selection = "dgpuhash value"
        made, names[selection] = frame.to_frame(selection), frame.name
    added = {}
    for place, key in enumerate(keys):
        label = f"dgpuhash key {place}"
        if _is_of_labels(key):
            keys[place] = label
            found = keys_on_gpu if frames_of(made._meta).name == "cudf" else grouping_keys
            (names[label],) = (each.name for each in found(made._meta, key, None))
            # Of a few rows, to know the dtype.
            meta = with_key(meta_nonempty(made._meta), key, label).iloc[:0]
            made = made.map_partitions(with_key, key, label, meta=meta)
            continue
        if not isinstance(key, dd.Series):
            continue
        known = frame.ndim == 2 and key.name in list(frame.columns)
        if known and key._name == frame[key.name]._name:
            keys[place] = key.name
            continue
        keys[place], names[label] = label, key.name
        if isinstance(key, dd.Index):
            meta = with_labels(made._meta, key._meta, label)
            made = made.map_partitions(with_labels, key, label, meta=meta, align_dataframes=False)
        else:
            added[label] = key
    made = made.assign(**added) if added else made
    return made, keys if several else keys[0], selection, names


def _is_of_labels(key: Any) -> bool:
    """Return whether a key is a function or mapping of the index labels."""
    return callable(key) or isinstance(key, Mapping)


def with_key(part: pd.DataFrame, key: Any, column: str) -> pd.DataFrame:
    """Return a partition with a function or mapping of its index labels as a column."""
    if frames_of(part).name == "cudf":
        (on_gpu,) = keys_on_gpu(part, key, None)
        return part.assign(**{column: beside_labels(part, {column: on_gpu.values})[column]})
    (made,) = grouping_keys(part, key, None)
    return part.assign(**{column: made.values.array})


def with_labels(part: pd.DataFrame, labels: pd.Index, column: str) -> pd.DataFrame:
    """Return a partition with its index labels as a column."""
    if (frames := frames_of(part)).name == "cudf":
        found: dict[Hashable, Any] = {column: frames.series(labels)}
        return part.assign(**{column: beside_labels(part, found)[column]})
    return part.assign(**{column: labels.array})
