"""`dgpuhash kmer build`, `add`, `inspect`: build, extend and describe a reference index."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click

from dgpuhash.cli.kmer.options import (
    build_options,
    bytes_of,
    client_of,
    cluster_options,
    device,
    force,
    of_rule,
    opened_taxonomy,
    output,
    placement_options,
    saved_as,
)
from dgpuhash.cli.kmer.progress import letter_progress
from dgpuhash.errors import SpecError
from dgpuhash.typing import Device


class _Lengths(click.ParamType):
    """Lengths of reads, such as 100,150."""

    name = "lengths"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the numbers."""
        texts = [] if value == () else value.split(",")
        if not all(text.strip().isdecimal() for text in texts):
            self.fail(f"{value!r} are no lengths; write e.g. 100,150", param, ctx)
        return tuple(map(int, texts))


_references = click.argument("references", nargs=-1, required=True, metavar="REFS...")


@click.command()
@_references
@build_options
@click.option(
    "--distributions",
    metavar="LENGTHS",
    type=_Lengths(),
    default=(),
    help="[Kraken 2] Count how reads of these lengths are called, e.g. 100,150, for report "
    "--abundance; REFS are read once more.",
)
@click.option(
    "--max-db-size",
    metavar="BYTES",
    help="[Kraken 2] Leave out minimizers by their hashes until the index has e.g. 8GB; REFS are "
    "read once more.",
)
@cluster_options
@output
@device
@force
def build(
    references: tuple[str, ...],
    output: str,
    scheduler: str | None,
    overwrite: bool,
    distributions: tuple[int, ...],
    max_db_size: str | None,
    **settings: Any,
) -> None:
    """Index the sequences of REFS, to classify reads by.

    REFS are FASTA or FASTQ, plain or compressed: paths, quoted globs, folders or URLs.
    """
    from dgpuhash.tables.serialization import check_absent

    check_absent(output, overwrite=overwrite)
    start = time.perf_counter()
    if distributions:
        settings["distributions"] = distributions
    if max_db_size is not None:
        settings["max_db_size"] = bytes_of("--max-db-size", max_db_size)
    if settings["rule"] != "kraken2" and (distributions or max_db_size):
        flag = "--distributions" if distributions else "--max-db-size"
        raise SpecError(f"{flag} is of the rule of Kraken 2; leave it out")
    with client_of(scheduler) as client:
        index = built(references, client=client, **settings)
        saved_as(index, output, overwrite)
    _report(index, output, start)


def built(
    references: tuple[str, ...],
    *,
    rule: str,
    taxonomy: str | None,
    gtdb: tuple[str, ...],
    accessions: tuple[str, ...],
    allow_unplaced: int,
    mask: str,
    order: str,
    device: Device,
    client: Any,
    mode: str,
    **given: Any,
) -> Any:
    """Build the index of references that a command's options describe."""
    from dgpuhash.kmer import MinimizerIndex, SketchIndex
    from dgpuhash.kmer.references import References

    settings = of_rule(rule, given)
    # What is left is of build alone.
    settings |= given
    tree = opened_taxonomy(taxonomy, gtdb)
    if tree is None and rule == "kraken2":
        raise SpecError(
            "the rule of Kraken 2 needs a taxonomy; name the folder of NCBI's files with "
            "--taxonomy, or GTDB's with --gtdb"
        )
    kind: Any = SketchIndex if rule == "metacache" else MinimizerIndex
    with letter_progress() as progress:
        told = progress.of(lambda: read.letters)
        read = References(references, mask=mask, order=order, progress=told)
        # Workers read the files of the same references.
        index = kind.build(
            read, taxonomy=tree, accessions=accessions, allow_unplaced=allow_unplaced,
            device=device, client=client, mode=mode, mask=mask, order=order, progress=told,
            **settings,
        )  # fmt: skip
    _tell_notes(read.notes)
    if client is not None:
        click.echo(f"note: the index is {index.mode}: {index.why}", err=True)
    return index


