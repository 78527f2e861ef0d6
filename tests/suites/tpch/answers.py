"""What DuckDB answers to the SQL of a query, and how another answer differs from it."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from suites.tpch.data import TABLES
from suites.tpch.libraries import Frame

__all__ = ["difference", "expected_of", "first_rows", "names_in", "open_tables"]

_SQL = Path(__file__).parent / "sql"
# Columns that order the queries which return only their first rows, and how many these are.
_DESCENDING, _ASCENDING = False, True
_FIRST: dict[int, tuple[dict[str, bool], int]] = {
    2: (
        {
            "s_acctbal": _DESCENDING,
            "n_name": _ASCENDING,
            "s_name": _ASCENDING,
            "p_partkey": _ASCENDING,
        },
        100,
    ),
    3: ({"revenue": _DESCENDING, "o_orderdate": _ASCENDING}, 10),
    10: ({"revenue": _DESCENDING}, 20),
    18: ({"o_totalprice": _DESCENDING, "o_orderdate": _ASCENDING}, 100),
    21: ({"numwait": _DESCENDING, "s_name": _ASCENDING}, 100),
}


def open_tables(folder: Path) -> duckdb.DuckDBPyConnection:
    """Return a database with views of the Parquet files of all tables."""
    database = duckdb.connect()
    for name in TABLES:
        database.read_parquet(str(folder / name / "*.parquet")).create_view(name)
    return database


def expected_of(number: int, database: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """Return DuckDB's answer to a query, with exact decimals."""
    answer = database.sql(_sql(number))
    return pd.DataFrame(answer.fetchall(), columns=pd.Index(answer.columns), dtype=object)


def names_in(number: int) -> set[str]:
    """Return the names in the SQL of a query: of all columns that it needs, among others."""
    return set(re.findall(r"\w+", _sql(number)))


def _sql(number: int) -> str:
    (path,) = _SQL.glob(f"*/q{number:02d}.sql")
    return path.read_text()


def first_rows(number: int, answer: Frame) -> Frame:
    """Return the rows that a query asks for, of an answer with all of them.

    Of a lazy one, they are those of each partition, among which they are.
    """
    if number not in _FIRST:
        return answer
    if hasattr(answer, "dask"):
        return answer.map_partitions(partial(_first, *_FIRST[number]), meta=answer._meta)
    return _first(*_FIRST[number], answer)


def _first(order: dict[str, bool], rows: int, answer: Frame) -> Frame:
    return answer.sort_values(list(order), ascending=list(order.values())).head(rows)


def difference(ours: pd.DataFrame, expected: pd.DataFrame) -> str | None:
    """Return how two answers differ in columns or rows, in any order; None when they do not.

    Floats may differ by a rounding error, where one is a decimal too.
    """
    if list(ours.columns) != list(expected.columns):
        return f"columns {list(ours.columns)}, expected {list(expected.columns)}"
    if len(ours) != len(expected):
        return f"{len(ours)} rows, expected {len(expected)}"
    rows, others = _rows(ours), _rows(expected)
    # What is rounded comes last, so that it does not change the order of rows.
    order = sorted(range(len(ours.columns)), key=lambda n: _rounded(n, rows) or _rounded(n, others))
    rows.sort(key=lambda row: [_rank(row[n]) for n in order])
    others.sort(key=lambda row: [_rank(row[n]) for n in order])
    for row, other in zip(rows, others, strict=True):
        if not all(map(_same, row, other)):
            return f"a row {row}, expected {other}"
    return None


def _rows(answer: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows as Python's own objects, None for nulls."""
    columns = [[None if pd.isna(value) else value for value in answer[name]] for name in answer]
    return list(zip(*columns, strict=True))


def _rounded(column: int, rows: list[tuple[Any, ...]]) -> bool:
    return any(isinstance(row[column], float) for row in rows)


def _rank(value: Any) -> tuple[bool, Any]:
    return (value is None, 0 if value is None else value)


def _same(value: Any, other: Any) -> bool:
    if value is None or other is None:
        return value is other
    if isinstance(value, float) or isinstance(other, float):
        return math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(value == other)
