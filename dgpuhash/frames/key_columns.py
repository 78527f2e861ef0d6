"""Key columns in a form independent of the DataFrame library, with exact casts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from dgpuhash.errors import KeyTypeError
from dgpuhash.tables.arguments.exact import cast_exactly, convert_times, unit_of

NUMERIC = frozenset({"bool", "int", "uint", "float"})
_TIME_UNITS = {(64, unit) for unit in ("s", "ms", "us", "ns")}
# The widths (bits) and units that key columns of each kind can have.
WIDTHS_AND_UNITS = {
    "bool": {(1, "")},
    "int": {(bits, "") for bits in (8, 16, 32, 64)},
    "uint": {(bits, "") for bits in (8, 16, 32, 64)},
    "float": {(32, ""), (64, "")},
    "datetime": _TIME_UNITS,
    "timedelta": _TIME_UNITS,
    "date": {(32, "D"), (64, "ms")},
    "string": {(0, "")},
}
# How a dtype marks missing values: NaN or NaT among the values, a mask, or Arrow's validity bits.
PLAIN, MASKED, ARROW = "", "mask", "arrow"


class IncomparableError(KeyTypeError, ValueError):
    """Keys of two dtypes that can never be equal."""


@dataclass(frozen=True, slots=True)
class LogicalType:
    """Type of the values in a key column, whatever library stores them.

    Attributes
    ----------
    kind : str
        ``bool int uint float datetime timedelta date string``, or ``null`` for a column of nulls
        only, which compares with everything.
    bits : int
        Width of a value; 0 for strings.
    unit : str
        Unit of datetimes, timedeltas and dates: ``D s ms us ns``.
    aware : bool
        Whether the datetimes carry a time zone (their values are UTC).
    nullable : bool
        Whether nulls may occur that no pattern of `bits` bits represents. False for datetimes and
        NumPy's floats, whose null is one of their own bit patterns.
    missing : str
        How numbers mark missing values: `PLAIN`, `MASKED` or `ARROW`. With `MASKED` and `ARROW` a
        float NaN is an ordinary value, and a different key from a null.
    """

    kind: str
    bits: int = 0
    unit: str = ""
    aware: bool = False
    nullable: bool = False
    missing: str = PLAIN

    @property
    def nan_is_value(self) -> bool:
        """Whether NaN and null are different keys, although their codes are equal."""
        return self.kind == "float" and self.nullable

    @property
    def flag_bits(self) -> int:
        """Extra bits that a packed key needs to mark a null: 0 or 1."""
        return int(self.nullable and not self.nan_is_value)

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of plain values for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> LogicalType:
        """Return the type that `to_json` described.

        Raises TypeError or ValueError when `saved` describes no type of a key column.
        """
        made = cls(**saved)
        kinds = str, int, str, bool, bool, str
        fields = made.kind, made.bits, made.unit, made.aware, made.nullable, made.missing
        plain = all(type(field) is kind for field, kind in zip(fields, kinds, strict=True))
        plain = plain and made.missing in {PLAIN, MASKED, ARROW}
        plain = plain and (not made.aware or made.kind == "datetime")
        if not plain or (made.bits, made.unit) not in WIDTHS_AND_UNITS.get(made.kind, ()):
            raise ValueError(f"no key column is {saved!r}")
        return made

    def __str__(self) -> str:
        width = str(self.bits) if self.kind in {"int", "uint", "float"} else ""
        unit = f"[{self.unit}]" if self.unit else ""
        return f"{self.kind}{width}{unit}" + (" with time zone" if self.aware else "")


class StringColumn(Protocol):
    """Protocol of a string column that can be hashed, gathered and compared."""

    @property
    def nulls(self) -> Any:
        """Mask of the nulls, or None when there are none."""

    def __len__(self) -> int: ...

    def hash(self, seed: int) -> Any:
        """Return a 64-bit hash of each string; nulls give a constant."""

    def over(self, codes: Any) -> StringColumn:
        """Return the strings at `codes`; -1 gives a null."""

    def take(self, rows: Any) -> StringColumn:
        """Return the strings at positions `rows`."""

    def equals(self, other: Any) -> Any:
        """Return a mask of the positions with equal strings; two nulls are equal."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """Key column of a frame: values or strings, type and null mask.

    `values` are None for a string column, and `strings` for any other; `nulls` is None where no
    value is null. Dates and times are signed integers in the unit of `type`. `values` are undefined
    where `nulls` is True. `objects` says that pandas compares the values as objects, for which NaN
    and all nulls are the same key.
    """

    type: LogicalType
    values: Any = None
    nulls: Any = None
    strings: StringColumn | None = None
    objects: bool = False

    def __len__(self) -> int:
        return len(self.values if self.strings is None else self.strings)

    def take(self, rows: Any) -> KeyColumn:
        """Return the keys at positions `rows`."""
        strings = None if self.strings is None else self.strings.take(rows)
        taken = _at(self.values, rows), _at(self.nulls, rows)
        return KeyColumn(self.type, *taken, strings, self.objects)

    def over(self, codes: Any) -> KeyColumn:
        """Return the keys of rows by category codes; -1 gives a null."""
        if self.strings is not None:
            strings = self.strings.over(codes)
            return KeyColumn(self.type, nulls=strings.nulls, strings=strings)
        absent = codes < 0
        at = codes * ~absent
        picked = self.values[at] if len(self) else at.astype(self.values.dtype)
        if self.nulls is not None:
            absent = absent | self.nulls[at]
        return KeyColumn(self.type, picked, absent if bool(absent.any()) else None)


@dataclass(frozen=True, slots=True)
class NormalColumn:
    """Key column cast to the type of the index column for comparison.

    Equal keys have equal `bits` (unsigned, as wide as the index column) and equal `nulls`. A query
    with `one_null`, where a float's NaN equals a null, does not compare `nulls`. Rows where `valid`
    is False hold a value that the index column cannot hold, so they match nothing.
    """

    type: LogicalType
    bits: Any = None
    nulls: Any = None
    valid: Any = None
    strings: StringColumn | None = None
    one_null: bool = False

    def take(self, rows: Any) -> NormalColumn:
        """Return the keys at positions `rows`."""
        strings = None if self.strings is None else self.strings.take(rows)
        bits, nulls, valid = (_at(each, rows) for each in (self.bits, self.nulls, self.valid))
        return NormalColumn(self.type, bits, nulls, valid, strings, self.one_null)

    def equal_at(self, rows: Any, other: NormalColumn, other_rows: Any) -> Any:
        """Return a mask of the positions where this column equals `other`.

        Compares this column at `rows` with `other` at `other_rows`; None in place of rows means all
        rows, in order. This column belongs to the query, `other` to the index.
        """
        if self.strings is not None and other.strings is not None:
            ours, theirs = self.strings, other.strings
            return (ours if rows is None else ours.take(rows)).equals(
                theirs if other_rows is None else theirs.take(other_rows)
            )
        same = _at(self.bits, rows) == _at(other.bits, other_rows)
        for column, at in ((self, rows), (other, other_rows)):
            if column.valid is not None:
                same &= _at(column.valid, at)
        if self.one_null:
            return same
        ours, theirs = _at(self.nulls, rows), _at(other.nulls, other_rows)
        if ours is None and theirs is None:
            return same
        if ours is None or theirs is None:
            return same & ~(theirs if ours is None else ours)
        return same & (ours == theirs)


def _at(array: Any, rows: Any) -> Any:
    return array if array is None or rows is None else array[rows]


def check_comparable(name: object, index: LogicalType, query: LogicalType) -> None:
    """Raise KeyTypeError if query values can never equal index values.

    Raises
    ------
    KeyTypeError
        The message gives both types and the cast that helps.
    """
    if query.kind == "null" or index.kind == "null":
        return
    same_kind = index.kind == query.kind or {index.kind, query.kind} <= NUMERIC
    if same_kind and index.aware == query.aware:
        return
    if same_kind:
        remedy = "give both a time zone (Series.dt.tz_localize) or neither"
    elif index.kind == "string":
        remedy = "convert the column with .astype('str')"
    elif index.kind == "date":
        remedy = "convert the column with pandas.to_datetime(…).astype('date32[day][pyarrow]')"
    else:
        remedy = f"convert the column to {index}, with astype, pandas.to_numeric or to_datetime"
    raise KeyTypeError(
        f"key column {name!r} holds {query}, and the index column it is compared with holds "
        f"{index}; {remedy}"
    )


def normalise(column: KeyColumn, target: LogicalType, xp: ModuleType) -> NormalColumn:
    """Return `column` cast exactly to `target`: nothing is rounded or wrapped.

    Integers, floats and booleans compare by value, datetimes by instant. Unlike pandas, which
    compares 64-bit integers with floats after rounding both to float64, a large integer equals a
    float only when they are the same number. As in pandas, the two dtypes determine whether a
    float's NaN equals a null.
    """
    nulls = column.nulls
    own = column.type is target and target.kind in {"int", "uint"}
    if own and (nulls is None or target.nullable):
        values = column.values
        if nulls is not None:
            values = xp.where(nulls, values.dtype.type(0), values)
        return NormalColumn(target, _as_unsigned(values, xp), nulls)
    if target.kind == "null":
        rows = len(column)
        return NormalColumn(target, xp.zeros(rows, xp.uint64), valid=xp.zeros(rows, bool))
    if target.kind == "string" and column.strings is not None:
        return NormalColumn(target, strings=column.strings, nulls=column.strings.nulls)
    if column.type.kind == "null":
        return _all_null(column, target, xp)
    values, valid, nans = column.values, None, None
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
    bits = _as_unsigned(values, xp)
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


def _as_unsigned(values: Any, xp: ModuleType) -> Any:
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
    bits = _as_unsigned(xp.full(n, 0 if pattern is None else pattern, dtype=dtype), xp)
    if target.nullable:
        return NormalColumn(target, bits=bits, nulls=missing, one_null=target.nan_is_value)
    return NormalColumn(target, bits=bits, valid=None if pattern is not None else ~missing)


def to_float(values: Any, bits: int, xp: ModuleType) -> tuple[Any, Any]:
    """Return `values` as floats of `bits`, and a mask of the exact ones or None.

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
