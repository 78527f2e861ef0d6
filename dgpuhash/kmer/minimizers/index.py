"""Index of minimizers: reads get the taxa that Kraken 2 gives them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.formats.report import kreport
from dgpuhash.kmer.minimizers.building import (
    BATCH_LETTERS,
    counts_of_taxa,
    empty_table,
    figures,
    fold_references,
    renumbered,
    room_for,
    taxonomy_of,
)
from dgpuhash.kmer.minimizers.calling import TreeArrays
from dgpuhash.kmer.minimizers.finder import Finder
from dgpuhash.kmer.minimizers.reads import Reads
from dgpuhash.kmer.minimizers.saved import load_table, save_table
from dgpuhash.kmer.minimizers.seen import SeenMinimizers
from dgpuhash.kmer.minimizers.settings import CallOptions, MinimizerSettings
from dgpuhash.kmer.references import References, Targets
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import HashMap

__all__ = ["MinimizerIndex"]


class MinimizerIndex:
    """Minimizers of references and the lowest common ancestors of the taxa that have each.

    The rule is Kraken 2's. Minimizers are whole keys of a `HashMap`: unlike in Kraken 2's table,
    none is taken for another. `build` reads references, `classify` reads files; `call` takes one
    batch of arrays, on the CPU or a GPU.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "gtdb.tsv").write_text(
    ...     "GB_GCA_000000001.1\\td__Archaea;p__Nanoarchaeota\\n"
    ...     "GB_GCA_000000002.1\\td__Archaea;p__Thermoproteota\\n"
    ... )
    >>> for number, letters in enumerate(["ACGTTGCATTGCCGATA", "TTTTGACCAGATTGGCA"], 1):
    ...     file = folder / f"GCA_00000000{number}.1.fna"
    ...     _ = file.write_text(f">sequence{number}\\n{letters}\\n")
    >>> index = MinimizerIndex.build(
    ...     folder / "*.fna", taxonomy=Taxonomy.from_gtdb(folder / "gtdb.tsv"), k=9, l=7, spaces=1
    ... )
    >>> reads = np.frombuffer(b"GTTGCATTGCCG" b"TGCCAATCTGGT" b"AAAAAAAAAAAA", np.uint8)
    >>> index.taxonomy.names(index.call(reads, [0, 12, 24, 36]).taxids)
    ['Nanoarchaeota', 'Thermoproteota', 'unclassified']
    """

    rule: ClassVar[str] = "kraken2"

    def __init__(
        self,
        backend: Backend,
        settings: MinimizerSettings,
        taxonomy: Taxonomy,
        targets: Targets,
        table: HashMap,
        told: Mapping[str, Any],
    ) -> None:
        self._backend, self._settings = backend, settings
        self._taxonomy, self._targets, self._table = taxonomy, targets, table
        self._told = dict(told)
        self._whole: Taxonomy | None = None
        self._tree = TreeArrays(backend, taxonomy.tree)

    @classmethod
    def build(
        cls,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str],
        accessions: Sequence[str | os.PathLike[str]] = (),
        allow_unplaced: int = 0,
        device: str | None = None,
        progress: Callable[[int], object] | None = None,
        **settings: Any,
    ) -> Self:
        """Return the index of references.

        Parameters
        ----------
        references : path, glob, folder, URL or several of them, or References
            FASTA or FASTQ, plain or compressed.
        taxonomy : Taxonomy or path
            Or the folder of NCBI's files.
        accessions, allow_unplaced
            As for `place_references`; references without a taxon are left out.
        device : {"cpu", "cuda"}, optional
            None: a CPU.
        progress : callable, optional
            Is told the number of letters of each batch.
        **settings
            Those of `MinimizerSettings`: ``k``, ``l``, ``spaces``, ``toggle``, and ``mask`` and
            ``order`` of `References`.

        Raises
        ------
        SpecError
            When a setting is impossible.
        SequenceError
            When a file is not sequences, or damaged.
        TaxonomyError
            When references have no place in the taxonomy.
        OSError
            When a file is not there, or cannot be read.
        """
        made = MinimizerSettings.of(**settings)
        backend = backends.get(device)
        if not isinstance(taxonomy, Taxonomy):
            taxonomy = Taxonomy.read(taxonomy)
        if not isinstance(references, References):
            references = References(references, mask=made.mask, order=made.order, progress=progress)
        notes = references.place(taxonomy, accessions, allow_unplaced=allow_unplaced).notes
        own = taxonomy_of(taxonomy, references.targets, None)
        room = room_for(made, references.letters, backend.name)
        told = {"letters": 0, "notes": []}
        index = cls(backend, made, own, Targets.none(), empty_table(backend.name, room), told)
        index._fold(references, notes)
        index._whole = taxonomy
        return index

    def add(
        self,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None = None,
        accessions: Sequence[str | os.PathLike[str]] = (),
        allow_unplaced: int = 0,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Add further references, whose numbers go on; the index is as if built of all at once.

        Parameters
        ----------
        references, accessions, allow_unplaced, progress
            As for `build`.
        taxonomy : Taxonomy or path, optional
            One that has all taxa of the index, too. None: that of `build`; of an index that was
            loaded, only the taxa that it has.

        Raises
        ------
        SpecError, SequenceError, TaxonomyError, OSError
            As `build`; also when a taxon of the index has another parent now, or an id of a
            reference is there already. The index is unchanged, unless a file turns out to be
            damaged after it was found sound.
        """
        if taxonomy is None:
            taxonomy = self._whole or self._taxonomy
        elif not isinstance(taxonomy, Taxonomy):
            taxonomy = Taxonomy.read(taxonomy)
        if not isinstance(references, References):
            settings = self._settings
            references = References(
                references, mask=settings.mask, order=settings.order, known=self._targets,
                progress=progress,
            )  # fmt: skip
        notes = references.place(taxonomy, accessions, allow_unplaced=allow_unplaced).notes
        own = taxonomy_of(taxonomy, references.targets, self._taxonomy)
        table = renumbered(self._table, self._taxonomy, own, self._backend)
        room = room_for(self._settings, references.letters, self._backend.name)
        table.reserve(len(table) + room)
        self._taxonomy, self._table = own, table
        self._tree = TreeArrays(self._backend, own.tree)
        self._fold(references, notes)
        self._whole = taxonomy

    def _fold(self, references: References, notes: Sequence[str]) -> None:
        numbers = self._taxonomy.numbers(references.targets.taxids)
        batches = references.batches(
            overlap=self._settings.k - 1, batch_letters=BATCH_LETTERS[self._backend.name]
        )
        fold_references(
            self._backend, self._settings, self._table, self._taxonomy, batches, numbers,
            references.first,
        )  # fmt: skip
        self._told["letters"] += references.letters
        self._told["notes"] = [*self._told["notes"], *notes]
        self._targets = self._targets.join(references.targets)

    @property
    def settings(self) -> MinimizerSettings:
        """What the index was built with."""
        return self._settings

    @property
    def taxonomy(self) -> Taxonomy:
        """The taxa of the references, and their ancestors."""
        return self._taxonomy

    @property
    def targets(self) -> Targets:
        """The references."""
        return self._targets

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"cuda"``."""
        return self._backend.name

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return (
            f"<MinimizerIndex: {len(self):,} minimizers of {len(self._targets.names):,} sequences, "
            f"{self.device}>"
        )

    def call(
        self,
        letters: Any,
        offsets: Any,
        mate_letters: Any = None,
        mate_offsets: Any = None,
        /,
        *,
        qualities: Any = None,
        mate_qualities: Any = None,
        detail: bool = False,
        seen: SeenMinimizers | None = None,
        **options: Any,
    ) -> Calls:
        """Return the calls of one batch of reads, or of pairs.

        Parameters
        ----------
        letters : array of uint8
            The reads, one after another; NumPy or CuPy.
        offsets : array of int64
            ``n + 1`` positions: read i is ``letters[offsets[i]:offsets[i + 1]]``.
        mate_letters, mate_offsets : array, optional
            As many second mates.
        qualities, mate_qualities : array of uint8, optional
            Of each letter, as FASTQ writes them.
        detail : bool
            Whether the taxa of all k-mers are wanted.
        seen : SeenMinimizers, optional
            Counts the minimizers that are found.
        **options
            Those of `CallOptions`: ``confidence``, ``minimum_hit_groups``,
            ``minimum_base_quality``, ``quick`` and ``ignore_ambiguous``.

        Returns
        -------
        Calls
            Arrays of the same kind as `letters`. `hits` are the k-mers in the clade of the call.

        Raises
        ------
        SpecError
            When an option is unknown or impossible.
        SequenceError
            When offsets do not part the letters, or there are other numbers of mates or qualities.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "gtdb.tsv").write_text("GB_GCA_000000001.1\\td__Archaea\\n")
        >>> _ = (folder / "GCA_000000001.1.fna").write_text(">one\\nACGTTGCATTGCCGATA\\n")
        >>> taxonomy = Taxonomy.from_gtdb(folder / "gtdb.tsv")
        >>> index = MinimizerIndex.build(folder / "*.fna", taxonomy=taxonomy, k=9, l=7, spaces=1)
        >>> read = np.frombuffer(b"ACGTTGCATTGCNGATA", np.uint8)
        >>> calls = index.call(read, [0, 17], detail=True, minimum_hit_groups=1)
        >>> (calls.detail_taxids == index.taxonomy.taxid("Archaea")).tolist()
        [True, False]
        >>> calls.hits, calls.detail_counts
        (array([4], dtype=uint32), array([4, 5], dtype=uint32))
        """
        chosen = CallOptions.of(**options)
        backend, came_from = self._backend, backends.get(None, letters, mate_letters)
        if not chosen.minimum_base_quality:
            qualities = mate_qualities = None
        first = Reads.of(backend, letters, offsets, qualities)
        second = None
        if mate_letters is not None:
            second = Reads.of(backend, mate_letters, mate_offsets, mate_qualities)
        finder = Finder(backend, self._settings, self._table, self._tree, chosen)
        calls = finder.calls(first, second, detail=detail, seen=seen)
        return calls if came_from is backend else calls.on_host(backend)

    def classify(
        self,
        reads: Paths,
        mates: Paths | None = None,
        *,
        interleaved: bool = False,
        progress: Callable[[int], object] | None = None,
        **options: Any,
    ) -> Classification:
        """Return the calls of the reads of files, which are made as they are asked for.

        Parameters
        ----------
        reads, mates, interleaved, progress
            As those of `Classification`.
        **options
            Those of `call`.

        Raises
        ------
        SpecError
            When an option is impossible.
        FileNotFoundError
            When a file is not there.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "gtdb.tsv").write_text("GB_GCA_000000001.1\\td__Archaea\\n")
        >>> _ = (folder / "GCA_000000001.1.fna").write_text(">one\\nACGTTGCATTGCCGATA\\n")
        >>> taxonomy = Taxonomy.from_gtdb(folder / "gtdb.tsv")
        >>> index = MinimizerIndex.build(folder / "*.fna", taxonomy=taxonomy, k=9, l=7, spaces=1)
        >>> for line in index.classify(folder / "*.fna").report_lines():
        ...     print(line.replace("\\t", " "))
        100.00 1 0 R 1 root
        100.00 1 1 D 10764658325130   Archaea
        """
        return Classification(
            self, reads, mates, interleaved=interleaved, progress=progress, **options
        )

    def taxon_counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the taxids that minimizers have (int64), and how many have each (int64).

        Examples
        --------
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "gtdb.tsv").write_text("GB_GCA_000000001.1\\td__Archaea\\n")
        >>> _ = (folder / "GCA_000000001.1.fna").write_text(">one\\nACGTTGCATTGCCGATA\\n")
        >>> taxonomy = Taxonomy.from_gtdb(folder / "gtdb.tsv")
        >>> index = MinimizerIndex.build(folder / "*.fna", taxonomy=taxonomy, k=9, l=7, spaces=1)
        >>> index.taxon_counts()[1].sum() == len(index)
        np.True_
        """
        counts = counts_of_taxa(self._backend, self._table, self._taxonomy)
        numbers = np.flatnonzero(counts)
        return self._taxonomy.taxids[numbers].astype(np.int64), counts[numbers]

    def seen_minimizers(self) -> SeenMinimizers:
        """Return what counts the minimizers that `call` finds, for a report of them."""
        return SeenMinimizers(self._backend, self._taxonomy.tree)

    def inspect(self) -> Iterator[str]:
        """Yield the lines of a report of how many minimizers taxa have."""
        yield from kreport(self._taxonomy, *self.taxon_counts())

    def stats(self) -> dict[str, Any]:
        """Return what was read and what is stored.

        Returns
        -------
        dict
            ``rule``, ``k``, ``l``, ``spaces``; ``targets`` and ``letters`` that were read;
            ``distinct`` minimizers, ``taxa`` that they have, ``nbytes`` and ``load`` of their map.
        """
        return {
            "rule": self.rule,
            **figures(self._settings, self._table, self._told),
            "targets": len(self._targets.names),
            "taxa": len(self.taxon_counts()[0]),
        }

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the index to a file, whole or not at all.

        Parameters
        ----------
        path : path or fsspec URL
            By custom its name ends in ``.dgki``.
        overwrite : bool
            Whether a file that is there may be replaced.

        Raises
        ------
        ExistsError
            When the file is there already.
        OSError
            When it cannot be written.
        """
        save_table(
            path, self._backend, self._table, rule=self.rule, settings=asdict(self._settings),
            taxonomy=self._taxonomy, targets=self._targets, told=self._told, overwrite=overwrite,
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | None = None) -> Self:
        """Return the index that `save` wrote, on the CPU or another device.

        Raises
        ------
        FormatError
            When the file is another one, or damaged.
        OSError
            When it is not there, or cannot be read.
        """
        backend = backends.get(device)
        return cls(backend, *load_table(path, backend, cls.rule))
