"""Queries 1 to 11 of TPC-H."""

from __future__ import annotations

from datetime import date

from suites.tpch.data import Tables
from suites.tpch.libraries import Frame
from suites.tpch.queries.shared import (
    COPIED,
    Query,
    Verbs,
    between,
    nations_of,
    revenue_of,
    suppliers_of,
    total_of,
)

__all__ = ["QUERIES"]


def q01(tables: Tables, verbs: Verbs) -> Frame:
    """Sum and average what was shipped until a day, by state."""
    lines = tables.lineitem
    lines = lines[lines["l_shipdate"] <= tables.library.day(date(1998, 9, 2))]
    discount, tax = (tables.library.shares(lines[name]) for name in ("l_discount", "l_tax"))
    price = lines["l_extendedprice"] * (tables.library.number(1) - discount)
    means = {"quantity": "l_quantity", "price": "l_extendedprice", "discount": "l_discount"}
    lines = lines.assign(
        disc_price=price,
        charge=price * (tables.library.number(1) + tax),
        **{name: lines[column].astype(tables.library.real) for name, column in means.items()},
    )
    groups = verbs.groupby(lines, ["l_returnflag", "l_linestatus"])
    return groups.agg(
        sum_qty=("l_quantity", "sum"),
        sum_base_price=("l_extendedprice", "sum"),
        sum_disc_price=("disc_price", "sum"),
        sum_charge=("charge", "sum"),
        avg_qty=("quantity", "mean"),
        avg_price=("price", "mean"),
        avg_disc=("discount", "mean"),
        count_order=("l_quantity", "count"),
    ).reset_index()


def q02(tables: Tables, verbs: Verbs) -> Frame:
    """Find the suppliers in Europe that offer parts of brass at the lowest price there."""
    part, offer = tables.part, tables.partsupp
    part = part[(part["p_size"] == 15) & part["p_type"].str.endswith("BRASS")]
    suppliers = suppliers_of(nations_of("EUROPE", tables, verbs), tables, verbs)
    offers = verbs.merge(offer, part, left_on="ps_partkey", right_on="p_partkey", **COPIED)
    offers = verbs.merge(offers, suppliers, left_on="ps_suppkey", right_on="s_suppkey", **COPIED)
    lowest = verbs.groupby(offers, "p_partkey")[["ps_supplycost"]].min().reset_index()
    best = verbs.merge(offers, lowest, on=["p_partkey", "ps_supplycost"])
    kept = ["s_acctbal", "s_name", "n_name", "p_partkey", "p_mfgr", "s_address", "s_phone"]
    return best[[*kept, "s_comment"]]


def q03(tables: Tables, verbs: Verbs) -> Frame:
    """Sum what is not yet shipped of each order of the building segment."""
    customers, orders, lines = tables.customer, tables.orders, tables.lineitem
    day = tables.library.day(date(1995, 3, 15))
    customers = customers[customers["c_mktsegment"] == "BUILDING"]
    orders = orders[orders["o_orderdate"] < day]
    lines = lines[lines["l_shipdate"] > day]
    orders = verbs.merge(
        orders, customers, left_on="o_custkey", right_on="c_custkey", validate="many_to_one"
    )
    joined = verbs.merge(lines, orders, left_on="l_orderkey", right_on="o_orderkey", validate="m:1")
    joined = joined.assign(revenue=revenue_of(tables, joined))
    keys = ["l_orderkey", "o_orderdate", "o_shippriority"]
    sums = verbs.groupby(joined, keys)[["revenue"]].sum().reset_index()
    return sums[["l_orderkey", "revenue", "o_orderdate", "o_shippriority"]]


def q04(tables: Tables, verbs: Verbs) -> Frame:
    """Count the orders of a quarter with a line that came late, by priority."""
    orders, lines = tables.orders, tables.lineitem
    orders = orders[between(tables, orders["o_orderdate"], date(1993, 7, 1), date(1993, 10, 1))]
    late = lines[lines["l_commitdate"] < lines["l_receiptdate"]]
    kept = verbs.merge(orders, late, how="semi", left_on="o_orderkey", right_on="l_orderkey")
    return verbs.groupby(kept, "o_orderpriority").size().to_frame("order_count").reset_index()


