"""Series of rounds side by side, each on a cluster of its own."""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from hosts import Hosts

from rounds.cluster import Cluster
from rounds.faults import Stop
from rounds.play import Outcome, play
from rounds.process import FORKED, fork

__all__ = ["Setting", "Strike", "end_in_order", "line", "side_by_side"]

#: A fault, and the seeds of the rounds that it breaks into.
Strike: TypeAlias = tuple[str, Sequence[int]]


# Seconds after which rounds that say nothing are given up: longer than one can take, with mending.
SILENT = 900.0


@dataclass(frozen=True)
class Setting:
    """Settings that all series share.

    Attributes
    ----------
    workers, gpus, protocol
        As for `Cluster`.
    hosts : bool
        Whether each worker has a host of its own.
    works : sequence of str or None
        The only verbs.
    silence : float or None
        Seconds until a stopped worker is given up, where that is not left to the library.
    end : float
        When no further round is begun, by the monotonic clock.
    """

    workers: int
    gpus: int
    protocol: str
    hosts: bool
    works: Sequence[str] | None
    silence: float | None
    end: float


def side_by_side(
    groups: Sequence[tuple[Setting, Sequence[Strike]]], clusters: int
) -> Iterator[Outcome]:
    """Return the outcomes of groups of strikes.

    Each group is distributed over the clusters of its setting.
    """
    fork(any(setting.gpus for setting, _ in groups))
    found = FORKED.Queue()
    queues = [FORKED.Queue() for _ in groups]
    for waiting, (_, strikes) in zip(queues, groups, strict=True):
        # What is not played must not keep this process.
        waiting.cancel_join_thread()
        for strike in [*strikes, *[None] * clusters]:
            waiting.put(strike)
    processes = [
        # No daemons: these may not have processes of their own.
        FORKED.Process(target=series, args=(number, setting, waiting, found))
        for waiting, (setting, _) in zip(queues, groups, strict=True)
        for number in range(clusters)
    ]
    for each in processes:
        each.start()
    try:
        heard = time.monotonic()
        while any(each.is_alive() for each in processes) or not found.empty():
            with suppress(queue.Empty):
                yield found.get(timeout=0.2)
                heard = time.monotonic()
            if any(each.exitcode for each in processes):
                raise RuntimeError("a series of rounds broke off")
            if time.monotonic() - heard > SILENT:
                raise RuntimeError(f"no round has ended for {SILENT:.0f} s")
    finally:
        for each in processes:
            each.terminate()


def series(
    number: int,
    setting: Setting,
    waiting: multiprocessing.Queue[Strike | None],
    found: multiprocessing.Queue[Outcome],
) -> None:
    """Run waiting strikes one after another on one cluster, in a process."""
    end_in_order()
    # Dask speaks of every worker that is lost, and of rows that travel inside tasks.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if setting.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(number % setting.gpus)
    # Before the hosts: it takes as long to import what workers need.
    fork(bool(setting.gpus))
    Stop.silence = setting.silence
    hosts = Hosts(setting.workers, bandwidth="1gbit", delay_ms=1) if setting.hosts else None
    with tempfile.TemporaryDirectory(prefix="rounds-") as folder:
        options = {"gpus": setting.gpus, "protocol": setting.protocol}
        cluster = Cluster(Path(folder), setting.workers, hosts, **options)
        try:
            for fault, seeds in iter(waiting.get, None):
                if time.monotonic() > setting.end:
                    break
                for outcome in play(cluster, fault, seeds, setting.works):
                    found.put(outcome)
        finally:
            cluster.close()
            if hosts is not None:
                hosts.close()


def end_in_order() -> None:
    """Let SIGTERM end this process by an exception, so that no worker remains."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))


def line(outcome: Outcome) -> str:
    """Format an outcome as one line."""
    what = f"{outcome.fault:9} {outcome.work:10} {outcome.seed:3} at {outcome.moment:24}"
    message = outcome.message if outcome.failed else outcome.message[:120]
    return f"{what} {outcome.kind:7} {outcome.seconds:5.1f} s  {message}"
