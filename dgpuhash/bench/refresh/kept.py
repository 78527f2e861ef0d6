"""Update the answers of eight TPC-H queries incrementally: join changed rows, merge states."""

from __future__ import annotations

from collections import namedtuple
from importlib import import_module
from typing import Any

from pandas import Timestamp

from dgpuhash import FrameIndex, groupby, merge

DataFrame = Any  # of pandas or cuDF; with indexes on workers, of Dask
KEYS: dict[str, Any] = {
    "nation": "n_nationkey", "supplier": "s_suppkey", "part": "p_partkey", "orders": "o_orderkey",
    "partsupp": ["ps_partkey", "ps_suppkey"], "customer": "c_custkey", "lineitem": "l_orderkey",
}  # fmt: skip
# Lines, keys and sums of groups; the answer's columns, their order and which of it descends; joins
# with sides by keys, which rows pass then, which groups may, and how many come first.
Query = namedtuple(
    "Query", "where by sums columns order descending joins passing having first",
    defaults=(0, (), None, None, None),
)  # fmt: skip


def answer(query: Query, sides: dict[str, Any], rows: DataFrame) -> DataFrame:
    """Return a query's answer from its groups."""
    if query.first and query.order[0] in query.sums:
        rows = rows[rows[query.order[0]] >= rows[query.order[0]].nlargest(query.first).min()]
    for on in query.joins:
        rows = sides[{"l": "orders", "o": "customer"}.get(on[0], "nation")].merge(rows, left_on=on)
    rows = rows.compute() if hasattr(rows, "compute") else rows
    rows = rows[query.passing(rows)] if query.passing else rows
    for name in [each for each in query.columns if each.startswith("avg_")]:
        rows[name] = rows[f"sum_{name[4:]}"] / rows["weight"]
    ascending = [place != query.descending for place in range(1, len(query.order) + 1)]
    return rows.sort_values(query.order, ascending=ascending)[query.columns][: query.first]


def concat(*frames: DataFrame) -> DataFrame:
    """Return the rows of several frames of one library."""
    library = type(frames[0]).__module__.partition(".")[0].replace("dask", "dask.dataframe")
    return import_module(library).concat(list(frames))


class WeightedGroups:
    """Sums of weighted rows by group."""

    def __init__(self, query: Query, rows: DataFrame) -> None:
        self.query = query
        self.index = FrameIndex.build(rows, on=query.by, unique=True)
        self.passing = FrameIndex.build(rows, on=query.by) if query.having else self.index

    def update(self, rows: DataFrame) -> None:
        """Add rows to their groups, and drop groups without rows."""
        by, having = self.query.by, self.query.having
        rows = concat(rows, self.index.merge(rows[by].drop_duplicates()))
        groups = groupby(rows, by, as_index=False, sort=False)[[*self.query.sums, "weight"]].sum()
        self.index.upsert(groups)
        self.index.erase(groups.loc[groups["weight"] == 0, by])
        if having:
            self.passing.erase(groups[by])
            self.passing.insert(groups[having(groups)])


class KeptQueries:
    """Indexes of the tables, and the groups of each query."""

    build, build_groups = staticmethod(FrameIndex.build), WeightedGroups

    def __init__(self, tables: dict[str, DataFrame], batch: int = 100_000) -> None:
        nations = merge(tables["nation"], tables["region"].rename(columns=SAME), on="n_regionkey")
        part = tables["part"].assign(green=tables["part"]["p_name"].str.contains("green"))
        tables = {**tables, "nation": nations, "part": part[["p_partkey", "green"]]}
        self.sides = {name: self.build(tables[name], on=KEYS[name]) for name in KEYS}
        self.groups: dict[int, WeightedGroups] = {}
        for start in range(0, len(tables["orders"]), batch):
            orders = tables["orders"][start : start + batch]
            self._change(self._lines(orders[["o_orderkey"]]).assign(weight=1))

    def refresh(self, orders: DataFrame, lineitem: DataFrame, keys: DataFrame) -> None:
        """Add orders and lines (RF1), and delete the orders of keys with their lines (RF2)."""
        self.sides["orders"].insert(orders)
        self.sides["lineitem"].insert(lineitem)
        come, go = lineitem.assign(weight=1), self._lines(keys).assign(weight=-1)
        self._change(concat(come, go[list(come.columns)]))
        self.sides["lineitem"].erase(keys.rename(columns=SAME))
        self.sides["orders"].erase(keys)

    def answers(self) -> dict[int, DataFrame]:
        """Return the answer of each query by its number."""
        return {n: answer(g.query, self.sides, g.passing.frame()) for n, g in self.groups.items()}

    def _lines(self, keys: DataFrame) -> DataFrame:
        return self.sides["lineitem"].merge(keys.rename(columns=SAME))

    def _change(self, lines: DataFrame) -> None:
        rows = self.sides["orders"].merge(lines, left_on="l_orderkey", columns=ORDERS)
        rows = self.sides["customer"].merge(rows, left_on="o_custkey", columns=CUSTOMERS)
        rows = self.sides["supplier"].merge(rows, left_on="l_suppkey")
        rows = self.sides["partsupp"].merge(rows, left_on=["l_partkey", "l_suppkey"])
        rows = self.sides["part"].merge(rows, left_on="l_partkey")
        rows["l_year"], rows["o_year"] = rows["l_shipdate"].dt.year, rows["o_orderdate"].dt.year
        for name in ("quantity", "extendedprice", "discount"):
            rows[f"sum_{name}"] = rows[f"l_{name}"] * rows["weight"]
        rows["revenue"] = rows["sum_extendedprice"] * (100 - rows["l_discount"])
        rows["charge"] = rows["revenue"] * (100 + rows["l_tax"])
        rows["profit"] = rows["revenue"] - 100 * rows["ps_supplycost"] * rows["sum_quantity"]
        rows["high"] = rows["o_orderpriority"].isin(["1-URGENT", "2-HIGH"]) * rows["weight"]
        rows["low"] = rows["weight"] - rows["high"]
        rows = rows.persist() if hasattr(rows, "persist") else rows
        for number, query in QUERIES.items():
            own = rows.loc[query.where(rows), [*query.by, *query.sums, "weight"]]
            if number not in self.groups:
                self.groups[number] = self.build_groups(query, own.head(0))
            self.groups[number].update(own)


