"""`dgpuhash info`."""

from __future__ import annotations

import platform
from importlib import metadata

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dgpuhash import backend
from dgpuhash.backend import cache
from dgpuhash.cli.errors import one_line
from dgpuhash.errors import DgpuhashError
from dgpuhash.tables.stats import bytes_in_words

__all__ = ["info"]

# Distributions whose versions decide what works; of names in one row, the first installed is shown.
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


@click.command()
def info() -> None:
    """Show versions, backends, devices and the kernel cache."""
    console = Console()
    console.print(_versions())
    console.print(_backends())
    kept = cache.info()
    console.print(
        f"kernel cache: {kept.files} compiled kernels, {bytes_in_words(kept.nbytes)}, "
        f"in {kept.folder}",
        soft_wrap=True,
    )


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
            memory = f"{bytes_in_words(free)} of {bytes_in_words(total)}"
            table.add_row(name, found.device_name(), memory)
        except DgpuhashError as error:
            table.add_row(name, Text(f"not usable: {one_line(error)}"), "")
    return table
