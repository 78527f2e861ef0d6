"""Place references in a taxonomy: find the taxid of each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from dgpuhash.errors import TaxonomyError
from dgpuhash.kmer.accessions import Accession, taxids_of
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy

_IN_HEADER = re.compile(r"(?:^|[|\s])(?:kraken:)?taxid\|([0-9]{1,18})(?=[|\s]|$)")
# gi|556503834|ref|NC_000913.3|
_BANKS = re.compile(r"(?:^|\|)(?:ref|gb|emb|dbj|tpg|tpe|tpd)\|([^|\s]+)")
_ASSEMBLY = re.compile(r"GC[AF]_[0-9]{9}(?:\.[0-9]+)?")
_ENDINGS = re.compile(r"(?:\.(?:fa|fas|fasta|fna|ffn|frn))?(?:\.(?:gz|bgz|bz2|xz|zst))?$")
_SHOWN = 5
_DELETED = "whose taxid NCBI deleted"


class Reference(NamedTuple):
    """The header of a reference sequence, without ``>``, and its file.

    Attributes
    ----------
    header : str
    file : str

    Examples
    --------
    >>> Reference("NC_001416.1 Enterobacteria phage lambda", "phage.fna.gz").id
    'NC_001416.1'
    """

    header: str
    file: str = ""

    @property
    def id(self) -> str:
        """The header up to its first blank."""
        return (self.header.split(maxsplit=1) or [""])[0]


class Placement(NamedTuple):
    """The taxids of references.

    Attributes
    ----------
    taxids : array of int64
        Of each reference, 0 of those without a place.
    notes : list of str
        Merged taxids that were followed, and what was allowed.

    Examples
    --------
    >>> Placement(np.array([562, 0]), []).taxids.tolist()
    [562, 0]
    """

    taxids: np.ndarray
    notes: list[str]


def place_references(
    taxonomy: Taxonomy,
    references: Iterable[Reference | tuple[str, str]],
    accessions: Sequence[str | os.PathLike[str]] = (),
    *,
    allow_unplaced: int = 0,
    known: Mapping[str, str] | None = None,
) -> Placement:
    """Return the taxid of each reference sequence.

    It is, in this order, that of ``taxid|N`` or ``kraken:taxid|N`` in the header, and what files
    say of the sequence's id, of the name of its file, or of the assembly in that name. The same
    spelling goes before another version, and that before one with or without ``NZ_``.

    Parameters
    ----------
    taxonomy : Taxonomy
        Its `accession_files` are read as well.
    references : iterable of Reference or (header, file)
    accessions : sequence of paths
        More files: accession2taxid, assembly_summary, two columns, or GTDB.
    allow_unplaced : int
        How many references may have no place, a doubtful one or an id that was there already.
    known : mapping of str to str, optional
        Ids that were there before, and their files.

    Raises
    ------
    TaxonomyError
        When more references than that are so, or NCBI deleted the taxid of one.
    OSError
        When a file of accessions cannot be read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "ar53_taxonomy.tsv")
    >>> _ = file.write_text("GB_GCA_000008085.1\\td__Archaea;p__Nanoarchaeota\\n")
    >>> taxonomy = Taxonomy.from_gtdb(file)
    >>> sequence = Reference("AE017199.1 Nanoarchaeum", "GCA_000008085.1_ASM808v1_genomic.fna.gz")
    >>> taxonomy.names(place_references(taxonomy, [sequence]).taxids)
    ['Nanoarchaeota']
    """
    given = [Reference(*each) for each in references]
    told = [_in_header(each.header) for each in given]
    keys = [() if taxid else _keys_of(each) for each, taxid in zip(given, told, strict=True)]
    files = [*taxonomy.accession_files, *(os.fspath(file) for file in accessions)]
    found = taxids_of((key for each in keys for key in each), files)

    choices = [
        {taxid: "its header"} if taxid else {one.taxid: one.place for one in _best(each, found)}
        for taxid, each in zip(told, keys, strict=True)
    ]
    state = _State.of(taxonomy, {taxid for each in choices for taxid in each})
    faults = _Faults()
    first = {name: Reference(name, file) for name, file in (known or {}).items()}
    merged: dict[int, str] = {}
    taxids = np.zeros(len(given), np.int64)
    for at, (each, ones) in enumerate(zip(given, choices, strict=True)):
        fault, taxid = state.judge(ones)
        if fault:
            text = " and ".join(f"{one} by {place}" for one, place in sorted(ones.items()))
            faults.add(
                at, fault, f"{_reference_text(each)}: {text}" if text else _reference_text(each)
            )
        elif taxid != state.current[taxid]:
            merged.setdefault(taxid, _reference_text(each))
        taxids[at] = state.current[taxid] if taxid else 0
        if each.id in first:
            other = first[each.id].file or "the same file"
            faults.add(at, "whose id is there already", f"{_reference_text(each)}, also in {other}")
        first.setdefault(each.id, each)
    notes = [
        f"taxid {old} of {whose} was merged into {state.current[old]}"
        for old, whose in merged.items()
    ]
    return Placement(taxids, notes + faults.allowed(allow_unplaced))


class _State(NamedTuple):
    """Taxonomy status of the references' taxids."""

    current: dict[int, int]
    known: set[int]
    deleted: set[int]

    @classmethod
    def of(cls, taxonomy: Taxonomy, stated: set[int]) -> _State:
        taxids = np.array(sorted(stated), np.int64)
        current = taxonomy.current(taxids)
        return cls(
            dict(zip(taxids.tolist(), current.tolist(), strict=True)),
            set(taxids[taxonomy.tree.numbers(current) != 0].tolist()),
            set(taxids[taxonomy.is_deleted(taxids)].tolist()),
        )

    def judge(self, choices: Iterable[int]) -> tuple[str, int]:
        """Return the fault of a reference with these taxids or "", and the taxid to use."""
        ones = sorted(choices)
        usable = [taxid for taxid in ones if taxid in self.known]
        if len({self.current[taxid] for taxid in usable}) > 1:
            return "with two taxids", 0
        if usable:
            return "", usable[0]
        if not ones:
            return "without a taxid", 0
        if self.deleted.issuperset(ones):
            return _DELETED, 0
        return "whose taxid is not in the taxonomy", 0


