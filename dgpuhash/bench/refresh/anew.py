"""Recompute the answers after each change with DuckDB, Polars and cuDF."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any

import pandas as pd
import pyarrow as pa
from pandas import Timestamp

from dgpuhash.bench.refresh.tables import Round, Tables

#: The queries of TPC-H by their numbers.
QUERIES = {
    int(number): text.strip().removesuffix(";")
    for number, _, text in (
        each.partition("\n")
        for each in files(__package__).joinpath("queries.sql").read_text().split("\n-- ")[1:]
    )
}
Answers = dict[int, list[tuple[Any, ...]]]


class Anew(ABC):
    """Library that changes its own tables and computes all answers from them.

    Attributes
    ----------
    name : str
        The library's name and version.
    """

    name: str

    def prepare(self, change: Round) -> Any:
        """Return a change in the library's own form, outside the time."""
        return change

    @abstractmethod
    def change(self, change: Any) -> None:
        """Insert the new rows of a change, and delete the old ones."""

    @abstractmethod
    def answers(self) -> Answers:
        """Return the rows of each query's answer."""

    def cpu_seconds(self) -> float:
        """Return the CPU time so far of all its processes."""
        return time.process_time()

    @property
    def standing_bytes(self) -> int:
        """Bytes of state besides the rows of tables."""
        return 0


class DuckDBRun(Anew):
    """DuckDB with tables in memory, on all cores."""

    def __init__(self, tables: dict[str, pa.Table]) -> None:
        import duckdb

        self.name: str = f"DuckDB {duckdb.__version__}"
        self._database = duckdb.connect()
        self._database.execute("set preserve_insertion_order = false")
        for name, table in tables.items():
            self._database.register("rows", table)
            self._database.execute(f"create table {name} as select * from rows")
            self._database.unregister("rows")

    def change(self, change: Any) -> None:
        database = self._database
        come = {"orders": change.orders, "lineitem": change.lineitem}
        for name, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            database.register("rows", come[name])
            database.execute(f"insert into {name} select * from rows")
            database.register("rows", change.keys)
            database.execute(f"delete from {name} where {key} in (select o_orderkey from rows)")
        database.unregister("rows")

    def answers(self) -> Answers:
        return {number: self._database.sql(text).fetchall() for number, text in QUERIES.items()}


class PolarsRun(Anew):
    """Polars with frames in memory, on all cores or one GPU.

    Parameters
    ----------
    tables : dict
    on_gpu : bool
        Whether cudf-polars runs the queries that it has. Frames of Polars are in the memory of the
        host, and copied for each query.
    """

    def __init__(self, tables: dict[str, pa.Table], *, on_gpu: bool = False) -> None:
        import polars

        self._polars: Any = polars
        self._tables: dict[str, Any] = {
            name: polars.from_arrow(table) for name, table in tables.items()
        }
        self._engines: dict[int, Any] = dict.fromkeys(QUERIES, "auto")
        self.name: str = f"Polars {polars.__version__}"
        if on_gpu:
            gpu = polars.GPUEngine(raise_on_fail=True)
            for number in QUERIES:
                # What cudf-polars lacks is Polars' work, and said.
                with suppress(polars.exceptions.PolarsError, NotImplementedError):
                    self._answer(number, gpu)
                    self._engines[number] = gpu
            others = [str(number) for number, each in self._engines.items() if each is not gpu]
            without = f", without queries {' '.join(others)}" if others else ""
            self.name = f"cudf-polars, polars {polars.__version__}{without}"

    def change(self, change: Any) -> None:
        lib, tables = self._polars, self._tables
        come = {"orders": change.orders, "lineitem": change.lineitem}
        keys = lib.from_arrow(change.keys)
        for name, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            stay = tables[name].join(keys, left_on=key, right_on="o_orderkey", how="anti")
            tables[name] = lib.concat([stay, lib.from_arrow(come[name])])

    def answers(self) -> Answers:
        return {number: self._answer(number, each) for number, each in self._engines.items()}

    def _answer(self, number: int, engine: Any) -> list[tuple[Any, ...]]:
        found = self._polars.SQLContext(self._tables).execute(QUERIES[number])
        rows: list[tuple[Any, ...]] = found.collect(engine=engine).rows()
        return rows


_URGENT = ["1-URGENT", "2-HIGH"]
_FLAGS, _YEARS = ["l_returnflag", "l_linestatus"], ["supp_nation", "cust_nation", "l_year"]


