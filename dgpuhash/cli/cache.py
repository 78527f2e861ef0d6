"""`dgpuhash cache`: manage the folder of compiled GPU kernels."""

from __future__ import annotations

import click

from dgpuhash.backend import cache as kernel_cache
from dgpuhash.cli.group import Commands


@click.group(cls=Commands)
def cache() -> None:
    """Manage the folder of compiled GPU kernels."""


@cache.command()
def clear() -> None:
    """Delete compiled kernels; later runs compile them again as needed."""
    removed = kernel_cache.clear()
    click.echo(f"removed {removed.files} compiled kernels from {removed.folder}")
