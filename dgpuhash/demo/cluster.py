"""A cluster on this machine: one worker for each GPU, or processes on the CPU."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import resource_tracker
from typing import Any

from distributed import Client, LocalCluster
from distributed.utils import LoopRunner

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
    cluster: Any
    options: dict[str, Any] = {"n_workers": count, "dashboard_address": None}
    with _sheltered_loop() as loop:
        with _held_back() as asked_to_end:
            if gpus:
                from dask_cuda import LocalCUDACluster

                # Receiving device frames over UCX needs RMM, so workers start with a pool of it.
                cluster = LocalCUDACluster(
                    loop=loop, protocol="ucxx", rmm_pool_size=0.3, memory_limit=None, **options
                )
            else:
                cluster = LocalCluster(loop=loop, threads_per_worker=2, processes=True, **options)
        with cluster:
            if asked_to_end:
                raise KeyboardInterrupt
            with Client(cluster) as client:
                client.wait_for_workers(count, timeout=60)
                yield client


@contextmanager
def _held_back() -> Iterator[list[int]]:
    """The first Ctrl-C of the block, which may be waited for; a second one ends it."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, _: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _sheltered_loop() -> Iterator[Any]:
    """An event loop whose processes inherit that SIGINT is blocked."""
    # Started later, it would have the signal unblocked.
    resource_tracker.ensure_running()
    runner = LoopRunner()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        runner.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield runner.loop
    finally:
        runner.stop()
