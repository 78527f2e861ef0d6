"""`dgpuhash kmer count`: count the k-mers of sequences and write a file of counts."""

from __future__ import annotations

import time

import click

from dgpuhash.cli.kmer.options import bytes_of, client_of, force, output, saved_as
from dgpuhash.cli.kmer.progress import letter_progress, nbytes_of
from dgpuhash.typing import Device


@click.command()
@click.argument("sources", nargs=-1, required=True)
@click.option("-k", "k", default=31, show_default=True, help="Letters of a k-mer, 1 to 64.")
@output
@click.option(
    "--no-canonical",
    "canonical",
    flag_value=False,
    default=True,
    type=bool,
    help="Count a k-mer and its reverse complement apart.",
)
@click.option("--min-count", default=1, show_default=True, help="Leave out rarer k-mers.")
@click.option("--max-count", type=int, help="Leave out k-mers of higher counts.")
@click.option(
    "--min-quality", default=0, show_default=True, help="Mask letters of a lower quality."
)
@click.option(
    "--memory",
    metavar="BYTES",
    help="E.g. 4GiB: what is more passes through temporary files.",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where to count.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Count on the workers of this Dask cluster, e.g. tcp://host:8786; they read the files.",
)
@force
def count(
    sources: tuple[str, ...],
    k: int,
    output: str,
    canonical: bool,
    min_count: int,
    max_count: int | None,
    min_quality: int,
    memory: str | None,
    device: Device,
    scheduler: str | None,
    overwrite: bool,
) -> None:
    """Count the k-mers of SOURCES and save them.

    SOURCES are FASTA or FASTQ, plain or compressed: paths, quoted globs, folders, URLs or -.
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
