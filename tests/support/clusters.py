"""Test clusters of threads or processes, and joins expected from pandas."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, SchedulerPlugin, Status

import dgpuhash
from dgpuhash.errors import ColumnError

__all__ = [
    "assert_no_value_is_rounded",
    "assert_same",
    "assert_same_rows",
    "cluster_of",
    "device_frame",
    "fork_workers",
    "free_run_after",
    "gpu_cluster",
    "gpus_apart",
    "interrupting",
    "joined",
    "kill",
    "killer",
    "lazy",
    "merged_lazily",
    "nullable",
    "parts_held",
    "prepare",
    "rerun_of",
    "set_status",
    "share_gpus",
    "until",
    "wide_keys",
]


@contextmanager
def cluster_of(
    workers: int, processes: bool, *, dashboard: bool = False, **options: Any
) -> Iterator[Client]:
    """Yield a client of a new cluster of workers with one thread, or `threads_per_worker`.

    Nannies restart lost workers. With `dashboard`, it serves Dask's pages.
    """
    settings = {
        # LocalCluster ends a nanny whose worker is away for longer; on a busy machine it may be.
        "distributed.deploy.lost-worker-timeout": "1 hour",
        # One that imports by itself takes a core 2 s to start, one that is forked 0.1 s.
        "distributed.worker.multiprocessing-method": "forkserver",
        # What it was is put back: Dask forgets to where a worker in this process made a client for
        # its tasks, which is closed last.
        "scheduler": dask.config.get("scheduler", None),
    }
    over_ucxx = options.get("protocol") == "ucxx"
    if processes:
        fork_workers()
    with dask.config.set(settings):
        cluster = LocalCluster(
            n_workers=workers,
            processes=processes,
            dashboard_address=":0",
            # Pages that nobody opens would take each test 0.3 s, and its process Bokeh.
            scheduler_kwargs={"dashboard": dashboard},
            # Or the first phase waits for it, and takes workers of a busy machine for silent.
            preload=["dgpuhash.distributed"],
            **{"threads_per_worker": 1, **options},
        )
        with _ending_in_time(cluster) if over_ucxx else cluster, Client(cluster) as client:
            if workers:
                client.wait_for_workers(workers, timeout=120)
            yield client


@contextmanager
def _ending_in_time(cluster: LocalCluster) -> Iterator[None]:
    """Close the cluster after the block, or abandon it after a minute.

    Dask's close of a cluster over UCXX 0.52 sometimes waits without end.
    """
    try:
        yield
    finally:
        closing = threading.Thread(target=cluster.close, daemon=True)
        closing.start()
        closing.join(60)
        if closing.is_alive():
            warnings.warn("the cluster over UCXX has not ended in a minute", stacklevel=1)


@cache
def fork_workers(*modules: str) -> None:
    """Start the fork server of workers, which imports the library once."""
    multiprocessing.set_forkserver_preload(["dgpuhash.distributed", *modules])
    forkserver.ensure_running()


@contextmanager
def gpu_cluster(workers: int | None = None) -> Iterator[Client]:
    """Yield a client of workers with one GPU each, by default all GPUs.

    More workers than GPUs share them in turn. With one GPU, two workers share it by default.

    They speak UCX, and CuPy allocates from their pools of RMM, which are small, so that several
    clusters fit a host.
    """
    from dask_cuda.utils import get_n_gpus

    gpus = get_n_gpus()
    workers = workers or max(2, gpus)
    with _gpu_workers(min(workers, gpus), "ucxx") as (cluster, client):
        alone = list(cluster.worker_spec.values())
        for number in range(gpus, workers):
            cluster.worker_spec[f"beside {number}"] = alone[number % gpus]
        cluster.scale(workers)
        client.wait_for_workers(workers, timeout=120)
        yield client


@contextmanager
def gpus_apart() -> Iterator[Client]:
    """Yield a client of one worker a GPU, as if each were on its own host.

    The workers communicate over TCP. Each listens at an address of its own. NCCL is told that the
    workers are on different hosts, and uses sockets.
    """
    from dask_cuda.utils import get_n_gpus

    gpus = get_n_gpus()
    if gpus < 2:
        pytest.skip("workers on other hosts have a GPU each; it takes two")
    with _gpu_workers(1, "tcp") as (cluster, client):
        (first,) = cluster.worker_spec.values()
        options = first["options"]
        for gpu in range(1, gpus):
            order = [gpu, *(each for each in range(gpus) if each != gpu)]
            environment = options["env"] | {"CUDA_VISIBLE_DEVICES": ",".join(map(str, order))}
            other = options | {"host": f"127.0.1.{gpu}", "env": environment}
            cluster.worker_spec[f"host {gpu}"] = first | {"options": other}
        cluster.scale(gpus)
        client.wait_for_workers(gpus, timeout=120)
        with tempfile.TemporaryDirectory() as folder:
            client.run(_stand_alone, folder)
            yield client


@contextmanager
def _gpu_workers(count: int, protocol: str) -> Iterator[tuple[Any, Client]]:
    from dask_cuda import LocalCUDACluster

    with (
        LocalCUDACluster(
            n_workers=count,
            protocol=protocol,
            rmm_pool_size=0.05,
            rmm_allocator_external_lib_list=["cupy"],
            memory_limit=None,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield cluster, client


def _stand_alone(folder: str, dask_worker: Any) -> None:
    from dgpuhash.distributed.collective import group

    host = dask_worker.address.rpartition(":")[0].removeprefix("tcp://")
    os.environ |= {"NCCL_HOSTID": host, "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    group.BOOT = Path(folder, host)
    group.BOOT.write_text(host)


def share_gpus(client: Client) -> bool:
    """Return whether there are more workers than GPUs, which NCCL forbids."""
    from dask_cuda.utils import get_n_gpus

    return len(client.nthreads()) > get_n_gpus()


def prepare(client: Client) -> None:
    """Import the library in the workers and the scheduler before a test.

    A scheduler counts if it has a process of its own. There is no time limit. Otherwise the first
    phase waits for the import, and takes workers of a busy machine for unresponsive.
    """

    def load() -> None:
        import dgpuhash.distributed  # noqa: F401

    client.run(load)
    client.run_on_scheduler(load)


def unnamed_files(process: int | str = "self") -> list[str]:
    """Return the files without a name that a process has open in folders of workers."""
    found = []
    for each in Path(f"/proc/{process}/fd").iterdir():
        try:
            found.append(str(each.readlink()))
        except OSError:
            continue
    return [name for name in found if "dask-scratch" in name and name.endswith("(deleted)")]


def free_run_after(client: Client, task: str) -> None:
    """Free the run of a merge or groupby, once a task of its with this name is done."""

    def freed(dask_scheduler: Any) -> bool:
        runs = dask_scheduler.plugins.get("dgpuhash-runs")
        done = [
            key
            for key, each in dask_scheduler.tasks.items()
            if task in str(key) and each.state == "memory"
        ]
        if not done or not runs.runs:
            return False
        for key in list(runs.runs):
            runs.free(runs.runs.pop(key))
        return True

    until(lambda: client.run_on_scheduler(freed))


class _Rerun(SchedulerPlugin):
    """Takes the result of the first task of a name away, so that the task runs again."""

    name = "rerun"

    def __init__(self, scheduler: Any, task: str) -> None:
        self._scheduler, self._task, self.released = scheduler, task, ""

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if not self.released and finish == "memory" and self._task in str(key):
            self.released = str(key)
            self._scheduler.loop.add_callback(self._release, key)

    def _release(self, key: Any) -> None:
        self._scheduler.transitions({key: "released"}, stimulus_id="rerun")


@contextmanager
def rerun_of(client: Client, task: str) -> Iterator[None]:
    """Have the first task of this name run twice, as where its worker was lost.

    The scheduler is in this process.
    """
    scheduler = client.cluster.scheduler
    plugin = _Rerun(scheduler, task)
    scheduler.add_plugin(plugin)
    try:
        yield
    finally:
        scheduler.remove_plugin(plugin.name)
    assert plugin.released, f"no task {task} ran"


def until(claim: Callable[[], bool], pause: float = 0.05) -> None:
    """Wait until a claim holds; raise after a minute."""
    end = time.monotonic() + 60
    while not claim():
        assert time.monotonic() < end, "it has not come true"
        time.sleep(pause)


def killer(client: Client, worker: str, *, noticed: bool = True) -> Callable[[], None]:
    """Return a function that kills a worker at once.

    The function returns once the scheduler has noticed, unless `noticed` is false.
    """
    (pid,) = client.run(os.getpid, workers=[worker]).values()

    def strike() -> None:
        os.kill(pid, signal.SIGKILL)
        until(lambda: not noticed or worker not in client.nthreads())

    return strike


def kill(client: Client, worker: str, *, noticed: bool = True) -> None:
    """Kill a worker as `killer` does."""
    killer(client, worker, noticed=noticed)()


def parts_held(client: Client) -> list[int]:
    """Count the shards of tables and the ends of exchanges on the workers."""

    def here(dask_worker: Any) -> tuple[int, int]:
        host = dask_worker.plugins.get("dgpuhash")
        return (0, 0) if host is None else (len(host.tables), len(host.ends))

    return np.sum(list(client.run(here).values()), axis=0).tolist()


def set_status(status: Status, dask_worker: Any) -> None:
    """Set the status of a worker, e.g. pause it; it runs on that worker.

    Otherwise Dask resumes a paused worker whose memory is not full.
    """
    dask_worker.memory_manager.memory_pause_fraction = False
    dask_worker.status = status


def wide_keys(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    """Return rows whose two key columns do not fit into eight bytes.

    The columns are strings with nulls, and days.
    """
    days = pd.date_range("2026-01-01", periods=40, freq="D", tz="UTC")
    cities = np.array(["Oslo", "Rome", "Bonn", None], dtype=object)
    return pd.DataFrame(
        {
            "city": pd.Series(cities[rng.integers(0, 4, rows)], dtype="str"),
            "day": days[rng.integers(0, 40, rows)],
            "value": rng.random(rows),
        }
    )


def nullable(frame: pd.DataFrame, but: Sequence[str] = ()) -> pd.DataFrame:
    """Return a frame with nullable integers and booleans, except in some columns."""
    narrow = {
        label: str(dtype)
        for label, dtype in frame.dtypes.items()
        if isinstance(dtype, np.dtype) and dtype.kind in "biu" and label not in but
    }
    names = {"bool": "boolean"}
    return frame.astype(
        {
            label: names.get(name, name.replace("i", "I").replace("u", "U"))
            for label, name in narrow.items()
        }
    )


def merged_lazily(left: pd.DataFrame, right: pd.DataFrame, how: str, **keys: Any) -> pd.DataFrame:
    """Return pandas' merge with the dtypes of lazy ones: nullable where a side may lack rows."""
    on = keys.get("on", [])
    names = [on] if isinstance(on, str) else list(on)
    if how.removesuffix("_anti") in ("left", "outer"):
        right = nullable(right, names)
    if how.removesuffix("_anti") in ("right", "outer"):
        left = nullable(left, names)
    return left.merge(right, how=how, **keys)


