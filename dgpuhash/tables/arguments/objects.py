"""Convert Python objects exactly to arrays: numbers, dates and times."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np

from dgpuhash.errors import KeyTypeError
from dgpuhash.tables.arguments.casts import cast
from dgpuhash.tables.arguments.exact import cast_exactly, comparable, unit_of

_INT64, _UINT64, _FLOAT64 = (np.dtype(name) for name in ("int64", "uint64", "float64"))
# Of pandas' NaT, which can be a date or a duration.
_NO_TIME = np.dtype("M8")
# In attoseconds.
_MONTH, _FOREVER = 2_592_000 * 10**18, 10**60

Part = tuple[np.ndarray, np.ndarray]


def array_of(sequence: Sequence[Any], what: str) -> np.ndarray:
    """Return a sequence as NumPy's array of it.

    Where NumPy would change a value, return an array of the objects instead.

    Raises
    ------
    ValueError
        When the sequence is ragged.
    KeyTypeError
        When it has complex numbers, and integers that would be rounded to complex.
    """
    try:
        data = np.asarray(sequence)
    except OverflowError:  # dates of several units; NumPy 2.5 and newer
        return _objects(sequence)
    if data.ndim != 1 or not len(data):
        return data
    if data.dtype.kind in "mM" and len({getattr(one, "dtype", None) for one in sequence}) > 1:
        return _objects(sequence)
    if data.dtype.kind not in "fc":
        return data
    whole = [isinstance(one, int | np.integer) for one in sequence]
    if all(whole) and all(one >= 0 for one in sequence):
        return np.asarray(sequence, np.uint64)
    for one, is_whole, read in zip(sequence, whole, data.tolist(), strict=True):
        if is_whole and int(one) != read:
            if data.dtype.kind == "c":
                raise _beside(what, one, read.real)
            return _objects(sequence)
    return data


def group_by_dtype(objects: np.ndarray, what: str) -> list[Part]:
    """Return the row numbers and the values of the objects of each dtype.

    A part has the objects of one NumPy dtype.

    Integers beyond all integer dtypes are in the part of floats if a float equals them, otherwise
    in no part.

    Raises
    ------
    KeyTypeError
        When an object is None, or no number, date or time; the message names the object.
    """
    rows: dict[np.dtype[Any], list[int]] = {}
    found: dict[np.dtype[Any], list[Any]] = {}
    for row, one in enumerate(objects):
        dtype, plain = _plain(one, row, what)
        if dtype is not None:
            rows.setdefault(dtype, []).append(row)
            found.setdefault(dtype, []).append(plain)
    return [(np.array(rows[dtype]), np.array(found[dtype], dtype)) for dtype in rows]


def dtype_for(objects: np.ndarray, what: str) -> np.dtype[Any]:
    """Return a dtype that represents all of the objects.

    Raises
    ------
    KeyTypeError
        When there is no such dtype.
    """
    parts = [part for _, part in group_by_dtype(objects, what)]
    dtypes = {part.dtype for part in parts if part.dtype != _NO_TIME} or {_NO_TIME}
    candidates = [_FLOAT64, _UINT64]
    if all(dtype.kind in "mM" for dtype in dtypes):
        candidates = sorted(dtypes, key=_coarseness)
    elif len(dtypes) == 1:
        candidates = list(dtypes)
    for dtype in candidates:
        if sum(map(len, parts)) == len(objects) and all(_all_fit(part, dtype) for part in parts):
            return dtype
    numbers = [one for one in objects if isinstance(one, int | np.integer)]
    for one in numbers:
        if dtypes <= {_INT64, _UINT64, _FLOAT64} and _round(one) != int(one):
            raise _beside(what, one, _round(one))
    raise KeyTypeError(
        f"{what} hold values without a common dtype ({', '.join(sorted(map(str, dtypes)))}); "
        "pass an array of one dtype"
    )


def objects_as_dtype(objects: np.ndarray, dtype: np.dtype[Any], what: str) -> np.ndarray:
    """Return the objects as an array of `dtype`; only floats are rounded.

    Raises
    ------
    KeyTypeError
        When `dtype` does not hold an object; the message names the object.
    """
    made = np.zeros(len(objects), dtype)
    missing = np.ones(len(objects), bool)
    for rows, part in group_by_dtype(objects, what):
        fitted, valid = cast_rounding_floats(part, dtype, what)
        made[rows] = fitted
        missing[rows] = False if valid is None else ~valid
    if missing.any():
        row = int(missing.argmax())
        one = objects[row]
        if dtype.kind == "f" and isinstance(one, int | np.integer):
            raise _beside(what, one, _round(one, dtype))
        raise KeyTypeError(
            f"{what} hold {one!r} at position {row}, which {dtype} cannot represent; leave it out, "
            "or make the table with another dtype (.astype would change or refuse it)"
        )
    return made


def cast_rounding_floats(
    values: np.ndarray, dtype: np.dtype[Any], what: str
) -> tuple[np.ndarray, Any]:
    """Return Python values as `dtype`, as `cast_exactly` does, but round floats.

    A float becomes the nearest one of `dtype`.

    So 0.1 can be a float32; a finite float that would become infinite is not exact.

    Raises
    ------
    KeyTypeError
        When values of the two dtypes are never equal.
    """
    source = values.dtype
    if source == _NO_TIME and dtype.kind in "mM":
        return values.view(np.int64).view(dtype), None
    if not comparable(source, dtype):
        return cast(values, dtype, what), None
    if source.kind == "f" and dtype.kind == "f":
        with np.errstate(over="ignore"):
            made = values.astype(dtype)
        return made, np.isfinite(made) | ~np.isfinite(values)
    return cast_exactly(values, dtype, np)


def _objects(sequence: Sequence[Any]) -> np.ndarray:
    made = np.empty(len(sequence), object)
    made[:] = list(sequence)
    return made


def _all_fit(values: np.ndarray, dtype: np.dtype[Any]) -> bool:
    if values.dtype == _NO_TIME:
        return True
    if not comparable(values.dtype, dtype):
        return False
    valid = cast_exactly(values, dtype, np)[1]
    return valid is None or bool(valid.all())


def _coarseness(dtype: np.dtype[Any]) -> int:
    """Return the length of a time unit; a month counts as 30 days."""
    length, months = unit_of(dtype) or (_FOREVER, False)
    return length * _MONTH if months else length


def _plain(one: Any, row: int, what: str) -> tuple[np.dtype[Any] | None, Any]:
    """Return an object's NumPy dtype, and its value in that dtype."""
    if isinstance(one, np.datetime64 | np.timedelta64 | np.floating | np.bool_):
        return one.dtype, one
    if isinstance(one, bool):
        return np.dtype(bool), one
    if isinstance(one, float):
        return _FLOAT64, one
    if isinstance(one, int | np.integer):
        return _integer(int(one))
    if isinstance(one, datetime.date | datetime.timedelta):
        return _time(one, row, what)
    if one is None or type(one).__name__ == "NAType":
        raise KeyTypeError(
            f"{what} hold {one} at position {row}, and a table has no null key or value; leave it "
            f"out (of a list, [one for one in {what} if one is not {one}], of an array, "
            f"{what}[pandas.notna({what})].astype(…)), or use dgpuhash.FrameIndex, which matches "
            "nulls as pandas does"
        )
    raise KeyTypeError(
        f"{what} hold {one!r} at position {row}, a {type(one).__name__}, which has no fixed-size "
        "NumPy form; convert them with .astype, or use dgpuhash.FrameIndex for text"
    )


