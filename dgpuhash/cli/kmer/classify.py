"""`dgpuhash kmer classify`, `run`: classify reads; write calls, reports and abundances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from dgpuhash.cli.kmer.build import build_index
from dgpuhash.cli.kmer.options import (
    BuildSettings,
    CallSettings,
    Device,
    Force,
    Mask,
    Mode,
    Order,
    Pairing,
    Placement,
    ReadPaths,
    ReportStyle,
    Rule,
    Scheduler,
    check_rule,
    client_of,
    settings_of,
)
from dgpuhash.cli.kmer.progress import letter_progress, nbytes_of
from dgpuhash.cli.signature import command, option
from dgpuhash.errors import SpecError

if TYPE_CHECKING:
    from dgpuhash.kmer.classify import Classification

_SAMPLE = "{sample}"
_OF_READS = ("classified_out", "unclassified_out")
_PLACES = ("output", "report", "abundance_output", "krona", "cami", *_OF_READS)
_NOWHERE = "/dev/null"


@dataclass(frozen=True, slots=True)
class _Outputs:
    """Output files of one sample, by kind.

    Attributes
    ----------
    output : str, optional
        Calls of reads; - is the standard output, the default without other outputs.
    form : str, optional
        Of calls: table by MetaCache's rule, kraken by Kraken 2's.
    use_names : bool
        Names beside taxids in calls.
    report : str, optional
        Reads by taxon, as Kraken 2 reports them.
    report_zero_counts : bool
        Lines of taxa without reads, too.
    report_minimizer_data : bool
        [Kraken 2] Minimizers of reads, and distinct ones, in two more columns.
    minimum_minimizers : int
        [Kraken 2] In reports and profiles, count reads of a taxon with fewer distinct
        minimizers for the next one above.
    abundance : str, optional
        Estimate reads of these, e.g. species,genus.
    abundance_output : str, optional
        Where to write that; default -.
    krona : str, optional
        Reads by taxon as text, for ktImportText of Krona.
    cami : str, optional
        A profile in CAMI's format, version 0.10.
    biom : str, optional
        A BIOM 1.0 table of taxa, in JSON; one column a sample.
    classified_out : str, optional
        Reads with a call; of pairs # is _1 and _2 in two files, as of Kraken 2.
    unclassified_out : str, optional
        Reads without a call, likewise.
    samples : str, optional
        Table of sample, r1 and r2 in place of READS; names of outputs have {sample}.
    """

    output: Annotated[str | None, option("-o", "--output")] = None
    form: Annotated[
        Literal["table", "tsv", "kraken", "metacache", "parquet"] | None, option("--format")
    ] = None
    use_names: bool = False
    report: str | None = None
    report_style: ReportStyle = "kraken"
    report_zero_counts: bool = False
    report_minimizer_data: bool = False
    minimum_minimizers: Annotated[int, option(type=click.IntRange(0))] = 0
    abundance: Annotated[str | None, option(metavar="RANKS")] = None
    abundance_output: str | None = None
    krona: str | None = None
    cami: str | None = None
    biom: str | None = None
    classified_out: str | None = None
    unclassified_out: str | None = None
    samples: Annotated[str | None, option(metavar="FILE")] = None

    def complete(self) -> _Outputs:
        """Return those with standard output where none is named."""
        if self.abundance_output and not self.ranks:
            raise SpecError("--abundance-output without --abundance; name ranks, e.g. species")
        changes: dict[str, Any] = {}
        if self.ranks and self.abundance_output is None:
            changes["abundance_output"] = "-"
        if not (self.paths or self.ranks or self.biom):
            changes["output"] = "-"
        return replace(self, **changes)

    @property
    def ranks(self) -> tuple[str, ...]:
        """Ranks whose reads are estimated."""
        return tuple(filter(None, (self.abundance or "").split(",")))

    @property
    def paths(self) -> dict[str, str]:
        """The paths of one sample's outputs by option name."""
        found = {name: getattr(self, name) for name in _PLACES}
        return {name: path for name, path in found.items() if path is not None}

    @property
    def are_of_taxa(self) -> bool:
        """Whether some outputs need a taxonomy."""
        return any((self.report, self.krona, self.cami, self.biom))

    def of_sample(self, name: str) -> _Outputs:
        """Return the outputs of one sample, with its name in the paths."""
        named: dict[str, Any] = {
            key: path.replace(_SAMPLE, name) for key, path in self.paths.items()
        }
        return replace(self, **named)

    def check(self, *, paired: bool, overwrite: bool) -> None:
        """Raise before any work if an output cannot be written."""
        from dgpuhash.kmer.formats.classified import mates_targets
        from dgpuhash.kmer.formats.outputs import STDOUT, check_output
        from dgpuhash.kmer.taxonomy.ranks import slot_of

        for rank in self.ranks:
            slot_of(rank)
        paths = [] if self.biom is None else [self.biom]
        for name, path in self.paths.items():
            paths += mates_targets(path, paired=paired) if name in _OF_READS else [path]
        named = [path for path in paths if path != _NOWHERE]
        twice = [path for at, path in enumerate(named) if path in named[:at]]
        if twice:
            where = "the standard output" if twice[0] == STDOUT else twice[0]
            raise SpecError(f"two outputs go to {where}; give each a name of its own")
        for path in paths:
            check_output(path, overwrite=overwrite)

    def write(self, found: Classification, sample: str, *, overwrite: bool) -> None:
        """Classify the reads once and write all outputs."""
        if self.output or self.classified_out or self.unclassified_out:
            found.write(
                self.output, form=self.form, use_names=self.use_names,
                classified=self.classified_out, unclassified=self.unclassified_out,
                overwrite=overwrite,
            )  # fmt: skip
        if self.report is not None:
            found.report(
                self.report, style=self.report_style, zero_counts=self.report_zero_counts,
                overwrite=overwrite,
            )  # fmt: skip
        if self.abundance_output is not None:
            found.write_abundances(self.abundance_output, self.ranks, overwrite=overwrite)
        if self.krona is not None:
            found.write_krona(self.krona, overwrite=overwrite)
        if self.cami is not None:
            found.write_cami(self.cami, sample=sample, overwrite=overwrite)


