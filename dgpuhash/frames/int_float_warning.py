"""Warn, as pandas does, when integer keys are merged with non-integer floats."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.dataframes.pandas_agreement import MESSAGE, caller_stacklevel, has_non_integers
from dgpuhash.frames.keyed_rows import KeyedRows
from dgpuhash.frames.keys.encoding import KeyEncoder


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


def warn_int_float_merge(
    left: Any, left_on: Sequence[Hashable], given: Sequence[Any], stored: KeyedRows,
    encoder: KeyEncoder,
) -> None:  # fmt: skip
    """Warn, as pandas' merge does, when float keys meet integer keys.

    The warning is given when some floats are neither whole numbers nor NaN. Only NumPy dtypes are
    checked: beside nullable integers pandas converts both to floats, or fails. cuDF gives no such
    warning, and the check would cost it a synchronization.

    Parameters
    ----------
    left : DataFrame
    left_on : sequence of labels
        Key columns of `left`, in the order of the index's key columns.
    given : sequence of Series
        These columns.
    stored : KeyedRows
        The rows of the index.
    encoder : KeyEncoder
        Its encoder.
    """
    if not frames_of(left).rounds_keys:
        return
    floats = [series.dtype.kind == "f" for series in given]
    alike = floats == [type_.kind == "float" for type_ in encoder.types]
    if alike or not len(left) or not len(stored):
        return
    mixed = int_float_keys(left, left_on, stored.store.meta, encoder.names)
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
    if not frames_of(meta).rounds_keys:
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
    """Warn about the columns `told`, which have floats that are not integers.

    Floats of `left` are checked here; floats of the index were checked by the caller.
    """
    for each in told if len(left) else ():
        if not each.floats_left or has_non_integers(left[each.name], each.integers):
            warnings.warn(MESSAGE, UserWarning, stacklevel=caller_stacklevel())
