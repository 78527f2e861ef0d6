"""`dgpuhash kmer build`, `add`, `inspect`: build, extend and describe a reference index."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any

import click

from dgpuhash.cli.kmer.options import (
    BuildSettings,
    Device,
    Force,
    Mask,
    Mode,
    Order,
    Output,
    Placement,
    ReferencePaths,
    Rule,
    Scheduler,
    bytes_of,
    check_rule,
    client_of,
    saved_as,
    settings_of,
)
from dgpuhash.cli.kmer.progress import letter_progress
from dgpuhash.cli.signature import command, option
from dgpuhash.errors import SpecError


class _Lengths(click.ParamType):
    """Lengths of reads, such as 100,150."""

    name = "lengths"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the numbers."""
        texts = [] if value == () else value.split(",")
        if not all(text.strip().isdecimal() for text in texts):
            self.fail(f"{value!r} are no lengths; write e.g. 100,150", param, ctx)
        return tuple(map(int, texts))


@command
def build(
    references: ReferencePaths,
    *,
    rule: Rule,
    placement: Placement,
    mask: Mask = "none",
    order: Order = "path",
    settings: BuildSettings,
    distributions: Annotated[
        tuple[int, ...], option(metavar="LENGTHS", type=_Lengths(), default=(), multiple=False)
    ] = (),
    max_db_size: Annotated[str | None, option(metavar="BYTES")] = None,
    scheduler: Scheduler = None,
    mode: Mode = "auto",
    output: Output,
    device: Device = "cpu",
    overwrite: Force = False,
) -> None:
    """Index the sequences of REFS, to classify reads by.

    REFS are FASTA or FASTQ, plain or compressed: paths, quoted globs, folders or URLs.

    Parameters
    ----------
    distributions : tuple of int
        [Kraken 2] Count how reads of these lengths are called, e.g. 100,150, for report
        --abundance; REFS are read once more.
    max_db_size : str, optional
        [Kraken 2] Leave out minimizers by their hashes until the index has e.g. 8GB; REFS are
        read once more.
    """
    from dgpuhash.tables.serialization import check_absent

    check_absent(output, overwrite=overwrite)
    start = time.perf_counter()
    more: dict[str, Any] = {"distributions": distributions} if distributions else {}
    if max_db_size is not None:
        more["max_db_size"] = bytes_of("--max-db-size", max_db_size)
    for name in more:
        check_rule(f"--{name.replace('_', '-')}", "kraken2", rule)
    with client_of(scheduler) as client:
        index = build_index(
            references, rule, placement, settings, mask=mask, order=order, device=device,
            client=client, mode=mode, **more,
        )  # fmt: skip
        saved_as(index, output, overwrite)
    _report(index, output, start)


def build_index(
    references: tuple[str, ...], rule: str, placement: Placement, settings: dict[str, Any], *,
    mask: str, order: str, client: Any, **more: Any,
) -> Any:  # fmt: skip
    """Return the index of references that the options of a command ask for."""
    from dgpuhash.kmer import MinimizerIndex, SketchIndex
    from dgpuhash.kmer.references import References

    chosen = settings_of(rule, settings)
    tree = placement.tree()
    if tree is None and rule == "kraken2":
        raise SpecError(
            "the rule of Kraken 2 needs a taxonomy; name the folder of NCBI's files with "
            "--taxonomy, or GTDB's with --gtdb"
        )
    kind: Any = SketchIndex if rule == "metacache" else MinimizerIndex
    with letter_progress() as progress:
        count = progress.of(lambda: read.letters)
        read = References(references, mask=mask, order=order, progress=count)
        # Workers read the files of the same references.
        index = kind.build(
            read, taxonomy=tree, client=client, mask=mask, order=order, progress=count,
            **placement.of_targets, **chosen, **more,
        )  # fmt: skip
    _tell_notes(read.notes)
    if client is not None:
        click.echo(f"note: the index is {index.mode}: {index.why}", err=True)
    return index


@command
def add(
    db: str,
    references: ReferencePaths,
    *,
    placement: Placement,
    output: Annotated[str | None, option("-o", "--output")] = None,
    device: Device = "cpu",
    overwrite: Force = False,
) -> None:
    """Add the sequences of REFS to DB; numbering continues after its last sequence.

    --taxonomy or --gtdb is needed for taxa that DB does not have.

    Parameters
    ----------
    output : str, optional
        Where to save instead of DB.
    """
    from dgpuhash.kmer import load_index
    from dgpuhash.kmer.references import References
    from dgpuhash.tables.serialization import check_absent

    if output is not None:
        check_absent(output, overwrite=overwrite)
    start = time.perf_counter()
    tree = placement.tree()
    index = load_index(db, device)
    lost = lost_distributions(index)
    with letter_progress() as progress:
        read = References(
            references, mask=index.settings.mask, order=index.settings.order,
            known=index.targets, progress=progress.of(lambda: read.letters),
        )  # fmt: skip
        index.add(read, taxonomy=tree, **placement.of_targets)
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


@command
def inspect(
    db: str,
    *,
    targets: bool = False,
    lineages: bool = False,
    report: bool = False,
    provenance: bool = False,
    distribution: Annotated[int | None, option(metavar="LENGTH")] = None,
) -> None:
    """Print the references and settings of DB.

    Parameters
    ----------
    targets : bool
        A line for each sequence.
    lineages : bool
        The ranked lineage of each sequence.
    report : bool
        [Kraken 2] How many minimizers taxa have.
    provenance : bool
        When and how it was made, of which files.
    distribution : int, optional
        [Kraken 2] How reads of this length are called, as Bracken's files have it.
    """
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
