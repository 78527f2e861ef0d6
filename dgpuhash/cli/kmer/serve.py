"""`dgpuhash kmer serve`: load indexes once and classify the reads of many clients."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import click

from dgpuhash.cli.kmer.options import Device, Mode, Scheduler, bytes_of, client_of
from dgpuhash.cli.signature import command, option

if TYPE_CHECKING:
    from dgpuhash.kmer.server.server import Server

_STOPS = (signal.SIGINT, signal.SIGTERM)


@command
def serve(
    databases: Annotated[tuple[str, ...], option(metavar="DB...")],
    *,
    listen: Annotated[str, option(metavar="ADDRESS")] = "tcp://127.0.0.1:8790",
    memory: str = "1GiB",
    clients: Annotated[int, option(type=click.IntRange(1))] = 256,
    scheduler: Scheduler = None,
    mode: Mode = "auto",
    device: Device = "cpu",
) -> None:
    """Load each DB once, and classify the reads that clients send.

    A DB is a path that build made, or NAME=PATH. Clients are "kmer classify --server ADDRESS NAME".
    The first Ctrl-C or SIGTERM stops the server, SIGHUP loads files anew that were replaced.

    Parameters
    ----------
    listen : str
        tcp://host:port, tls://host:port with the certificates of Dask's configuration, or
        unix:///path, which only your user can open.
    memory : str
        Most bytes of reads at a time, of all clients; one of them has a sixteenth.
    clients : int
        Most connections.
    """
    from dgpuhash.kmer.server.databases import Databases, named_paths
    from dgpuhash.kmer.server.server import Server

    nbytes = bytes_of("--memory", memory)
    paths = named_paths(databases)
    with client_of(scheduler) as client:
        loaded = Databases(paths, device, client=client, mode=mode)
        server = Server(loaded, listen, memory=nbytes, clients=clients, say=_say)
        asyncio.run(_run(server, list(paths)))


async def _run(server: Server, names: list[str]) -> None:
    with _signals(server):
        await server.run(lambda address: click.echo(f"serving {', '.join(names)} at {address}"))
    _say("stopped")


@contextmanager
def _signals(server: Server) -> Iterator[None]:
    """Stop the server at the first signal to end, and the process at the second."""
    loop = asyncio.get_running_loop()
    is_stopping = False

    def stop() -> None:
        nonlocal is_stopping
        if is_stopping:
            os._exit(1)
        is_stopping = True
        _say("stopping; a second signal ends it at once")
        server.stop()

    for number in _STOPS:
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, server.renew)
    try:
        yield
    finally:
        for number in (*_STOPS, signal.SIGHUP):
            loop.remove_signal_handler(number)


def _say(text: str) -> None:
    click.echo(text, err=True)
