"""The queries of TPC-H with joins on lazy Dask frames, with the parameters of the specification.

Each takes the tables and a function that merges, with the arguments of `dgpuhash.merge`, and
returns a lazy frame with the columns of the SQL beside it. Rows have no order, and all of them
come back: `suites.tpch.answers` orders and cuts.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import TypeAlias

import dask.dataframe as dd

from suites.tpch.data import Tables

__all__ = ["QUERIES", "Merge", "Query"]

Merge: TypeAlias = Callable[..., dd.DataFrame]
Query: TypeAlias = Callable[[Tables, Merge], dd.DataFrame]


def revenue_of(lines: dd.DataFrame) -> dd.Series:
    """Return the discounted price of each line, exactly."""
    return lines["l_extendedprice"] * (Decimal(1) - lines["l_discount"])


def between(days: dd.Series, first: date, end: date) -> dd.Series:
    """Return which days are `first` or later, and before `end`."""
    return days.ge(first) & days.lt(end)


def suppliers_of(nations: dd.DataFrame, tables: Tables, merge: Merge) -> dd.DataFrame:
    """Return the suppliers in some nations, beside the columns of these."""
    return merge(
        tables.supplier, nations, left_on="s_nationkey", right_on="n_nationkey", validate="m:1"
    )


def nations_of(region: str, tables: Tables, merge: Merge) -> dd.DataFrame:
    """Return the nations of a region."""
    named = tables.region[tables.region["r_name"] == region]
    return merge(tables.nation, named, how="semi", left_on="n_regionkey", right_on="r_regionkey")


def q02(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Find the suppliers in Europe that offer parts of brass at the lowest price there."""
    part, offer = tables.part, tables.partsupp
    part = part[(part["p_size"] == 15) & part["p_type"].str.endswith("BRASS")]
    suppliers = suppliers_of(nations_of("EUROPE", tables, merge), tables, merge)
    offers = merge(part, offer, left_on="p_partkey", right_on="ps_partkey")
    offers = merge(offers, suppliers, left_on="ps_suppkey", right_on="s_suppkey")
    lowest = offers.groupby("p_partkey")[["ps_supplycost"]].min().reset_index()
    best = merge(offers, lowest, on=["p_partkey", "ps_supplycost"])
    kept = ["s_acctbal", "s_name", "n_name", "p_partkey", "p_mfgr", "s_address", "s_phone"]
    return best[[*kept, "s_comment"]]