def joined(left: pd.DataFrame, right: pd.DataFrame, on: list[str], how: str) -> pd.DataFrame:
    """Join two frames by columns of the same name, with the dtypes of lazy merges."""
    if how in {"inner", "left"}:
        return merged_lazily(left, right, how, on=on)
    numbered = left[on].assign(row=range(len(left)))
    rows = numbered.merge(right[on].drop_duplicates(), on=on)["row"]
    found = pd.Series(range(len(left)), index=left.index).isin(rows)
    return left[found] if how == "semi" else left[~found]


def assert_same(result: Any, wanted: pd.DataFrame) -> None:
    """Assert equal columns, dtypes, values and order.

    Row labels are not compared: each partition has its own.
    """
    pd.testing.assert_frame_equal(result.reset_index(drop=True), wanted.reset_index(drop=True))


def lazy(frame: pd.DataFrame, npartitions: int = 6) -> dd.DataFrame:
    """Return a Dask DataFrame of the rows in their order."""
    return dd.from_pandas(frame, npartitions=npartitions, sort=False)


def device_frame(frame: pd.DataFrame, npartitions: int) -> dd.DataFrame:
    """Return a Dask DataFrame of cuDF partitions."""
    return lazy(frame, npartitions).to_backend("cudf")


def assert_same_rows(result: Any, wanted: pd.DataFrame) -> None:
    """Assert equal columns and values, in any order."""
    frame = result.to_pandas() if hasattr(result, "to_pandas") else result
    columns = list(wanted.columns)
    pd.testing.assert_frame_equal(
        frame.sort_values(columns, ignore_index=True),
        wanted.sort_values(columns, ignore_index=True),
        check_dtype=False,
    )