class _Faults:
    """Faulty references, by fault."""

    def __init__(self) -> None:
        self._by_kind: dict[str, list[str]] = {}
        self._rows: set[int] = set()

    def add(self, row: int, kind: str, text: str) -> None:
        """Record the text of a row of the references."""
        self._by_kind.setdefault(kind, []).append(text)
        self._rows.add(row)

    def allowed(self, limit: int) -> list[str]:
        """Return the recorded faults, or raise TaxonomyError if they are too many."""
        if _DELETED in self._by_kind:
            raise TaxonomyError(
                f"{_kind_text(self._by_kind[_DELETED], _DELETED)}; put taxid|N, with one of today, "
                "into the header, or leave the sequence out"
            )
        texts = [_kind_text(those, kind) for kind, those in self._by_kind.items()]
        if len(self._rows) > limit:
            told = f" ({limit:,} are allowed)" if limit else ""
            raise TaxonomyError(
                f"{'; '.join(texts)}{told}; pass files of accessions that have them, put taxid|N "
                f"into their headers, or allow {len(self._rows):,} unplaced"
            )
        return texts


def _in_header(header: str) -> int:
    found = _IN_HEADER.search(header)
    return int(found[1]) if found else 0


def _keys_of(reference: Reference) -> tuple[str, ...]:
    """Return the names that files may list a reference under, most reliable first."""
    bank = _BANKS.search(reference.id)
    file = PurePath(reference.file).name
    assembly = _ASSEMBLY.search(file)
    names = (
        reference.id,
        bank[1] if bank else "",
        file,
        _ENDINGS.sub("", file, count=1),
        assembly[0] if assembly else "",
    )
    return tuple(dict.fromkeys(name for name in names if name))


def _best(keys: tuple[str, ...], found: dict[str, list[Accession]]) -> list[Accession]:
    """Return the entries of the most reliable name with any."""
    for key in keys:
        if key in found:
            nearest = min(each.distance for each in found[key])
            return [each for each in found[key] if each.distance == nearest]
    return []


def _reference_text(reference: Reference) -> str:
    name = reference.id or "a sequence without a name"
    return f"{name} of {reference.file}" if reference.file else name


def _kind_text(those: Sequence[str], what: str) -> str:
    more = f", and {len(those) - _SHOWN:,} more" if len(those) > _SHOWN else ""
    some = f"{len(those):,} reference{'s' * (len(those) != 1)}"
    return f"{some} {what}: {', '.join(those[:_SHOWN])}{more}"