@command
def classify(
    db: str,
    reads: ReadPaths = (),
    *,
    pairing: Pairing,
    rule: Annotated[Literal["metacache", "kraken2"] | None, option()] = None,
    server: Annotated[str | None, option(metavar="ADDRESS")] = None,
    outputs: _Outputs,
    settings: CallSettings,
    scheduler: Scheduler = None,
    mode: Mode = "auto",
    device: Device = "cpu",
    overwrite: Force = False,
) -> None:
    """Classify READS by DB, an index that build made.

    With --server DB is loaded already: start kmer serve once, and classify many samples by it.

    READS are FASTA or FASTQ, plain or compressed: paths, quoted globs, folders, URLs or -.

    Parameters
    ----------
    rule : str, optional
        The rule that DB must have; default: whichever it has.
    server : str, optional
        Send READS to this server, which kmer serve started; DB is its name there.
    """
    from dgpuhash.kmer import load_index
    from dgpuhash.kmer.index_file import rule_of

    work = _Work.of(reads, pairing, outputs.complete(), overwrite)

    def options_by(there: str) -> dict[str, Any]:
        if rule not in (None, there):
            raise SpecError(f"{db} was built by --rule {there}, but --rule {rule} was given")
        options = settings_of(there, settings)
        work.check(there)
        return options

    if server is not None:
        if scheduler is not None or mode != "auto" or device != "cpu":
            raise SpecError(
                "--scheduler, --mode and --device are the server's; pass them to kmer serve"
            )
        from dgpuhash.kmer.server.client import ServedIndex

        with ServedIndex(server, db) as index:
            work.classify(index, options_by(index.rule))
        return
    options = options_by(rule_of(db))
    with client_of(scheduler) as client:
        work.classify(load_index(db, device, client=client, mode=mode), options)


@command
def run(
    reads: ReadPaths = (),
    *,
    references: Annotated[tuple[str, ...], option(metavar="REFS")],
    pairing: Pairing,
    rule: Rule,
    placement: Placement,
    mask: Mask = "none",
    order: Order = "path",
    build: BuildSettings,
    outputs: _Outputs,
    call: CallSettings,
    scheduler: Scheduler = None,
    mode: Mode = "auto",
    device: Device = "cpu",
    overwrite: Force = False,
) -> None:
    """Index references and classify READS by them; the index is not saved.

    Parameters
    ----------
    references : tuple of str
        What to index: as REFS of build; may be repeated.
    """
    work = _Work.of(reads, pairing, outputs.complete(), overwrite)
    options = settings_of(rule, call)
    work.check(rule)
    with client_of(scheduler) as client:
        index = build_index(
            references, rule, placement, build, mask=mask, order=order, device=device,
            client=client, mode=mode,
        )  # fmt: skip
        work.classify(index, options)


