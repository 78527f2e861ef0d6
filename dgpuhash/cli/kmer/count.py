"""`dgpuhash kmer count`: count the k-mers of sequences and write a file of counts."""

from __future__ import annotations

import time
from typing import Annotated

import click

from dgpuhash.cli.kmer.options import Force, Output, bytes_of, client_of, saved_as
from dgpuhash.cli.kmer.progress import letter_progress, nbytes_of
from dgpuhash.cli.signature import command, option
from dgpuhash.typing import Device


@command
def count(
    sources: tuple[str, ...],
    *,
    k: int = 31,
    output: Output,
    canonical: Annotated[
        bool, option("--no-canonical", flag_value=False, type=bool, is_flag=None, show_default=None)
    ] = True,
    min_count: int = 1,
    max_count: int | None = None,
    min_quality: int = 0,
    memory: Annotated[str | None, option(metavar="BYTES")] = None,
    device: Annotated[Device, option(help="Where to count.")] = "cpu",
    scheduler: Annotated[str | None, option(metavar="ADDRESS")] = None,
    overwrite: Force = False,
) -> None:
    """Count the k-mers of SOURCES and save them.

    SOURCES are FASTA or FASTQ, plain or compressed: paths, quoted globs, folders, URLs or -.

    Parameters
    ----------
    k : int
        Letters of a k-mer, 1 to 64.
    canonical : bool
        Count a k-mer and its reverse complement apart.
    min_count : int
        Leave out rarer k-mers.
    max_count : int, optional
        Leave out k-mers of higher counts.
    min_quality : int
        Mask letters of a lower quality.
    memory : str, optional
        E.g. 4GiB: what is more passes through temporary files.
    scheduler : str, optional
        Count on the workers of this Dask cluster, e.g. tcp://host:8786; they read the files.
    """
    from dgpuhash.kmer import KmerCounts
    from dgpuhash.kmer.sequences.files import files_of
    from dgpuhash.tables.serialization import check_absent

    nbytes = None if memory is None else bytes_of("--memory", memory)
    check_absent(output, overwrite=overwrite)
    start = time.perf_counter()
    files = files_of(sources)
    with client_of(scheduler) as client, letter_progress(nbytes_of(files)) as progress:
        counts = KmerCounts.count(
            files, k, canonical=canonical, min_count=min_count, max_count=max_count,
            min_quality=min_quality, memory=nbytes, device=device, client=client,
            progress=progress.letters, consumed=progress.consumed,
        )  # fmt: skip
    saved_as(counts, output, overwrite)
    told = counts.told
    click.echo(
        f"{output}: {len(counts):,} k-mers of {k} letters, {told['kmers']:,} in all, from "
        f"{told['records']:,} records of {told['letters']:,} letters in "
        f"{time.perf_counter() - start:.1f} s"
    )