class DataFrames(Anew):
    """Library of dataframes with its own merges and groupbys.

    Parameters
    ----------
    tables : dict
    library : module
        cuDF, or pandas.
    name : str
        The library's name and version.
    """

    def __init__(self, tables: dict[str, pa.Table], library: Any, name: str) -> None:
        self.name, self._library = name, library
        self._frames = Tables(tables, library)
        self._tables = {each: self._frames.frame(table) for each, table in tables.items()}

    def prepare(self, change: Round) -> Any:
        return [self._frames.frame(each) for each in (change.orders, change.lineitem, change.keys)]

    def change(self, change: Any) -> None:
        orders, lineitem, keys = change
        for name, rows in (("orders", orders), ("lineitem", lineitem)):
            stay, key = self._tables[name], f"{name[0]}_orderkey"
            stay = stay[~stay[key].isin(keys["o_orderkey"])]
            self._tables[name] = self._library.concat([stay, rows], ignore_index=True)

    def answers(self) -> Answers:
        return {number: rows_of(query(**self._tables)) for number, query in FRAME_QUERIES.items()}


def rows_of(answer: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a small frame of pandas or cuDF, with dates of datetimes."""
    answer = answer if isinstance(answer, pd.DataFrame) else answer.to_pandas()
    dates = answer.select_dtypes("datetime")
    answer = answer.assign(**{str(name): dates[name].dt.date for name in dates})
    return list(zip(*(answer[name].tolist() for name in answer), strict=True))


def _revenue(lines: Any) -> Any:
    return lines["l_extendedprice"] * (100 - lines["l_discount"])


def _sums(rows: Any, by: Sequence[str], sums: Sequence[str] = ("revenue",)) -> Any:
    return rows[[*by, *sums]].groupby(list(by), as_index=False, sort=False).sum()


def _first(answer: Any, order: Sequence[str], descends: int = 0, n: int | None = None) -> Any:
    """Return the first `n` rows in the order of columns, one of them descending."""
    ascending = [place != descends for place in range(1, len(order) + 1)]
    return answer.sort_values(list(order), ascending=ascending)[:n]


def _pricing(lineitem: Any, **_: Any) -> Any:
    rows = lineitem[lineitem["l_shipdate"] <= Timestamp("1998-09-02")]
    means = ["l_quantity", "l_extendedprice", "l_discount"]
    rows = rows.assign(revenue=_revenue(rows), n=1)
    rows["charge"] = rows["revenue"] * (100 + rows["l_tax"])
    found = _sums(rows, _FLAGS, [*means, "revenue", "charge", "n"])
    for name in means:
        found[f"avg_{name}"] = found[name] / found["n"]
    names = [*_FLAGS, "l_quantity", "l_extendedprice", "revenue", "charge"]
    return _first(found, _FLAGS)[[*names, *(f"avg_{name}" for name in means), "n"]]


def _shipping(customer: Any, orders: Any, lineitem: Any, **_: Any) -> Any:
    building = customer[customer["c_mktsegment"] == "BUILDING"][["c_custkey"]]
    by = ["l_orderkey", "o_orderdate", "o_shippriority"]
    early = orders[orders["o_orderdate"] < Timestamp("1995-03-15")]
    early = early[["o_orderkey", "o_custkey", *by[1:]]]
    early = early.merge(building, left_on="o_custkey", right_on="c_custkey")
    late = lineitem[lineitem["l_shipdate"] > Timestamp("1995-03-15")]
    rows = late.merge(early, left_on="l_orderkey", right_on="o_orderkey")
    found = _sums(rows.assign(revenue=_revenue(rows)), by)
    first = _first(found, ["revenue", "o_orderdate", "l_orderkey"], 1, 10)
    return first[["l_orderkey", "revenue", *by[1:]]]


def _local(
    customer: Any, orders: Any, lineitem: Any, supplier: Any, nation: Any, region: Any, **_: Any
) -> Any:
    asia = region[region["r_name"] == "ASIA"]
    nations = nation.merge(asia, left_on="n_regionkey", right_on="r_regionkey")
    sellers = supplier.merge(nations, left_on="s_nationkey", right_on="n_nationkey")
    of_year = orders[orders["o_orderdate"].dt.year == 1994][["o_orderkey", "o_custkey"]]
    buyers = customer[["c_custkey", "c_nationkey"]]
    of_year = of_year.merge(buyers, left_on="o_custkey", right_on="c_custkey")
    rows = lineitem.merge(of_year, left_on="l_orderkey", right_on="o_orderkey")
    keys = {"left_on": ["l_suppkey", "c_nationkey"], "right_on": ["s_suppkey", "s_nationkey"]}
    rows = rows.merge(sellers, **keys)
    return _first(_sums(rows.assign(revenue=_revenue(rows)), ["n_name"]), ["revenue"], 1)


def _volume(customer: Any, orders: Any, lineitem: Any, supplier: Any, nation: Any, **_: Any) -> Any:
    two = nation[nation["n_name"].isin(["FRANCE", "GERMANY"])][["n_nationkey", "n_name"]]
    sides = [two.rename(columns={"n_name": name}) for name in _YEARS[:2]]
    sellers = supplier.merge(sides[0], left_on="s_nationkey", right_on="n_nationkey")
    buyers = customer[["c_custkey", "c_nationkey"]]
    buyers = buyers.merge(sides[1], left_on="c_nationkey", right_on="n_nationkey")
    bought = orders[["o_orderkey", "o_custkey"]]
    bought = bought.merge(buyers, left_on="o_custkey", right_on="c_custkey")
    rows = lineitem[lineitem["l_shipdate"].dt.year.isin([1995, 1996])]
    rows = rows.merge(sellers[["s_suppkey", _YEARS[0]]], left_on="l_suppkey", right_on="s_suppkey")
    rows = rows.merge(
        bought[["o_orderkey", _YEARS[1]]], left_on="l_orderkey", right_on="o_orderkey"
    )
    rows = rows[rows[_YEARS[0]] != rows[_YEARS[1]]]
    rows = rows.assign(revenue=_revenue(rows), l_year=rows["l_shipdate"].dt.year)
    return _first(_sums(rows, _YEARS), _YEARS)


def _profit(
    part: Any, lineitem: Any, partsupp: Any, supplier: Any, orders: Any, nation: Any, **_: Any
) -> Any:
    green = part[part["p_name"].str.contains("green")][["p_partkey"]]
    rows = lineitem.merge(green, left_on="l_partkey", right_on="p_partkey")
    keys = {"left_on": ["l_partkey", "l_suppkey"], "right_on": ["ps_partkey", "ps_suppkey"]}
    rows = rows.merge(partsupp, **keys)
    sellers = supplier.merge(nation, left_on="s_nationkey", right_on="n_nationkey")
    rows = rows.merge(sellers[["s_suppkey", "n_name"]], left_on="l_suppkey", right_on="s_suppkey")
    days = orders[["o_orderkey", "o_orderdate"]]
    rows = rows.merge(days, left_on="l_orderkey", right_on="o_orderkey")
    cost = rows["ps_supplycost"] * rows["l_quantity"] * 100
    rows = rows.assign(profit=_revenue(rows) - cost, o_year=rows["o_orderdate"].dt.year)
    return _first(_sums(rows, ["n_name", "o_year"], ["profit"]), ["n_name", "o_year"], 2)


def _returned(customer: Any, orders: Any, lineitem: Any, nation: Any, **_: Any) -> Any:
    days = orders["o_orderdate"]
    quarter = (days >= Timestamp("1993-10-01")) & (days < Timestamp("1994-01-01"))
    rows = lineitem[lineitem["l_returnflag"] == "R"]
    bought = orders[quarter][["o_orderkey", "o_custkey"]]
    rows = rows.merge(bought, left_on="l_orderkey", right_on="o_orderkey")
    found = _sums(rows.assign(revenue=_revenue(rows)), ["o_custkey"])
    found = found.merge(customer, left_on="o_custkey", right_on="c_custkey")
    found = found.merge(nation, left_on="c_nationkey", right_on="n_nationkey")
    names = ["c_custkey", "c_name", "revenue", "c_acctbal", "n_name"]
    names += ["c_address", "c_phone", "c_comment"]
    return _first(found, ["revenue", "c_custkey"], 1, 20)[names]


def _modes(orders: Any, lineitem: Any, **_: Any) -> Any:
    lines = lineitem[
        lineitem["l_shipmode"].isin(["MAIL", "SHIP"])
        & (lineitem["l_commitdate"] < lineitem["l_receiptdate"])
        & (lineitem["l_shipdate"] < lineitem["l_commitdate"])
        & (lineitem["l_receiptdate"].dt.year == 1994)
    ]
    urgency = orders[["o_orderkey", "o_orderpriority"]]
    rows = lines.merge(urgency, left_on="l_orderkey", right_on="o_orderkey")
    rows["high"] = rows["o_orderpriority"].isin(_URGENT).astype("int64")
    rows["low"] = 1 - rows["high"]
    return _first(_sums(rows, ["l_shipmode"], ["high", "low"]), ["l_shipmode"])


def _large(customer: Any, orders: Any, lineitem: Any, **_: Any) -> Any:
    found = _sums(lineitem, ["l_orderkey"], ["l_quantity"])
    found = found[found["l_quantity"] > 300]
    found = found.merge(orders, left_on="l_orderkey", right_on="o_orderkey")
    found = found.merge(customer, left_on="o_custkey", right_on="c_custkey")
    names = ["c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice", "l_quantity"]
    return _first(found, ["o_totalprice", "o_orderdate", "o_orderkey"], 1, 100)[names]


FRAME_QUERIES: dict[int, Callable[..., Any]] = {
    1: _pricing, 3: _shipping, 5: _local, 7: _volume, 9: _profit, 10: _returned, 12: _modes,
    18: _large,
}  # fmt: skip