@dataclass(frozen=True, slots=True)
class _Work:
    """Samples to classify: the files and the outputs of each."""

    samples: list[tuple[str, Sequence[str], Sequence[str] | None]]
    is_interleaved: bool
    name_check: bool
    outputs: _Outputs
    overwrite: bool

    @classmethod
    def of(
        cls, reads: tuple[str, ...], pairing: Pairing, outputs: _Outputs, overwrite: bool
    ) -> _Work:
        """Return what the options of a command say."""
        paired, interleaved = pairing.paired, pairing.interleaved
        more = interleaved, not pairing.no_name_check, outputs, overwrite
        if paired and interleaved:
            raise SpecError("--paired reads two files, --interleaved one; pass one of the two")
        if outputs.samples is not None:
            if reads or paired:
                raise SpecError("--samples names the files; leave out READS and --paired")
            return cls(_samples_of(outputs.samples, outputs), *more)
        if not reads:
            raise SpecError("no READS; name files, or a table of them with --samples")
        if paired and len(reads) % 2:
            raise SpecError(f"--paired and {len(reads)} READS; name a file of mates for each")
        mates = reads[1::2] if paired else None
        samples: Any = [("", reads[::2] if paired else reads, mates)]
        return cls(samples, *more)

    def check(self, rule: str) -> None:
        """Raise before any work if an output cannot be written."""
        from dgpuhash.kmer.formats.calls import format_of

        if self.outputs.output is not None:
            format_of(self.outputs.form, rule)
        if self.outputs.report_minimizer_data:
            check_rule("--report-minimizer-data", "kraken2", rule)
        if self.outputs.minimum_minimizers:
            check_rule("--minimum-minimizers", "kraken2", rule)
            if not (self.outputs.are_of_taxa or self.outputs.ranks):
                raise SpecError(
                    "--minimum-minimizers changes reports and profiles, not calls; request one "
                    "of them, e.g. --report FILE"
                )
        for name, _, mates in self.samples:
            self._outputs(name).check(
                paired=self.is_interleaved or mates is not None, overwrite=self.overwrite
            )

    def _outputs(self, name: str) -> _Outputs:
        return self.outputs.of_sample(name) if name else self.outputs

    def classify(self, index: Any, options: dict[str, Any]) -> None:
        """Classify the reads of all samples and print a summary."""
        from dgpuhash.kmer.classify import Classification
        from dgpuhash.kmer.formats.labels import Labels
        from dgpuhash.kmer.formats.outputs import write_lines
        from dgpuhash.kmer.formats.profiles import biom_lines
        from dgpuhash.kmer.sequences.files import files_of

        found: list[tuple[str, dict[str, int | float]]] = []
        columns: dict[str, Any] = {}
        biom = self.outputs.biom
        if self.outputs.are_of_taxa:
            _ = Labels(index.taxonomy, index.targets).taxonomy
        for name, reads, mates in self.samples:
            firsts, seconds = files_of(reads), None if mates is None else files_of(mates)
            total = nbytes_of([*firsts, *(seconds or ())])
            with letter_progress(total) as progress:
                classified = Classification(
                    index, firsts, seconds, interleaved=self.is_interleaved,
                    name_check=self.name_check, progress=progress.letters,
                    consumed=progress.consumed,
                    minimizer_data=self.outputs.report_minimizer_data,
                    minimum_minimizers=self.outputs.minimum_minimizers, **options,
                )  # fmt: skip
                title = name or Path(firsts[0]).name.split(".")[0]
                self._outputs(name).write(classified, title, overwrite=self.overwrite)
                if biom is not None:
                    _, *columns[title] = classified.by_taxon()
            found.append((name, classified.summary()))
        if biom is not None:
            lines = biom_lines(index.taxonomy, columns)
            write_lines(biom, lines, overwrite=self.overwrite)
        _show(found)


def _samples_of(
    table: str, outputs: _Outputs
) -> list[tuple[str, Sequence[str], Sequence[str] | None]]:
    from dgpuhash.kmer import read_samples

    for name, path in outputs.paths.items():
        if _SAMPLE not in path and path != _NOWHERE:
            flag = name.replace("_", "-")
            raise SpecError(
                f"--{flag} {path} is one place for all samples; write {_SAMPLE} into its name"
            )
    if outputs.biom is not None and _SAMPLE in outputs.biom:
        raise SpecError(f"--biom has a column for each sample; leave {_SAMPLE} out of its name")
    samples = read_samples(table)
    if not samples:
        raise SpecError(f"{table} has no samples; write a line for each")
    return [(each.name, [each.r1], None if each.r2 is None else [each.r2]) for each in samples]


def _show(found: list[tuple[str, dict[str, int | float]]]) -> None:
    """Print a row for each sample on standard error."""
    from rich.console import Console
    from rich.table import Table

    what = sorted({name for _, each in found for name in each} & {"pairs", "reads"})
    table = Table(box=None, pad_edge=False)
    titles = [*(["sample"] if found[0][0] else []), "/".join(what)]
    titles += ["classified", "%", "unclassified", "letters", "seconds", "Mbp/s"]
    for title in titles:
        table.add_column(title, justify="left" if title == "sample" else "right")
    for name, each in found:
        n = int(each.get("pairs", each.get("reads", 0)))
        seconds, classified = each["seconds"], int(each["classified"])
        row = [
            f"{n:,}",
            f"{classified:,}",
            f"{100 * classified / n if n else 0:.2f}",
            f"{n - classified:,}",
            f"{each['letters']:,}",
            f"{seconds:.1f}",
            f"{each['letters'] / max(seconds, 1e-9) / 1e6:,.1f}",
        ]
        table.add_row(*([name] if found[0][0] else []), *row)
    Console(stderr=True, width=None if Console(stderr=True).is_terminal else 120).print(table)
