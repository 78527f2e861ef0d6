"""Start a local Dask cluster to measure, one worker per GPU or CPU process.

Processes on the CPU have one thread.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

import dask
from distributed import Client, LocalCluster, wait

from dgpuhash import backend
from dgpuhash.backend import Backend
from dgpuhash.distributed.cluster.broadcast import run_on_event_loops
from dgpuhash.distributed.cluster.dask_internals import LoopRunner
from dgpuhash.distributed.ingest.source import persisted_futures
from dgpuhash.errors import SpecError, UnsupportedError, install_command
from dgpuhash.typing import Device

_START_SECONDS = 120
_POOL = 0.5
# No work stealing: tasks stay where their rows are. No worker is paused or terminated.
_SETTINGS = {
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}


class BenchWorkers:
    """Workers of one cluster, in a fixed order.

    Attributes
    ----------
    client : distributed.Client
    addresses : list of str
    device : {"cpu", "cuda"}
    """

    def __init__(self, client: Client, device: Device) -> None:
        self.client: Client = client
        self.device: Device = device
        self.addresses: list[Any] = sorted(client.nthreads())

    def __len__(self) -> int:
        return len(self.addresses)

    def each(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Submit ``function(device, rank, *args)`` to each worker.

        Return the futures by rank.
        """
        return self._submit(function, len(self), *args)

    def dealt(self, function: Callable[..., Any], count: int) -> list[Any]:
        """Run ``function(device, number)`` for `count` numbers, round robin.

        Return finished futures, which stay on their workers.
        """
        futures = self._submit(function, count)
        self.finish(futures)
        return futures

    def _submit(self, function: Callable[..., Any], count: int, *args: Any) -> list[Any]:
        return [
            self.client.submit(
                function, self.device, number, *args,
                workers=[self.addresses[number % len(self)]],
                allow_other_workers=False, pure=False,
            )
            for number in range(count)
        ]  # fmt: skip

    def gather_each(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run `function` on each worker and return the results by rank."""
        return list(self.client.gather(self.each(function, *args)))

    def made(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run `function` on each worker and return finished futures by rank.

        The results stay on their workers.
        """
        futures = self.each(function, *args)
        self.finish(futures)
        return futures

    def computed(self, frame: Any) -> list[Any]:
        """Compute a Dask DataFrame and return its partitions' finished futures.

        Merges of persisted frames are finished when their call returns.
        """
        futures = persisted_futures(frame) or self.client.compute(frame.to_delayed())
        if any(future.status != "finished" for future in futures):
            self.finish(futures)
        return list(futures)

    def finish(self, futures: Sequence[Any]) -> None:
        """Wait for futures, and for all kernels that their devices launched.

        Raises
        ------
        Exception
            The exception of a task that failed.
        """
        wait(futures)
        for future in futures:
            if future.status == "error":
                future.result()
        if self.device == "cuda":
            run_on_event_loops(self.client, self.addresses, _wait_for_device)


@contextmanager
def start(
    used: Backend,
    count: int,
    *,
    protocol: str | None = None,
    devs: Sequence[str] | None = None,
    rmm_pool_size: str | None = None,
) -> Iterator[BenchWorkers]:
    """Start a cluster of `count` workers, which is closed with the block.

    Parameters
    ----------
    used : Backend
        Backend of the workers.
    count : int
    protocol : str, optional
        Protocol of Dask's comm; default: ``"ucxx"`` between GPUs, ``"tcp"`` between processes.
    devs : sequence of str, optional
        GPUs to take the first `count` of; default: all.
    rmm_pool_size : str, optional
        Size of each GPU's memory pool, in bytes or as a text that Dask-CUDA parses; default: half
        of the GPU's memory.

    Raises
    ------
    SpecError
        When `devs` or `rmm_pool_size` is given for CPUs.
    UnsupportedError
        When UCXX is not installed.
    """
    if used.name == "cpu" and (devs or rmm_pool_size):
        given = "--devs" if devs else "--rmm-pool-size"
        raise SpecError(f"{given} is for GPUs; leave it out, or give --device cuda")
    if protocol in ("ucx", "ucxx") and importlib.util.find_spec("distributed_ucxx") is None:
        raise UnsupportedError(
            f"--protocol {protocol} takes distributed-ucxx; {install_command('ucx')}; or give "
            "--protocol tcp"
        )
    options: dict[str, Any] = {"n_workers": count, "threads_per_worker": 1, "memory_limit": None}
    options |= {"dashboard_address": ":0", "silence_logs": logging.ERROR}
    make: Any
    if used.name == "cuda":
        from dask_cuda import LocalCUDACluster

        make = LocalCUDACluster
        options |= {
            "protocol": protocol or "ucxx",
            "rmm_pool_size": rmm_pool_size or _POOL,
            "rmm_allocator_external_lib_list": ["cupy"],
        }
        if devs is not None:
            options["CUDA_VISIBLE_DEVICES"] = list(devs[:count])
    else:
        make = LocalCluster
        options |= {
            "processes": True,
            "protocol": f"{protocol or 'tcp'}://",
            "env": {"DGPUHASH_NUM_THREADS": "1"},
        }
    with (
        dask.config.set(_SETTINGS),
        start_blocking_sigint(make, **options) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(count, timeout=_START_SECONDS)
        yield BenchWorkers(client, used.name)


@contextmanager
def start_blocking_sigint(make: Callable[..., Any], **options: Any) -> Iterator[Any]:
    """Start a cluster whose processes block SIGINT; this process ends them.

    The cluster is ``make(**options)``. A half-started cluster cannot be closed, so the first Ctrl-C
    waits until it has started; the second does not.
    """
    with _loop_blocking_sigint() as loop:
        with _deferred_sigint() as asked_to_end:
            cluster = make(loop=loop, **options)
        with cluster:
            if asked_to_end:
                raise KeyboardInterrupt
            yield cluster


@contextmanager
def _deferred_sigint() -> Iterator[list[int]]:
    """Defer the first Ctrl-C in the block; the second one raises.

    The list that the block gets is no longer empty after the first Ctrl-C.
    """
    asked_to_end: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread receives Ctrl-C.
        yield asked_to_end
        return

    def ask(number: int, _: Any) -> None:
        if asked_to_end:
            raise KeyboardInterrupt
        asked_to_end.append(number)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked_to_end
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _loop_blocking_sigint() -> Iterator[Any]:
    """Run an event loop in a thread whose child processes block SIGINT."""
    # Its start unblocks SIGINT in the calling thread, so it is started first.
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


def most_workers(used: Backend, devs: Sequence[str] | None = None) -> int:
    """Return the number of GPUs, or CPUs, that can have a worker.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> most_workers(backend.get("cpu")) >= 1
    True
    """
    if used.name == "cpu":
        return len(os.sched_getaffinity(0))
    return int(used.xp.cuda.runtime.getDeviceCount()) if devs is None else len(devs)


def counts_for(used: Backend, devs: Sequence[str] | None = None) -> list[int]:
    """Return 1, 2, 4, 8 … up to the number of GPUs, or CPUs.

    Examples
    --------
    >>> from dgpuhash import backend
    >>> counts_for(backend.get("cpu"))[0]
    1
    """
    most = most_workers(used, devs)
    return [2**power for power in range(most.bit_length())]


def check_counts(counts: Sequence[int], devs: Sequence[str] | None, used: Backend) -> None:
    """Raise if `counts` has more workers than there are GPUs.

    Raises
    ------
    SpecError
    """
    if used.name == "cuda" and max(counts) > (most := most_workers(used, devs)):
        raise SpecError(f"{max(counts)} workers; there are GPUs for {most}, give --workers {most}")


def _wait_for_device(dask_worker: Any) -> None:
    backend.get("cuda").xp.cuda.Device().synchronize()
