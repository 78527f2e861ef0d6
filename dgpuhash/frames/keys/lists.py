"""Keys in lists: Python's numbers of any size, dates and times, in the types of an index."""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash import backend
from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.keys.columns import NUMERIC, LogicalType
from dgpuhash.frames.lookup import Lookup
from dgpuhash.tables.arguments.exact import comparable, exactly
from dgpuhash.tables.arguments.objects import parts_of

__all__ = ["Listed", "typed"]

# Up to it, floats of 64 bits hold all integers.
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Listed:
    """Lists of which some keys are no values of the index's types, and are not asked for.

    Attributes
    ----------
    given : mapping of list
        By key column.
    rows : int64 array
        The rows that are asked for, on the host.
    """

    given: Mapping[Hashable, list[Any]]
    rows: np.ndarray

    @property
    def count(self) -> int:
        """The rows of all keys."""
        return len(next(iter(self.given.values())))

    def mask(self, found: np.ndarray) -> np.ndarray:
        """What was told of the rows that were asked for as what is to be told of all."""
        whole = np.zeros(self.count, bool)
        whole[self.rows] = found
        return whole

    def whole(self, found: Lookup) -> Lookup:
        """What an index has for all keys: nothing for those that were not asked for."""
        frames = frames_of(found.frame)
        device, xp = backend.get(frames.device), frames.xp
        asked = self.mask(device.to_host(found.found))
        others = np.setdiff1d(np.arange(self.count), self.rows)
        keys = np.concatenate([self.rows[device.to_host(found.query_rows)], others])
        order = np.argsort(keys, kind="stable")
        places = np.concatenate([np.arange(len(found.frame)), np.full(len(others), -1)])[order]
        frame = frames.take_or_null(found.frame, xp.asarray(places))
        for label, values in self.given.items():
            if label in frame.columns and frames.name == "pandas":
                # No other dtype has all of them.
                column = pd.Series([values[row] for row in keys[order]], dtype=object)
                frame[label] = column
        return Lookup(frame, xp.asarray(keys[order]), xp.asarray(asked))


def typed(values: list[Any], type_: LogicalType) -> tuple[Any, np.ndarray] | None:
    """A list as a column of the type of the index's, and a mask of the keys that it has.

    None where what the library makes of the list will do, or says what is wrong with it.
    """
    dtype = _dtype_of(type_)
    missing = np.array([_is_null(one) for one in values], bool)
    there = [one for one, null in zip(values, missing, strict=True) if not null]
    if dtype is None or not _needs(there, type_):
        return None
    objects = np.empty(len(there), object)
    objects[:] = there
    try:
        parts = parts_of(objects, "keys")
    except KeyTypeError:
        return None
    if not all(comparable(part.dtype, dtype) for _, part in parts):
        return None
    rows = np.flatnonzero(~missing)
    made, held = np.zeros(len(values), dtype), missing.copy()
    for at, part in parts:
        made[rows[at]], valid = exactly(part, dtype, np)
        held[rows[at]] = True if valid is None else valid
    if dtype.kind == "M":
        made[missing] = "NaT"
    if type_.kind == "date":
        kind = pa.date32() if type_.bits == 32 else pa.date64()
        return pd.array(pa.array(made).cast(kind), pd.ArrowDtype(kind)), held
    return (_masked(made, missing) if missing.any() and dtype.kind != "M" else made), held


def _dtype_of(type_: LogicalType) -> np.dtype[Any] | None:
    if type_.kind in NUMERIC:
        kinds = {"bool": "b1", "int": f"i{type_.bits // 8}", "uint": f"u{type_.bits // 8}"}
        return np.dtype(kinds.get(type_.kind, f"f{type_.bits // 8}"))
    moments = type_.kind in {"datetime", "date"} and not type_.aware
    return np.dtype(f"M8[{type_.unit}]") if moments else None


def _needs(values: Sequence[Any], type_: LogicalType) -> bool:
    """Whether the library would change some of them, or take none."""
    if type_.kind not in NUMERIC:
        plain = [isinstance(one, datetime.date | np.datetime64) for one in values]
        days = any(not isinstance(one, datetime.datetime | np.datetime64) for one in values)
        return all(plain) and (days or type_.kind == "date")
    whole = [int(one) for one in values if isinstance(one, int | np.integer)]
    if not whole or not all(isinstance(one, int | float | np.number) for one in values):
        return False
    low, high = min(whole), max(whole)
    beyond = low < -(2**63) or high >= 2**64 or (low < 0 and high >= 2**63)
    return beyond or (len(whole) < len(values) and max(-low, high) > _EXACT)


def _masked(values: np.ndarray, missing: np.ndarray) -> Any:
    arrays: dict[str, Any] = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
    return arrays.get(values.dtype.kind, pd.arrays.IntegerArray)(values, missing)


def _is_null(one: Any) -> bool:
    return one is None or one is pd.NA or one is pd.NaT or (isinstance(one, float) and one != one)
