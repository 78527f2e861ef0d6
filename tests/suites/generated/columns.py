"""Columns of every dtype: drawn as Python values, and read back as Python values.

A `Value` is what a row holds, whatever the library holds it in: integers are Python ints, moments
are nanoseconds since 1970, and no value passes through another type on its way.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

__all__ = ["KINDS", "NAN", "NULL", "Column", "Kind", "Value", "draw_column", "draw_pool", "read"]

UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
NAN = "nan"
ZONE = "Europe/Berlin"
_DAY = 86_400 * 10**9
_EPOCH = datetime.date(1970, 1, 1)


class Value(NamedTuple):
    """A value of a row.

    Attributes
    ----------
    domain : str
        Values of two domains never match.
    value : Any
        Equal and ordered by exact value within a domain; numbers are int, float, bool or Decimal.
    type : str
        What kind of object it is within its domain, as an int is not a float.
    """

    domain: str
    value: Any
    type: str

    @property
    def key(self) -> tuple[str, Any]:
        """What must be equal for two keys to match."""
        return self.domain, self.value


NULL = Value("null", None, "null")

# Values of each domain. Small ones first: they are drawn more often.
POOLS: dict[str, list[Any]] = {
    "number": [
        0, 1, 2, -1, 3, 0.5, 127, 255, -128, 2**53, 2**53 + 1, -(2**53) - 1, 2**24 + 1, 1.25,
        2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**62 + 1, 0.1, float(np.float32(0.1)), -2.5, 2**70,
        math.inf, -math.inf, NAN,
    ],
    "text": ["a", "b", "", "ab", "1", "ä€", "\0b", "a\0", "True", "2020-02-29", "NaN", "None"],
    "bytes": [b"a", b"b", b"", b"ab", b"1", b"\xff", b"\0b", b"a\0"],
    "naive": [
        0, _DAY, 18_321 * _DAY, 18_321 * _DAY + 10**9, 18_321 * _DAY + 1, 10**6, -1_000,
        -25_567 * _DAY, 106_750 * _DAY, 2**62 + 1, -(2**62) - 1, -719_162 * _DAY, 2_932_896 * _DAY,
    ],
    "span": [
        0, 10**9, _DAY, 1, -1, 10**6, -_DAY, 1_000, 2**53 + 1, 2**62 + 1, 106_750 * _DAY,
        4_000_000 * _DAY,
    ],
    "date": [0, 1, 18_321, 18_322, -1, -719_162, 2_932_896],
    "period": [0, 1, -1, 602, 24_000],
}  # fmt: skip
POOLS["zoned"] = POOLS["naive"]


@dataclass(frozen=True)
class Kind:
    """A dtype, and how a column of it is made.

    Attributes
    ----------
    name : str
    domains : tuple of str
    code : str
        Python code of the column, with ``{}`` for the list of its objects.
    thing : callable
        The object in that list for a value of a domain.
    holds : callable
        Whether a value fits the dtype without being changed.
    nullable : bool
    """

    name: str
    domains: tuple[str, ...]
    code: str
    thing: Callable[[str, Any], Any]
    holds: Callable[[Any], bool] = field(default=lambda _: True)
    nullable: bool = True

    def pool(self, domain: str, values: Sequence[Any]) -> list[Any]:
        """Return those of some values that it holds."""
        return [value for value in values if domain in self.domains and self.holds(value)]

    def source(self, drawn: Sequence[tuple[str, Any] | None]) -> str:
        """Return the code of a column with these values."""
        things = [None if pair is None else self.thing(*pair) for pair in drawn]
        return self.code.format("[" + ", ".join(map(shown, things)) + "]")


NAMES: dict[str, Any] = {
    "np": np, "pd": pd, "pa": pa, "datetime": datetime, "Decimal": Decimal, "nan": math.nan,
    "inf": math.inf,
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column that is drawn.

    Attributes
    ----------
    kind : str
    drawn : tuple of pair or None
        A domain and a value of it for each row, or None for null.
    """

    kind: str
    drawn: tuple[tuple[str, Any] | None, ...]

    def __str__(self) -> str:
        return KINDS[self.kind].source(self.drawn)

    def series(self) -> pd.Series:
        """Return the column."""
        made: pd.Series = eval(str(self), NAMES)
        return made

    def kept(self, rows: Sequence[int]) -> Column:
        """Return the column with some of its rows."""
        return Column(self.kind, tuple(self.drawn[row] for row in rows))


