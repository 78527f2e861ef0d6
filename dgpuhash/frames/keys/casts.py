"""Exact casts of key values to the index's types, with a validity mask."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from dgpuhash.frames.key_columns import PLAIN, KeyColumn, LogicalType, NormalColumn
from dgpuhash.tables.arguments.exact import cast_exactly, convert_times, unit_of


def normalise(column: KeyColumn, target: LogicalType, xp: ModuleType) -> NormalColumn:
    """Return `column` cast exactly to `target`: nothing is rounded or wrapped.

    Integers, floats and booleans compare by value, datetimes by instant. Unlike pandas, which
    compares 64-bit integers with floats after rounding both to float64, a large integer equals a
    float only when they are the same number. As in pandas, the two dtypes determine whether a
    float's NaN equals a null.
    """
    if target.kind == "null":
        rows = len(column)
        return NormalColumn(target, xp.zeros(rows, xp.uint64), valid=xp.zeros(rows, bool))
    if target.kind == "string" and column.strings is not None:
        return NormalColumn(target, strings=column.strings, nulls=column.strings.nulls)
    if column.type.kind == "null":
        return _all_null(column, target, xp)
    values, nulls, valid, nans = column.values, column.nulls, None, None
    one_null = _compares_as_objects(column, target)
    if column.type.nan_is_value and (one_null or not target.nullable):
        nans = xp.isnan(values)
        if one_null:
            nulls = nans if nulls is None else nulls | nans
        elif nulls is not None:
            nans &= ~nulls
    if target.kind == "float":
        values, valid = to_float(values, target.bits, xp)
        if nans is not None and not one_null:
            valid = ~nans if valid is None else valid & ~nans
    elif target.kind in {"int", "uint", "bool"}:
        values, valid = _to_integer(values, target, xp)
    else:
        values, valid = _to_unit(values, column.type.unit, target, xp)
    if nulls is not None:
        if target.nullable:
            pattern = _null_pattern(target) or 0
            values = xp.where(nulls, values.dtype.type(pattern), values)
            valid = None if valid is None else valid | nulls
        elif _null_pattern(target) is None:
            valid = ~nulls if valid is None else valid & ~nulls
            nulls = None
        else:
            values = xp.where(nulls, values.dtype.type(_null_pattern(target)), values)
            valid = None if valid is None else valid | nulls
            nulls = None
    one_null = one_null and target.nan_is_value
    bits = _unsigned(values, xp)
    return NormalColumn(target, bits=bits, nulls=nulls, valid=valid, one_null=one_null)


def _compares_as_objects(column: KeyColumn, target: LogicalType) -> bool:
    """Return whether pandas compares the columns as objects.

    NaN and all nulls are the same key then.
    """
    own = column.type.missing
    mixed = own != target.missing and PLAIN not in {own, target.missing}
    return column.objects or mixed or "bool" in {column.type.kind, target.kind}


def _null_pattern(target: LogicalType) -> float | int | None:
    if target.kind == "float":
        return float("nan")
    if target.kind in {"datetime", "timedelta", "date"}:
        return -(2 ** (target.bits - 1))
    return None


def _unsigned(values: Any, xp: ModuleType) -> Any:
    if values.dtype.kind == "u":
        return values
    return values.view(xp.dtype(f"u{values.dtype.itemsize}"))


def _all_null(column: KeyColumn, target: LogicalType, xp: ModuleType) -> NormalColumn:
    n = len(column)
    missing = xp.ones(n, dtype=bool)
    if target.kind == "string":
        return NormalColumn(target, strings=column.strings, nulls=missing)
    dtype = xp.dtype(f"{'f' if target.kind == 'float' else 'i'}{max(target.bits, 8) // 8}")
    pattern = _null_pattern(target)
    bits = _unsigned(xp.full(n, 0 if pattern is None else pattern, dtype=dtype), xp)
    if target.nullable:
        return NormalColumn(target, bits=bits, nulls=missing, one_null=target.nan_is_value)
    return NormalColumn(target, bits=bits, valid=None if pattern is not None else ~missing)


def to_float(values: Any, bits: int, xp: ModuleType) -> tuple[Any, Any]:
    """Return `values` as floats of `bits`, and a mask of exact ones or None.

    None when all values are exact.
    """
    dtype = xp.dtype(f"f{bits // 8}")
    rounded, valid = cast_exactly(values, dtype, xp)
    # Adding zero turns -0.0 into 0.0; every NaN becomes the one NaN.
    rounded = rounded + dtype.type(0)
    return xp.where(xp.isnan(rounded), dtype.type(float("nan")), rounded), valid


def _to_integer(values: Any, target: LogicalType, xp: ModuleType) -> tuple[Any, Any]:
    if target.kind == "bool":
        made, valid = cast_exactly(values, xp.dtype(bool), xp)
        return made.view(xp.dtype("u1")), valid
    return cast_exactly(values, xp.dtype(f"{target.kind[0]}{target.bits // 8}"), xp)


def _to_unit(values: Any, unit: str, target: LogicalType, xp: ModuleType) -> tuple[Any, Any]:
    wide = values.astype(xp.int64, copy=False)
    own, wanted = (unit_of(np.dtype(f"M8[{each}]")) for each in (unit, target.unit))
    wide, valid = convert_times(wide, own, wanted, xp)
    narrow, fits = cast_exactly(wide, xp.dtype(f"i{target.bits // 8}"), xp)
    if fits is not None:
        valid = fits if valid is None else valid & fits
    return narrow, valid
