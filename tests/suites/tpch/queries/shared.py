"""What several queries of TPC-H do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias

from suites.tpch.data import Tables
from suites.tpch.libraries import Frame

__all__ = [
    "COPIED",
    "Query",
    "Verbs",
    "between",
    "nations_of",
    "revenue_of",
    "suppliers_of",
    "total_of",
]


@dataclass(frozen=True)
class Verbs:
    """What merges two frames, and what groups one."""

    merge: Callable[..., Frame]
    groupby: Callable[..., Any]


#: Option of a merge whose right side has few rows: on Dask, each worker gets all of them.
COPIED: dict[str, Any] = {"build": "replicate"}

Query: TypeAlias = Callable[[Tables, Verbs], Frame]


def revenue_of(tables: Tables, lines: Frame) -> Any:
    """Return the discounted price of each line, exactly where prices are."""
    return lines["l_extendedprice"] * (tables.library.number(1) - lines["l_discount"])


def between(tables: Tables, days: Any, first: date, end: date) -> Any:
    """Return which days are `first` or later, and before `end`."""
    return days.ge(tables.library.day(first)) & days.lt(tables.library.day(end))


def total_of(tables: Tables, column: Frame) -> Frame:
    """Return the sum of a frame of one column as a frame of one row, a null of no rows."""
    library, name = tables.library, column.columns[0]
    return column.astype(library.real).sum(min_count=library.least).to_frame(name)


def suppliers_of(nations: Frame, tables: Tables, verbs: Verbs) -> Frame:
    """Return the suppliers in some nations, beside the columns of these."""
    return verbs.merge(
        tables.supplier,
        nations,
        left_on="s_nationkey",
        right_on="n_nationkey",
        validate="m:1",
        **COPIED,
    )


def nations_of(region: str, tables: Tables, verbs: Verbs) -> Frame:
    """Return the nations of a region."""
    named = tables.region[tables.region["r_name"] == region]
    return verbs.merge(
        tables.nation, named, how="semi", left_on="n_regionkey", right_on="r_regionkey", **COPIED
    )