def q05(tables: Tables, verbs: Verbs) -> Frame:
    """Sum what suppliers in Asia sold in a year to customers of their own nation."""
    orders = tables.orders
    orders = orders[between(tables, orders["o_orderdate"], date(1994, 1, 1), date(1995, 1, 1))]
    suppliers = suppliers_of(nations_of("ASIA", tables, verbs), tables, verbs)
    customers = tables.standing("customer")
    orders = verbs.merge(orders, customers, left_on="o_custkey", right_on="c_custkey")
    joined = verbs.merge(tables.lineitem, orders, left_on="l_orderkey", right_on="o_orderkey")
    joined = verbs.merge(
        joined,
        suppliers,
        left_on=["l_suppkey", "c_nationkey"],
        right_on=["s_suppkey", "s_nationkey"],
        **COPIED,
    )
    joined = joined.assign(revenue=revenue_of(tables, joined))
    return verbs.groupby(joined, "n_name")[["revenue"]].sum().reset_index()


def q06(tables: Tables, verbs: Verbs) -> Frame:
    """Sum the discounts of a year's small lines; nothing is merged or grouped."""
    lines = tables.lineitem
    lines = lines[
        between(tables, lines["l_shipdate"], date(1994, 1, 1), date(1995, 1, 1))
        & (lines["l_discount"] > tables.library.number("0.045"))
        & (lines["l_discount"] < tables.library.number("0.075"))
        & (lines["l_quantity"] < tables.library.number(24))
    ]
    return total_of(tables, (lines["l_extendedprice"] * lines["l_discount"]).to_frame("revenue"))


def q07(tables: Tables, verbs: Verbs) -> Frame:
    """Sum what France and Germany shipped to each other, by year."""
    nation, lines = tables.nation, tables.lineitem
    two = nation[nation["n_name"].isin(["FRANCE", "GERMANY"])]
    lines = lines[between(tables, lines["l_shipdate"], date(1995, 1, 1), date(1997, 1, 1))]
    suppliers = suppliers_of(two, tables, verbs)
    customers = verbs.merge(
        tables.customer, two, left_on="c_nationkey", right_on="n_nationkey", **COPIED
    )
    orders = verbs.merge(tables.orders, customers, left_on="o_custkey", right_on="c_custkey")
    sold = verbs.merge(lines, suppliers, left_on="l_suppkey", right_on="s_suppkey", **COPIED)
    joined = verbs.merge(
        sold, orders, left_on="l_orderkey", right_on="o_orderkey", suffixes=("_supp", "_cust")
    )
    joined = joined[joined["n_name_supp"] != joined["n_name_cust"]]
    joined = joined.assign(revenue=revenue_of(tables, joined), l_year=joined["l_shipdate"].dt.year)
    joined = joined.rename(columns={"n_name_supp": "supp_nation", "n_name_cust": "cust_nation"})
    keys = ["supp_nation", "cust_nation", "l_year"]
    return verbs.groupby(joined, keys)[["revenue"]].sum().reset_index()


def q08(tables: Tables, verbs: Verbs) -> Frame:
    """Compute the share that Brazil has in what America buys of a type of part, by year."""
    part, orders = tables.part, tables.orders
    part = part[part["p_type"] == "ECONOMY ANODIZED STEEL"]
    orders = orders[between(tables, orders["o_orderdate"], date(1995, 1, 1), date(1997, 1, 1))]
    buying = nations_of("AMERICA", tables, verbs)
    customers = verbs.merge(
        tables.customer, buying, how="semi", left_on="c_nationkey", right_on="n_nationkey", **COPIED
    )
    orders = verbs.merge(orders, customers, how="semi", left_on="o_custkey", right_on="c_custkey")
    lines = tables.lineitem
    joined = verbs.merge(lines, part, left_on="l_partkey", right_on="p_partkey", **COPIED)
    joined = verbs.merge(joined, orders, left_on="l_orderkey", right_on="o_orderkey")
    suppliers = suppliers_of(tables.standing("nation"), tables, verbs)
    joined = verbs.merge(joined, suppliers, left_on="l_suppkey", right_on="s_suppkey", **COPIED)
    volume = revenue_of(tables, joined)
    joined = joined.assign(
        o_year=joined["o_orderdate"].dt.year,
        volume=volume,
        brazilian=volume.where(joined["n_name"] == "BRAZIL", tables.library.number(0)),
    )
    sums = verbs.groupby(joined, "o_year")[["brazilian", "volume"]].sum().reset_index()
    share = sums["brazilian"].astype(tables.library.real) / sums["volume"].astype("float64")
    return sums.assign(mkt_share=share)[["o_year", "mkt_share"]]


