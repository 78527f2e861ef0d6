"""The same answers anew: DuckDB and Polars change tables in memory and run the queries on them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

import pyarrow as pa

from dgpuhash.bench.refresh.tables import Change

#: The queries of TPC-H in the SQL of both; money in cents, revenues in hundredths of them.
QUERIES = {
    1: """select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty,
        sum(l_extendedprice) as sum_base_price,
        sum(l_extendedprice * (100 - l_discount)) as sum_disc_price,
        sum(l_extendedprice * (100 - l_discount) * (100 + l_tax)) as sum_charge,
        avg(l_quantity) as avg_qty, avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc,
        count(*) as count_order
        from lineitem where l_shipdate <= date '1998-09-02'
        group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus""",
    3: """select l_orderkey, sum(l_extendedprice * (100 - l_discount)) as revenue, o_orderdate,
        o_shippriority from customer join orders on c_custkey = o_custkey
        join lineitem on l_orderkey = o_orderkey
        where c_mktsegment = 'BUILDING' and o_orderdate < date '1995-03-15'
        and l_shipdate > date '1995-03-15' group by l_orderkey, o_orderdate, o_shippriority
        order by revenue desc, o_orderdate, l_orderkey limit 10""",
    5: """select n_name, sum(l_extendedprice * (100 - l_discount)) as revenue
        from customer join orders on c_custkey = o_custkey
        join lineitem on l_orderkey = o_orderkey
        join supplier on l_suppkey = s_suppkey and c_nationkey = s_nationkey
        join nation on s_nationkey = n_nationkey join region on n_regionkey = r_regionkey
        where r_name = 'ASIA' and o_orderdate >= date '1994-01-01'
        and o_orderdate < date '1995-01-01' group by n_name order by revenue desc""",
    7: """select n1.n_name as supp_nation, n2.n_name as cust_nation,
        extract(year from l_shipdate) as l_year,
        sum(l_extendedprice * (100 - l_discount)) as revenue
        from supplier join lineitem on s_suppkey = l_suppkey join orders on o_orderkey = l_orderkey
        join customer on c_custkey = o_custkey join nation as n1 on s_nationkey = n1.n_nationkey
        join nation as n2 on c_nationkey = n2.n_nationkey
        where ((n1.n_name = 'FRANCE' and n2.n_name = 'GERMANY')
        or (n1.n_name = 'GERMANY' and n2.n_name = 'FRANCE'))
        and l_shipdate >= date '1995-01-01' and l_shipdate <= date '1996-12-31'
        group by supp_nation, cust_nation, l_year order by supp_nation, cust_nation, l_year""",
    9: """select n_name, extract(year from o_orderdate) as o_year,
        sum(l_extendedprice * (100 - l_discount) - ps_supplycost * l_quantity * 100) as sum_profit
        from part join lineitem on p_partkey = l_partkey
        join partsupp on ps_suppkey = l_suppkey and ps_partkey = l_partkey
        join supplier on s_suppkey = l_suppkey join orders on o_orderkey = l_orderkey
        join nation on s_nationkey = n_nationkey where p_name like '%green%'
        group by n_name, o_year order by n_name, o_year desc""",
    10: """select c_custkey, c_name, sum(l_extendedprice * (100 - l_discount)) as revenue,
        c_acctbal, n_name, c_address, c_phone, c_comment from customer
        join orders on c_custkey = o_custkey
        join lineitem on l_orderkey = o_orderkey join nation on c_nationkey = n_nationkey
        where o_orderdate >= date '1993-10-01' and o_orderdate < date '1994-01-01'
        and l_returnflag = 'R'
        group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        order by revenue desc, c_custkey limit 20""",
    12: """select l_shipmode,
        sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 1 else 0 end)
        as high_line_count,
        sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 0 else 1 end)
        as low_line_count from orders join lineitem on o_orderkey = l_orderkey
        where l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate
        and l_shipdate < l_commitdate and l_receiptdate >= date '1994-01-01'
        and l_receiptdate < date '1995-01-01' group by l_shipmode order by l_shipmode""",
    18: """select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, quantity
        from (select l_orderkey, sum(l_quantity) as quantity from lineitem group by l_orderkey
        having sum(l_quantity) > 300) as large join orders on o_orderkey = l_orderkey
        join customer on c_custkey = o_custkey
        order by o_totalprice desc, o_orderdate, o_orderkey limit 100""",
}  # fmt: skip

Answers = dict[int, list[tuple[Any, ...]]]


class Anew(ABC):
    """Library that changes its own tables and computes all answers from them.

    Attributes
    ----------
    name : str
        The library's name and version.
    """

    name: str

    def prepare(self, change: Change) -> Any:
        """Return a change in the library's own form, outside the time."""
        return change

    @abstractmethod
    def change(self, change: Any) -> None:
        """Insert the new rows of a change, and delete the old ones."""

    @abstractmethod
    def answers(self) -> Answers:
        """Return the rows of each query's answer."""

    def cpu_seconds(self) -> float:
        """Return the CPU time so far of all processes that it runs in."""
        return time.process_time()

    @property
    def standing_bytes(self) -> int:
        """Bytes of what it keeps beside the rows of tables."""
        return 0


class DuckDB(Anew):
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


class Polars(Anew):
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
