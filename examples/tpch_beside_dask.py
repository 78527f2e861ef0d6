"""TPC-H: lineitem joined with orders by a standing index and by Dask's own merge, rows and time."""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import platformdirs
from distributed import Client, LocalCluster, wait

from dgpuhash import DistributedIndex

LINES = ["l_orderkey", "l_partkey", "l_suppkey", "l_linenumber", "l_quantity", "l_extendedprice"]
ORDERS = ["o_orderkey", "o_custkey", "o_totalprice", "o_shippriority"]


def read(folder: Path, columns: list[str]) -> dd.DataFrame:
    frame = dd.read_parquet(folder, columns=columns).repartition(npartitions=8)
    return frame.astype({n: float for n in columns if n.endswith(("price", "quantity"))}).persist()


def timed(what: str, merged: dd.DataFrame) -> tuple[int, float, float]:
    start = time.perf_counter()
    wait(merged := merged.persist())
    print(f"{what}: {time.perf_counter() - start:.2f} s")
    pairs = (merged["l_partkey"] * merged["o_custkey"]).sum()
    return len(merged), pairs.compute(), merged["o_totalprice"].sum().compute()


def main(scale: float, folder: Path) -> None:
    if not folder.exists():
        tool = Path(sys.executable).with_name("tpchgen-cli"), "parquet", f"--output-dir={folder}"
        subprocess.run([*tool, "--parts=4", f"-s={scale}", "--tables=lineitem,orders"], check=True)
    wait([lines := read(folder / "lineitem", LINES), orders := read(folder / "orders", ORDERS)])
    with DistributedIndex.build(orders, on="o_orderkey") as index:
        ours = timed("standing index", index.merge(lines, left_on="l_orderkey"))
    theirs = lines.merge(orders, left_on="l_orderkey", right_on="o_orderkey")
    np.testing.assert_allclose(ours, timed("Dask's merge", theirs))
    print(f"{ours[0]:,} rows, equal.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scale", type=float, nargs="?", default=1, help="of the data, default 1")
    scale = parser.parse_args().scale
    with LocalCluster(n_workers=2, threads_per_worker=1) as cluster, Client(cluster):
        main(scale, platformdirs.user_cache_path("dgpuhash") / f"tpch-lines-{scale:g}")
