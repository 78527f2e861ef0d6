"""A cluster of this process, whose nannies start workers anew while rounds go on with the rest."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
import psutil
from distributed import Client, Nanny, Scheduler, SpecCluster

from rounds.cluster import SETTINGS, WHOLE, Cluster

__all__ = ["Nannies", "configure"]


def configure() -> None:
    """In this process, in which the scheduler will be: settings that its workers inherit."""
    os.environ.update(SETTINGS | {"DASK_LOGGING__DISTRIBUTED": "critical"})
    dask.config.refresh()
    # Else it ends a nanny whose worker is away that long after any loss, a restart or not.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})


class Nannies(Cluster):
    """Nannies and a scheduler in this process; as `Cluster`, but for faults of the scheduler.

    A round begins as soon as all workers but the spare ones answer.
    """

    def __init__(self, folder: Path, workers: int, **options: Any) -> None:
        super().__init__(folder, workers, **options)
        self._local: SpecCluster | None = None
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

    def _begun(self) -> SpecCluster:
        options: dict[str, Any] = {
            "nthreads": 1,
            "memory_limit": None,
            "host": "127.0.0.1",
            "protocol": self._protocol,
            "local_directory": str(self.folder),
            "preload": self._preloads,
        }
        workers = {
            number: {"cls": Nanny, "options": options | {"env": self._gpus_of(number)}}
            for number in range(len(self))
        }
        place = {"host": "127.0.0.1", "port": 0, "protocol": self._protocol, "dashboard": False}
        return SpecCluster(workers, {"cls": Scheduler, "options": place})
