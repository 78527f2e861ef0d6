"""Start a local cluster: one worker per GPU, or worker processes on the CPU."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from distributed import Client, LocalCluster

from dgpuhash.bench.workers.cluster import start_blocking_sigint


def gpu_count() -> int:
    """Return the number of GPUs that a local cluster can use with cuDF.

    Returns 0 when a package or the driver is missing.
    """
    if any(find_spec(name) is None for name in ("cupy", "cudf", "dask_cudf", "dask_cuda")):
        return 0
    from dask_cuda.utils import get_n_gpus

    try:
        return int(get_n_gpus())
    except Exception:  # NVML raises its own types when there is no driver
        return 0


@contextmanager
def local_client(workers: int | None = None, gpus: int = 0) -> Iterator[Client]:
    """Yield a client of a new local cluster, and close both after the block.

    Workers ignore Ctrl-C; this process receives it and ends them.

    Parameters
    ----------
    workers : int, optional
        Worker processes; by default one for each GPU, or two on the CPU.
    gpus : int
        GPUs to use; 0 starts CPU workers.
    """
    count = workers or gpus or 2
    options: dict[str, Any] = {"n_workers": count, "dashboard_address": None}
    make: Any
    if gpus:
        from dask_cuda import LocalCUDACluster

        make = LocalCUDACluster
        # UCX receives device frames into RMM buffers, so workers start with an RMM pool.
        options |= {"protocol": "ucxx", "rmm_pool_size": 0.3, "memory_limit": None}
    else:
        make = LocalCluster
        options |= {"threads_per_worker": 2, "processes": True}
    with start_blocking_sigint(make, **options) as cluster, Client(cluster) as client:
        client.wait_for_workers(count, timeout=60)
        client.run(_quiet_heartbeats)
        yield client


def _quiet_heartbeats() -> None:
    """Keep a worker from logging a heartbeat that the end of the scheduler cuts off."""
    logging.getLogger("distributed.worker").addFilter(_is_not_heartbeat)


def _is_not_heartbeat(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Failed to communicate with scheduler")
