"""The warning that pandas gives where integers are merged with floats that are no integers."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Hashable, Sequence
from types import FrameType
from typing import Any

import numpy as np

from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.keyed_rows import KeyedRows

__all__ = ["warn_of_fractions"]

# As pandas says it, so that filters for its warning serve for this one.
MESSAGE = (
    "You are merging on int and float columns where the float values are not equal to their int "
    "representation."
)
# Whose calls lie between a user's and those here.
_OWN = {"dgpuhash", "contextlib", "functools"}


def warn_of_fractions(left: Any, left_on: Sequence[Hashable], stored: KeyedRows) -> None:
    """Warn as pandas' merge does of a key column of floats that are not all whole, or NaN.

    Of NumPy's dtypes alone: beside nullable integers pandas makes them floats, or fails. cuDF gives
    no such warning, and looking costs it a synchronisation.

    Parameters
    ----------
    left : DataFrame
    left_on : sequence of labels
        Its key columns, in the order of those of the index.
    stored : KeyedRows
        The rows of the index.
    """
    meta = stored.store.meta
    if frames_of(meta).name != "pandas" or not len(left) or not len(stored):
        return
    for name, key in zip(left_on, stored.key_names, strict=True):
        given, own = left[name].dtype, meta[key].dtype
        if not isinstance(given, np.dtype) or not isinstance(own, np.dtype):
            continue
        if given.kind == "f" and own.kind in "iu":
            lossy = are_no(left[name], own)
        elif given.kind in "iu" and own.kind == "f":
            lossy = stored.told(key, given, are_no)
        else:
            continue
        if lossy:
            warnings.warn(MESSAGE, UserWarning, stacklevel=_outside())


def are_no(column: Any, integers: np.dtype[Any]) -> bool:
    """Whether some floats of a column are neither null nor integers of that dtype.

    Examples
    --------
    >>> import pandas as pd
    >>> are_no(pd.Series([1.0, None]), np.dtype("i1")), are_no(pd.Series([300.0]), np.dtype("i1"))
    (False, True)
    """
    floats = column.to_numpy(np.float64, na_value=np.nan)
    with np.errstate(invalid="ignore"):
        same = floats.astype(integers) == floats
    return not bool((same | np.isnan(floats)).all())


def _outside() -> int:
    """How many calls up from here the first one is that is not of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and _root(frame) in _OWN:
        level, frame = level + 1, frame.f_back
    return level


def _root(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