def interrupting(write: Callable[..., Any]) -> Callable[..., Any]:
    """Return a slow `write` that interrupts the program at its first call.

    It is for threads of this process.
    """
    first = threading.Semaphore(1)
    # Shells let what runs in the background ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def late(*args: Any) -> Any:
        if first.acquire(blocking=False):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(0.5)
        return write(*args)

    return late


def assert_no_value_is_rounded(after: Callable[[int], None] = lambda _: None) -> None:
    """Assert that integers beside floats stay exact, or are refused.

    `after` is called with the number of stored rows, once some were merged.
    """
    left = pd.DataFrame({"k": np.arange(8)})
    right = pd.DataFrame({"k": np.arange(8), "y": np.arange(8), "o": [1, "a", None, 2.5] * 2})

    def other(part: pd.DataFrame) -> pd.DataFrame:
        return part.assign(y=part["k"] / 2) if part["k"].iloc[0] else part

    mixed = lazy(right, 2).map_partitions(other, meta=right.iloc[:0])
    found = dgpuhash.merge(lazy(left, 2), mixed, "left", on="k", promote="pandas").compute()
    assert found["y"].tolist() == [0, 1, 2, 3, 2, 2.5, 3, 3.5]
    assert found["o"].tolist() == right["o"].tolist()
    after(len(right))
    exact = lazy(right.assign(y=2**53 + 1), 2).map_partitions(other, meta=right.iloc[:0])
    with pytest.raises(ColumnError, match="beside floats"):
        dgpuhash.merge(lazy(left, 2), exact, "left", on="k").compute()
    with pytest.raises(ColumnError, match="float64, but Dask's meta says Int64"):
        dgpuhash.merge(lazy(left, 2), mixed, "left", on="k").compute()
