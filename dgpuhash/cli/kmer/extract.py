"""`dgpuhash kmer report`, `extract`: report on a file of calls, and select reads by taxon."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import click

from dgpuhash.cli.kmer.options import Force, Pairing, ReportStyle, opened_taxonomy
from dgpuhash.cli.kmer.progress import letter_progress, nbytes_of
from dgpuhash.cli.signature import command, option
from dgpuhash.errors import SpecError

if TYPE_CHECKING:
    from dgpuhash.kmer.formats.labels import Labels

_MATE = "#"


@dataclass(frozen=True, slots=True)
class _Named:
    """Index or taxonomy that has the names of calls.

    Attributes
    ----------
    db : str, optional
        The index that made the calls.
    taxonomy : str, optional
        Folder of NCBI's files instead of --db.
    gtdb : tuple of str
        GTDB's taxonomy instead.
    """

    db: str | None = None
    taxonomy: Annotated[str | None, option(metavar="DIR")] = None
    gtdb: Annotated[tuple[str, ...], option(metavar="FILE")] = ()

    def labels(self) -> Labels | None:
        """Return the names of taxa for calls; None without a taxonomy."""
        from dgpuhash.kmer.formats.labels import Labels
        from dgpuhash.kmer.index_file import read_index
        from dgpuhash.kmer.references import Targets

        if self.db is not None and (self.taxonomy or self.gtdb):
            raise SpecError("--db has a taxonomy of its own; leave out --taxonomy and --gtdb")
        if self.db is not None:
            saved = read_index(self.db)
            return Labels(saved.taxonomy, saved.targets)
        tree = opened_taxonomy(self.taxonomy, self.gtdb)
        return None if tree is None else Labels(tree, Targets.none())


@command
def report(
    calls: tuple[str, ...],
    *,
    named: _Named,
    output: Annotated[str, option("-o", "--output")] = "-",
    style: ReportStyle = "kraken",
    report_zero_counts: bool = False,
    abundance: Annotated[str | None, option(metavar="RANK")] = None,
    read_length: int | None = None,
    threshold: Annotated[int, option(type=click.IntRange(0))] = 10,
    overwrite: Force = False,
) -> None:
    """Report reads by taxon from the files CALLS that `classify` wrote.

    With --abundance: a table of taxa of a rank and the reads that are estimated to be theirs.

    Parameters
    ----------
    output : str
        Where to write the report.
    report_zero_counts : bool
        Lines of taxa without reads, too.
    abundance : str, optional
        Estimate reads of a rank instead, as Bracken does, e.g. species; --db has distributions.
    read_length : int, optional
        Of --abundance; default: the only one in --db.
    threshold : int
        Of --abundance: leave out taxa with fewer reads.
    """
    import numpy as np

    from dgpuhash.cli.kmer.build import distribution_in
    from dgpuhash.kmer.formats.labels import distinct_of
    from dgpuhash.kmer.formats.outputs import check_output, write_lines
    from dgpuhash.kmer.formats.read_calls import read_calls
    from dgpuhash.kmer.formats.redistribution import share_reads, shared_lines
    from dgpuhash.kmer.formats.report import kreport, mpa_report

    check_output(output, overwrite=overwrite)
    if abundance is not None and named.db is None:
        raise SpecError("--abundance needs the distributions of an index; name it with --db")
    labels = named.labels()
    if labels is None:
        raise SpecError("a report needs a taxonomy; name the index with --db, or a taxonomy")
    distribution = None
    if abundance is not None and named.db is not None:
        distribution = distribution_in(named.db, read_length)
    elif read_length is not None:
        raise SpecError("--read-length without --abundance; name a rank, e.g. species")
    counts: Counter[int] = Counter()
    for path in calls:
        for _, found in read_calls(path):
            distinct, places = distinct_of(found)
            some = np.bincount(places, minlength=len(distinct))
            counts.update(dict(zip(distinct.tolist(), some.tolist(), strict=True)))
    lifted = labels.lift(np.array(list(counts), np.int64))
    numbers = np.array(list(counts.values()), np.int64)
    lines = (kreport if style == "kraken" else mpa_report)(
        labels.taxonomy, lifted, numbers, zero_counts=report_zero_counts
    )
    if distribution is not None and abundance is not None:
        given = labels.taxonomy, lifted, numbers, distribution
        shared = share_reads(*given, abundance, threshold=threshold)
        lines = shared_lines(labels.taxonomy, abundance, shared)
    write_lines(output, lines, overwrite=overwrite)


@command
def extract(
    calls: str,
    reads: Annotated[tuple[str, ...], option(metavar="READS...")],
    *,
    pairing: Pairing,
    taxa: tuple[str, ...],
    exclude: bool = False,
    named: _Named,
    output: Annotated[str, option("-o", "--output")],
    overwrite: Force = False,
) -> None:
    """Write the READS that CALLS assigns to some taxa, with their mates.

    CALLS is what classify wrote of these reads.

    Parameters
    ----------
    taxa : tuple of str
        Taxids with commas: 562 alone, 562+ with all below it, 0 for reads without a call.
    exclude : bool
        Write the other reads.
    output : str
        Where to write; of pairs # is 1 and 2 in two files, e.g. out_#.fq.gz.
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

    paired, interleaved = pairing.paired, pairing.interleaved
    if paired and (interleaved or len(reads) % 2):
        raise SpecError("--paired takes files of first and second mates, in turn; name both")
    are_pairs = paired or interleaved
    targets = [output]
    if _MATE in output:
        if not are_pairs:
            raise SpecError(f"{output} has a {_MATE}, which is for pairs; leave it out")
        targets = [output.replace(_MATE, mate) for mate in "12"]
    for target in targets:
        check_output(target, overwrite=overwrite)
    labels = named.labels()
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
                firsts, seconds, interleaved=interleaved, name_check=not pairing.no_name_check,
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
