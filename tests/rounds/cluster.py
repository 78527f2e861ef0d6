"""Cluster of processes that a round may kill, stop or cut off, and repair."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

from distributed import Client
from hosts import Hosts

from rounds.process import fork, started

__all__ = ["Cluster"]

TESTS = Path(__file__).resolve().parents[1]
OPTIONS = ("--no-nanny", "--no-dashboard", "--nthreads", "1", "--memory-limit", "0")
SETTINGS = {
    "PYTHONPATH": os.pathsep.join(
        filter(None, [str(TESTS), str(TESTS / "support"), os.environ.get("PYTHONPATH")])
    ),
    "DASK_DATAFRAME__CONVERT_STRING": "False",
    # How long Dask keeps a host that is silent, and a worker whose process is stopped; its defaults
    # are 30 s and 5 minutes. It looks as seldom, so tasks of a stopped worker go to others after
    # twice as long at the latest, and a lazy merge may have no tasks but these.
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "11s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "11s",
    # What keeps many idle processes on two cores busy: samples of stacks, looks at the clock.
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
}
GPU_SETTINGS = {"DASK_DISTRIBUTED_UCXX__CREATE_CUDA_CONTEXT": "True"}
# Seconds until a cluster that was mended must be whole, and until a worker has surely joined.
WHOLE = 240
JOINED = 30


class Cluster:
    """Scheduler and workers, each a process, on this host or on several.

    Several hosts are those of a network.

    Parameters
    ----------
    folder : Path
        Folder of logs and of the workers' files.
    workers : int
    hosts : Hosts, optional
        Worker *n* runs on host *n*, the scheduler on host 1.
    gpus : int
        GPUs of this host, which the workers take in turn; 0: none.
    protocol : {"tcp", "ucxx"}
        Protocol of the processes.
    """

    def __init__(
        self,
        folder: Path,
        workers: int,
        hosts: Hosts | None = None,
        *,
        gpus: int = 0,
        protocol: str = "tcp",
    ) -> None:
        fork(bool(gpus))
        self.folder = folder
        self.hosts = hosts
        self.device = "cuda" if gpus else "cpu"
        self._gpus = gpus
        self._protocol = protocol
        self._port = 8786 if hosts else _free_port()
        self._started = 0
        self._scheduler: BaseProcess | None = None
        self._workers: list[BaseProcess | None] = [None] * workers
        self._since = [0.0] * workers
        self._buried: set[int] = set()
        self.client: Client | None = None
        #: How often a scheduler was started here that knows of nothing.
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def address(self) -> str:
        """The scheduler's address."""
        host = self.hosts.address(1) if self.hosts else "127.0.0.1"
        return f"{self._protocol}://{host}:{self._port}"

    def pids(self) -> dict[str, int]:
        """Return the processes of the workers, by address."""
        return self.client.run(os.getpid)

    def crashed(self, victim: int) -> list[str]:
        """Return how processes other than the victim ended by a signal.

        Ends since the last call count.
        """
        dead = [each for each in self._workers if each is not None and each.exitcode is not None]
        news = [each for each in dead if each.pid not in self._buried]
        self._buried |= {each.pid for each in news}
        return [
            f"process {each.pid} ended by {signal.Signals(-each.exitcode).name}"
            for each in news
            if each.exitcode < 0 and each.pid != victim
        ]

    def kill_scheduler(self) -> None:
        """Kill the scheduler at once."""
        self._scheduler.kill()
        self._scheduler.join()

    def start_scheduler(self) -> None:
        """Start the scheduler under its former address, without its state."""
        command = ("scheduler", "--no-dashboard", "--port", str(self._port))
        command += ("--protocol", self._protocol)
        place = () if self.hosts else ("--host", "127.0.0.1")
        self._scheduler = self._start(1, [*command, *place], "scheduler")

    def mend(self) -> None:
        """Restart missing processes; restart all if that is not enough."""
        if not self._mended():
            self.close()
            if not self._mended():
                raise RuntimeError(f"no whole cluster; its logs are in {self.folder}")

    def _mended(self) -> bool:
        end = time.monotonic() + WHOLE
        while time.monotonic() < end:
            # Again and again: a worker that was taken for lost ends when it hears of it.
            self.restart_ended()
            if self._whole(3):
                return True
            self._end_disconnected()
        return False

    def close(self) -> None:
        """End every process."""
        self._leave()
        for process in (*self._workers, self._scheduler):
            if process is not None:
                process.kill()
                process.join()
        self._workers = [None] * len(self._workers)
        self._scheduler = None
        if self.hosts is None:
            self._port = _free_port()

    def restart_ended(self) -> None:
        """Restart every process that has ended."""
        if self._scheduler is None or self._scheduler.exitcode is not None:
            self.start_scheduler()
            self.forgotten += 1
        dead = [each for each in self._workers if each is None or each.exitcode is not None]
        for number, process in enumerate(self._workers):
            if process in dead:
                command = ["worker", self.address, *OPTIONS, "--death-timeout", str(WHOLE)]
                command += ["--local-directory", str(self.folder)]
                if self._gpus:
                    command += ["--preload", "rounds.pool"]
                self._workers[number] = self._start(number + 1, command, f"worker{number}")
                self._since[number] = time.monotonic()

    def _end_disconnected(self) -> None:
        """End the workers that have left the cluster and do not end.

        A worker that had no memory is one of them.
        """
        if self.client is None:
            return
        try:
            there = self._answering(3.0)
        except (OSError, RuntimeError, TimeoutError):
            return
        for process, since in zip(self._workers, self._since, strict=True):
            old = time.monotonic() - since > JOINED
            if old and process.exitcode is None and process.pid not in there:
                process.kill()
                process.join()
                self._buried.add(process.pid)

    def _whole(self, seconds: float) -> bool:
        """Return whether every worker answers a client within this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.client is None or self.client.status != "running":
                    self._leave()
                    self.client = Client(self.address, timeout=max(0.5, end - time.monotonic()))
                alive = self._running()
                if (
                    len(alive) == len(self)
                    and len(self.client.nthreads()) == len(alive)
                    and self._answering(max(0.5, end - time.monotonic())) == alive
                ):
                    return True
            except (OSError, RuntimeError, TimeoutError):
                pass
            time.sleep(0.1)
        return False

    def _answering(self, seconds: float) -> set[int]:
        """Return the processes of the known workers that answer within this time.

        Known are the workers that the scheduler has.
        """

        async def ask() -> dict[str, int]:
            return await asyncio.wait_for(self.client.run(os.getpid, asynchronous=True), seconds)

        return set(self.client.sync(ask).values())

    def _gpus_of(self, number: int) -> dict[str, str]:
        """Return the GPU settings of a process: all GPUs, its own one first.

        This is the order of dask-cuda.
        """
        if not self._gpus:
            return {}
        seen = [str((number + step) % self._gpus) for step in range(self._gpus)]
        return {"CUDA_VISIBLE_DEVICES": ",".join(seen)} | GPU_SETTINGS

    def _running(self) -> set[int]:
        """Return the processes of the workers that are alive."""
        return {each.pid for each in self._workers if each and each.exitcode is None}

    def _leave(self) -> None:
        if self.client is not None:
            with suppress(Exception):
                self.client.close(timeout=2)
            self.client = None

    def _start(self, host: int, command: Sequence[str], name: str) -> BaseProcess:
        self._started += 1
        log = self.folder / f"{name}-{self._started}.log"
        network = self.hosts.network(host) if self.hosts else None
        return started(command, SETTINGS | self._gpus_of(host), log, network)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
