"""What several queries of TPC-H do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa

from suites.tpch.data import Frame, Tables

__all__ = [
    "FLOAT",
    "Query",
    "Verbs",
    "between",
    "nations_of",
    "revenue_of",
    "suppliers_of",
    "total_of",
]

# Arrow casts decimals to it without making Python objects.
FLOAT = pd.ArrowDtype(pa.float64())


@dataclass(frozen=True)
class Verbs:
    """What merges two frames, and what groups one."""

    merge: Callable[..., Frame]
    groupby: Callable[..., Any]


Query: TypeAlias = Callable[[Tables, Verbs], Frame]


def revenue_of(lines: Frame) -> Any:
    """Return the discounted price of each line, exactly."""
    return lines["l_extendedprice"] * (Decimal(1) - lines["l_discount"])


def between(days: Any, first: date, end: date) -> Any:
    """Return which days are `first` or later, and before `end`."""
    return days.ge(first) & days.lt(end)


def total_of(column: Frame) -> Frame:
    """Return the sum of a frame of one column as a frame of one row, a null of no rows."""
    name = column.columns[0]
    return column.astype(FLOAT).sum(min_count=1).to_frame(name)


def suppliers_of(nations: Frame, tables: Tables, verbs: Verbs) -> Frame:
    """Return the suppliers in some nations, beside the columns of these."""
    return verbs.merge(
        tables.supplier, nations, left_on="s_nationkey", right_on="n_nationkey", validate="m:1"
    )


def nations_of(region: str, tables: Tables, verbs: Verbs) -> Frame:
    """Return the nations of a region."""
    named = tables.region[tables.region["r_name"] == region]
    return verbs.merge(
        tables.nation, named, how="semi", left_on="n_regionkey", right_on="r_regionkey"
    )