def q09(tables: Tables, verbs: Verbs) -> Frame:
    """Sum the profit made with green parts, by the supplier's nation and the year."""
    part = tables.part[tables.part["p_name"].str.contains("green", regex=False)]
    joined = verbs.merge(
        tables.lineitem, part, how="semi", left_on="l_partkey", right_on="p_partkey", **COPIED
    )
    joined = verbs.merge(
        joined,
        tables.standing("partsupp"),
        left_on=["l_suppkey", "l_partkey"],
        right_on=["ps_suppkey", "ps_partkey"],
        validate="m:1",
    )
    suppliers = suppliers_of(tables.standing("nation"), tables, verbs)
    joined = verbs.merge(joined, suppliers, left_on="l_suppkey", right_on="s_suppkey", **COPIED)
    joined = verbs.merge(joined, tables.orders, left_on="l_orderkey", right_on="o_orderkey")
    cost = joined["ps_supplycost"] * joined["l_quantity"]
    joined = joined.assign(
        o_year=joined["o_orderdate"].dt.year, sum_profit=revenue_of(tables, joined) - cost
    ).rename(columns={"n_name": "nation"})
    return verbs.groupby(joined, ["nation", "o_year"])[["sum_profit"]].sum().reset_index()


def q10(tables: Tables, verbs: Verbs) -> Frame:
    """Sum what each customer sent back of a quarter's orders."""
    orders, lines = tables.orders, tables.lineitem
    orders = orders[between(tables, orders["o_orderdate"], date(1993, 10, 1), date(1994, 1, 1))]
    lines = lines[lines["l_returnflag"] == "R"]
    joined = verbs.merge(lines, orders, left_on="l_orderkey", right_on="o_orderkey")
    joined = joined.assign(revenue=revenue_of(tables, joined))
    sums = verbs.groupby(joined, "o_custkey")[["revenue"]].sum().reset_index()
    customers, nations = tables.standing("customer"), tables.standing("nation")
    found = verbs.merge(sums, customers, left_on="o_custkey", right_on="c_custkey")
    customers = verbs.merge(
        found, nations, left_on="c_nationkey", right_on="n_nationkey", validate="m:1"
    )
    kept = ["c_custkey", "c_name", "revenue", "c_acctbal", "n_name", "c_address", "c_phone"]
    return customers[[*kept, "c_comment"]]


def q11(tables: Tables, verbs: Verbs) -> Frame:
    """Find the parts that are worth most of what German suppliers have in stock."""
    nation, offers = tables.nation, tables.partsupp
    suppliers = suppliers_of(nation[nation["n_name"] == "GERMANY"], tables, verbs)
    offers = verbs.merge(offers, suppliers, left_on="ps_suppkey", right_on="s_suppkey", **COPIED)
    offers = offers.assign(value=offers["ps_supplycost"] * offers["ps_availqty"])
    sums = verbs.groupby(offers, "ps_partkey")[["value"]].sum().reset_index()
    total = total_of(tables, offers[["value"]].rename(columns={"value": "total"}))
    sums = verbs.merge(sums, total, how="cross")
    large = sums[sums["value"].astype(tables.library.real) > 0.0001 * sums["total"]]
    return large[["ps_partkey", "value"]]


QUERIES: tuple[Query, ...] = (q01, q02, q03, q04, q05, q06, q07, q08, q09, q10, q11)