@click.command()
@click.argument("db")
@_references
@placement_options
@click.option("-o", "--output", help="Where to save instead of DB.")
@device
@force
def add(
    db: str,
    references: tuple[str, ...],
    taxonomy: str | None,
    gtdb: tuple[str, ...],
    accessions: tuple[str, ...],
    allow_unplaced: int,
    output: str | None,
    device: Device,
    overwrite: bool,
) -> None:
    """Add the sequences of REFS to DB; numbering continues after its last sequence.

    --taxonomy or --gtdb is needed for taxa that DB does not have.
    """
    from dgpuhash.kmer import load_index
    from dgpuhash.kmer.references import References
    from dgpuhash.tables.serialization import check_absent

    if output is not None:
        check_absent(output, overwrite=overwrite)
    start = time.perf_counter()
    tree = opened_taxonomy(taxonomy, gtdb)
    index = load_index(db, device)
    lost = lost_distributions(index)
    with letter_progress() as progress:
        read = References(
            references, mask=index.settings.mask, order=index.settings.order,
            known=index.targets, progress=progress.of(lambda: read.letters),
        )  # fmt: skip
        index.add(read, taxonomy=tree, accessions=accessions, allow_unplaced=allow_unplaced)
    _tell_notes([*read.notes, *lost])
    saved_as(index, output or db, overwrite or output is None)
    _report(index, output or db, start)


def lost_distributions(index: Any) -> list[str]:
    """Return a note if an index has read distributions, which an extended index has not."""
    if not getattr(index, "distributions", None):
        return []
    return [
        "the distributions of reads are left out, as there are more references now; build the "
        "index with --distributions"
    ]


def _tell_notes(notes: list[str]) -> None:
    for note in notes:
        click.echo(f"note: {note}", err=True)


def _report(index: Any, output: str, start: float) -> None:
    targets = index.targets
    placed = len({int(taxid) for taxid in targets.taxids.tolist() if taxid})
    click.echo(
        f"{output}: {len(targets.names):,} sequences of {placed:,} taxa, "
        f"{int(targets.lengths.sum()):,} letters, in {time.perf_counter() - start:.1f} s"
    )


@click.command()
@click.argument("db")
@click.option("--targets", is_flag=True, help="A line for each sequence.")
@click.option("--lineages", is_flag=True, help="The ranked lineage of each sequence.")
@click.option("--report", is_flag=True, help="[Kraken 2] How many minimizers taxa have.")
@click.option("--provenance", is_flag=True, help="When and how it was made, of which files.")
@click.option(
    "--distribution",
    type=int,
    metavar="LENGTH",
    help="[Kraken 2] How reads of this length are called, as Bracken's files have it.",
)
def inspect(
    db: str,
    targets: bool,
    lineages: bool,
    report: bool,
    provenance: bool,
    distribution: int | None,
) -> None:
    """Print the references and settings of DB."""
    from dgpuhash.kmer import load_index
    from dgpuhash.kmer.databases.provenance import provenance_lines

    if targets + lineages + report + provenance + (distribution is not None) > 1:
        raise SpecError(
            "--targets, --lineages, --report, --provenance and --distribution print one thing "
            "each; pass one"
        )
    if distribution is not None:
        click.echo("\n".join(distribution_in(db, distribution).lines()))
        return
    index: Any = load_index(db)
    if report and index.rule != "kraken2":
        raise SpecError(f"{db} has no minimizers; leave out --report")
    lines = (
        _targets(index)
        if targets
        else _lineages(index)
        if lineages
        else index.inspect()
        if report
        else provenance_lines(index.provenance)
        if provenance
        else stats_lines(index)
    )
    out = click.open_file("-", "w")
    for line in lines:
        out.write(f"{line}\n")


def distribution_in(db: str, length: int | None) -> Any:
    """Return a saved index's distribution for a read length, or its only one."""
    from dgpuhash.kmer.distributions import chosen_distribution, saved_distributions
    from dgpuhash.kmer.index_file import read_index

    return chosen_distribution(saved_distributions(read_index(db, has_arrays=False)), length)


def stats_lines(index: Any) -> Iterator[str]:
    """Yield lines that describe an index's contents and provenance."""
    from dgpuhash.kmer.databases.provenance import summary_lines

    for name, value in index.stats().items():
        if name == "notes":
            yield from (f"note\t{note}" for note in value)
        else:
            yield f"{name}\t{str(value).lower() if isinstance(value, bool) else value}"
    yield from summary_lines(index.provenance)


def _targets(index: Any) -> Iterator[str]:
    targets = index.targets
    yield "number\tname\ttaxid\tletters\trecord\tfile"
    columns = zip(
        targets.names, targets.taxids.tolist(), targets.lengths.tolist(),
        targets.record_in_file.tolist(), targets.file_of.tolist(), strict=True,
    )  # fmt: skip
    for number, (name, taxid, letters, record, file) in enumerate(columns, 1):
        yield f"-{number}\t{name}\t{taxid}\t{letters}\t{record + 1}\t{targets.files[file]}"


def _lineages(index: Any) -> Iterator[str]:
    from dgpuhash.kmer.formats.labels import Labels
    from dgpuhash.kmer.formats.read_calls import lineage_lines

    return lineage_lines(Labels(index.taxonomy, index.targets))
