"""`dgpuhash kmer histogram`, `dump`, `query`, `stats`: print contents of a file of counts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import click

from dgpuhash.cli.kmer.build import stats_lines
from dgpuhash.cli.kmer.merge import is_index
from dgpuhash.cli.signature import command, option

# K-mers of a query that are looked up at once.
_ASKED = 2**18


def _load(path: str) -> Any:
    from dgpuhash.kmer import KmerCounts

    return KmerCounts.load(path)


@command
def histogram(counts: str) -> None:
    """Print each count, a tab, and the number of k-mers in COUNTS that have it."""
    found, numbers = _load(counts).histogram()
    out = click.open_file("-", "w")
    for count, number in zip(found.tolist(), numbers.tolist(), strict=True):
        out.write(f"{count}\t{number}\n")


@command
def dump(counts: str, *, is_sorted: Annotated[bool, option("--sorted")] = False) -> None:
    """Print each k-mer of COUNTS, a tab and its count.

    Parameters
    ----------
    is_sorted : bool
        In the order of the k-mers' letters.
    """
    _load(counts).dump(click.open_file("-", "wb"), sort=is_sorted)


@command
def query(counts: str, kmers: tuple[str, ...]) -> None:
    """Print KMERS, tabs and their counts in COUNTS; `-` reads k-mers from the input, one a line."""
    loaded, asked = _load(counts), _read_kmers(kmers)
    out = click.open_file("-", "w")
    while some := list(islice(asked, _ASKED)):
        for kmer, count in zip(some, loaded.query(some).tolist(), strict=True):
            out.write(f"{kmer}\t{count}\n")


def _read_kmers(kmers: tuple[str, ...]) -> Iterator[str]:
    for kmer in kmers:
        if kmer == "-":
            yield from filter(None, map(str.strip, click.open_file("-")))
        else:
            yield kmer


@command
def stats(file: str) -> None:
    """Print what was read to build a FILE of counts or index, and its contents."""
    if is_index(file):
        from dgpuhash.kmer import load_index

        click.echo("\n".join(stats_lines(load_index(file))))
        return
    for name, value in _load(file).stats().items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        click.echo(f"{name}\t{shown}")
