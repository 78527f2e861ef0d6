"""Dask processes, forked from one that has imported their modules."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import dask
from clusters import fork_workers
from dask.cli import run_cli
from hosts import enter

__all__ = ["FORKED", "fork", "started"]

FORKED = multiprocessing.get_context("forkserver")


def fork(gpus: bool) -> None:
    """Start the fork server, which must not start to use a GPU."""
    if gpus:
        os.environ["RAPIDS_NO_INITIALIZE"] = "1"
        fork_workers("cudf", "dask_cudf")
    else:
        fork_workers()


def started(
    command: Sequence[str], settings: Mapping[str, str], log: Path, network: Path | None = None
) -> BaseProcess:
    """Start a process that runs a ``dask`` command on a host's network."""
    process = FORKED.Process(target=run, args=(command, settings, log, network), daemon=True)
    process.start()
    return process


def run(
    command: Sequence[str], settings: Mapping[str, str], log: Path, network: Path | None
) -> None:
    """Run the command in the forked process."""
    with log.open("wb") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    os.chdir(log.parent)
    os.environ.update(settings)
    dask.config.refresh()
    if network is not None:
        enter(network)
    sys.argv = ["dask", *command]
    run_cli()
