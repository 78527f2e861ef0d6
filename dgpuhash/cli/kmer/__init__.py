"""`dgpuhash kmer`: count k-mers of sequences, and classify reads."""

from __future__ import annotations

import click

from dgpuhash.cli.group import Commands
from dgpuhash.cli.kmer import build, classify, count, estimate, extract, merge, serve, show
from dgpuhash.cli.threads import threads_option

__all__ = ["kmer"]


@click.group(cls=Commands)
def kmer() -> None:
    """Count k-mers of sequences, and classify reads by them.

    Reads are classified by the rules of MetaCache and of Kraken 2.
    """


for command in (
    count.count,
    show.histogram,
    show.dump,
    show.query,
    merge.merge,
    show.stats,
    estimate.estimate,
    build.build,
    build.add,
    build.inspect,
    classify.classify,
    classify.run,
    serve.serve,
    extract.report,
    extract.extract,
):
    kmer.add_command(threads_option(command))
