"""A cluster on this machine: one worker for each GPU, or processes on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from distributed import Client, LocalCluster

from dgpuhash.bench.workers.cluster import sheltered

__all__ = ["gpu_count", "local_client"]


def gpu_count() -> int:
    """GPUs that a local cluster can use with cuDF frames; 0 when any part for it is missing."""
    if any(find_spec(name) is None for name in ("cupy", "cudf", "dask_cudf", "dask_cuda")):
        return 0
    from dask_cuda.utils import get_n_gpus

    try:
        return int(get_n_gpus())
    except Exception:  # NVML raises its own types when there is no driver
        return 0


@contextmanager
def local_client(workers: int | None = None, gpus: int = 0) -> Iterator[Client]:
    """A client of a new local cluster, which is closed with the block.

    Its workers leave Ctrl-C to this process, which ends them.

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
        # Receiving device frames over UCX needs RMM, so workers start with a pool of it.
        options |= {"protocol": "ucxx", "rmm_pool_size": 0.3, "memory_limit": None}
    else:
        make = LocalCluster
        options |= {"threads_per_worker": 2, "processes": True}
    with sheltered(make, **options) as cluster, Client(cluster) as client:
        client.wait_for_workers(count, timeout=60)
        yield client