def _integer(one: int) -> tuple[np.dtype[Any] | None, Any]:
    if -(2**63) <= one < 2**63:
        return _INT64, one
    if 0 <= one < 2**64:
        return _UINT64, one
    real = _round(one)
    return (_FLOAT64, real) if real == one else (None, None)


def _time(one: Any, row: int, what: str) -> tuple[np.dtype[Any], Any]:
    if one != one:
        return _NO_TIME, np.datetime64("NaT")
    if getattr(one, "tzinfo", None) is not None:
        raise KeyTypeError(
            f"{what} hold {one!r} at position {row}, and a table has no time zones; give all of "
            "them in UTC and without a zone (.astimezone(datetime.UTC).replace(tzinfo=None))"
        )
    for method in ("to_datetime64", "to_timedelta64"):
        if hasattr(one, method):
            plain = getattr(one, method)()
            return plain.dtype, plain
    if isinstance(one, datetime.timedelta):
        plain = np.timedelta64(one, "us")
    else:
        plain = np.datetime64(one, "us" if isinstance(one, datetime.datetime) else "D")
    return plain.dtype, plain


def _round(one: Any, dtype: np.dtype[Any] = _FLOAT64) -> float:
    try:
        with np.errstate(over="ignore"):
            return float(dtype.type(float(one)))
    except OverflowError:
        return float("inf") if one > 0 else float("-inf")


def _beside(what: str, one: Any, real: float) -> KeyTypeError:
    return KeyTypeError(
        f"{what} hold {one} beside what only floats hold, as which it is {real:.0f}; pass an array "
        f"of one dtype, or leave it out (.astype would round it)"
    )
