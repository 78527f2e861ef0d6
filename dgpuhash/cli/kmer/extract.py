"""`dgpuhash kmer report`, `extract`: report on a file of calls, and select reads by taxon."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from dgpuhash.cli.kmer.options import force, opened_taxonomy, read_options
from dgpuhash.cli.kmer.progress import letter_progress, nbytes_of
from dgpuhash.errors import SpecError

if TYPE_CHECKING:
    from dgpuhash.kmer.formats.labels import Labels

_MATE = "#"


def _taxonomy_options(command: Any) -> Any:
    """Add the options that name a taxonomy, or an index with one."""
    options = (
        click.option("--db", help="The index that made the calls."),
        click.option("--taxonomy", metavar="DIR", help="Folder of NCBI's files instead of --db."),
        click.option("--gtdb", multiple=True, metavar="FILE", help="GTDB's taxonomy instead."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _labels_of(db: str | None, taxonomy: str | None, gtdb: tuple[str, ...]) -> Labels | None:
    """Return the names of taxa for calls; None without a taxonomy."""
    from dgpuhash.kmer.formats.labels import Labels
    from dgpuhash.kmer.index_file import read_index
    from dgpuhash.kmer.references import Targets

    if db is not None and (taxonomy or gtdb):
        raise SpecError("--db has a taxonomy of its own; leave out --taxonomy and --gtdb")
    if db is not None:
        saved = read_index(db)
        return Labels(saved.taxonomy, saved.targets)
    tree = opened_taxonomy(taxonomy, gtdb)
    return None if tree is None else Labels(tree, Targets.none())


@click.command()
@click.argument("calls", nargs=-1, required=True)
@_taxonomy_options
@click.option("-o", "--output", default="-", show_default=True, help="Where to write the report.")
@click.option(
    "--report-style",
    "style",
    type=click.Choice(["kraken", "mpa"]),
    default="kraken",
    show_default=True,
    help="mpa: paths of names, as MetaPhlAn has.",
)
@click.option("--report-zero-counts", is_flag=True, help="Lines of taxa without reads, too.")
@click.option(
    "--abundance",
    metavar="RANK",
    help="Estimate reads of a rank instead, as Bracken does, e.g. species; --db has distributions.",
)
@click.option("--read-length", type=int, help="Of --abundance; default: the only one in --db.")
@click.option(
    "--threshold",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Of --abundance: leave out taxa with fewer reads.",
)
@force
def report(
    calls: tuple[str, ...],
    db: str | None,
    taxonomy: str | None,
    gtdb: tuple[str, ...],
    output: str,
    style: str,
    report_zero_counts: bool,
    abundance: str | None,
    read_length: int | None,
    threshold: int,
    overwrite: bool,
) -> None:
    """Report reads by taxon from the files CALLS that `classify` wrote.

    With --abundance: a table of taxa of a rank and the reads that are estimated to be theirs.
    """
    import numpy as np

    from dgpuhash.cli.kmer.build import distribution_in
    from dgpuhash.kmer.formats.labels import distinct_of
    from dgpuhash.kmer.formats.outputs import check_output, write_lines
    from dgpuhash.kmer.formats.read_calls import read_calls
    from dgpuhash.kmer.formats.redistribution import share_reads, shared_lines
    from dgpuhash.kmer.formats.report import kreport, mpa_report

    check_output(output, overwrite=overwrite)
    if abundance is not None and db is None:
        raise SpecError("--abundance needs the distributions of an index; name it with --db")
    labels = _labels_of(db, taxonomy, gtdb)
    if labels is None:
        raise SpecError("a report needs a taxonomy; name the index with --db, or a taxonomy")
    distribution = None
    if abundance is not None and db is not None:
        distribution = distribution_in(db, read_length)
    elif read_length is not None:
        raise SpecError("--read-length without --abundance; name a rank, e.g. species")
    counts: Counter[int] = Counter()
    for path in calls:
        for _, found in read_calls(path):
            distinct, places = distinct_of(found)
            some = np.bincount(places, minlength=len(distinct))
            counts.update(dict(zip(distinct.tolist(), some.tolist(), strict=True)))
    lifted = labels.lifted(np.array(list(counts), np.int64))
    numbers = np.array(list(counts.values()), np.int64)
    lines = (kreport if style == "kraken" else mpa_report)(
        labels.taxonomy, lifted, numbers, zero_counts=report_zero_counts
    )
    if distribution is not None and abundance is not None:
        given = labels.taxonomy, lifted, numbers, distribution
        shared = share_reads(*given, abundance, threshold=threshold)
        lines = shared_lines(labels.taxonomy, abundance, shared)
    write_lines(output, lines, overwrite=overwrite)


@click.command()
@click.argument("calls")
@click.argument("reads", nargs=-1, required=True, metavar="READS...")
@read_options
@click.option(
    "--taxa",
    multiple=True,
    required=True,
    help="Taxids with commas: 562 alone, 562+ with all below it, 0 for reads without a call.",
)
@click.option("--exclude", is_flag=True, help="Write the other reads.")
@_taxonomy_options
@click.option(
    "-o",
    "--output",
    required=True,
    help="Where to write; of pairs # is 1 and 2 in two files, e.g. out_#.fq.gz.",
)
@force
def extract(
    calls: str,
    reads: tuple[str, ...],
    paired: bool,
    interleaved: bool,
    no_name_check: bool,
    taxa: tuple[str, ...],
    exclude: bool,
    db: str | None,
    taxonomy: str | None,
    gtdb: tuple[str, ...],
    output: str,
    overwrite: bool,
) -> None:
    """Write the READS that CALLS assigns to some taxa, with their mates.

    CALLS is what classify wrote of these reads.
    """
    from dgpuhash.kmer import read_pairs, read_sequences
    from dgpuhash.kmer.formats.calls import ChosenTaxa
    from dgpuhash.kmer.formats.classified import interleaved_text, sequence_text
    from dgpuhash.kmer.formats.labels import Labels
    from dgpuhash.kmer.formats.outputs import check_output, opened_output
    from dgpuhash.kmer.formats.read_calls import CallStream
    from dgpuhash.kmer.references import Targets
    from dgpuhash.kmer.sequences.batches import ids_of
    from dgpuhash.kmer.sequences.files import files_of

    if paired and (interleaved or len(reads) % 2):
        raise SpecError("--paired takes files of first and second mates, in turn; name both")
    are_pairs = paired or interleaved
    targets = [output]
    if _MATE in output:
        if not are_pairs:
            raise SpecError(f"{output} is of pairs by its {_MATE}; leave it out")
        targets = [output.replace(_MATE, mate) for mate in "12"]
    for target in targets:
        check_output(target, overwrite=overwrite)
    labels = _labels_of(db, taxonomy, gtdb)
    if labels is None and any("+" in text for text in taxa):
        raise SpecError("taxa with + need a taxonomy; name the index with --db, or a taxonomy")
    chosen = ChosenTaxa(taxa, labels or Labels(None, Targets.none()))
    firsts = files_of(reads[::2] if paired else reads)
    seconds = files_of(reads[1::2]) if paired else None
    stream, found, n = CallStream(calls), 0, 0
    with ExitStack() as stack:
        progress = stack.enter_context(letter_progress(nbytes_of([*firsts, *(seconds or ())])))
        outputs = [
            stack.enter_context(opened_output(target, overwrite=overwrite)) for target in targets
        ]
        batches: Any
        if are_pairs:
            batches = read_pairs(
                firsts, seconds, interleaved=interleaved, name_check=not no_name_check,
                consumed=progress.consumed,
            )  # fmt: skip
        else:
            batches = ((batch,) for batch in read_sequences(firsts, consumed=progress.consumed))
        for sides in batches:
            ids = ids_of(sides[0], paired=are_pairs)
            is_chosen = chosen.among(stream.take(ids)) != exclude
            if len(sides) > len(outputs):
                outputs[0].write(interleaved_text(sides[0], sides[1], is_chosen))
            else:
                for side, out in zip(sides, outputs, strict=True):
                    out.write(sequence_text(side, is_chosen))
            n += len(is_chosen)
            found += int(is_chosen.sum())
            progress.letters(sum(len(side.letters) for side in sides))
        stream.finish()
    what = "pairs" if are_pairs else "reads"
    click.echo(f"{output}: {found:,} of {n:,} {what}", err=True)