def shown(thing: Any) -> str:
    """Return the code of an object in a list."""
    if isinstance(thing, pd.Timestamp):
        unit, zone = thing.unit, f", tz={ZONE!r}" if thing.tz is not None else ""
        # An integer of a zone is one of UTC.
        return f"pd.Timestamp({thing._value}, unit={unit!r}{zone}).as_unit({unit!r})"
    if isinstance(thing, pd.Timedelta):
        return f"pd.Timedelta({thing._value}, unit={thing.unit!r}).as_unit({thing.unit!r})"
    if isinstance(thing, pd.Period):
        return f"pd.Period(ordinal={thing.ordinal}, freq={thing.freqstr!r})"
    return repr(thing)


def _itself(domain: str, value: Any) -> Any:
    return math.nan if value is NAN else value


def _float(domain: str, value: Any) -> Any:
    return math.nan if value is NAN else float(value)


def _object(domain: str, value: Any) -> Any:
    """Return the object that pandas holds a value as."""
    if domain in ("naive", "zoned", "span"):
        unit = next(unit for unit, size in UNITS.items() if value % size == 0 and fits(value, unit))
        ticks = value // UNITS[unit]
        if domain == "span":
            return pd.Timedelta(np.timedelta64(ticks, unit))
        stamp = pd.Timestamp(np.datetime64(ticks, unit))
        return stamp if domain == "naive" else stamp.tz_localize("UTC").tz_convert(ZONE)
    if domain == "date":
        return _EPOCH + datetime.timedelta(days=value)
    if domain == "period":
        return pd.Period(ordinal=value, freq="M")
    return _itself(domain, value)


def _decimal(domain: str, value: Any) -> Decimal:
    return Decimal(value)


def _ticks(unit: str) -> Callable[[str, Any], Any]:
    return lambda _, value: value // UNITS[unit]


