"""MinimizerIndex: classify reads by Kraken 2's rule."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.errors import SequenceError, SpecError
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.databases.estimate import Estimate
from dgpuhash.kmer.distributions import ReadDistribution, checked_lengths
from dgpuhash.kmer.formats.report import kreport
from dgpuhash.kmer.local_index import IndexBase, LocalIndex
from dgpuhash.kmer.minimizers.calling import Counting, SeenMinimizers
from dgpuhash.kmer.minimizers.down_sampling import least_hash_for, limit_part, most_minimizers
from dgpuhash.kmer.minimizers.read_windows import count_reads
from dgpuhash.kmer.minimizers.rule import MinimizerRule
from dgpuhash.kmer.minimizers.settings import MinimizerSettings
from dgpuhash.kmer.options import MinimizerBuildOptions, MinimizerCallOptions, MinimizerOptions
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sequences.files import STDIN, Paths, files_of
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.typing import Device, HasArray, IndexMode, KeysLike

if TYPE_CHECKING:
    from typing import Unpack

    from distributed import Client

    from dgpuhash.kmer.minimizers.on_workers import DistributedMinimizerIndex


class MinimizerFigures(IndexBase):
    """Figures of an index's minimizers and taxa, on one device or on workers."""

    rule = MinimizerRule.name
    _rule_type = MinimizerRule
    _rule: MinimizerRule

    @property
    def taxonomy(self) -> Taxonomy:
        """The taxa of the references, and their ancestors."""
        return self._rule.taxonomy

    @property
    def distributions(self) -> dict[int, ReadDistribution]:
        """Calls of every read-length window of the references, by read length.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "gtdb.tsv").write_text("GB_GCA_000000001.1\\td__Archaea\\n")
        >>> _ = (folder / "GCA_000000001.1.fna").write_text(">one\\nACGTTGCATTGCCGATA\\n")
        >>> taxonomy = Taxonomy.from_gtdb(folder / "gtdb.tsv")
        >>> index = MinimizerIndex.build(
        ...     folder / "*.fna", taxonomy=taxonomy, k=9, l=7, spaces=1, distributions=[12]
        ... )
        >>> index.distributions[12].reads
        array([6])
        """
        return dict(self._distributions)

    def taxon_counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the taxids with minimizers (int64), and the number of each (int64).

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from dgpuhash.kmer import MinimizerIndex
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "gtdb.tsv").write_text("GB_GCA_000000001.1\\td__Archaea\\n")
        >>> _ = (folder / "GCA_000000001.1.fna").write_text(">one\\nACGTTGCATTGCCGATA\\n")
        >>> taxonomy = Taxonomy.from_gtdb(folder / "gtdb.tsv")
        >>> index = MinimizerIndex.build(folder / "*.fna", taxonomy=taxonomy, k=9, l=7, spaces=1)
        >>> index.taxon_counts()[1].sum() == len(index)
        np.True_
        """
        counts = sum(of_taxa for *_, of_taxa in self._sizes())
        numbers = np.flatnonzero(counts)
        return self.taxonomy.taxids[numbers].astype(np.int64), counts[numbers]

    def inspect(self) -> Iterator[str]:
        """Yield the lines of a report of the number of minimizers by taxon."""
        yield from kreport(self.taxonomy, *self.taxon_counts())


class MinimizerIndex(MinimizerFigures, LocalIndex):
    """Map from references' minimizers to lowest common ancestors: Kraken 2's rule.

    The rule is Kraken 2's. Unlike in Kraken 2's table, no minimizer is taken for another: a word of
    eight bytes has the taxon, and what its place does not tell of the minimizer. Where such words
    have no bits for both, or would take more memory, minimizers are whole keys of a `HashMap`.
    `build` reads references, `classify` reads files; `call` takes one batch of arrays, on the CPU
    or a GPU.

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

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return (
            f"<MinimizerIndex: {len(self):,} minimizers of {len(self.targets.names):,} sequences, "
            f"{self.device}>"
        )

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
        distributions: Sequence[int] = (),
        max_db_size: int | None = None,
        **settings: Unpack[MinimizerOptions],
    ) -> Self | DistributedMinimizerIndex:
        """Build the index of references.

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
        distributions : sequence of int, optional
            Lengths of reads: how the index calls all reads of its references of each length is
            counted, for estimates of abundances. Files are read once more. `add` and `merge` make
            indexes without.
        max_db_size : int, optional
            Bytes that the map of minimizers may take. Of more minimizers those with the lowest
            hashes are left out, as by Kraken 2's option of this name; a pass over all letters
            before the build tells how many there are. `add` follows the same bound.
        **settings
            Those of `MinimizerSettings`: ``k``, ``l``, ``spaces``, ``toggle``, ``least_hash``, and
            ``mask`` and ``order`` of `References`.

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
        checked = MinimizerSettings.of(**settings)
        lengths = checked_lengths(distributions, checked.k)
        if client is not None:
            from dgpuhash.kmer.minimizers.on_workers import DistributedMinimizerIndex

            if max_db_size is not None:
                raise SpecError(
                    "max_db_size is kept by one process; build without client= (--scheduler), "
                    "save the index and load it on workers"
                )
            on_workers = DistributedMinimizerIndex.build(
                references, client=client, mode=mode, taxonomy=taxonomy, device=device,
                accessions=accessions, allow_unplaced=allow_unplaced, progress=progress,
                **settings,
            )  # fmt: skip
            if lengths:
                on_workers._count_reads(lengths, progress)
            return on_workers
        most = None if max_db_size is None else most_minimizers(max_db_size, checked)
        if most is not None:
            if not isinstance(references, References) and STDIN in files_of(references):
                raise SequenceError(
                    "with max_db_size references are read twice, and the standard input cannot "
                    "be; name files"
                )
            distinct = cls.estimate(references, device=device, **settings).distinct
            least = settings.get("least_hash", 0)
            settings["least_hash"] = least_hash_for(most, distinct, least)
        made = cls._build(
            references, taxonomy=taxonomy, device=device, accessions=accessions,
            allow_unplaced=allow_unplaced, progress=progress, settings=settings,
        )  # fmt: skip
        if most is not None:
            made._limit(most)
        if lengths:
            again = References(
                made.targets.files, order="given", mask=made.settings.mask, progress=progress
            )
            made._distributions = count_reads(made._rule, made._part, again, lengths)
        return made

    def _limit(self, most: int) -> None:
        """Down-sample minimizers by their hashes to at most a number."""
        self._rule, self._part = limit_part(self._rule, self._part, most)
        (step,) = self._steps
        options = {**step["options"], "least_hash": self.settings.least_hash}
        self._steps = [{**step, "options": options}]

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
        """Build the index of references in arrays, on their device.

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
        return cls._built_of_letters(
            letters, offsets, taxids, taxonomy=taxonomy, names=names, settings=settings
        )

    @classmethod
    def estimate(
        cls,
        references: Paths | References,
        *,
        quick: bool = False,
        device: Device | None = None,
        client: Client | None = None,
        mode: IndexMode = "auto",
        **settings: Unpack[MinimizerOptions],
    ) -> Estimate:
        """Estimate the size of an index of the sequences in files, and whether it fits.

        Numbers are within 15 percent of the truth after the minimizers of all letters were found,
        of which a sample is kept. All references count, also those without a place.

        Parameters
        ----------
        references, device, client, mode, **settings
            As for `MinimizerIndex.build`; this process reads the files.
        quick : bool
            Whether the files' sizes are enough, within 40 percent of the truth.

        Raises
        ------
        SpecError, SequenceError, FileNotFoundError, OSError
            As `MinimizerIndex.build`.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> fasta = pathlib.Path(tempfile.mkdtemp(), "one.fa")
        >>> _ = fasta.write_text(">one\\nACGTTGCATTGCCGATA\\n")
        >>> MinimizerIndex.estimate(fasta, k=9, l=7, spaces=1).distinct
        5
        """
        return cls._estimate(
            references, quick=quick, device=device, client=client, mode=mode, settings=settings
        )

    def add_letters(
        self,
        letters: HasArray,
        offsets: KeysLike,
        taxids: KeysLike,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """Add references in arrays on the index's device.

        Parameters are those of `from_letters`; `taxonomy` may be None as for `add`.

        Raises
        ------
        SequenceError, TaxonomyError
            As `from_letters`; the index is unchanged.
        """
        self._add_letters(letters, offsets, taxids, taxonomy=taxonomy, names=names)

    def seen_minimizers(self) -> SeenMinimizers:
        """Return a counter of the minimizers that `call` finds, for a report."""
        return SeenMinimizers(self._rule.backend, self.taxonomy.tree)

    def stats(self) -> dict[str, Any]:
        """Return statistics of the references and of the stored minimizers.

        Returns
        -------
        dict
            ``rule``, ``k``, ``l``, ``spaces``; ``targets`` and ``letters`` that were read;
            ``distinct`` minimizers, ``taxa`` that they have, ``nbytes`` and ``load`` of their map;
            ``whole_keys`` says why minimizers are, if they are, and not parts of words.
        """
        return self._rule.stats(self._sizes(), self._told)

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
        rule, came_from = self._rule, backends.get(None, letters, mate_letters)
        arrays = letters, offsets, mate_letters, mate_offsets
        batch = arrays, {"qualities": qualities, "mate_qualities": mate_qualities}
        calls = rule.calls(self._part, batch, rule.query(options, detail=detail), seen)
        return calls if came_from is rule.backend else calls.on_host(rule.backend)

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
        """Classify the reads of files, lazily.

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
            self, reads, mates, interleaved=interleaved, name_check=name_check,
            progress=progress, **options,
        )  # fmt: skip
