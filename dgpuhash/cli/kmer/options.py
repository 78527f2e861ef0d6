"""Options shared by k-mer commands: building, classifying, saving."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from dgpuhash import typing
from dgpuhash.cli.signature import OptionTable, option
from dgpuhash.errors import SpecError

if TYPE_CHECKING:
    from dgpuhash.kmer import Taxonomy

_RULES = {"metacache": "MetaCache", "kraken2": "Kraken 2"}
# By name: the rule that has the option, its type, and what the help says.
_BUILD: dict[str, tuple[str, Any, str]] = {
    "k": ("", int, "Letters of a k-mer: 16, or 35 for kraken2."),
    "sketch": ("metacache", int, "Features of a window: 16."),
    "window": ("metacache", int, "Letters of a window: 127."),
    "stride": ("metacache", int, "Letters between windows: window - k + 1."),
    "cap": ("metacache", int, "Locations of a feature that are kept: 254."),
    "remove_overpopulated": ("metacache", bool, "Leave out features with that many."),
    "l": ("kraken2", int, "Letters of a minimizer: 31."),
    "spaces": ("kraken2", int, "Letters of it that are left out: 7."),
    "ambiguous": (
        "kraken2",
        click.Choice(["kraken2", "exact"]),
        "K-mers whose first letter alone is no base: as Kraken 2 counts them, or as all others "
        "with such a letter: kraken2.",
    ),
}
_CALL: dict[str, tuple[str, Any, str]] = {
    "confidence": ("kraken2", float, "Share of k-mers that back a call, 0 to 1: 0."),
    "minimum_hit_groups": ("kraken2", int, "Minimizers that a call needs: 2."),
    "minimum_base_quality": ("kraken2", int, "Mask letters of a lower quality: 0."),
    "quick": ("kraken2", bool, "Take the first taxon with so many minimizers."),
    "ignore_ambiguous": ("kraken2", bool, "Leave k-mers with N out of the share."),
    "lowest": ("metacache", str, "Lowest rank of a call: sequence."),
    "highest": ("metacache", str, "Highest rank of a call: domain."),
    "hitmin": ("metacache", int, "Hits that a call needs: a third of a sketch."),
    "hitdiff": ("metacache", float, "Percent of the best hits that others exceed: 100."),
    "maxcand": ("metacache", int, "Candidates of a read: 2."),
    "insertsize": ("metacache", int, "Letters that a pair may span."),
    "cov_percentile": ("metacache", float, "Percent of coverage that is left out: 0."),
}


def _flag(name: str) -> str:
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


def _options_of(table: Mapping[str, tuple[str, Any, str]]) -> OptionTable:
    options = OptionTable()
    for name, (rule, kind, text) in table.items():
        settings: Any = {"is_flag": True, "default": None} if kind is bool else {"type": kind}
        text = f"[{_RULES[rule]}] {text}" if rule else text
        options[name] = click.option(_flag(name), name, help=text, **settings)
    return options


BuildSettings = Annotated[dict[str, Any], _options_of(_BUILD)]
CallSettings = Annotated[dict[str, Any], _options_of(_CALL)]
Device = Annotated[typing.Device, option(help="Where to compute.")]
Force = Annotated[bool, option("--force", help="Replace files that are there already.")]
Output = Annotated[
    str, option("-o", "--output", help="Where to save, e.g. db.dgki or counts.dgkc.")
]
ReferencePaths = Annotated[tuple[str, ...], option(metavar="REFS...")]
ReadPaths = Annotated[tuple[str, ...], option(metavar="[READS]...")]
Rule = Annotated[
    Literal["metacache", "kraken2"], option(help="How references are indexed and reads classified.")
]
Mask = Annotated[
    Literal["none", "lowercase", "dust"],
    option(
        help="Letters of references that are left out; dust: of low complexity, as Kraken 2 does."
    ),
    option("--no-mask", flag_value="none", help="The same as --mask none."),
]
Order = Annotated[
    Literal["path", "given"],
    option(help="Number sequences by the bytes of files' paths, or as files are given."),
]
Scheduler = Annotated[
    str | None,
    option(
        metavar="ADDRESS",
        help="Work on the workers of this Dask cluster, e.g. tcp://host:8786; they read the files.",
    ),
]
Mode = Annotated[
    Literal["auto", "distributed", "independent", "replicated"],
    option(help="Where the index is: dealt out by hash, by sequences, or whole on each worker."),
]
ReportStyle = Annotated[
    Literal["kraken", "mpa"],
    option("--report-style", help="mpa: paths of names, as MetaPhlAn has."),
]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where references are in a taxonomy.

    Attributes
    ----------
    taxonomy : str, optional
        Folder with NCBI's nodes.dmp and names.dmp.
    gtdb : tuple of str
        GTDB's taxonomy instead.
    accessions : tuple of str
        Taxids of sequences: accession2taxid, assembly_summary or two columns.
    allow_unplaced : int
        References that may have no place in the taxonomy.
    """

    taxonomy: Annotated[str | None, option(metavar="DIR")] = None
    gtdb: Annotated[tuple[str, ...], option(metavar="FILE")] = ()
    accessions: Annotated[tuple[str, ...], option(metavar="FILE")] = ()
    allow_unplaced: int = 0

    def tree(self) -> Taxonomy | None:
        """Return the taxonomy; None where none is named."""
        return opened_taxonomy(self.taxonomy, self.gtdb)

    @property
    def of_targets(self) -> dict[str, Any]:
        """How references find their taxa, as arguments of a build."""
        return {"accessions": self.accessions, "allow_unplaced": self.allow_unplaced}


