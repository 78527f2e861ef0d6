"""TPC-H: lineitem joined with orders and customer by index; the sums must equal DuckDB's."""

import argparse
import subprocess
import sys
from pathlib import Path

import dask.dataframe as dd
import duckdb
import pandas as pd
import platformdirs
from distributed import Client

from dgpuhash import DistributedIndex

COLUMNS = {
    "lineitem": ["l_orderkey", "l_quantity"],
    "orders": ["o_orderkey", "o_custkey", "o_orderpriority"],
    "customer": ["c_custkey", "c_mktsegment"],
}
QUERY = """select c_mktsegment, o_orderpriority, sum(l_quantity) as l_quantity from
read_parquet('{0}/lineitem/*') join read_parquet('{0}/orders/*') on l_orderkey = o_orderkey
join read_parquet('{0}/customer/*') on o_custkey = c_custkey group by all order by all"""


def main(scale: float, folder: Path) -> None:
    if not folder.exists():
        program = [Path(sys.executable).with_name("tpchgen-cli"), "parquet", "--parts=8"]
        options = [f"-s={scale}", f"--tables={','.join(COLUMNS)}", f"--output-dir={folder}"]
        subprocess.run([*program, *options], check=True)
    lines, orders, customers = (
        dd.read_parquet(folder / name, columns=columns) for name, columns in COLUMNS.items()
    )
    by_order = DistributedIndex.build(orders, on="o_orderkey")
    by_customer = DistributedIndex.build(customers, on="c_custkey")
    joined = by_customer.merge(by_order.merge(lines, left_on="l_orderkey"), left_on="o_custkey")
    joined["l_quantity"] = joined["l_quantity"].astype("float64")
    sums = joined.groupby(["c_mktsegment", "o_orderpriority"])["l_quantity"].sum().compute()
    expected = duckdb.sql(QUERY.format(folder)).df().set_index(sums.index.names)["l_quantity"]
    pd.testing.assert_series_equal(sums.sort_index(), expected, check_index_type=False)
    print(expected.unstack(), "Equal to DuckDB's.", sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="of the data, 1 for 6,001,215 lines")
    scale = parser.parse_args().scale
    with Client(dashboard_address=None):
        main(scale, platformdirs.user_cache_path("dgpuhash") / f"tpch-{scale:g}")
