"""Index of minimizers: reads get the taxa that Kraken 2 gives them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

from dgpuhash import backend as backends
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.databases.provenance import step_after
from dgpuhash.kmer.minimizers.building import (
    Batch,
    batches_of_letters,
    batches_of_references,
    empty_table,
    fold_references,
    renumbered,
    room_for,
    taxonomy_of,
)
from dgpuhash.kmer.minimizers.calling import TreeArrays
from dgpuhash.kmer.minimizers.finder import Finder
from dgpuhash.kmer.minimizers.merged import MergedMinimizers, estimator_of
from dgpuhash.kmer.minimizers.reads import Reads
from dgpuhash.kmer.minimizers.seen import Counting
from dgpuhash.kmer.minimizers.settings import CallOptions, MinimizerSettings
from dgpuhash.kmer.options import MinimizerBuildOptions, MinimizerCallOptions, MinimizerOptions
from dgpuhash.kmer.references import References, Targets, targets_of_letters
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.typing import Device, HasArray, IndexMode, KeysLike

if TYPE_CHECKING:
    from typing import Unpack

    from distributed import Client

    from dgpuhash.kmer.minimizers.on_workers import DistributedMinimizerIndex


class MinimizerIndex(MergedMinimizers):
    """Minimizers of references and the lowest common ancestors of the taxa that have each.

    The rule is Kraken 2's. Minimizers are whole keys of a `HashMap`: unlike in Kraken 2's table,
    none is taken for another. `build` reads references, `classify` reads files; `call` takes one
    batch of arrays, on the CPU or a GPU.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
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

    @overload
    @classmethod
    def build(
        cls,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str],
        client: None = None,
        **settings: Unpack[MinimizerBuildOptions],
    ) -> Self: ...
    @overload
    @classmethod
    def build(
        cls,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str],
        client: Client,
        **settings: Unpack[MinimizerBuildOptions],
    ) -> DistributedMinimizerIndex: ...
    @classmethod
    def build(
        cls,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str],
        accessions: Sequence[str | os.PathLike[str]] = (),
        allow_unplaced: int = 0,
        device: Device | None = None,
        client: Client | None = None,
        mode: IndexMode = "auto",
        progress: Callable[[int], object] | None = None,
        **settings: Unpack[MinimizerOptions],
    ) -> Self | DistributedMinimizerIndex:
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
        client : distributed.Client, optional
            The index is made on the workers of its cluster, and lies there.
        mode : {"auto", "distributed", "independent", "replicated"}
            How it lies there: minimizers by their hash, by targets, or all on each worker. By
            default ``"replicated"`` where a quarter of a worker's memory is enough, else
            ``"distributed"``.
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
        if client is not None:
            from dgpuhash.kmer.minimizers.on_workers import DistributedMinimizerIndex

            return DistributedMinimizerIndex.build(
                references, client=client, mode=mode, taxonomy=taxonomy, device=device,
                accessions=accessions, allow_unplaced=allow_unplaced, progress=progress,
                **settings,
            )  # fmt: skip
        made, whole = MinimizerSettings.of(**settings), _read(taxonomy)
        index = cls._empty(whole, device, made)
        index.add(
            references, taxonomy=whole, accessions=accessions, allow_unplaced=allow_unplaced,
            progress=progress,
        )  # fmt: skip
        return index

    @classmethod
    def from_letters(
        cls,
        letters: HasArray,
        offsets: KeysLike,
        taxids: KeysLike,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str],
        names: Sequence[str] | None = None,
        **settings: Unpack[MinimizerOptions],
    ) -> Self:
        """Return the index of references in arrays, on their device.

        Parameters
        ----------
        letters : array of uint8
            The references, one after another; NumPy or CuPy.
        offsets : array of int64
            ``n + 1`` positions: reference i is ``letters[offsets[i]:offsets[i + 1]]``.
        taxids : array of int
            Of each reference; those of taxid 0 are left out.
        taxonomy : Taxonomy or path
            As for `build`.
        names : sequence of str, optional
            Their ids; numbers from 1 on when None.
        **settings
            As for `build`.

        Raises
        ------
        SpecError, SequenceError, TaxonomyError
            When a setting is impossible, the arrays do not fit to each other, or a taxid is
            unknown.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> file = pathlib.Path(tempfile.mkdtemp(), "gtdb.tsv")
        >>> _ = file.write_text("GB_GCA_000000001.1\\td__Archaea\\n")
        >>> taxonomy = Taxonomy.from_gtdb(file)
        >>> letters = np.frombuffer(b"ACGTTGCATTGCCGATA", np.uint8)
        >>> MinimizerIndex.from_letters(
        ...     letters, [0, 17], [taxonomy.taxid("Archaea")], taxonomy=taxonomy, k=9, l=7, spaces=1
        ... )
        <MinimizerIndex: 5 minimizers of 1 sequences, cpu>
        """
        made, whole = MinimizerSettings.of(**settings), _read(taxonomy)
        index = cls._empty(whole, backends.get(None, letters).name, made)
        index.add_letters(letters, offsets, taxids, taxonomy=whole, names=names)
        return index

    @classmethod
    def _empty(cls, whole: Taxonomy, device: Device | None, settings: MinimizerSettings) -> Self:
        backend = backends.get(device)
        told = {"letters": 0, "notes": []}
        table = empty_table(backend.name)
        return cls(backend, settings, whole.subset([]), Targets.none(), table, told)

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
        whole = self._whole or self._taxonomy if taxonomy is None else _read(taxonomy)
        settings = self._settings
        if not isinstance(references, References):
            references = References(
                references, mask=settings.mask, order=settings.order, known=self._targets,
                progress=progress,
            )  # fmt: skip
        notes = references.place(whole, accessions, allow_unplaced=allow_unplaced).notes
        estimator_of(self.device, settings).check(references, self._table.nbytes)
        batches = batches_of_references(self._backend, settings, references)
        self._take(whole, references.targets, batches, allow_unplaced=allow_unplaced)
        self._told["notes"] = [*self._told["notes"], *notes]

    def add_letters(
        self,
        letters: HasArray,
        offsets: KeysLike,
        taxids: KeysLike,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """Add further references in arrays of the index's device.

        Parameters are those of `from_letters`; `taxonomy` may be None as for `add`.

        Raises
        ------
        SequenceError, TaxonomyError
            As `from_letters`; the index is unchanged.
        """
        whole = self._whole or self._taxonomy if taxonomy is None else _read(taxonomy)
        backend = self._backend
        given = Reads.of(backend, letters, offsets, None)
        targets = targets_of_letters(
            whole, backend.to_host(given.offsets), taxids, names, self._targets
        )
        self._take(whole, targets, batches_of_letters(backend, self._settings, given))

    def _take(
        self,
        whole: Taxonomy,
        targets: Targets,
        batches: Iterable[Batch],
        **options: Any,
    ) -> None:
        backend, settings = self._backend, self._settings
        own = taxonomy_of(whole, targets, self._taxonomy)
        numbers = own.numbers(targets.taxids)
        table = renumbered(self._table, self._taxonomy, own, backend)
        letters = int(targets.lengths.sum())
        table.reserve(len(table) + room_for(settings, letters, backend.name))
        self._taxonomy, self._table, self._whole = own, table, whole
        self._tree = TreeArrays(backend, own.tree)
        fold_references(backend, settings, table, own, numbers, batches)
        self._told["letters"] += letters
        step = step_after(self, len(targets.files), **options)
        self._told["steps"] = [*self._told["steps"], step]
        self._targets = self._targets.join(targets)

    def call(
        self,
        letters: HasArray,
        offsets: KeysLike,
        mate_letters: HasArray | None = None,
        mate_offsets: KeysLike | None = None,
        /,
        *,
        qualities: HasArray | None = None,
        mate_qualities: HasArray | None = None,
        detail: bool = False,
        seen: Counting | None = None,
        **options: Unpack[MinimizerCallOptions],
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
        seen : Counting, optional
            As `seen_minimizers` returns; counts the minimizers that are found.
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
        >>> import numpy as np
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
        name_check: bool = True,
        progress: Callable[[int], object] | None = None,
        **options: Unpack[MinimizerCallOptions],
    ) -> Classification:
        """Return the calls of the reads of files, which are made as they are asked for.

        Parameters
        ----------
        reads, mates, interleaved, name_check, progress
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
            self,
            reads,
            mates,
            interleaved=interleaved,
            name_check=name_check,
            progress=progress,
            **options,
        )


def _read(taxonomy: Taxonomy | str | os.PathLike[str]) -> Taxonomy:
    return taxonomy if isinstance(taxonomy, Taxonomy) else Taxonomy.read(taxonomy)
