"""Series of rounds, each on a cluster of its own, side by side."""

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

from hosts import Hosts

from rounds.cluster import Cluster
from rounds.faults import Stop
from rounds.nannies import Nannies, configure
from rounds.play import Outcome, play

__all__ = ["Setting", "end_in_order", "line", "side_by_side"]


@dataclass(frozen=True)
class Setting:
    """What the series have in common.

    Attributes
    ----------
    workers, gpus, protocol, spare
        As for `Cluster`.
    hosts : bool
        Whether each worker has a host of its own.
    nannies : bool
        Whether nannies start workers anew.
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
    spare: int
    hosts: bool
    nannies: bool
    works: Sequence[str] | None
    silence: float | None
    end: float


def side_by_side(
    rounds: Sequence[tuple[str, Sequence[int]]], setting: Setting, clusters: int
) -> Iterator[Outcome]:
    """The outcomes of the rounds of these faults and seeds, dealt to so many clusters."""
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    processes = [
        context.Process(target=series, args=(number, rounds[number::clusters], setting, found))
        for number in range(clusters)
    ]
    # No daemons: these may not have processes of their own, as those with nannies do.
    for each in processes:
        each.start()
    try:
        while any(each.is_alive() for each in processes) or not found.empty():
            with suppress(queue.Empty):
                yield found.get(timeout=0.2)
    finally:
        for each in processes:
            each.terminate()


def series(
    number: int,
    rounds: Sequence[tuple[str, Sequence[int]]],
    setting: Setting,
    found: multiprocessing.Queue[Outcome],
) -> None:
    """Runs in a process of its own: some rounds, on one cluster."""
    end_in_order()
    # Dask speaks of every worker that is lost, and of rows that travel inside tasks.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    if setting.nannies:
        configure()
    elif setting.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(number % setting.gpus)
    Stop.silence = setting.silence
    hosts = Hosts(setting.workers, bandwidth="1gbit", delay_ms=1) if setting.hosts else None
    with tempfile.TemporaryDirectory(prefix="rounds-") as folder:
        options = {"gpus": setting.gpus, "protocol": setting.protocol, "spare": setting.spare}
        if setting.nannies:
            cluster: Cluster = Nannies(Path(folder), setting.workers, **options)
        else:
            cluster = Cluster(Path(folder), setting.workers, hosts, **options)
        try:
            for fault, seeds in rounds:
                if time.monotonic() > setting.end:
                    break
                for outcome in play(cluster, fault, seeds, setting.works):
                    found.put(outcome)
        finally:
            cluster.close()
            if hosts is not None:
                hosts.close()


def end_in_order() -> None:
    """Let this process leave its blocks when it is ended, so that no worker outlives it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))


def line(outcome: Outcome) -> str:
    """An outcome for people."""
    what = f"{outcome.fault:9} {outcome.work:10} {outcome.seed:3} at {outcome.moment:24}"
    message = outcome.message if outcome.failed else outcome.message[:120]
    return f"{what} {outcome.kind:7} {outcome.seconds:5.1f} s  {message}"
