"""pandas' warning for merges of integer keys with non-integer float keys."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.keyed_rows import KeyedRows

__all__ = [
    "MESSAGE",
    "IntFloatKey",
    "caller_stacklevel",
    "has_non_integers",
    "int_float_keys",
    "warn_int_float_keys",
    "warn_int_float_merge",
]

# pandas' own text, so that warning filters match both.
MESSAGE = (
    "You are merging on int and float columns where the float values are not equal to their int "
    "representation."
)
# Packages whose stack frames lie between the user's call and this module.
_OWN = {"dgpuhash", "contextlib", "functools"}


@dataclass(frozen=True, slots=True)
class IntFloatKey:
    """Key column with integers on one side of a merge and floats on the other.

    `integers` is the dtype of the integer side, and `floats_left` says whether the left side has
    the floats. `name` labels the column on the left, `key` in the index.
    """

    name: Hashable
    key: Hashable
    integers: np.dtype[Any]
    floats_left: bool


def warn_int_float_merge(left: Any, left_on: Sequence[Hashable], stored: KeyedRows) -> None:
    """Warn, as pandas' merge does, when float keys meet integer keys.

    The warning is given when some floats are neither whole numbers nor NaN. Only NumPy dtypes are
    checked: beside nullable integers pandas converts both to floats, or fails. cuDF gives no such
    warning, and the check would cost it a synchronization.

    Parameters
    ----------
    left : DataFrame
    left_on : sequence of labels
        Key columns of `left`, in the order of the index's key columns.
    stored : KeyedRows
        The rows of the index.
    """
    if not len(left) or not len(stored):
        return
    mixed = int_float_keys(left, left_on, stored.store.meta, stored.key_names)
    told = [
        each
        for each in mixed
        if each.floats_left or stored.told(each.key, each.integers, has_non_integers)
    ]
    warn_int_float_keys(left, told)


def int_float_keys(
    left: Any, left_on: Sequence[Hashable], meta: Any, names: Sequence[Hashable]
) -> list[IntFloatKey]:
    """Return the key columns with integers on one side, floats on the other.

    Parameters
    ----------
    left, meta : DataFrame
        The left frame and an empty frame like the index's rows; no row is read.
    left_on, names : sequence of labels
        The key columns of `left` and of the index.
    """
    found: list[IntFloatKey] = []
    if frames_of(meta).name != "pandas":
        return found
    for name, key in zip(left_on, names, strict=True):
        given, own = left[name].dtype, meta[key].dtype
        if not isinstance(given, np.dtype) or not isinstance(own, np.dtype):
            continue
        if given.kind == "f" and own.kind in "iu":
            found.append(IntFloatKey(name, key, own, floats_left=True))
        elif given.kind in "iu" and own.kind == "f":
            found.append(IntFloatKey(name, key, given, floats_left=False))
    return found


def warn_int_float_keys(left: Any, told: Sequence[IntFloatKey]) -> None:
    """Warn about the columns `told` that hold floats which are not integers.

    Floats of `left` are checked here; floats of the index were checked by the caller.
    """
    for each in told if len(left) else ():
        if not each.floats_left or has_non_integers(left[each.name], each.integers):
            warnings.warn(MESSAGE, UserWarning, stacklevel=caller_stacklevel())


def has_non_integers(column: Any, integers: np.dtype[Any]) -> bool:
    """Return whether some floats are neither null nor integers of that dtype.

    Examples
    --------
    >>> import pandas as pd
    >>> whole, large = pd.Series([1.0, None]), pd.Series([300.0])
    >>> has_non_integers(whole, np.dtype("i1")), has_non_integers(large, np.dtype("i1"))
    (False, True)
    """
    floats = column.to_numpy(np.float64, na_value=np.nan)
    with np.errstate(invalid="ignore"):
        same = floats.astype(integers) == floats
    return not bool((same | np.isnan(floats)).all())


def caller_stacklevel() -> int:
    """Return the ``stacklevel`` of the first caller outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and _root(frame) in _OWN:
        level, frame = level + 1, frame.f_back
    return level


def _root(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