def fits(value: Any, unit: str) -> bool:
    """Return whether nanoseconds are a whole number of a unit, in 64 bits and below year 10000."""
    return (
        value % UNITS[unit] == 0
        and abs(value // UNITS[unit]) < 2**63 - 1
        and (unit == "ns" or abs(value) < 2**62 * 1_000)
    )


def _is_whole(value: Any) -> bool:
    return value is not NAN and not math.isinf(value) and value == int(value)


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: _is_whole(value) and low <= value <= high


def _floating(dtype: Any) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        if value is NAN or math.isinf(value):
            return True
        near = dtype(value)
        return bool((int(near) if isinstance(value, int) else float(near)) == value)

    return holds


def _decimals(precision: int, scale: int) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        if value is NAN or math.isinf(value):
            return False
        scaled = Decimal(value).scaleb(scale) if abs(value) < 2**65 else Decimal("0.5")
        return scaled == int(scaled) and abs(scaled) < 10**precision

    return holds


def _numbers() -> list[Kind]:
    number, kinds = ("number",), []
    for bits in (8, 16, 32, 64):
        for sign, low, high in (
            ("int", -(2 ** (bits - 1)), 2 ** (bits - 1) - 1), ("uint", 0, 2**bits - 1),
        ):  # fmt: skip
            holds, name = _whole(low, high), f"{sign}{bits}"
            masked = name.replace("int", "Int").replace("u", "U")
            kinds += [
                Kind(name, number, f"pd.Series({{}}, dtype={name!r})", _int, holds, nullable=False),
                Kind(masked, number, f"pd.Series({{}}, dtype={masked!r})", _int, holds),
                _arrow(f"{name}()", number, _int, holds),
            ]
    for name, masked, arrow, dtype in (
        ("float32", "Float32", "float32()", np.float32),
        ("float64", "Float64", "float64()", np.float64),
    ):
        holds = _floating(dtype)
        code = f"pd.Series([np.nan if v is None else v for v in {{}}], dtype={name!r})"
        kinds.append(Kind(name, number, code, _float, holds))
        code = (
            f"(lambda v: pd.Series(pd.arrays.FloatingArray(np.array([0 if x is None else x for x "
            f"in v], {name!r}), np.array([x is None for x in v], bool))))({{}})"
        )
        kinds.append(Kind(masked, number, code, _float, holds))
        kinds.append(_arrow(arrow, number, _float, holds))
    bools = _whole(0, 1)
    kinds += [
        Kind("bool", number, "pd.Series({}, dtype='bool')", _bool, bools, nullable=False),
        Kind("boolean", number, "pd.Series({}, dtype='boolean')", _bool, bools),
        _arrow("bool_()", number, _bool, bools),
        _arrow("decimal128(38, 2)", number, _decimal, _decimals(38, 2)),
        _arrow("decimal128(20, 0)", number, _decimal, _decimals(20, 0)),
        _objects("object int", number, _int, _is_whole),
        _objects("object bool", number, _bool, bools),
        _objects("object float", number, _float, lambda v: v is not NAN and _floating(float)(v)),
        _objects("object number", number, _itself, lambda v: v is not NAN),
        _objects("object decimal", number, _decimal, _decimals(30, 4)),
    ]
    return kinds


def _int(domain: str, value: Any) -> int:
    return int(value)


def _bool(domain: str, value: Any) -> bool:
    return bool(value)


def _arrow(arrow: str, domains: tuple[str, ...], thing: Any, holds: Any = lambda _: True) -> Kind:
    # Not from floats: pandas takes their NaN for null.
    code = f"pd.Series(pd.array(pa.array({{}}, pa.{arrow}), dtype=pd.ArrowDtype(pa.{arrow})))"
    return Kind(f"arrow {arrow}", domains, code, thing, holds)


def _objects(name: str, domains: tuple[str, ...], thing: Any, holds: Any = lambda _: True) -> Kind:
    return Kind(name, domains, "pd.Series({}, dtype=object)", thing, holds)


def _moments() -> list[Kind]:
    kinds = []
    for unit in UNITS:
        holds = _fits_unit(unit)
        ticks = f"np.array([-2**63 if v is None else v for v in {{}}], 'i8').view('%s8[{unit}]')"
        zoned = f".dt.tz_localize('UTC').dt.tz_convert({ZONE!r})"
        kinds += [
            Kind(f"M8[{unit}]", ("naive",), f"pd.Series({ticks % 'M'})", _ticks(unit), holds),
            Kind(f"zoned {unit}", ("zoned",), f"pd.Series({ticks % 'M'}){zoned}", _ticks(unit),
                 holds),
            Kind(f"m8[{unit}]", ("span",), f"pd.Series({ticks % 'm'})", _ticks(unit), holds),
            _arrow(f"timestamp('{unit}')", ("naive",), _ticks(unit), holds),
            _arrow(f"timestamp('{unit}', '{ZONE}')", ("zoned",), _ticks(unit), holds),
            _arrow(f"duration('{unit}')", ("span",), _ticks(unit), holds),
        ]  # fmt: skip
    fit = _fits_any
    kinds += [_objects(f"object {domain}", (domain,), _object, fit) for domain in _MOMENTS]
    return kinds


_MOMENTS = ("naive", "zoned", "span")


def _fits_unit(unit: str) -> Callable[[Any], bool]:
    return lambda value: fits(value, unit)


def _fits_any(value: Any) -> bool:
    return any(fits(value, unit) for unit in UNITS)


def _others() -> list[Kind]:
    text, every = ("text",), ("number", "text", "bytes", "naive", "date")
    return [
        Kind("str", text, "pd.Series({}, dtype='str')", _itself),
        Kind("string", text, "pd.Series({}, dtype='string')", _itself),
        _arrow("string()", text, _itself),
        _arrow("large_string()", text, _itself),
        _objects("object text", text, _itself),
        _arrow("binary()", ("bytes",), _itself),
        _objects("object bytes", ("bytes",), _itself),
        _arrow("date32()", ("date",), _object),
        _objects("object date", ("date",), _object),
        Kind("period", ("period",), "pd.Series({}, dtype='period[M]')", _object),
        _objects("object mixed", every, _object,
                 lambda v: v is not NAN and (not isinstance(v, int) or fits(v, "ns"))),
    ]  # fmt: skip


def _categories(base: Kind) -> Kind:
    code = f"{base.code}.astype('category')"
    return Kind(f"category {base.name}", base.domains, code, base.thing, base.holds)


def _kinds() -> dict[str, Kind]:
    kinds = {kind.name: kind for kind in (*_numbers(), *_moments(), *_others())}
    for name in ("str", "Int64", "float64", "M8[us]", "object number", "object bytes",
                 "arrow date32()"):  # fmt: skip
        made = _categories(kinds[name])
        kinds[made.name] = made
    return kinds


KINDS: dict[str, Kind] = _kinds()
"""Every kind of column by its name."""


def draw_pool(random: Random, domain: str, kinds: Sequence[Kind]) -> list[tuple[str, Any]]:
    """Return a few values of a domain, of which each kind of column holds some."""
    values = POOLS[domain]
    chosen = []
    for kind in kinds:
        able = kind.pool(domain, values)
        # Small values are the first ones, and are drawn twice as often.
        chosen += random.choices([*able[:5], *able], k=random.choice([1, 2, 4]))
    return [(domain, value) for value in chosen]


def draw_column(
    random: Random, kind: Kind, pool: Sequence[tuple[str, Any]], rows: int, nulls: float
) -> Column:
    """Return a column with values of a pool, as far as its kind holds them."""
    able = [pair for pair in pool if kind.pool(pair[0], [pair[1]])]
    if not able:
        domain = random.choice(kind.domains)
        able = [(domain, value) for value in kind.pool(domain, POOLS[domain])]
    drawn = [
        None if kind.nullable and random.random() < nulls else random.choice(able)
        for _ in range(rows)
    ]
    if random.random() < 0.3:
        # A run of nulls makes a partition without a value.
        drawn.sort(key=lambda pair: pair is None)
    return Column(kind.name, tuple(drawn))


def read(column: Any) -> list[Value]:
    """Return the values of a Series or Index."""
    dtype, array = column.dtype, column.array
    if isinstance(dtype, pd.CategoricalDtype):
        categories = read(dtype.categories)
        return [NULL if code < 0 else categories[code] for code in array.codes.tolist()]
    if isinstance(dtype, pd.ArrowDtype):
        return _read_arrow(array, dtype.pyarrow_dtype)
    if isinstance(dtype, pd.PeriodDtype):
        return [NULL if p is pd.NaT else Value("period", p.ordinal, "period") for p in array]
    if isinstance(dtype, pd.DatetimeTZDtype):
        return _ticks_read(array.asi8.tolist(), "zoned", dtype.unit)
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        domain = "span" if dtype.kind == "m" else "naive"
        return _ticks_read(array.view("i8").tolist(), domain, np.datetime_data(dtype)[0])
    if hasattr(array, "_mask"):
        values = array._data.tolist()
        return [
            NULL if null else read_one(value, nan=NAN)
            for value, null in zip(values, array._mask.tolist(), strict=True)
        ]
    values = column.to_numpy(dtype=object) if dtype.kind == "O" else column.to_list()
    return [read_one(value) for value in values]


def _ticks_read(ticks: Sequence[int | None], domain: str, unit: str) -> list[Value]:
    size = UNITS[unit]
    return [
        NULL if tick is None or tick == -(2**63) else Value(domain, tick * size, domain)
        for tick in ticks
    ]


def _read_arrow(array: Any, dtype: Any) -> list[Value]:
    found = pa.chunked_array(array.__arrow_array__())
    if pa.types.is_timestamp(dtype) or pa.types.is_duration(dtype):
        domain = "span" if pa.types.is_duration(dtype) else "zoned" if dtype.tz else "naive"
        return _ticks_read(found.cast(pa.int64()).to_pylist(), domain, dtype.unit)
    return [read_one(value, nan=NAN) for value in found.to_pylist()]


def read_one(value: Any, nan: Any = None) -> Value:
    """Return what an object is, or a null; `nan` is what NaN is that is no null."""
    if value is None or value is pd.NA or value is pd.NaT:
        return NULL
    if isinstance(value, np.generic):
        value = value.item() if value.dtype.kind in "biufSU" else value
    if isinstance(value, bool):
        return Value("number", value, "bool")
    if isinstance(value, float) and math.isnan(value):
        return NULL if nan is None else Value("number", nan, "float")
    if isinstance(value, int | float | Decimal):
        return Value("number", value, type(value).__name__.lower())
    if isinstance(value, str):
        return Value("text", str(value), "str")
    if isinstance(value, bytes):
        return Value("bytes", value, "bytes")
    if isinstance(value, datetime.datetime | np.datetime64):
        stamp = pd.Timestamp(value)
        domain = "naive" if stamp.tz is None else "zoned"
        return Value(domain, stamp._value * UNITS[stamp.unit], domain)
    if isinstance(value, datetime.timedelta | np.timedelta64):
        span = pd.Timedelta(value)
        return Value("span", span._value * UNITS[span.unit], "span")
    if isinstance(value, datetime.date):
        return Value("date", (value - _EPOCH).days, "date")
    if isinstance(value, pd.Period):
        return Value("period", value.ordinal, "period")
    if isinstance(value, list | tuple | np.ndarray | pd.api.extensions.ExtensionArray):
        return Value("list", tuple(read_one(each) for each in value), "list")
    raise AssertionError(f"no value is a {type(value).__name__}: {value!r}")
