"""Convert numbers and times to another dtype exactly.

Functions return a mask of the values that the other dtype holds.
"""

from __future__ import annotations

import functools
import math
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.tables.arguments.casts import as_float

_MOST = 2**63 - 1
_NAT = -(2**63)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15}
_SECONDS = {"W": 604_800, "D": 86_400, "h": 3_600, "m": 60}
_MONTHS = {"Y": 12, "M": 1}
_ATTOSECONDS = (
    {unit: 10**18 * seconds for unit, seconds in _SECONDS.items()}
    | {unit: 10**18 // parts for unit, parts in _PER_SECOND.items()}
    | {"as": 1}
)
_DAY = _ATTOSECONDS["D"]
# Period of the Gregorian calendar.
_CYCLE_MONTHS, _CYCLE_DAYS = 4_800, 146_097

Unit = tuple[int, bool]


def comparable(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Return whether values of two dtypes can be equal.

    They can if both are numbers, dates, or durations of like units.

    Examples
    --------
    >>> comparable(np.dtype("bool"), np.dtype("float32"))
    True
    >>> comparable(np.dtype("M8[M]"), np.dtype("M8[D]"))
    True
    >>> comparable(np.dtype("m8[M]"), np.dtype("m8[D]"))
    False
    """
    if {source.kind, target.kind} <= set("biuf"):
        return True
    if source.kind != target.kind or source.kind not in "mM":
        return False
    ours, theirs = unit_of(source), unit_of(target)
    # A duration of a month has no fixed number of days.
    return source.kind == "M" or ours is None or theirs is None or ours[1] == theirs[1]


def cast_exactly(values: Any, target: np.dtype[Any], xp: ModuleType) -> tuple[Any, Any]:
    """Return native numbers or dates as `target`, and a mask of the exact ones.

    The mask is true where `target` holds the value; None if it holds all of them.

    Values are compared as numbers: nothing is rounded, nothing wraps around. Only floats hold NaN,
    -0.0 equals 0.0, and NaT stays NaT. Elements where the mask is False have no meaning.

    Examples
    --------
    >>> cast_exactly(np.array([2.0, 2.5, 300.0]), np.dtype("int8"), np)
    (array([2, 0, 0], dtype=int8), array([ True, False, False]))
    >>> cast_exactly(np.array([1], "M8[s]"), np.dtype("M8[ns]"), np)[0].astype(int)
    array([1000000000])
    """
    source = values.dtype
    if source == target:
        return values, None
    if target.kind in "mM":
        ints, valid = convert_times(values.view(np.int64), unit_of(source), unit_of(target), xp)
        return ints.view(target), valid
    if target.kind == "f":
        return _as_float(values, target, xp)
    return _as_integer(values, target, xp)


def float_bound(integers: np.dtype[Any]) -> float:
    """Return the first number beyond the range of an integer dtype.

    A float may round the dtype's largest number to it.
    """
    return float(2.0 ** (8 * integers.itemsize - (integers.kind == "i")))


def _as_float(values: Any, target: np.dtype[Any], xp: ModuleType) -> tuple[Any, Any]:
    source = values.dtype
    made = as_float(values, target)
    if source.kind in "iu":
        wide = made.astype(np.float64)
        fits = xp.isfinite(wide) & (wide < float_bound(source))
        return made, fits & (xp.where(fits, wide, 0.0).astype(source) == values)
    if source.kind == "f" and source.itemsize > target.itemsize:
        wide = _widen(values)
        return made, (_widen(made) == wide) | xp.isnan(wide)
    return made, None


def _widen(values: Any) -> Any:
    """Return floats as float64, or wider ones unchanged."""
    return values if values.dtype.itemsize >= 8 else as_float(values, np.dtype(np.float64))


def _as_integer(values: Any, target: np.dtype[Any], xp: ModuleType) -> tuple[Any, Any]:
    source = values.dtype
    if source.kind == "b":
        return values.astype(target), None
    low, high = (0, 1) if target.kind == "b" else (np.iinfo(target).min, np.iinfo(target).max)
    low, high = int(low), int(high)
    if source.kind == "f":
        wide = _widen(values)
        valid = (xp.floor(wide) == wide) & (wide >= float(low)) & (wide < float(high + 1))
        return xp.where(valid, wide, wide.dtype.type(0)).astype(target), valid
    own, valid = np.iinfo(source), None
    if int(own.min) < low:
        valid = values >= source.type(low)
    if int(own.max) > high:
        below = values <= source.type(high)
        valid = below if valid is None else valid & below
    return values.astype(target), valid


def unit_of(dtype: np.dtype[Any]) -> Unit | None:
    """Return the length of a time unit, and whether it is in months.

    The length is in attoseconds or in months. None for a dtype without a unit.

    Examples
    --------
    >>> unit_of(np.dtype("M8[10us]")), unit_of(np.dtype("M8[Y]"))
    ((10000000000000, False), (12, True))
    """
    name, multiple = np.datetime_data(dtype)
    if name in _MONTHS:
        return multiple * _MONTHS[name], True
    return (multiple * _ATTOSECONDS[name], False) if name in _ATTOSECONDS else None


def convert_times(
    ints: Any, source: Unit | None, target: Unit | None, xp: ModuleType
) -> tuple[Any, Any]:
    """Return times (int64) in another unit, and a mask of the exact ones.

    Months of dates are calendar months. The least int64 is NaT in both units. The mask is None if
    all times are exact.
    """
    if source == target or source is None or target is None:
        return ints, None
    steps: list[Any]
    if source[1] == target[1]:
        steps = [_Scaled(source[0], target[0])]
    elif source[1]:
        steps = [_Scaled(source[0], 1), _days_of_months, _Scaled(_DAY, target[0])]
    else:
        steps = [_Scaled(source[0], _DAY), _months_of_days, _Scaled(1, target[0])]
    nat = ints == _NAT
    made, valid = xp.where(nat, 0, ints), None
    for step in steps:
        made, exact = step(made, xp)
        valid = exact if valid is None else valid & exact
        made = xp.where(exact, made, 0)
    return xp.where(nat, _NAT, made), valid | nat


class _Scaled(NamedTuple):
    """Conversion by a multiplication and a division."""

    by: int
    over: int

    def __call__(self, ints: Any, xp: ModuleType) -> tuple[Any, Any]:
        shared = math.gcd(self.by, self.over)
        by, over = self.by // shared, self.over // shared
        if over > _MOST or by > _MOST:
            return ints, ints == 0
        quotient = ints // over if over > 1 else ints
        limit = _MOST // by
        valid = (quotient >= -limit) & (quotient <= limit)
        if over > 1:
            valid &= quotient * over == ints
        return xp.where(valid, quotient, 0) * by, valid


def _days_of_months(months: Any, xp: ModuleType) -> tuple[Any, Any]:
    cycles = months // _CYCLE_MONTHS
    limit = _MOST // _CYCLE_DAYS - 1
    valid = (cycles >= -limit) & (cycles <= limit)
    first_days = xp.asarray(_first_days())
    days = first_days[months - cycles * _CYCLE_MONTHS]
    return xp.where(valid, cycles, 0) * _CYCLE_DAYS + days, valid


def _months_of_days(days: Any, xp: ModuleType) -> tuple[Any, Any]:
    cycles = days // _CYCLE_DAYS
    months = np.full(_CYCLE_DAYS, -1)
    months[_first_days()] = np.arange(_CYCLE_MONTHS)
    found = xp.asarray(months)[days - cycles * _CYCLE_DAYS]
    return cycles * _CYCLE_MONTHS + found, found >= 0


@functools.cache
def _first_days() -> np.ndarray:
    """Return the day on which each month of a calendar cycle begins."""
    return np.arange(_CYCLE_MONTHS).astype("M8[M]").astype("M8[D]").astype(np.int64)
