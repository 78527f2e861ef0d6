"""Tagged text of key values: equal values share a text, different types never do.

A key column of Python objects, bytes or decimals is compared by these texts, in every partition
alike. Domains are numbers (booleans, integers, floats, decimals: equal by exact value), text,
bytes, datetimes, datetimes of a time zone, durations, dates, times of a day, and what holds these.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import numbers
import pickle
import uuid
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dgpuhash.errors import KeyTypeError

_MARK = "\0"
TEXT, BYTES, NUMBER, NAIVE, ZONED, DURATION, DATE, TIME, PERIOD, INTERVAL, UUID, TUPLE, NULL = (
    f"{_MARK}{letter}" for letter in "sbnmzedhpiut-"
)
# Values of several domains are sorted in this order, text last, as pandas sorts them.
_DOMAINS = (
    NUMBER,
    NAIVE,
    ZONED,
    DATE,
    TIME,
    DURATION,
    PERIOD,
    INTERVAL,
    BYTES,
    UUID,
    TUPLE,
    TEXT,
    NULL,
)
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def tag_values(column: pd.Series, name: object) -> pd.Series:
    """Return a column's values as tagged text; nulls stay null, NaN is a null.

    Raises
    ------
    KeyTypeError
        When a value is of no domain.

    Examples
    --------
    >>> texts = tag_values(pd.Series([1, 1.0, "1", b"1", None], dtype=object), "k")
    >>> texts.nunique(), texts[0] == texts[1]
    (3, True)
    """
    if pd.api.types.infer_dtype(column, skipna=True) in {"string", "empty"}:
        texts = _texts(column)
        if texts is not None:
            return pd.Series(pd.array(texts, dtype="str"))
    values = zip(column.astype(object), column.isna(), strict=True)
    found = [None if null else text_of(value, name) for value, null in values]
    try:
        return pd.Series(pd.array(found, dtype="str"))
    except UnicodeEncodeError as error:
        raise utf8_error(name, error) from error


def utf8_error(name: object, error: Exception) -> KeyTypeError:
    """Return the error for a column with strings that are not UTF-8.

    `name` may be a list of labels when any one of the columns may hold them.
    """
    return KeyTypeError(
        f"column {name!r} holds strings that are not valid UTF-8 ({error}); clean them "
        "with .str.encode('utf-8', 'replace').str.decode('utf-8')"
    )


def _texts(column: pd.Series) -> Any:
    """Return untagged strings; None if one could be taken for a tagged text."""
    missing = column.isna()
    strings = column.where(~missing, None) if column.dtype == object else column
    try:
        array = pa.chunked_array(pa.array(strings, pa.large_string(), from_pandas=True))
    except (pa.ArrowException, UnicodeError):
        return None
    return None if pc.any(pc.starts_with(array, _MARK)).as_py() else array


def domain_of(value: Any) -> str | None:
    """Return the type domain of a value, None for other objects.

    Examples
    --------
    >>> domain_of(True) == domain_of(2.5) != domain_of("2.5")
    True
    """
    if isinstance(value, str):
        return TEXT
    if isinstance(value, np.timedelta64 | datetime.timedelta):
        # NumPy calls its own a number.
        return DURATION
    if isinstance(value, numbers.Number | np.bool_ | decimal.Decimal):
        return NUMBER
    if value is None or value is pd.NA or value is pd.NaT:
        return NULL
    if isinstance(value, datetime.datetime):
        return NAIVE if value.tzinfo is None else ZONED
    for types, domain in (
        (bytes, BYTES), (np.datetime64, NAIVE),
        (datetime.date, DATE), (datetime.time, TIME), (pd.Period, PERIOD), (pd.Interval, INTERVAL),
        (uuid.UUID, UUID), (tuple, TUPLE),
    ):  # fmt: skip
        if isinstance(value, types):
            return domain
    return None


def text_of(value: Any, name: object = None) -> str:
    """Return the tagged text of a value.

    Raises
    ------
    KeyTypeError
        When the value is of no domain.
    """
    if type(value) is int:
        return f"{NUMBER}{value:x}/1"
    domain = domain_of(value)
    if domain is None:
        raise KeyTypeError(
            f"key column {name!r} holds a {type(value).__name__}, which cannot be compared with "
            "keys of other partitions or frames; convert it with .astype('str')"
        )
    if domain == TEXT:
        return TEXT * value.startswith(_MARK) + str.__str__(value)
    return domain + _detail(domain, value, name)


def _detail(domain: str, value: Any, name: object) -> str:
    """Return text that identifies a value within its domain."""
    if domain == NUMBER:
        return _number(value)
    if domain == BYTES:
        return str(value.decode("latin-1"))
    if domain in {NAIVE, ZONED}:
        return _nanoseconds(pd.Timestamp(value).to_datetime64())
    if domain == DURATION:
        return _nanoseconds(pd.Timedelta(value).to_timedelta64())
    if domain in {DATE, TIME}:
        return str(value.isoformat())
    if domain == UUID:
        return str(value.hex)
    if domain == PERIOD:
        return f"{value.freqstr} {value.ordinal}"
    parts = {INTERVAL: lambda: (value.closed, value.left, value.right), TUPLE: lambda: value}
    texts = [text_of(each, name) for each in parts.get(domain, tuple)()]
    return "".join(f"{len(text)}:{text}" for text in texts)


def _nanoseconds(ticks: Any) -> str:
    """Return a count of nanoseconds in text, with as many digits as needed."""
    return str(int(ticks.astype(np.int64)) * _NANOSECONDS[np.datetime_data(ticks.dtype)[0]])


def _number(value: Any) -> str:
    """Return a text that is equal for equal numbers of any type."""
    if isinstance(value, complex | np.complexfloating):
        imaginary = f" {_number(value.imag)}" if value.imag else ""
        return f"{_number(value.real)}{imaginary}"
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return str(float(value))
    whole = int(value)
    top, bottom = (whole, 1) if whole == value else value.as_integer_ratio()
    return f"{top:x}/{bottom:x}"


def order_of(values: list[Any]) -> Any:
    """Return the sort order of distinct values: domain by domain, text last.

    Examples
    --------
    >>> order_of(["b", 2, decimal.Decimal("1.5"), "a", b"c"]).tolist()
    [2, 1, 4, 3, 0]
    """
    texts = [text_of(value) for value in values]
    domains = [domain_of(value) or NULL for value in values]
    sizes: list[Any] = [
        int(text[len(domain) :]) if domain in {NAIVE, ZONED, DURATION} else value
        for text, domain, value in zip(texts, domains, values, strict=True)
    ]
    found: list[int] = []
    for domain in _DOMAINS:
        rows = [row for row, each in enumerate(domains) if each == domain]
        try:
            rows.sort(key=sizes.__getitem__)
        except (TypeError, ValueError):
            # As tuples of texts and numbers.
            rows.sort(key=texts.__getitem__)
        found += rows
    return np.array(found, np.int64)


def text_of_typed(value: Any, name: object = None) -> str:
    """Return text of a value and its type, for `value_of_typed`.

    Examples
    --------
    >>> value_of_typed(text_of_typed(decimal.Decimal("1.50")))
    Decimal('1.50')
    """
    text = text_of(value, name)
    if isinstance(value, str):
        return text
    return f"{text}{_MARK}{base64.b64encode(pickle.dumps(value)).decode()}"


def value_of_typed(text: Any) -> Any:
    """Return the value from a text of `text_of_typed`."""
    if not isinstance(text, str) or not text.startswith(_MARK):
        return text
    if text.startswith(TEXT):
        return text[len(TEXT) :]
    return pickle.loads(base64.b64decode(text.rpartition(_MARK)[2]))
