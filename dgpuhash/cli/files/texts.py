"""Print Arrow tables as a table, CSV or JSON lines, without rounding numbers."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import IO, Any

import numpy as np
import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Microseconds of the units of times.
_UNITS = {"s": 1_000_000, "ms": 1000, "us": 1}


def print_table(rows: pa.Table) -> None:
    """Print rows as a table whose values a later lookup accepts; nulls are a dash."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for field in rows.schema:
        table.add_column(field.name, justify="right" if _is_number(field.type) else "left")
    for row in _values(rows):
        table.add_row(*(Text("-" if value is None else str(value)) for value in row))
    Console().print(table)


def write_csv(rows: pa.Table, stream: IO[str]) -> None:
    """Write rows as CSV, with a line of names; nulls are empty."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(rows.column_names)
    writer.writerows(_values(rows))


def json_lines(rows: pa.Table) -> Iterator[str]:
    """Yield each row as a JSON object; NaN becomes null, and times are in ISO 8601.

    Examples
    --------
    >>> list(json_lines(pa.table({"k": [1, 2], "x": pa.array([0.1, None], pa.float32())})))
    ['{"k": 1, "x": 0.1}\\n', '{"k": 2, "x": null}\\n']
    """
    names = rows.column_names
    for row in _values(rows):
        whole = dict(zip(names, row, strict=True))
        try:
            yield json.dumps(whole, ensure_ascii=False, allow_nan=False, default=_plain) + "\n"
        except ValueError:
            whole = {name: _finite(value) for name, value in whole.items()}
            yield json.dumps(whole, ensure_ascii=False, default=_plain) + "\n"


def _values(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(_column(column) for column in rows.columns), strict=True)


def _column(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_float32(column.type) or pa.types.is_float16(column.type):
        # Their shortest texts; those of Python's floats have digits that mean nothing.
        to = np.float32 if pa.types.is_float32(column.type) else np.float16
        return [None if each is None else _Short(to(each)) for each in column.to_pylist()]
    values: list[Any]
    if pa.types.is_timestamp(column.type) and column.type.unit in _UNITS:
        # Arrow's own way to these imports pandas.
        values = column.cast(pa.int64()).to_pylist()
        return [None if each is None else _instant(each, column.type) for each in values]
    values = column.to_pylist()
    return values


def _instant(count: int, dtype: pa.TimestampType) -> Any:
    try:
        found = _EPOCH + timedelta(microseconds=count * _UNITS[dtype.unit])
        if dtype.tz is None:
            return found.replace(tzinfo=None)
        return found.astimezone(pa.lib.string_to_tzinfo(dtype.tz))
    except OverflowError:
        # A year that the calendar of Python has not.
        return np.datetime64(count, dtype.unit)


class _Short(float):
    """Float that is written with the digits of its narrow type."""

    def __new__(cls, value: np.floating[Any]) -> _Short:
        made = super().__new__(cls, str(value))
        made.text = str(value)
        return made

    text: str

    def __str__(self) -> str:
        return self.text


def _is_number(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)
    )


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
