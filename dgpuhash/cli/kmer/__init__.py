"""`dgpuhash kmer`: k-mers of sequences, counted."""

from __future__ import annotations

import click

from dgpuhash.cli.kmer import count, show

__all__ = ["kmer"]


@click.group()
def kmer() -> None:
    """Count the k-mers of sequences."""


for command in (
    count.count,
    show.histogram,
    show.dump,
    show.query,
    count.merge,
    show.stats,
):
    kmer.add_command(command)
