"""Queries 12 to 22 of TPC-H."""

from __future__ import annotations

from datetime import date

from suites.tpch.data import Tables
from suites.tpch.libraries import Frame
from suites.tpch.queries.shared import (
    COPIED,
    Query,
    Verbs,
    between,
    revenue_of,
    suppliers_of,
    total_of,
)

__all__ = ["QUERIES"]


def q12(tables: Tables, verbs: Verbs) -> Frame:
    """Count the late lines of a year by mail and ship, with orders of high priority and others."""
    lines = tables.lineitem
    lines = lines[
        lines["l_shipmode"].isin(["MAIL", "SHIP"])
        & (lines["l_commitdate"] < lines["l_receiptdate"])
        & (lines["l_shipdate"] < lines["l_commitdate"])
        & between(tables, lines["l_receiptdate"], date(1994, 1, 1), date(1995, 1, 1))
    ]
    joined = verbs.merge(tables.orders, lines, left_on="o_orderkey", right_on="l_orderkey")
    high = joined["o_orderpriority"].isin(["1-URGENT", "2-HIGH"])
    joined = joined.assign(
        high_line_count=high.astype("int64"), low_line_count=(~high).astype("int64")
    )
    counts = ["high_line_count", "low_line_count"]
    return verbs.groupby(joined, "l_shipmode")[counts].sum().reset_index()


def q13(tables: Tables, verbs: Verbs) -> Frame:
    """Count the customers that made each number of orders, those without one too."""
    orders = tables.orders
    orders = orders[~orders["o_comment"].str.contains("special.*requests", regex=True)]
    joined = verbs.merge(
        tables.customer, orders, how="left", left_on="c_custkey", right_on="o_custkey"
    )
    made = verbs.groupby(joined, "c_custkey")[["o_orderkey"]].count()
    made = made.rename(columns={"o_orderkey": "c_count"})
    return verbs.groupby(made, "c_count").size().to_frame("custdist").reset_index()


def q14(tables: Tables, verbs: Verbs) -> Frame:
    """Compute the share of promoted parts in a month's sales."""
    lines = tables.lineitem
    lines = lines[between(tables, lines["l_shipdate"], date(1995, 9, 1), date(1995, 10, 1))]
    parts = tables.standing("part")
    joined = verbs.merge(lines, parts, left_on="l_partkey", right_on="p_partkey")
    revenue = revenue_of(tables, joined)
    promoted = revenue.where(joined["p_type"].str.startswith("PROMO"), tables.library.number(0))
    joined = joined.assign(revenue=revenue, promoted=promoted, one=1)
    sums = verbs.groupby(joined, "one")[["revenue", "promoted"]].sum().astype(tables.library.real)
    share = 100 * sums["promoted"] / sums["revenue"]
    return share.to_frame("promo_revenue")


def q15(tables: Tables, verbs: Verbs) -> Frame:
    """Find the suppliers that sold most in a quarter."""
    lines = tables.lineitem
    lines = lines[between(tables, lines["l_shipdate"], date(1996, 1, 1), date(1996, 4, 1))]
    lines = lines.assign(total_revenue=revenue_of(tables, lines))
    sums = verbs.groupby(lines, "l_suppkey")[["total_revenue"]].sum().reset_index()
    # Floats that were added in another order are equal, then.
    sums = sums.assign(total_revenue=sums["total_revenue"].round(4))
    most = verbs.groupby(sums.assign(one=1), "one")[["total_revenue"]].max()
    best = verbs.merge(sums, most, how="semi", on="total_revenue")
    suppliers = tables.standing("supplier")
    found = verbs.merge(best, suppliers, left_on="l_suppkey", right_on="s_suppkey")
    return found[["s_suppkey", "s_name", "s_address", "s_phone", "total_revenue"]]


