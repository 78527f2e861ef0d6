"""Weak scaling of a map on 1, 2, 4 … workers (WarpCore, Fig. 6): as many pairs for each of them."""

import argparse
import time

import dask.array as da
import pandas as pd
from distributed import wait

from dgpuhash import backend
from dgpuhash.bench.workers.cluster import Workers, counts_for, start
from dgpuhash.bench.workers.scaling import CHUNKS
from dgpuhash.distributed import DistributedMap


def seconds(crew: Workers, rows: int, method: str) -> tuple[float, float]:
    """Return the seconds of an insert and of a find of as many new pairs on each worker."""
    xp, n = backend.get(crew.device).xp, rows * len(crew)
    values = da.arange(n, chunks=rows, dtype="int64").map_blocks(xp.asarray, meta=xp.arange(0))
    wait(pairs := crew.client.persist([values * 0x9E3779B97F4A7C1, values]))
    options = {"device": crew.device, "client": crew.client, "method": method}
    with DistributedMap("int64", "int64", n, **options) as table:
        times = [time.perf_counter()]
        fresh = table.insert(*pairs)
        times.append(time.perf_counter())
        answers, found = table.find(pairs[0])
        times.append(time.perf_counter())
        assert (fresh & found & (answers == pairs[1])).all().compute()
    return times[1] - times[0], times[2] - times[1]


def main(device: str, workers: list[int], method: str, rows: int | None) -> None:
    lines, rows = [], rows or CHUNKS[device]
    for count in workers or counts_for(backend.get(device), None):
        with start(backend.get(device), count) as crew:
            runs = pd.DataFrame([seconds(crew, rows, method) for _ in range(4)][1:])
        lines.append([count, rows * count, *(rows * count / runs.median() / 1e6)])
    table = pd.DataFrame(lines, columns=["workers", "pairs", "inserts, M/s", "finds, M/s"])
    rates = table.iloc[:, 2:].div(table["workers"], axis=0)
    table[["efficiency", "of finds"]] = rates / rates.iloc[0]
    print(f"{method}, {device}", table.round(2).to_string(index=False), sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workers", type=int, nargs="*", help="how many; default: 1, 2, 4 ...")
    parser.add_argument("--method", default="auto", help="how the workers' tables store pairs")
    parser.add_argument("--rows", type=int, help="of a worker; default: 2**20, 2**27 on GPUs")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=backend.default_device())
    main(**vars(parser.parse_args()))