ORDERS, CUSTOMERS = ["o_custkey", "o_orderdate", "o_orderpriority"], ["c_nationkey", "c_mktsegment"]
SAME = {"r_regionkey": "n_regionkey", "o_orderkey": "l_orderkey"}
SUMS = ["sum_quantity", "sum_extendedprice", "revenue", "charge"]
FLAGS, CUSTOMER = ["l_returnflag", "l_linestatus"], ["c_address", "c_phone", "c_comment"]
QUERIES = {
    1: Query(lambda r: r.l_shipdate <= Timestamp("1998-09-02"), FLAGS, [*SUMS, "sum_discount"],
             [*FLAGS, *SUMS, "avg_quantity", "avg_extendedprice", "avg_discount", "weight"], FLAGS),
    3: Query(lambda r: (r.c_mktsegment == "BUILDING") & (r.o_orderdate < Timestamp("1995-03-15"))
             & (r.l_shipdate > Timestamp("1995-03-15")), ["l_orderkey"], ["revenue"],
             ["l_orderkey", "revenue", "o_orderdate", "o_shippriority"],
             ["revenue", "o_orderdate", "l_orderkey"], 1, ["l_orderkey"], first=10),
    5: Query(lambda r: (r.c_nationkey == r.s_nationkey) & (r.o_year == 1994), ["s_nationkey"],
             ["revenue"], ["n_name", "revenue"], ["revenue"], 1, ["s_nationkey"],
             lambda r: r.r_name == "ASIA"),
    7: Query(lambda r: r.l_year.isin([1995, 1996]), ["s_nationkey", "c_nationkey", "l_year"],
             ["revenue"], ["n_name_x", "n_name_y", "l_year", "revenue"],
             ["n_name_x", "n_name_y", "l_year"], 0, ["s_nationkey", "c_nationkey"],
             lambda r: (r.n_name_x + r.n_name_y).isin(["FRANCEGERMANY", "GERMANYFRANCE"])),
    9: Query(lambda r: r.green, ["s_nationkey", "o_year"], ["profit"],
             ["n_name", "o_year", "profit"], ["n_name", "o_year"], 2, ["s_nationkey"]),
    10: Query(lambda r: (r.o_orderdate >= Timestamp("1993-10-01")) & (r.o_year == 1993)
              & (r.l_returnflag == "R"), ["o_custkey"], ["revenue"],
              ["c_custkey", "c_name", "revenue", "c_acctbal", "n_name", *CUSTOMER],
              ["revenue", "c_custkey"], 1, ["o_custkey", "c_nationkey"], first=20),
    12: Query(lambda r: r.l_shipmode.isin(["MAIL", "SHIP"]) & (r.l_commitdate < r.l_receiptdate)
              & (r.l_shipdate < r.l_commitdate) & (r.l_receiptdate.dt.year == 1994),
              ["l_shipmode"], ["high", "low"], ["l_shipmode", "high", "low"], ["l_shipmode"]),
    18: Query(lambda r: r.weight != 0, ["l_orderkey"], ["sum_quantity"],
              ["c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice", "sum_quantity"],
              ["o_totalprice", "o_orderdate", "o_orderkey"], 1, ["l_orderkey", "o_custkey"],
              having=lambda groups: groups["sum_quantity"] > 300, first=100),
}  # fmt: skip
