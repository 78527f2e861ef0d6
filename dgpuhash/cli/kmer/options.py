"""Options shared by k-mer commands: building, classifying, saving."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dgpuhash.errors import SpecError

if TYPE_CHECKING:
    from dgpuhash.kmer import Taxonomy

_Command = TypeVar("_Command", bound=Callable[..., Any])
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

# What `built` takes.
BUILD_NAMES = (
    "taxonomy", "gtdb", "accessions", "allow_unplaced", "mask", "order", "device", *_BUILD,
)  # fmt: skip

device = click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where to compute.",
)
force = click.option(
    "--force", "overwrite", is_flag=True, help="Replace files that are there already."
)


def _all_of(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _options_of(table: Mapping[str, tuple[str, Any, str]]) -> Iterable[Any]:
    for name, (rule, kind, text) in table.items():
        flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
        told = f"[{_RULES[rule]}] {text}" if rule else text
        settings: Any = {"is_flag": True, "default": None} if kind is bool else {"type": kind}
        yield click.option(flag, name, help=told, **settings)


placement_options = _all_of(
    click.option("--taxonomy", metavar="DIR", help="Folder with NCBI's nodes.dmp and names.dmp."),
    click.option("--gtdb", multiple=True, metavar="FILE", help="GTDB's taxonomy instead."),
    click.option(
        "--accessions",
        multiple=True,
        metavar="FILE",
        help="Taxids of sequences: accession2taxid, assembly_summary or two columns.",
    ),
    click.option(
        "--allow-unplaced",
        default=0,
        show_default=True,
        help="References that may have no place in the taxonomy.",
    ),
)
_rule = click.option(
    "--rule",
    type=click.Choice(list(_RULES)),
    required=True,
    help="How references are indexed and reads classified.",
)
_mask = _all_of(
    click.option(
        "--mask",
        type=click.Choice(["none", "lowercase", "dust"]),
        default="none",
        show_default=True,
        help="Letters of references that are left out; dust: of low complexity, as Kraken 2 does.",
    ),
    click.option("--no-mask", "mask", flag_value="none", help="The same as --mask none."),
)
size_options = _all_of(_rule, _mask, *_options_of(_BUILD))
build_options = _all_of(
    _rule,
    placement_options,
    _mask,
    click.option(
        "--order",
        type=click.Choice(["path", "given"]),
        default="path",
        show_default=True,
        help="Number sequences by the bytes of files' paths, or as files are given.",
    ),
    *_options_of(_BUILD),
)
call_options = _all_of(*_options_of(_CALL))
read_options = _all_of(
    click.option("--paired", is_flag=True, help="READS are files of first and second mates."),
    click.option("--interleaved", is_flag=True, help="Mates follow each other in each file."),
    click.option(
        "--no-name-check", is_flag=True, help="Take mates by their order, whatever their names."
    ),
)


cluster_options = _all_of(
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Work on the workers of this Dask cluster, e.g. tcp://host:8786; they read the files.",
    ),
    click.option(
        "--mode",
        type=click.Choice(["auto", "distributed", "independent", "replicated"]),
        default="auto",
        show_default=True,
        help="Where the index is: dealt out by hash, by sequences, or whole on each worker.",
    ),
)


@contextmanager
def client_of(scheduler: str | None) -> Iterator[Any]:
    """Yield a client of the cluster at an address, or None without one."""
    if scheduler is None:
        yield None
        return
    from dgpuhash.cli.cluster import client_for

    with client_for(scheduler) as client:
        yield client


def of_rule(rule: str, given: dict[str, Any]) -> dict[str, Any]:
    """Take the options that the user set out of a command's arguments.

    Raises
    ------
    SpecError
        When one is of the other rule.
    """
    found = {}
    for name, (other, _, _) in {**_BUILD, **_CALL}.items():
        value = given.pop(name, None)
        if value is None:
            continue
        if other not in ("", rule):
            flag = f"--{name.replace('_', '-')}" if len(name) > 1 else f"-{name}"
            raise SpecError(
                f"{flag} is of the rule of {_RULES[other]}, and this is {_RULES[rule]}'s; leave "
                "it out"
            )
        found[name] = value
    return found


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
        raise SpecError(f"{flag} {text}: no number of bytes; write e.g. 4GiB") from error


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


output = click.option(
    "-o", "--output", required=True, help="Where to save, e.g. db.dgki or counts.dgkc."
)


def saved_as(made: Any, output: str, overwrite: bool) -> None:
    """Save counts or an index; an error names the output."""
    try:
        made.save(output, overwrite=overwrite)
    except OSError:
        # It imports Dask, which takes longer than most counts do.
        from dgpuhash.cli.files.write import name_write_errors

        with name_write_errors(output):
            raise