def q16(tables: Tables, verbs: Verbs) -> Frame:
    """Count the suppliers without complaints of each kind of part."""
    part, supplier = tables.part, tables.supplier
    part = part[
        (part["p_brand"] != "Brand#45")
        & ~part["p_type"].str.startswith("MEDIUM POLISHED")
        & part["p_size"].isin([49, 14, 23, 45, 19, 3, 36, 9])
    ]
    bad = supplier[supplier["s_comment"].str.contains("Customer.*Complaints", regex=True)]
    offers = verbs.merge(tables.partsupp, part, left_on="ps_partkey", right_on="p_partkey")
    keys = {"left_on": "ps_suppkey", "right_on": "s_suppkey"}
    offers = verbs.merge(offers, bad, how="anti", **keys, **COPIED)
    kinds = ["p_brand", "p_type", "p_size"]
    counts = verbs.groupby(offers, kinds)["ps_suppkey"].nunique()
    return counts.to_frame("supplier_cnt").reset_index()


def q17(tables: Tables, verbs: Verbs) -> Frame:
    """Compute a year's sales of one kind of part in quantities that are small for the part."""
    part, lines = tables.part, tables.lineitem
    part = part[(part["p_brand"] == "Brand#23") & (part["p_container"] == "MED BOX")]
    keys = {"left_on": "l_partkey", "right_on": "p_partkey"}
    lines = verbs.merge(lines, part, how="semi", **keys, **COPIED)
    lines = lines.assign(quantity=lines["l_quantity"].astype(tables.library.real))
    means = verbs.groupby(lines, "l_partkey")[["quantity"]].mean()
    lines = verbs.merge(
        lines, means, left_on="l_partkey", right_index=True, suffixes=(None, "_mean")
    )
    small = lines[lines["quantity"] < 0.2 * lines["quantity_mean"]]
    prices = small[["l_extendedprice"]].rename(columns={"l_extendedprice": "avg_yearly"})
    return total_of(tables, prices) / 7


def q18(tables: Tables, verbs: Verbs) -> Frame:
    """Find the orders of large quantities, and who made them."""
    lines = tables.lineitem
    sums = verbs.groupby(lines, "l_orderkey")[["l_quantity"]].sum().reset_index()
    large = sums[sums["l_quantity"] > tables.library.number(300)]
    orders = verbs.merge(
        tables.orders, large, how="semi", left_on="o_orderkey", right_on="l_orderkey"
    )
    customers = tables.standing("customer")
    orders = verbs.merge(orders, customers, left_on="o_custkey", right_on="c_custkey")
    pairs = {"left_on": "l_orderkey", "right_on": "o_orderkey", "validate": "m:1"}
    joined = verbs.merge(lines, orders, **pairs, **COPIED)
    keys = ["c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice"]
    sums = verbs.groupby(joined, keys)[["l_quantity"]].sum().reset_index()
    return sums.rename(columns={"l_quantity": "sum_quantity"})


def q19(tables: Tables, verbs: Verbs) -> Frame:
    """Sum the sales of three brands in small quantities, handed over in person."""
    lines = tables.lineitem
    lines = lines[
        lines["l_shipmode"].isin(["AIR", "AIR REG"])
        & (lines["l_shipinstruct"] == "DELIVER IN PERSON")
    ]
    parts = tables.standing("part")
    joined = verbs.merge(lines, parts, left_on="l_partkey", right_on="p_partkey")
    quantity, size, number = joined["l_quantity"], joined["p_size"], tables.library.number
    kinds = (
        ("Brand#12", ["SM CASE", "SM BOX", "SM PACK", "SM PKG"], 1, 5),
        ("Brand#23", ["MED BAG", "MED BOX", "MED PKG", "MED PACK"], 10, 10),
        ("Brand#34", ["LG CASE", "LG BOX", "LG PACK", "LG PKG"], 20, 15),
    )
    wanted = size < 0
    for brand, containers, least, largest in kinds:
        wanted |= (
            (joined["p_brand"] == brand)
            & joined["p_container"].isin(containers)
            & (quantity >= number(least))
            & (quantity <= number(least + 10))
            & (size >= 1)
            & (size <= largest)
        )
    return total_of(tables, revenue_of(tables, joined[wanted]).to_frame("revenue"))


