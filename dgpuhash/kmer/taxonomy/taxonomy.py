"""Taxonomy: taxa with ranks, names and ancestors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self, SupportsIndex

import numpy as np

from dgpuhash.errors import FormatError, TaxonomyError
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of, numpy_of, strings_of
from dgpuhash.kmer.sequences.files import Paths, files_of
from dgpuhash.kmer.taxonomy.dumps import taxa_in
from dgpuhash.kmer.taxonomy.gtdb import GTDB_RANKS, taxa_in_gtdb
from dgpuhash.kmer.taxonomy.ranks import (
    letters_and_steps,
    ranked_lineages,
    slot_of,
    slots_by_number,
    slots_of,
)
from dgpuhash.kmer.taxonomy.taxa import Taxa, subset, taxa_from, taxa_to, unknown_error
from dgpuhash.kmer.taxonomy.tree import Tree
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.tables.serialization import Buffers, read_file, write_file
from dgpuhash.typing import KeysLike

_KIND = "taxonomy"
_SHOWN = 5


class Taxonomy:
    """A tree of taxa with ranks and names, from NCBI, GTDB or files in their form.

    Taxids that NCBI merged into others stand for those. Taxid 0 is none. Methods take one taxid or
    arrays of them, and work on whole arrays at once.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "bac120_taxonomy.tsv")
    >>> line = "d__Bacteria;p__Bacillota;c__Bacilli;o__Staphylococcales;f__Staphylococcaceae"
    >>> _ = file.write_text(
    ...     f"RS_GCF_000009645.1\\t{line};g__Staphylococcus;s__Staphylococcus aureus\\n"
    ...     f"RS_GCF_000007645.1\\t{line};g__Staphylococcus;s__Staphylococcus epidermidis\\n"
    ... )
    >>> taxonomy = Taxonomy.from_gtdb(file)
    >>> taxonomy
    <Taxonomy: 8 taxa below 1 root, 2 species>
    >>> species = [taxonomy.taxid(f"Staphylococcus {name}") for name in ("aureus", "epidermidis")]
    >>> taxonomy.name(taxonomy.lca(*species)), taxonomy.rank(taxonomy.lca(*species))
    ('Staphylococcus', 'genus')
    """

    def __init__(self, taxa: Taxa, accession_files: Iterable[str] = ()) -> None:
        self._taxa, self._tree = taxa, taxa.tree
        self._accession_files = tuple(accession_files)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Self:
        """Read the taxonomy in a folder of NCBI's files.

        Parameters
        ----------
        folder : path
            With nodes.dmp and names.dmp; merged.dmp, delnodes.dmp and files named
            ``*accession2taxid`` or ``*accession2taxid.gz`` may be there. The last are read when
            references are given their places.

        Raises
        ------
        TaxonomyError
            When a file is missing or malformed, or the taxa are no tree.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "nodes.dmp").write_text(
        ...     "1\\t|\\t1\\t|\\tno rank\\t|\\n" "2\\t|\\t1\\t|\\tdomain\\t|\\n"
        ... )
        >>> _ = (folder / "names.dmp").write_text(
        ...     "1\\t|\\troot\\t|\\t\\t|\\tscientific name\\t|\\n"
        ...     "2\\t|\\tBacteria\\t|\\t\\t|\\tscientific name\\t|\\n"
        ... )
        >>> Taxonomy.read(folder).name(2)
        'Bacteria'
        """
        taxa = taxa_in(Path(folder))
        found = (
            path for end in ("", ".gz") for path in Path(folder).glob(f"*accession2taxid{end}")
        )
        return cls(taxa, sorted(map(str, found), key=os.fsencode))

    @classmethod
    def from_gtdb(cls, paths: Paths) -> Self:
        """Read GTDB's files, such as bac120_taxonomy.tsv and ar53_taxonomy.tsv.

        Names lose their prefixes, ranks are as in the file, and taxids depend on the names alone,
        so that those of other releases are the same. The files tell the taxon of an assembly, too:
        references find their places by the assembly in their file's name.

        Raises
        ------
        TaxonomyError
            When a line is no accession and lineage, or a name has two parents.
        FileNotFoundError
            When a file is not there.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "ar53_taxonomy.tsv")
        >>> _ = file.write_text("GB_GCA_000008085.1\\td__Archaea;p__Nanoarchaeota\\n")
        >>> taxonomy = Taxonomy.from_gtdb(file)
        >>> taxonomy.names(taxonomy.lineage(taxonomy.taxid("p__Nanoarchaeota")))
        ['Nanoarchaeota', 'Archaea', 'root']
        """
        files = files_of(paths)
        return cls(taxa_in_gtdb(files), files)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a saved taxonomy.

        Raises
        ------
        FormatError
            When the file is another one, or damaged.
        FileNotFoundError
            When it is not there.
        """
        header, raw = read_file(path)
        if header.get("kind") != _KIND:
            raise FormatError(f"{path} contains no taxonomy; pass a file that Taxonomy.save wrote")
        with interpreting(path):
            return cls.from_arrays(header, Buffers(os.fspath(path), raw))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write all taxa to a file atomically.

        Raises
        ------
        ExistsError
            When the file is there and `overwrite` is False.
        OSError
            When it cannot be written.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "gtdb.tsv").write_text("GCA_1.1\\td__Archaea\\n")
        >>> Taxonomy.from_gtdb(folder / "gtdb.tsv").save(folder / "taxonomy")
        >>> len(Taxonomy.load(folder / "taxonomy"))
        2
        """
        header, arrays = self.to_arrays()
        write_file(path, {"kind": _KIND, **header}, arrays, overwrite=overwrite)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return header fields and named arrays for an index file."""
        return taxa_to(self._taxa)

    @classmethod
    def from_arrays(cls, header: Mapping[str, Any], buffers: Buffers) -> Self:
        """Return the taxonomy from an index file's output of `to_arrays`.

        Raises
        ------
        FormatError
            When arrays are missing or damaged.
        """
        return cls(taxa_from(header, buffers))

    def __len__(self) -> int:
        return len(self._tree)

    def __contains__(self, taxid: object) -> bool:
        return isinstance(taxid, (int, np.integer)) and bool(
            self._tree.numbers(self.current(np.array([taxid], np.int64)))[0]
        )

    def __repr__(self) -> str:
        ranks = self._taxa.rank_names
        species = ranks.index("species") if "species" in ranks else len(ranks)
        n = int(np.count_nonzero(self._taxa.ranks == species))
        return f"<Taxonomy: {len(self) - 1:,} taxa below 1 root, {n:,} species>"

    @property
    def accession_files(self) -> tuple[str, ...]:
        """Files of the taxonomy with the taxids of accessions."""
        return self._accession_files

    @property
    def taxids(self) -> np.ndarray:
        """Taxids by number: 0, that of the root, then level by level."""
        return self._tree.taxids

    @property
    def parents(self) -> np.ndarray:
        """Parent number of each number (uint32); 0 for the root and for none.

        Numbers of parents are below those of their children, so that the lowest common ancestor of
        two is found by going up from the higher one until both are the same.
        """
        return self._tree.parents

    @property
    def tree(self) -> Tree:
        """The numbered tree, for array operations."""
        return self._tree

    def current(self, taxids: KeysLike | SupportsIndex) -> np.ndarray:
        """Return taxids with merged ones replaced; others stay, known or not.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "gtdb.tsv")
        >>> _ = file.write_text("GCA_1.1\\td__Archaea\\n")
        >>> Taxonomy.from_gtdb(file).current([1, 7])
        array([1, 7])
        """
        found = np.array(taxids, np.int64)
        merged = self._taxa.merged
        # A taxid may have been merged more than once; one that is in the tree is what it is.
        for _ in range(len(merged)):
            places = np.minimum(np.searchsorted(merged[:, 0], found), len(merged) - 1)
            moves = (merged[places, 0] == found) & (self._tree.numbers(found) == 0)
            if not moves.any():
                break
            found = np.where(moves, merged[places, 1], found)
        return found

    def is_deleted(self, taxids: KeysLike | SupportsIndex) -> np.ndarray:
        """Return whether NCBI deleted each taxid."""
        given = self.current(taxids)
        return np.isin(given, self._taxa.deleted) & (self._tree.numbers(given) == 0)

    def numbers(self, taxids: KeysLike | SupportsIndex) -> np.ndarray:
        """Return the number of each taxid (uint32); 0 for 0.

        Raises
        ------
        TaxonomyError
            When taxids are unknown or deleted.
        """
        given = np.asarray(taxids, np.int64)
        found = self._tree.numbers(given)
        if not found.all():
            found = self._tree.numbers(self.current(given))
            unknown = (found == 0) & (given != 0)
            if unknown.any():
                missing = np.unique(given[unknown])
                raise unknown_error(missing, missing[self.is_deleted(missing)])
        return found

    def _number(self, taxid: int) -> int:
        found = int(self.numbers(np.array([taxid], np.int64))[0])
        if not found:
            raise TaxonomyError("taxid 0 is not a taxon: it stands for none")
        return found

    def taxid(self, name: str, rank: str | None = None) -> int:
        """Return the taxid of a scientific name, matched exactly.

        Parameters
        ----------
        name : str
            With the prefix of a rank, such as ``g__Bacillus``, or without.
        rank : str, optional
            Of several taxa with the name, the one that has this rank.

        Raises
        ------
        TaxonomyError
            When no taxon has the name, or several have.
        """
        import pyarrow.compute as pc

        prefixed = re.fullmatch(r"([dpcofgs])__(.+)", name)
        if prefixed and rank is None:
            name, rank = prefixed[2], GTDB_RANKS[prefixed[1]]
        found = np.flatnonzero(numpy_of(pc.equal(self._taxa.names, strings_of([name])[0])))
        if rank is not None:
            ranks = self._taxa.rank_names
            slots = slots_of(ranks)
            same = [
                at
                for at, other in enumerate(ranks)
                if other == rank or (slots[at] >= 0 and slots[at] == slots_of([rank])[0])
            ]
            found = found[np.isin(self._taxa.ranks[found], same)]
        if len(found) == 1:
            return int(self.taxids[found[0] + 1])
        if not len(found):
            asked = f"{name!r}" if rank is None else f"{name!r} of rank {rank}"
            raise TaxonomyError(f"no taxon is named {asked}; give the scientific name or a taxid")
        choices = ", ".join(
            f"{taxid} ({self.rank(taxid)})" for taxid in self.taxids[found + 1][:_SHOWN].tolist()
        )
        raise TaxonomyError(f"{len(found)} taxa are named {name!r}: {choices}; give a taxid")

    def name(self, taxid: int) -> str:
        """Return the scientific name of a taxon.

        Raises
        ------
        TaxonomyError
            When the taxid is unknown, as for all methods that take one.
        """
        return str(self._taxa.names[self._number(taxid) - 1].as_py())

    def names(self, taxids: KeysLike) -> list[str]:
        """Return the scientific name of each taxid, "unclassified" for 0."""
        numbers = self.numbers(taxids).astype(np.int64)
        found = self._taxa.names.take(numbers_of(numbers - 1, numbers == 0))
        return ["unclassified" if name is None else name for name in found.to_pylist()]

    def rank(self, taxid: int) -> str:
        """Return the rank of a taxon, as written in its file."""
        return self._taxa.rank_names[self._taxa.ranks[self._number(taxid) - 1]]

    def ranks(self, taxids: KeysLike) -> list[str]:
        """Return the rank of each taxid, as written in its file, "no rank" for 0."""
        names = np.array([*self._taxa.rank_names, "no rank"], object)
        return names[np.append(self._taxa.ranks, len(names) - 1)[self._places(taxids)]].tolist()

    def _places(self, taxids: Any) -> np.ndarray:
        return self.numbers(taxids).astype(np.int64) - 1

    def parent(self, taxid: int) -> int:
        """Return the taxid of a taxon's parent, 0 for the root."""
        return int(self.taxids[self.parents[self._number(taxid)]])

    def lineage(self, taxid: int) -> list[int]:
        """Return the taxids from a taxon up to the root, both included."""
        number, found = self._number(taxid), []
        while number:
            found.append(int(self.taxids[number]))
            number = int(self.parents[number])
        return found

    def lca(self, left: KeysLike | SupportsIndex, right: KeysLike | SupportsIndex) -> Any:
        """Return the lowest common ancestor of two taxa, or of each pair of two arrays.

        Taxid 0 changes nothing: the other taxon is the answer.
        """
        found = self.taxids[self._tree.lca(self.numbers(left), self.numbers(right))]
        return int(found) if found.ndim == 0 else found

    def lca_of(self, taxids: KeysLike, offsets: KeysLike | None = None) -> Any:
        """Return the lowest common ancestor of all taxids, or of each run of them.

        Parameters
        ----------
        taxids : array of int
            0 is left out.
        offsets : array of int, optional
            Run i is ``taxids[offsets[i]:offsets[i + 1]]``. None: all are one.

        Returns
        -------
        int or array of int64
            0 of a run without taxa.
        """
        numbers = self.numbers(taxids)
        runs = np.array([0, len(numbers)]) if offsets is None else np.asarray(offsets)
        found = self.taxids[self._tree.lca_of_runs(numbers, runs)]
        return int(found[0]) if offsets is None else found

    def ranked(self, taxids: KeysLike | SupportsIndex) -> np.ndarray:
        """Return the ranked lineage of each taxid: 21 taxids from sequence to root, 0 for none.

        A slot that two ancestors would take is the higher one's.
        """
        return ranked_lineages(self._taxa, self._slots, self.numbers(taxids).ravel())

    @cached_property
    def _slots(self) -> np.ndarray:
        return slots_by_number(self._taxa)

    def lift(self, taxids: KeysLike | SupportsIndex, rank: str) -> np.ndarray:
        """Return each taxid's ancestor, or itself, at a rank; 0 if there is none.

        Raises
        ------
        TaxonomyError
            When the rank is none of the slots of ranked lineages.
        """
        slot = slot_of(rank)
        distinct, places = np.unique(np.asarray(taxids, np.int64), return_inverse=True)
        return self.ranked(distinct)[:, slot][places]

    def is_within(self, taxids: KeysLike | SupportsIndex, clade: int) -> np.ndarray:
        """Return whether each taxid is a taxon or below it; 0 never is."""
        return self._tree.is_within(self.numbers(taxids), self._number(clade))

    def report_codes(self, taxids: KeysLike) -> list[str]:
        """Return each taxid's rank code in Kraken 2's reports: R, D, D1, K … S, S1.

        A taxon whose rank has no letter gets that of the nearest ancestor with one, and the number
        of steps to it. Taxid 0 is U.
        """
        letters, steps = self.letters_and_steps
        numbers = self.numbers(taxids)
        return [
            f"{letter}{step or ''}"
            for letter, step in zip(letters[numbers], steps[numbers].tolist(), strict=True)
        ]

    @cached_property
    def letters_and_steps(self) -> tuple[np.ndarray, np.ndarray]:
        """By number, the report letter of the nearest ranked ancestor, and the steps to it."""
        return letters_and_steps(self._taxa)

    def subset(self, taxids: KeysLike) -> Self:
        """Return the taxonomy restricted to some taxa and their ancestors."""
        merged = self.current(self._taxa.merged[:, 0])
        return type(self)(subset(self._taxa, self.numbers(taxids), merged), self._accession_files)
