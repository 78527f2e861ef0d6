"""Groupbys with more groups, or more rows, than the memory of their workers.

``python -m suites.spill.groupby`` groups 3 GiB on two workers of 1 GiB: sums and counts by a key
that two rows have, and medians. It checks counts and sums of the answers, that no worker was ended
and that no file is left, and prints what it took.
"""

from __future__ import annotations

import argparse
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

import dgpuhash
from suites.spill.merge import MIB, key_of, watched

# Values of each row beside its key, and bytes of a row.
VALUES = 7
ROW_NBYTES = 8 * (1 + VALUES)


def rows_of(part: int, rows: int, total: int) -> pd.DataFrame:
    """Return a partition: rows n and n + total / 2 have one key, and values n and its multiples."""
    numbers = np.arange(part * rows, (part + 1) * rows)
    groups = numbers % (total // 2)
    values = {f"v{place}": numbers * (place + 1) for place in range(VALUES)}
    return pd.DataFrame({"k": key_of(groups)} | values, copy=False)


def summary(frame: pd.DataFrame, how: str, groups: int) -> pd.DataFrame:
    """Return counts and sums of a partition of the result, once its rows are checked."""
    assert (np.diff(frame.index.to_numpy()) > 0).all()
    if how == "sum":
        assert (frame["n"] == 2).all()
        number = (frame["v0"] - groups) / 2
    else:
        number = frame["v0"] - groups / 2
    number = number.to_numpy()
    assert (frame.index.to_numpy() == key_of(number.astype(np.int64))).all()
    for place in range(VALUES):
        assert (frame[f"v{place}"] == frame["v0"] * (place + 1)).all()
    return pd.DataFrame({"groups": len(frame), "sum": int(number.sum())}, index=[0])


def asked(source: Any, how: str, ranges: int | None) -> Any:
    """Return the aggregates of all values by key, lazily."""
    groups = dgpuhash.groupby(source, "k", npartitions=ranges)
    if how == "sum":
        values = {f"v{place}": (f"v{place}", "sum") for place in range(VALUES)}
        return groups.agg(n=("v0", "count"), **values)
    return groups.median()


def main() -> None:
    """Run the groupbys."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=3, help="size of the source")
    parser.add_argument("--mib", type=int, default=32, help="size of its partitions")
    parser.add_argument("--memory", default="1GiB", help="memory of each of the two workers")
    parser.add_argument("--only", default="sum,median")
    parser.add_argument("--ranges", type=int, help="hash ranges; default: those of the library")
    given = parser.parse_args()
    rows, parts = given.mib * MIB // ROW_NBYTES, int(given.gib * 1024 / given.mib)
    total = parts * rows // 2 * 2
    groups = total // 2
    settings = {"dataframe.convert-string": False, "temporary-directory": "/tmp"}
    with (
        dask.config.set(settings),
        LocalCluster(2, threads_per_worker=1, memory_limit=given.memory, dashboard_address=":0",
                     preload=["dgpuhash.distributed"]) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        client.wait_for_workers(2)
        meta = rows_of(0, 2, 4).iloc[:0]
        source = dd.from_map(rows_of, range(parts), rows=rows, total=total, meta=meta)
        print(f"{total:,} rows of {ROW_NBYTES} bytes in {groups:,} groups")
        told = pd.DataFrame({"groups": [0], "sum": [0]}).iloc[:0]
        for how in given.only.split(","):
            result = asked(source, how, given.ranges)
            with watched(client, f"{how}, {result.npartitions} ranges"):
                found = result.map_partitions(summary, how, groups, meta=told).sum().compute()
            wanted = {"groups": groups, "sum": groups * (groups - 1) // 2}
            assert found.to_dict() == wanted, (how, found.to_dict(), wanted)


if __name__ == "__main__":
    main()