@dataclass(frozen=True, slots=True)
class Pairing:
    """How files have pairs of reads.

    Attributes
    ----------
    paired : bool
        READS are files of first and second mates.
    interleaved : bool
        Mates follow each other in each file.
    no_name_check : bool
        Take mates by their order, whatever their names.
    """

    paired: bool = False
    interleaved: bool = False
    no_name_check: bool = False


@contextmanager
def client_of(scheduler: str | None) -> Iterator[Any]:
    """Yield a client of the cluster at an address, or None without one."""
    if scheduler is None:
        yield None
        return
    from dgpuhash.cli.cluster import client_for

    with client_for(scheduler) as client:
        yield client


def check_rule(flag: str, needed: str, rule: str) -> None:
    """Raise SpecError if an option needs another rule; "" is no need."""
    if needed not in ("", rule):
        raise SpecError(
            f"{flag} is an option of the rule of {_RULES[needed]}, and the rule here is "
            f"{_RULES[rule]}'s; leave it out"
        )


def settings_of(rule: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a user gave.

    Raises
    ------
    SpecError
        When one needs the other rule.
    """
    chosen = {name: value for name, value in settings.items() if value is not None}
    for name in chosen:
        check_rule(_flag(name), {**_BUILD, **_CALL}[name][0], rule)
    return chosen


def bytes_of(flag: str, text: str) -> int:
    """Return the bytes of a size such as 4GiB; a SpecError names the option.

    Examples
    --------
    >>> bytes_of("--memory", "4GiB"), bytes_of("--memory", "100 MB")
    (4294967296, 100000000)
    """
    from dask.utils import parse_bytes

    try:
        return int(parse_bytes(text))
    except ValueError as error:
        raise SpecError(f"{flag} {text}: not a number of bytes; write e.g. 4GiB") from error


def opened_taxonomy(taxonomy: str | None, gtdb: tuple[str, ...]) -> Taxonomy | None:
    """Read the taxonomy from a folder or from GTDB's files; None if neither is named.

    Raises
    ------
    SpecError
        When both are.
    TaxonomyError
        When a file is missing or malformed.
    """
    from dgpuhash.kmer import Taxonomy

    if taxonomy and gtdb:
        raise SpecError("--taxonomy and --gtdb are two taxonomies; pass one")
    if gtdb:
        return Taxonomy.from_gtdb(gtdb)
    return Taxonomy.read(taxonomy) if taxonomy else None


def saved_as(made: Any, output: str, overwrite: bool) -> None:
    """Save counts or an index; an error names the output."""
    try:
        made.save(output, overwrite=overwrite)
    except OSError:
        # It imports Dask, which takes longer than most counts do.
        from dgpuhash.cli.files.write import name_write_errors

        with name_write_errors(output):
            raise
