"""`dgpuhash kmer classify`, `run`: classify reads; write calls, reports and abundances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dgpuhash.cli.kmer.build import built
from dgpuhash.cli.kmer.options import (
    build_options,
    call_options,
    client_of,
    cluster_options,
    device,
    force,
    of_rule,
    read_options,
)
from dgpuhash.cli.kmer.progress import letter_progress, nbytes_of
from dgpuhash.errors import SpecError
from dgpuhash.typing import Device, IndexMode

if TYPE_CHECKING:
    from dgpuhash.kmer.classify import Classification

_SAMPLE = "{sample}"
_OF_READS = ("classified_out", "unclassified_out")
_PLACES = ("output", "report", "abundance_output", "krona", "cami", *_OF_READS)
_NOWHERE = "/dev/null"


def _output_options(command: Any) -> Any:
    """Add the options that choose output files to a command."""
    options = (
        click.option(
            "-o",
            "--output",
            help="Calls of reads; - is the standard output, the default without other outputs.",
        ),
        click.option(
            "--format",
            "form",
            type=click.Choice(["table", "tsv", "kraken", "metacache", "parquet"]),
            help="Of calls: table by MetaCache's rule, kraken by Kraken 2's.",
        ),
        click.option("--use-names", is_flag=True, help="Names beside taxids in calls."),
        click.option("--report", help="Reads by taxon, as Kraken 2 reports them."),
        click.option(
            "--report-style",
            type=click.Choice(["kraken", "mpa"]),
            default="kraken",
            show_default=True,
            help="mpa: paths of names, as MetaPhlAn has.",
        ),
        click.option(
            "--report-zero-counts", is_flag=True, help="Lines of taxa without reads, too."
        ),
        click.option(
            "--report-minimizer-data",
            is_flag=True,
            help="[Kraken 2] Minimizers of reads, and distinct ones, in two more columns.",
        ),
        click.option(
            "--minimum-minimizers",
            type=click.IntRange(0),
            default=0,
            show_default=True,
            help="[Kraken 2] In reports and profiles, count reads of a taxon with fewer distinct "
            "minimizers for the next one above.",
        ),
        click.option(
            "--abundance", metavar="RANKS", help="Estimate reads of these, e.g. species,genus."
        ),
        click.option("--abundance-output", help="Where to write that; default -."),
        click.option("--krona", help="Reads by taxon as text, for ktImportText of Krona."),
        click.option("--cami", help="A profile in CAMI's format, version 0.10."),
        click.option("--biom", help="A BIOM 1.0 table of taxa, in JSON; one column a sample."),
        click.option(
            "--classified-out",
            help="Reads with a call; of pairs # is _1 and _2 in two files, as of Kraken 2.",
        ),
        click.option("--unclassified-out", help="Reads without a call, likewise."),
        click.option(
            "--samples",
            metavar="FILE",
            help="Table of sample, r1 and r2 in place of READS; names of outputs have {sample}.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class _Outputs:
    """Output files of one sample, by kind."""

    output: str | None
    form: Literal["table", "tsv", "kraken", "metacache", "parquet"] | None
    use_names: bool
    report: str | None
    report_style: Literal["kraken", "mpa"]
    report_zero_counts: bool
    report_minimizer_data: bool
    minimum_minimizers: int
    abundance: tuple[str, ...]
    abundance_output: str | None
    krona: str | None
    cami: str | None
    biom: str | None
    classified_out: str | None
    unclassified_out: str | None
    overwrite: bool

    @classmethod
    def of(cls, given: dict[str, Any]) -> _Outputs:
        """Take the output options out of a command's arguments."""
        ranks = tuple(filter(None, (given.pop("abundance") or "").split(",")))
        made = cls(abundance=ranks, **{name: given.pop(name) for name in _NAMES})
        if made.abundance_output and not ranks:
            raise SpecError("--abundance-output without --abundance; name ranks, e.g. species")
        changes: dict[str, Any] = {}
        if ranks and made.abundance_output is None:
            changes["abundance_output"] = "-"
        if not (made.paths or ranks or made.biom):
            changes["output"] = "-"
        return made.replaced(changes)

    def replaced(self, changes: dict[str, Any]) -> _Outputs:
        return replace(self, **changes)

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
        return self.replaced({key: path.replace(_SAMPLE, name) for key, path in self.paths.items()})

    def check(self, *, paired: bool) -> None:
        """Raise before any work if an output cannot be written."""
        from dgpuhash.kmer.formats.classified import mates_targets
        from dgpuhash.kmer.formats.outputs import STDOUT, check_output
        from dgpuhash.kmer.taxonomy.ranks import slot_of

        for rank in self.abundance:
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
            check_output(path, overwrite=self.overwrite)

    def write(self, found: Classification, sample: str) -> None:
        """Classify the reads once and write all outputs."""
        overwrite = self.overwrite
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
            found.write_abundances(self.abundance_output, self.abundance, overwrite=overwrite)
        if self.krona is not None:
            found.write_krona(self.krona, overwrite=overwrite)
        if self.cami is not None:
            found.write_cami(self.cami, sample=sample, overwrite=overwrite)


