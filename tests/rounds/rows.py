"""Rows that rounds index, insert and look up; workers make them slowly."""

from __future__ import annotations

import time
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd

__all__ = ["batch", "on_device", "on_host", "probes", "same_rows", "slowly"]

KEYS = 900


def batch(number: int, rows: int) -> pd.DataFrame:
    """Return rows that no other batch has; most keys occur several times."""
    keys = np.random.default_rng(number).integers(0, KEYS, rows)
    names = pd.Series([f"b{number}"] * rows, dtype="str")
    return pd.DataFrame({"k": keys, "v": np.arange(rows) + number * rows, "name": names})


def probes(rows: int = 2000) -> pd.DataFrame:
    """Return keys of a left side; a tenth of them is in no batch."""
    keys = np.random.default_rng(7).integers(0, KEYS * 10 // 9, rows)
    return pd.DataFrame({"k": keys, "x": np.arange(rows) / 4})


def on_device(frame: pd.DataFrame, device: str) -> Any:
    """Return `frame` in the form of an index on `device`."""
    if device == "cpu":
        return frame
    import cudf

    return cudf.from_pandas(frame)


def on_host(frame: Any) -> pd.DataFrame:
    """Return `frame` on the host, without nulls."""
    host = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
    names = {"name": host["name"].fillna("")} if "name" in host else {}
    return host.assign(**names).fillna(-1)


def slowly(frame: pd.DataFrame, npartitions: int, seconds: float, device: str) -> dd.DataFrame:
    """Return `frame` in partitions that take `seconds` to read."""
    lazy = dd.from_pandas(frame, npartitions=npartitions, sort=False)
    if device != "cpu":
        lazy = lazy.to_backend("cudf")
    return lazy.map_partitions(late, seconds, meta=lazy._meta)


def late(part: Any, seconds: float) -> Any:
    time.sleep(seconds)
    return part


def same_rows(found: pd.DataFrame, wanted: pd.DataFrame) -> bool:
    """Return whether two frames have the same rows, in any order."""
    columns = list(wanted.columns)
    ours, theirs = (
        frame[columns].sort_values(columns, ignore_index=True) for frame in (found, wanted)
    )
    return len(ours) == len(theirs) and bool((ours == theirs).all(axis=None))
