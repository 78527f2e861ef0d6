"""Key columns, independent of the DataFrame library that holds them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

from dgpuhash.errors import KeyTypeError

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
    """Keys of two dtypes that are never equal."""


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
    """Key column as read from a frame: values or strings, type and null mask.

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
        """Return the keys of rows whose categories these are, by codes; -1 gives a null."""
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
    """Key column cast to the type of the index column it is compared with.

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
    """Raise KeyTypeError when query values can never equal index values.

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
