"""Read GTDB's taxonomy files: one line a genome, with the names of its seven ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from dgpuhash.errors import TaxonomyError
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of, strings_of
from dgpuhash.kmer.sequences.files import text_of
from dgpuhash.kmer.taxonomy.taxa import Taxa
from dgpuhash.kmer.taxonomy.tree import Tree

GTDB_RANKS = {
    "d": "domain",
    "p": "phylum",
    "c": "class",
    "o": "order",
    "f": "family",
    "g": "genus",
    "s": "species",
}
_PREFIXES = [f"{letter}__" for letter in GTDB_RANKS]


def gtdb_taxid(name: str) -> int:
    """Return the taxid for a name with its prefix, a hash of the name alone.

    52 bits of a digest, which a float64 holds, so that every release and machine has the same.

    Examples
    --------
    >>> gtdb_taxid("d__Bacteria") == gtdb_taxid("d__Bacteria") != gtdb_taxid("d__Archaea")
    True
    """
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return max(int.from_bytes(digest, "big") >> 12, 2)


def gtdb_lineage(text: str, place: str) -> list[str]:
    """Return the names of a lineage from the domain on, without trailing empty ones.

    Raises
    ------
    TaxonomyError
        When the ranks are not GTDB's, or a name is missing between others.
    """
    names = [name.strip() for name in text.strip().split(";")]
    is_sound = len(names) <= len(_PREFIXES) and all(
        name.startswith(prefix) for name, prefix in zip(names, _PREFIXES, strict=False)
    )
    while is_sound and names and len(names[-1]) == len(_PREFIXES[0]):
        names.pop()
    if not names or not is_sound or any(len(name) == len(_PREFIXES[0]) for name in names):
        raise TaxonomyError(
            f"{place}: {text.strip()!r} is not a GTDB lineage; write d__…;p__…;c__…;o__…;f__…;"
            "g__…;s__…"
        )
    return names


def taxa_in_gtdb(files: Sequence[str]) -> Taxa:
    """Return the taxa in GTDB's files, with a root.

    Raises
    ------
    TaxonomyError
        When a line is no accession and lineage, a name has two parents, or two names one taxid.
    """
    above = _parents_of(files)
    ids = {"": 1, **{name: gtdb_taxid(name) for name in above}}
    parents = [1, *(ids[parent] for parent in above.values())]
    tree, rows = Tree.of(
        np.array(list(ids.values()), np.int64),
        np.array(parents, np.int64),
        lambda _: ", ".join(files),
    )
    rank_names = ["no rank", *GTDB_RANKS.values()]
    letters = list(GTDB_RANKS)
    ranks = np.array([0, *(letters.index(name[0]) + 1 for name in above)], np.uint16)
    names = strings_of(["root", *(name.partition("__")[2] for name in above)])
    none = np.empty(0, np.int64)
    names = names.take(numbers_of(rows))
    return Taxa(tree, names, ranks[rows], rank_names, none.reshape(0, 2), none)


def _parents_of(files: Sequence[str]) -> dict[str, str]:
    """Return the parent of each name in files, "" for a domain.

    Raises
    ------
    TaxonomyError
        When a line is no accession and lineage, a name has two parents, or two names one taxid.
    """
    above: dict[str, str] = {}
    places: dict[str, str] = {}
    owners: dict[int, str] = {}
    for file in files:
        known: set[bytes] = set()
        for number, line in enumerate(_lines_of(file), 1):
            lineage = line.rpartition(b"\t")[2].strip()
            if lineage in known or not line.strip():
                continue
            known.add(lineage)
            place = f"{file}, line {number}"
            if b"\t" not in line:
                raise TaxonomyError(f"{place}: no tab; write an accession, a tab and a lineage")
            parent = ""
            for name in gtdb_lineage(lineage.decode(errors="replace"), place):
                if above.setdefault(name, parent) != parent:
                    raise TaxonomyError(
                        f"{place}: {name} is below {parent or 'the root'}, and below "
                        f"{above[name] or 'the root'} at {places[name]}; pass the files of one "
                        "release"
                    )
                places.setdefault(name, place)
                if owners.setdefault(gtdb_taxid(name), name) != name:
                    raise TaxonomyError(
                        f"{place}: {name} would get the same taxid as "
                        f"{owners[gtdb_taxid(name)]}; rename one"
                    )
                parent = name
    if not above:
        raise TaxonomyError(f"{', '.join(files)}: no lineage in it; pass a taxonomy of GTDB")
    return above


def _lines_of(file: str) -> Iterator[bytes]:
    rest = b""
    for text in text_of(file):
        *lines, rest = (rest + text).split(b"\n")
        yield from lines
    yield rest