_NAMES = [name for name in _Outputs.__slots__ if name != "abundance"]


@click.command()
@click.argument("db")
@click.argument("reads", nargs=-1, metavar="[READS]...")
@read_options
@click.option(
    "--rule",
    type=click.Choice(["metacache", "kraken2"]),
    help="The rule that DB must have; default: whichever it has.",
)
@click.option(
    "--server",
    metavar="ADDRESS",
    help="Send READS to this server, which kmer serve started; DB is its name there.",
)
@_output_options
@call_options
@cluster_options
@device
@force
def classify(
    db: str,
    reads: tuple[str, ...],
    rule: str | None,
    server: str | None,
    scheduler: str | None,
    mode: IndexMode,
    device: Device,
    **given: Any,
) -> None:
    """Classify READS by DB, an index that build made.

    With --server DB is loaded already: start kmer serve once, and classify many samples by it.

    READS are FASTA or FASTQ, plain or compressed: paths, quoted globs, folders, URLs or -.
    """
    from dgpuhash.kmer import load_index
    from dgpuhash.kmer.index_file import rule_of

    work = _Work.of(reads, given)

    def options_by(there: str) -> dict[str, Any]:
        if rule not in (None, there):
            raise SpecError(f"{db} was built by --rule {there}, and --rule {rule} was asked for")
        options = of_rule(there, given)
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


@click.command()
@click.argument("reads", nargs=-1, metavar="[READS]...")
@click.option(
    "--references",
    multiple=True,
    required=True,
    metavar="REFS",
    help="What to index: as REFS of build; may be repeated.",
)
@read_options
@build_options
@_output_options
@call_options
@cluster_options
@device
@force
def run(
    reads: tuple[str, ...],
    references: tuple[str, ...],
    rule: str,
    scheduler: str | None,
    mode: IndexMode,
    **given: Any,
) -> None:
    """Index references and classify READS by them; the index is not saved."""
    from dgpuhash.cli.kmer.options import BUILD_NAMES

    work = _Work.of(reads, given)
    settings = {name: given.pop(name) for name in BUILD_NAMES}
    options = of_rule(rule, given)
    work.check(rule)
    with client_of(scheduler) as client:
        index = built(references, rule=rule, client=client, mode=mode, **settings)
        work.classify(index, options)


@dataclass(frozen=True, slots=True)
class _Work:
    """Samples to classify: the files and the outputs of each."""

    samples: list[tuple[str, Sequence[str], Sequence[str] | None]]
    is_interleaved: bool
    name_check: bool
    outputs: _Outputs

    @classmethod
    def of(cls, reads: tuple[str, ...], given: dict[str, Any]) -> _Work:
        """Take the samples and outputs out of a command's arguments."""
        table = given.pop("samples")
        paired, interleaved = given.pop("paired"), given.pop("interleaved")
        name_check = not given.pop("no_name_check")
        outputs = _Outputs.of(given)
        if paired and interleaved:
            raise SpecError("--paired takes two files, and --interleaved one; pass one of both")
        if table is not None:
            if reads or paired:
                raise SpecError("--samples names the files; leave out READS and --paired")
            return cls(_samples_of(table, outputs), interleaved, name_check, outputs)
        if not reads:
            raise SpecError("no READS; name files, or a table of them with --samples")
        if paired and len(reads) % 2:
            raise SpecError(f"--paired and {len(reads)} READS; name a file of mates for each")
        mates = reads[1::2] if paired else None
        samples: Any = [("", reads[::2] if paired else reads, mates)]
        return cls(samples, interleaved, name_check, outputs)

    def check(self, rule: str) -> None:
        """Raise before any work if an output cannot be written."""
        from dgpuhash.kmer.formats.calls import format_of

        if self.outputs.output is not None:
            format_of(self.outputs.form, rule)
        if self.outputs.report_minimizer_data and rule != "kraken2":
            raise SpecError("--report-minimizer-data is of the rule of Kraken 2; leave it out")
        if self.outputs.minimum_minimizers:
            if rule != "kraken2":
                raise SpecError("--minimum-minimizers is of the rule of Kraken 2; leave it out")
            if not (self.outputs.are_of_taxa or self.outputs.abundance):
                raise SpecError(
                    "--minimum-minimizers changes reports and profiles, and no call; name one, "
                    "e.g. --report FILE"
                )
        for name, _, mates in self.samples:
            self._outputs(name).check(paired=self.is_interleaved or mates is not None)

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
                self._outputs(name).write(classified, title)
                if biom is not None:
                    _, *columns[title] = classified.by_taxon()
            found.append((name, classified.summary()))
        if biom is not None:
            lines = biom_lines(index.taxonomy, columns)
            write_lines(biom, lines, overwrite=self.outputs.overwrite)
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
