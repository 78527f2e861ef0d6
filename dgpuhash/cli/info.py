"""`dgpuhash info`: show versions, backends, devices and transports."""

from __future__ import annotations

import importlib
import platform
from importlib import metadata
from typing import Annotated, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dgpuhash import backend
from dgpuhash.backend import cache
from dgpuhash.cli.errors import one_line
from dgpuhash.cli.signature import command, option
from dgpuhash.errors import DgpuhashError
from dgpuhash.tables.stats import format_bytes

# Packages whose versions decide what works; of the names in a row, the first installed is shown.
PACKAGES = [
    ("dgpuhash",),
    ("dask",),
    ("distributed",),
    ("numpy",),
    ("pandas",),
    ("pyarrow",),
    ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    ("cuda-core",),
    ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    ("rmm-cu13", "rmm-cu12"),
    ("cudf-cu13", "cudf-cu12"),
    ("dask-cuda",),
    ("distributed-ucxx-cu13", "distributed-ucxx-cu12"),
]


# Prefixes of the UCX transports over InfiniBand and RoCE.
_VERBS = ("rc", "dc", "ud")


@command
def info(
    index: str | None = None, *, scheduler: Annotated[str | None, option(metavar="ADDRESS")] = None
) -> None:
    """Show versions and devices, or the contents of a saved INDEX.

    With INDEX, a saved index or table: its keys, columns, rows and bytes, of which only the
    manifest is read. Without: versions, backends, devices, the kernel cache, and with --scheduler
    the transports of UCX on each worker.

    Parameters
    ----------
    scheduler : str, optional
        Show the workers of this Dask cluster, too, and what UCX has there.
    """
    console = Console()
    if index is not None:
        if scheduler is not None:
            raise click.UsageError("this process reads INDEX; leave out --scheduler, or INDEX")
        console.print(_saved_facts(index))
        return
    console.print(_versions())
    console.print(_backends())
    kept = cache.info()
    console.print(
        f"kernel cache: {kept.files} compiled kernels, {format_bytes(kept.nbytes)}, "
        f"in {kept.folder}",
        soft_wrap=True,
    )
    if scheduler is not None:
        from dgpuhash.cli.cluster import client_for

        with client_for(scheduler) as client:
            workers = client.scheduler_info(n_workers=-1)["workers"]
            found = client.run(transports_here, on_error="return")
        console.print(_workers(workers, found))


def _saved_facts(index: str) -> Table:
    from dgpuhash.cli.files.saved_facts import facts_of

    table = Table(title=Text(index), show_header=False)
    for name, said in facts_of(index):
        table.add_row(name, Text(said))
    return table


def transports_here() -> str:
    """Return the UCX transports and devices of this process, or an error.

    Runs on each worker; the error says why UCX is not available.
    """
    try:
        core = importlib.import_module("ucxx.core")
        library = importlib.import_module("ucxx._lib.libucxx")
    except ImportError as error:
        return "no UCXX" if error.name == "ucxx" else f"no UCXX: {one_line(error)}"
    # A cluster over UCX has a context with its settings; a cluster over TCP has none.
    used = getattr(core, "_ctx", None)
    try:
        context = library.UCXContext({}) if used is None else used.context
        return transports_in(context.info)
    except Exception as error:  # UCX raises types of its own.
        return f"UCX does not start: {one_line(error)}"


def transports_in(told: str) -> str:
    """Return the transports and their devices from the info of a UCX context.

    Examples
    --------
    >>> transports_in("resource 0 : md 0 dev 0 flags -- tcp/eth0\\n"
    ...               "resource 1 : md 0 dev 1 flags -- tcp/lo\\n"
    ...               "resource 2 : md 1 dev 2 flags -- cma/memory\\n")
    'tcp (eth0, lo), cma; no InfiniBand'
    """
    devices: dict[str, list[str]] = {}
    for line in told.splitlines():
        head, found, resource = line.partition(" -- ")
        if found and "resource" in head:
            transport, _, device = resource.strip().partition("/")
            devices.setdefault(transport, []).append(device)
    said = ", ".join(
        transport if theirs == ["memory"] else f"{transport} ({', '.join(theirs)})"
        for transport, theirs in devices.items()
    )
    return said if any(each.startswith(_VERBS) for each in devices) else f"{said}; no InfiniBand"


def _workers(workers: dict[str, dict[str, Any]], found: dict[str, Any]) -> Table:
    table = Table("worker", "threads", "transports of UCX", title="Workers")
    for address, worker in sorted(workers.items()):
        said = found.get(address, "it does not answer")
        if isinstance(said, BaseException):
            said = f"cannot be asked: {one_line(said)}; install this dgpuhash there"
        table.add_row(Text(address), str(worker["nthreads"]), Text(said))
    return table


def _versions() -> Table:
    table = Table("package", "version", title="Versions")
    table.add_row("Python", platform.python_version())
    for names in PACKAGES:
        table.add_row(*_installed(names))
    return table


def _installed(names: tuple[str, ...]) -> tuple[str, str]:
    for name in names:
        try:
            return name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return names[0], "not installed"


def _backends() -> Table:
    table = Table("backend", "device", "memory free of total", title="Backends")
    for name in ("cpu", "cuda"):
        try:
            found = backend.get(name)
            free, total = found.memory()
            memory = f"{format_bytes(free)} of {format_bytes(total)}"
            table.add_row(name, found.device_name(), memory)
        except DgpuhashError as error:
            table.add_row(name, Text(f"not usable: {one_line(error)}"), "")
    return table
