"""Weak scaling of a map on 1, 2, 4 … workers (WarpCore, Fig. 6): as many pairs for each of them."""

import argparse
import os
import time
from contextlib import contextmanager

import dask.array as da
import pandas as pd
from distributed import Client, LocalCluster, wait

from dgpuhash import backend
from dgpuhash.distributed import DistributedMap

ROWS = {"cpu": 2**20, "cuda": 2**27}


@contextmanager
def start(device: str, count: int, scheduler: str | None = None):
    """Yield a client of a cluster: that of `scheduler`, or a new one of `count` workers."""
    if scheduler:
        with Client(scheduler) as client:
            yield client
        return
    if device == "cuda":
        from dask_cuda import LocalCUDACluster

        pool = {"rmm_pool_size": 0.5, "rmm_allocator_external_lib_list": ["cupy"]}
        cluster = LocalCUDACluster(n_workers=count, protocol="ucxx", **pool)
    else:
        cluster = LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        client.wait_for_workers(count)
        yield client


def workers_there(device: str, scheduler: str | None) -> int:
    """Return how many workers a cluster has, or how many there are GPUs or cores for."""
    if scheduler:
        with Client(scheduler) as client:
            return len(client.nthreads())
    if device == "cuda":
        return backend.get(device).xp.cuda.runtime.getDeviceCount()
    return len(os.sched_getaffinity(0))


def seconds(client: Client, device: str, count: int, rows: int, method: str) -> tuple[float, float]:
    """Return the seconds of an insert and of a find of as many new pairs on each worker."""
    xp, n, workers = backend.get(device).xp, rows * count, sorted(client.nthreads())[:count]
    values = da.arange(n, chunks=rows, dtype="int64").map_blocks(xp.asarray, meta=xp.arange(0))
    wait(pairs := client.persist([values * 0x9E3779B97F4A7C1, values], workers=workers))
    options = {"device": device, "client": client, "method": method, "workers": workers}
    with DistributedMap("int64", "int64", n, **options) as table:
        times = [time.perf_counter()]
        fresh = table.insert(*pairs)
        times.append(time.perf_counter())
        answers, found = table.find(pairs[0])
        times.append(time.perf_counter())
        assert (fresh & found & (answers == pairs[1])).all().compute()
    return times[1] - times[0], times[2] - times[1]


def main(
    device: str, workers: list[int], method: str, rows: int | None, scheduler: str | None = None
) -> None:
    lines, rows = [], rows or ROWS[device]
    counts = [2**power for power in range(workers_there(device, scheduler).bit_length())]
    for count in workers or counts:
        with start(device, count, scheduler) as client:
            times = [seconds(client, device, count, rows, method) for _ in range(4)]
        runs = pd.DataFrame(times[1:])
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
    parser.add_argument("--scheduler", help="address of a cluster; default: one on this host")
    parser.add_argument("--device", choices=["cpu", "cuda"], default=backend.default_device())
    main(**vars(parser.parse_args()))
