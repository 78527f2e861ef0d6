"""`dgpuhash cache`."""

from __future__ import annotations

import click

from dgpuhash.backend import cache as kernel_cache

__all__ = ["cache"]


@click.group()
def cache() -> None:
    """Look after the folder of compiled GPU kernels."""


@cache.command()
def clear() -> None:
    """Delete the compiled kernels; they are compiled again when they are needed."""
    removed = kernel_cache.clear()
    click.echo(f"removed {removed.files} compiled kernels from {removed.folder}")
