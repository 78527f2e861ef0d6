"""Cluster on which a command runs: in this process, or an existing one."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dgpuhash.errors import UnsupportedError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["client_for", "scheduler_option"]

CONNECT_SECONDS = 10


def scheduler_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--scheduler`` to a command."""
    return click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Run on this Dask cluster, e.g. tcp://host:8786; without it, in this process.",
    )(command)


@contextmanager
def client_for(scheduler: str | None) -> Iterator[Client]:
    """Yield a client of the cluster at `scheduler`, or of a new local one.

    Without `scheduler`, a cluster with one worker is started inside this process.

    Raises
    ------
    OSError
        When no scheduler answers at that address.
    UnsupportedError
        When `scheduler` is not an address, or its protocol is not installed.
    """
    from distributed import Client, LocalCluster
    from distributed.comm import get_address_host_port

    if scheduler is not None:
        scheme = scheduler.partition("://")[0]
        if scheme in ("ucx", "ucxx") and importlib.util.find_spec("distributed_ucxx") is None:
            raise UnsupportedError(
                f"--scheduler {scheduler} takes distributed-ucxx; install it with "
                "\"pip install 'dgpuhash[ucx]'\" (CUDA 12: 'dgpuhash[cu12]')"
            )
        # Checked first: a client with an invalid address stays half made, as the default client.
        try:
            get_address_host_port(scheduler)
        except ValueError as error:
            raise UnsupportedError(
                f"--scheduler {scheduler}: {error}; give an address such as tcp://host:8786"
            ) from error
        try:
            connected = Client(scheduler, timeout=CONNECT_SECONDS)
        except OSError as error:
            remedy = "check the address, and that a scheduler runs there"
            raise OSError(f"{error}; {remedy}") from error
        with connected as client:
            yield client
        return
    threads = len(os.sched_getaffinity(0))
    with (
        _quiet_worker_errors(),
        LocalCluster(
            n_workers=1,
            threads_per_worker=threads,
            processes=False,
            dashboard_address=None,
            # Any free port, so that another running scheduler causes no warning.
            scheduler_kwargs={"dashboard_address": ":0"},
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def _quiet_worker_errors() -> Iterator[None]:
    """Keep the in-process worker from logging errors that the command prints."""
    logger = logging.getLogger("distributed.worker")
    logger.addFilter(_is_not_compute_failure)
    try:
        yield
    finally:
        logger.removeFilter(_is_not_compute_failure)


def _is_not_compute_failure(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Compute Failed")