def q20(tables: Tables, verbs: Verbs) -> Frame:
    """Find the suppliers in Canada that have more of a forest part than half a year's sales."""
    part, lines, nation = tables.part, tables.lineitem, tables.nation
    part = part[part["p_name"].str.startswith("forest")]
    lines = lines[between(tables, lines["l_shipdate"], date(1994, 1, 1), date(1995, 1, 1))]
    offers = verbs.merge(
        tables.partsupp, part, how="semi", left_on="ps_partkey", right_on="p_partkey", **COPIED
    )
    keys = {"left_on": "l_partkey", "right_on": "p_partkey"}
    lines = verbs.merge(lines, part, how="semi", **keys, **COPIED)
    sold = verbs.groupby(lines, ["l_partkey", "l_suppkey"])[["l_quantity"]].sum().reset_index()
    offers = verbs.merge(
        offers,
        sold,
        left_on=["ps_partkey", "ps_suppkey"],
        right_on=["l_partkey", "l_suppkey"],
        validate="1:1",
    )
    many = offers[offers["ps_availqty"] > 0.5 * offers["l_quantity"].astype(tables.library.real)]
    suppliers = suppliers_of(nation[nation["n_name"] == "CANADA"], tables, verbs)
    found = verbs.merge(suppliers, many, how="semi", left_on="s_suppkey", right_on="ps_suppkey")
    return found[["s_name", "s_address"]]


def q21(tables: Tables, verbs: Verbs) -> Frame:
    """Count for suppliers in Saudi Arabia the orders where only they were late, of several."""
    nation, orders = tables.nation, tables.orders
    lines = tables.lineitem[["l_orderkey", "l_suppkey", "l_commitdate", "l_receiptdate"]]
    late = lines[lines["l_receiptdate"] > lines["l_commitdate"]]
    here = suppliers_of(nation[nation["n_name"] == "SAUDI ARABIA"], tables, verbs)
    blamed = verbs.merge(late, here, left_on="l_suppkey", right_on="s_suppkey", **COPIED)
    orders = orders[orders["o_orderstatus"] == "F"]
    blamed = verbs.merge(blamed, orders, how="semi", left_on="l_orderkey", right_on="o_orderkey")
    own = ["l_orderkey", "l_suppkey"]
    for others, how in ((lines, "semi"), (late, "anti")):
        pairs = verbs.merge(others[own], blamed[own], on="l_orderkey", suffixes=("_other", ""))
        pairs = pairs[pairs["l_suppkey"] != pairs["l_suppkey_other"]]
        blamed = verbs.merge(blamed, pairs[own], how=how, on=own)
    return verbs.groupby(blamed, "s_name").size().to_frame("numwait").reset_index()


def q22(tables: Tables, verbs: Verbs) -> Frame:
    """Count the customers of some countries that have money and never ordered, and sum it."""
    customers = tables.customer.assign(cntrycode=tables.customer["c_phone"].str[:2])
    codes = ["13", "31", "23", "29", "30", "18", "17"]
    customers = customers[customers["cntrycode"].isin(codes)]
    customers = customers.assign(balance=customers["c_acctbal"].astype(tables.library.real))
    mean = customers[customers["balance"] > 0][["balance"]].mean().to_frame("mean")
    customers = verbs.merge(customers, mean, how="cross")
    rich = customers[customers["balance"] > customers["mean"]]
    idle = verbs.merge(rich, tables.orders, how="anti", left_on="c_custkey", right_on="o_custkey")
    counts = verbs.groupby(idle, "cntrycode").agg({"c_custkey": "count", "c_acctbal": "sum"})
    names = {"c_custkey": "numcust", "c_acctbal": "totacctbal"}
    return counts.rename(columns=names).reset_index()


QUERIES: tuple[Query, ...] = (q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22)