def q03(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Sum what is not yet shipped of each order of the building segment."""
    customers, orders, lines = tables.customer, tables.orders, tables.lineitem
    day = date(1995, 3, 15)
    customers = customers[customers["c_mktsegment"] == "BUILDING"]
    orders = orders[orders["o_orderdate"] < day]
    lines = lines[lines["l_shipdate"] > day]
    orders = merge(
        orders, customers, left_on="o_custkey", right_on="c_custkey", validate="many_to_one"
    )
    joined = merge(lines, orders, left_on="l_orderkey", right_on="o_orderkey", validate="m:1")
    joined = joined.assign(revenue=revenue_of(joined))
    keys = ["l_orderkey", "o_orderdate", "o_shippriority"]
    sums = joined.groupby(keys)[["revenue"]].sum().reset_index()
    return sums[["l_orderkey", "revenue", "o_orderdate", "o_shippriority"]]


def q04(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Count the orders of a quarter with a line that came late, by priority."""
    orders, lines = tables.orders, tables.lineitem
    orders = orders[between(orders["o_orderdate"], date(1993, 7, 1), date(1993, 10, 1))]
    late = lines[lines["l_commitdate"] < lines["l_receiptdate"]]
    kept = merge(orders, late, how="semi", left_on="o_orderkey", right_on="l_orderkey")
    return kept.groupby("o_orderpriority").size().to_frame("order_count").reset_index()


def q05(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Sum what suppliers in Asia sold in a year to customers of their own nation."""
    orders = tables.orders
    orders = orders[between(orders["o_orderdate"], date(1994, 1, 1), date(1995, 1, 1))]
    suppliers = suppliers_of(nations_of("ASIA", tables, merge), tables, merge)
    orders = merge(orders, tables.customer, left_on="o_custkey", right_on="c_custkey")
    joined = merge(tables.lineitem, orders, left_on="l_orderkey", right_on="o_orderkey")
    joined = merge(
        joined,
        suppliers,
        left_on=["l_suppkey", "c_nationkey"],
        right_on=["s_suppkey", "s_nationkey"],
    )
    joined = joined.assign(revenue=revenue_of(joined))
    return joined.groupby("n_name")[["revenue"]].sum().reset_index()


def q07(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Sum what France and Germany shipped to each other, by year."""
    nation, lines = tables.nation, tables.lineitem
    two = nation[nation["n_name"].isin(["FRANCE", "GERMANY"])]
    lines = lines[between(lines["l_shipdate"], date(1995, 1, 1), date(1997, 1, 1))]
    suppliers = suppliers_of(two, tables, merge)
    customers = merge(tables.customer, two, left_on="c_nationkey", right_on="n_nationkey")
    orders = merge(tables.orders, customers, left_on="o_custkey", right_on="c_custkey")
    sold = merge(lines, suppliers, left_on="l_suppkey", right_on="s_suppkey")
    joined = merge(
        sold, orders, left_on="l_orderkey", right_on="o_orderkey", suffixes=("_supp", "_cust")
    )
    joined = joined[joined["n_name_supp"] != joined["n_name_cust"]]
    joined = joined.assign(revenue=revenue_of(joined), l_year=joined["l_shipdate"].dt.year)
    joined = joined.rename(columns={"n_name_supp": "supp_nation", "n_name_cust": "cust_nation"})
    keys = ["supp_nation", "cust_nation", "l_year"]
    return joined.groupby(keys)[["revenue"]].sum().reset_index()


def q08(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Compute the share that Brazil has in what America buys of a type of part, by year."""
    part, orders = tables.part, tables.orders
    part = part[part["p_type"] == "ECONOMY ANODIZED STEEL"]
    orders = orders[between(orders["o_orderdate"], date(1995, 1, 1), date(1997, 1, 1))]
    buying = nations_of("AMERICA", tables, merge)
    customers = merge(
        tables.customer, buying, how="semi", left_on="c_nationkey", right_on="n_nationkey"
    )
    orders = merge(orders, customers, how="semi", left_on="o_custkey", right_on="c_custkey")
    joined = merge(tables.lineitem, part, left_on="l_partkey", right_on="p_partkey")
    joined = merge(joined, orders, left_on="l_orderkey", right_on="o_orderkey")
    suppliers = suppliers_of(tables.nation, tables, merge)
    joined = merge(joined, suppliers, left_on="l_suppkey", right_on="s_suppkey")
    volume = revenue_of(joined)
    joined = joined.assign(
        o_year=joined["o_orderdate"].dt.year,
        volume=volume,
        brazilian=volume.where(joined["n_name"] == "BRAZIL", Decimal(0)),
    )
    sums = joined.groupby("o_year")[["brazilian", "volume"]].sum().reset_index()
    share = sums["brazilian"].astype("float64") / sums["volume"].astype("float64")
    return sums.assign(mkt_share=share)[["o_year", "mkt_share"]]


def q09(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Sum the profit made with green parts, by the supplier's nation and the year."""
    part = tables.part[tables.part["p_name"].str.contains("green", regex=False)]
    joined = merge(tables.lineitem, part, left_on="l_partkey", right_on="p_partkey", validate="m:1")
    joined = merge(
        joined,
        tables.partsupp,
        left_on=["l_suppkey", "l_partkey"],
        right_on=["ps_suppkey", "ps_partkey"],
        validate="m:1",
    )
    suppliers = suppliers_of(tables.nation, tables, merge)
    joined = merge(joined, suppliers, left_on="l_suppkey", right_on="s_suppkey")
    joined = merge(joined, tables.orders, left_on="l_orderkey", right_on="o_orderkey")
    cost = joined["ps_supplycost"] * joined["l_quantity"]
    joined = joined.assign(
        o_year=joined["o_orderdate"].dt.year, sum_profit=revenue_of(joined) - cost
    ).rename(columns={"n_name": "nation"})
    return joined.groupby(["nation", "o_year"])[["sum_profit"]].sum().reset_index()


def q10(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Sum what each customer sent back of a quarter's orders."""
    orders, lines = tables.orders, tables.lineitem
    orders = orders[between(orders["o_orderdate"], date(1993, 10, 1), date(1994, 1, 1))]
    lines = lines[lines["l_returnflag"] == "R"]
    joined = merge(lines, orders, left_on="l_orderkey", right_on="o_orderkey")
    joined = joined.assign(revenue=revenue_of(joined))
    sums = joined.groupby("o_custkey")[["revenue"]].sum()
    customers = merge(tables.customer, sums, left_on="c_custkey", right_index=True)
    customers = merge(
        customers, tables.nation, left_on="c_nationkey", right_on="n_nationkey", validate="m:1"
    )
    kept = ["c_custkey", "c_name", "revenue", "c_acctbal", "n_name", "c_address", "c_phone"]
    return customers[[*kept, "c_comment"]]


def q12(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Count the late lines of a year by mail and ship, with orders of high priority and others."""
    lines = tables.lineitem
    lines = lines[
        lines["l_shipmode"].isin(["MAIL", "SHIP"])
        & (lines["l_commitdate"] < lines["l_receiptdate"])
        & (lines["l_shipdate"] < lines["l_commitdate"])
        & between(lines["l_receiptdate"], date(1994, 1, 1), date(1995, 1, 1))
    ]
    joined = merge(tables.orders, lines, left_on="o_orderkey", right_on="l_orderkey")
    high = joined["o_orderpriority"].isin(["1-URGENT", "2-HIGH"])
    joined = joined.assign(
        high_line_count=high.astype("int64"), low_line_count=(~high).astype("int64")
    )
    counts = ["high_line_count", "low_line_count"]
    return joined.groupby("l_shipmode")[counts].sum().reset_index()


def q13(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Count the customers that made each number of orders, those without one too."""
    orders = tables.orders
    orders = orders[~orders["o_comment"].str.contains("special.*requests", regex=True)]
    joined = merge(tables.customer, orders, how="left", left_on="c_custkey", right_on="o_custkey")
    made = joined.groupby("c_custkey")[["o_orderkey"]].count()
    made = made.rename(columns={"o_orderkey": "c_count"})
    return made.groupby("c_count").size().to_frame("custdist").reset_index()


def q16(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Count the suppliers without complaints of each kind of part."""
    part, supplier = tables.part, tables.supplier
    part = part[
        (part["p_brand"] != "Brand#45")
        & ~part["p_type"].str.startswith("MEDIUM POLISHED")
        & part["p_size"].isin([49, 14, 23, 45, 19, 3, 36, 9])
    ]
    bad = supplier[supplier["s_comment"].str.contains("Customer.*Complaints", regex=True)]
    offers = merge(tables.partsupp, part, left_on="ps_partkey", right_on="p_partkey")
    offers = merge(offers, bad, how="anti", left_on="ps_suppkey", right_on="s_suppkey")
    kinds = ["p_brand", "p_type", "p_size"]
    counts = offers.groupby(kinds)["ps_suppkey"].nunique()
    return counts.to_frame("supplier_cnt").reset_index()


def q17(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Compute a year's sales of one kind of part in quantities that are small for the part."""
    part, lines = tables.part, tables.lineitem
    part = part[(part["p_brand"] == "Brand#23") & (part["p_container"] == "MED BOX")]
    lines = lines.assign(quantity=lines["l_quantity"].astype("float64"))
    means = lines.groupby("l_partkey")[["quantity"]].mean()
    lines = merge(lines, part, how="semi", left_on="l_partkey", right_on="p_partkey")
    lines = merge(lines, means, left_on="l_partkey", right_index=True, suffixes=(None, "_mean"))
    small = lines[lines["quantity"] < 0.2 * lines["quantity_mean"]]
    total = small[["l_extendedprice"]].astype("float64").sum(min_count=1)
    return (total / 7).to_frame("avg_yearly")


def q18(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Find the orders of large quantities, and who made them."""
    lines = tables.lineitem
    sums = lines.groupby("l_orderkey")[["l_quantity"]].sum().reset_index()
    large = sums[sums["l_quantity"] > Decimal(300)]
    orders = merge(tables.orders, large, how="semi", left_on="o_orderkey", right_on="l_orderkey")
    orders = merge(tables.customer, orders, left_on="c_custkey", right_on="o_custkey")
    joined = merge(orders, lines, left_on="o_orderkey", right_on="l_orderkey", validate="1:m")
    keys = ["c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice"]
    sums = joined.groupby(keys)[["l_quantity"]].sum().reset_index()
    return sums.rename(columns={"l_quantity": "sum_quantity"})


def q20(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Find the suppliers in Canada that have more of a forest part than half a year's sales."""
    part, lines, nation = tables.part, tables.lineitem, tables.nation
    part = part[part["p_name"].str.startswith("forest")]
    lines = lines[between(lines["l_shipdate"], date(1994, 1, 1), date(1995, 1, 1))]
    offers = merge(tables.partsupp, part, how="semi", left_on="ps_partkey", right_on="p_partkey")
    sold = lines.groupby(["l_partkey", "l_suppkey"])[["l_quantity"]].sum().reset_index()
    offers = merge(
        offers,
        sold,
        left_on=["ps_partkey", "ps_suppkey"],
        right_on=["l_partkey", "l_suppkey"],
        validate="1:1",
    )
    many = offers[offers["ps_availqty"] > 0.5 * offers["l_quantity"].astype("float64")]
    suppliers = suppliers_of(nation[nation["n_name"] == "CANADA"], tables, merge)
    found = merge(suppliers, many, how="semi", left_on="s_suppkey", right_on="ps_suppkey")
    return found[["s_name", "s_address"]]


def q21(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Count for suppliers in Saudi Arabia the orders where only they were late, of several."""
    nation, orders = tables.nation, tables.orders
    lines = tables.lineitem[["l_orderkey", "l_suppkey", "l_commitdate", "l_receiptdate"]]
    late = lines[lines["l_receiptdate"] > lines["l_commitdate"]]
    here = suppliers_of(nation[nation["n_name"] == "SAUDI ARABIA"], tables, merge)
    blamed = merge(late, here, left_on="l_suppkey", right_on="s_suppkey")
    orders = orders[orders["o_orderstatus"] == "F"]
    blamed = merge(blamed, orders, how="semi", left_on="l_orderkey", right_on="o_orderkey")
    own = ["l_orderkey", "l_suppkey"]
    for others, how in ((lines, "semi"), (late, "anti")):
        pairs = merge(blamed[own], others[own], on="l_orderkey", suffixes=("", "_other"))
        pairs = pairs[pairs["l_suppkey"] != pairs["l_suppkey_other"]]
        blamed = merge(blamed, pairs[own], how=how, on=own)
    return blamed.groupby("s_name").size().to_frame("numwait").reset_index()


def q22(tables: Tables, merge: Merge) -> dd.DataFrame:
    """Count the customers of some countries that have money and never ordered, and sum it."""
    customers = tables.customer.assign(cntrycode=tables.customer["c_phone"].str[:2])
    codes = ["13", "31", "23", "29", "30", "18", "17"]
    customers = customers[customers["cntrycode"].isin(codes)]
    customers = customers.assign(balance=customers["c_acctbal"].astype("float64"))
    mean = customers[customers["balance"] > 0][["balance"]].mean().to_frame("mean")
    customers = merge(customers, mean, how="cross")
    rich = customers[customers["balance"] > customers["mean"]]
    idle = merge(rich, tables.orders, how="anti", left_on="c_custkey", right_on="o_custkey")
    counts = idle.groupby("cntrycode").agg({"c_custkey": "count", "c_acctbal": "sum"})
    names = {"c_custkey": "numcust", "c_acctbal": "totacctbal"}
    return counts.rename(columns=names).reset_index()


QUERIES: dict[int, Query] = {
    int(query.__name__[1:]): query
    for query in (
        *(q02, q03, q04, q05, q07, q08, q09, q10),
        *(q12, q13, q16, q17, q18, q20, q21, q22),
    )
}
