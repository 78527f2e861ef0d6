"""A cluster of this process, whose nannies start workers anew while rounds go on with the rest."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
import psutil
from distributed import Client, LocalCluster

from rounds import pool
from rounds.cluster import PRELOAD, SETTINGS, WHOLE, Cluster

__all__ = ["Nannies", "configure"]


def configure() -> None:
    """In this process, in which the scheduler will be: settings that its workers inherit."""
    os.environ.update(SETTINGS | {"DASK_LOGGING__DISTRIBUTED": "critical"})
    dask.config.refresh()
    # Else it ends a nanny whose worker is away that long after any loss, a restart or not.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})


class Nannies(Cluster):
    """A `LocalCluster`, or a `LocalCUDACluster`; as `Cluster`, but for faults of the scheduler.

    A round begins as soon as all workers but the spare ones answer.
    """

    def __init__(self, folder: Path, workers: int, **options: Any) -> None:
        super().__init__(folder, workers, **options)
        self._local: LocalCluster | None = None
        self._seen: set[int] = set()

    def pids(self) -> dict[str, int]:
        found = super().pids()
        self._seen = set(found.values())
        return found

    def crashed(self, victim: int) -> list[str]:
        """The processes that have ended since they were asked for; not the victim."""
        gone = {pid for pid in self._seen if not psutil.pid_exists(pid)}
        self._seen -= gone
        return [f"process {pid} ended" for pid in sorted(gone - {victim})]

    def close(self) -> None:
        self._leave()
        local, self._local = self._local, None
        if local is not None:
            with suppress(Exception):
                local.close(timeout=10)

    def _mended(self) -> bool:
        if self._local is None:
            self._local = self._begun()
        end = time.monotonic() + WHOLE
        while time.monotonic() < end:
            if self._whole(end - time.monotonic()):
                return True
        return False

    def _joined(self, seconds: float) -> Client:
        return Client(self._local, timeout=seconds)

    def _running(self) -> set[int]:
        """As the scheduler knows them: who is being started is not waited for."""
        nannies = dict(self._local.workers).values()
        there = set(self.client.nthreads())
        return {each.pid for each in nannies if each.worker_address in there}

    def _begun(self) -> LocalCluster:
        options: dict[str, Any] = {
            "n_workers": len(self),
            "threads_per_worker": 1,
            "protocol": self._protocol,
            "memory_limit": None,
            "dashboard_address": ":0",
            "local_directory": str(self.folder),
            "preload": [PRELOAD],
        }
        if not self._gpus:
            return LocalCluster(processes=True, **options)
        from dask_cuda import LocalCUDACluster

        return LocalCUDACluster(
            CUDA_VISIBLE_DEVICES=list(range(self._gpus)),
            rmm_pool_size=pool.FIRST,
            rmm_maximum_pool_size=pool.MOST,
            rmm_allocator_external_lib_list=["cupy"],
            pre_import="cudf",
            **options,
        )
