"""SketchIndex: classify reads by MetaCache's rule."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.databases.estimate import Estimate
from dgpuhash.kmer.local_index import LocalIndex
from dgpuhash.kmer.options import SketchBuildOptions, SketchCallOptions, SketchOptions
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.kmer.sketches.building import digests_of
from dgpuhash.kmer.sketches.candidates import TopLists
from dgpuhash.kmer.sketches.rule import SketchQuery, SketchRule
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import MultiMap
from dgpuhash.typing import Device, HasArray, IndexMode, KeysLike

if TYPE_CHECKING:
    from typing import Unpack

    from distributed import Client

    from dgpuhash.kmer.sketches.on_workers import DistributedSketchIndex


class SketchIndex(LocalIndex):
    """Multimap from references' features to locations: MetaCache's rule.

    References are cut into windows; the lowest distinct hashes of a window's k-mers are its
    features. A `MultiMap` has the locations of each feature: target and window.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> fasta = pathlib.Path(tempfile.mkdtemp(), "one.fa")
    >>> _ = fasta.write_text(">r\\nACGTTGCAACGTAGCTAGCTTAGCATCGATTACG\\n")
    >>> index = SketchIndex.build(fasta, taxonomy=None)
    >>> read = np.frombuffer(b"TTGCAACGTAGCTAGCTTAGCATC", np.uint8)
    >>> index.call(read, [0, len(read)]).taxids
    array([-1])
    """

    rule = SketchRule.name
    _rule_type = SketchRule
    _rule: SketchRule

    @property
    def table(self) -> MultiMap:
        """The locations, ``target << 32 | window``, of each feature."""
        table: MultiMap = self._table
        return table

    def __len__(self) -> int:
        return len(self.targets.names)

    def __repr__(self) -> str:
        return (
            f"<SketchIndex: {len(self):,} sequences, {self.table.n_keys:,} features at "
            f"{len(self.table):,} places, {self.device}>"
        )

    @overload
    @classmethod
    def build(
        cls,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None,
        client: None = None,
        **settings: Unpack[SketchBuildOptions],
    ) -> Self: ...
    @overload
    @classmethod
    def build(
        cls,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None,
        client: Client,
        **settings: Unpack[SketchBuildOptions],
    ) -> DistributedSketchIndex: ...
    @classmethod
    def build(
        cls,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None,
        accessions: Sequence[str | os.PathLike[str]] = (),
        allow_unplaced: int = 0,
        device: Device | None = None,
        client: Client | None = None,
        mode: IndexMode = "auto",
        progress: Callable[[int], object] | None = None,
        **settings: Unpack[SketchOptions],
    ) -> Self | DistributedSketchIndex:
        """Build an index of the sequences in files.

        Parameters
        ----------
        references : path, glob, folder, URL, several of them, or References
            FASTA or FASTQ, plain or compressed.
        taxonomy : Taxonomy, path or None
            A folder of NCBI's files. None: calls are of sequences only.
        accessions, allow_unplaced
            As for `place_references`.
        device : {"cpu", "cuda"}, optional
            None: a CPU.
        client : distributed.Client, optional
            The index is made on the workers of its cluster, and lies there.
        mode : {"auto", "distributed", "independent", "replicated"}
            How it lies there: locations by the hash of their features, by targets, or all on each
            worker. By default ``"replicated"`` where a quarter of a worker's memory is enough,
            else ``"distributed"``.
        progress : callable, optional
            Is told the number of letters of each batch.
        **settings
            ``k`` (16), ``sketch`` (16), ``window`` (127), ``stride`` (``window - k + 1``), ``cap``
            (254), ``remove_overpopulated`` (False), ``mask`` ("none"), ``order`` ("path"): see
            `SketchSettings` in ``dgpuhash.kmer.sketches.settings``.

        Raises
        ------
        SpecError
            When a setting is impossible.
        SequenceError, TaxonomyError, FileNotFoundError, OSError
            As `References`, and its `place`.
        """
        if client is not None:
            from dgpuhash.kmer.sketches.on_workers import DistributedSketchIndex

            return DistributedSketchIndex.build(
                references, client=client, mode=mode, taxonomy=taxonomy, device=device,
                accessions=accessions, allow_unplaced=allow_unplaced, progress=progress,
                **settings,
            )  # fmt: skip
        return cls._build(
            references, taxonomy=taxonomy, device=device, accessions=accessions,
            allow_unplaced=allow_unplaced, progress=progress, settings=settings,
        )  # fmt: skip

    @classmethod
    def estimate(
        cls,
        references: Paths | References,
        *,
        quick: bool = False,
        device: Device | None = None,
        client: Client | None = None,
        mode: IndexMode = "auto",
        **settings: Unpack[SketchOptions],
    ) -> Estimate:
        """Estimate the size of an index of the sequences in files, and whether it fits.

        Numbers are within 15 percent of the truth after all letters were sketched, of which a
        sample is kept.

        Parameters
        ----------
        references, device, client, mode, **settings
            As for `build`; this process reads the files.
        quick : bool
            Whether the files' sizes are enough, within 40 percent of the truth.

        Raises
        ------
        SpecError, SequenceError, FileNotFoundError, OSError
            As `build`.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> fasta = pathlib.Path(tempfile.mkdtemp(), "one.fa")
        >>> _ = fasta.write_text(">r\\nACGTTGCAACGTAGCTAGCTTAGCATCGATTACG\\n")
        >>> SketchIndex.estimate(fasta).distinct
        16
        """
        return cls._estimate(
            references, quick=quick, device=device, client=client, mode=mode, settings=settings
        )

    @classmethod
    def from_letters(
        cls,
        letters: HasArray,
        offsets: KeysLike,
        taxids: KeysLike | None = None,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None = None,
        names: Sequence[str] | None = None,
        **settings: Unpack[SketchOptions],
    ) -> Self:
        """Build an index of references in arrays, on their device.

        Parameters
        ----------
        letters : array of uint8
            The references, one after another; NumPy or CuPy.
        offsets : array of int64
            ``n + 1`` positions: reference i is ``letters[offsets[i]:offsets[i + 1]]``.
        taxids : array of int, optional
            Of each reference, 0 of those without a place; None: none has one.
        taxonomy, **settings
            As for `build`.
        names : sequence of str, optional
            Their ids; numbers from 1 on when None.

        Raises
        ------
        SpecError, SequenceError, TaxonomyError
            When a setting is impossible, the arrays do not fit to each other, or a taxid is
            unknown.

        Examples
        --------
        >>> import numpy as np
        >>> letters = np.frombuffer(b"ACGTTGCAACGTAGCTAGCTTAGCATCGATTACG", np.uint8)
        >>> SketchIndex.from_letters(letters, [0, len(letters)])
        <SketchIndex: 1 sequences, 16 features at 16 places, cpu>
        """
        return cls._built_of_letters(
            letters, offsets, taxids, taxonomy=taxonomy, names=names, settings=settings
        )

    def add_letters(
        self,
        letters: HasArray,
        offsets: KeysLike,
        taxids: KeysLike | None = None,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """Add references in arrays on the index's device, as `add` does for files.

        Parameters are those of `from_letters`; `taxonomy` may be None as for `add`.

        Raises
        ------
        SequenceError, TaxonomyError
            As `from_letters`; the index is unchanged.
        """
        self._add_letters(letters, offsets, taxids, taxonomy=taxonomy, names=names)

    def stats(self) -> dict[str, Any]:
        """Return statistics of the references and of the stored features.

        Returns
        -------
        dict
            ``rule`` and the settings; ``targets``, their ``letters`` and ``windows``; ``found``
            features of windows; ``features`` and ``locations`` that are stored, and features that
            were ``dropped`` as overpopulated; ``longest_list``; ``nbytes`` of the table,
            ``nbytes_per_feature`` and ``nbytes_per_location``; ``notes`` on the places of
            references.

        Examples
        --------
        >>> import numpy as np
        >>> SketchIndex.from_letters(np.empty(0, np.uint8), [0]).stats()["locations"]
        0
        """
        return self._rule.stats(self._sizes(), self._told)

    def digests(self) -> dict[str, str]:
        """Return SHA-256 sums of all features' text lines in byte order.

        Returns
        -------
        dict
            ``locations``: of lines ``feature -> (target,window)(target,window)...``, targets from
            0; ``features``: of lines ``feature -> number of locations``.
        """
        return digests_of(*map(self._rule.backend.to_host, self._table.lists()))

    def call(
        self,
        letters: HasArray,
        offsets: KeysLike,
        mate_letters: HasArray | None = None,
        mate_offsets: KeysLike | None = None,
        /,
        *,
        detail: bool = False,
        **options: Any,
    ) -> Calls:
        """Return the calls of reads or pairs in arrays, on their device.

        Parameters
        ----------
        letters, offsets : array of uint8, array of int64
            Read i is ``letters[offsets[i]:offsets[i + 1]]``.
        mate_letters, mate_offsets : array, optional
            The same of second mates.
        detail : bool
            Whether the candidates are returned, too.
        **options
            ``lowest`` ("sequence") and ``highest`` ("domain"), ranks; ``hitmin`` (a third of
            the features of a window), ``hitdiff`` (100, percent), ``maxcand`` (2), ``insertsize``
            (0), ``cov_percentile`` (0): see `CallOptions` in ``dgpuhash.kmer.sketches.settings``.
            ``kept``, as `prepare` found it: of each target, whether it may be a candidate (uint8).

        Raises
        ------
        SpecError, TaxonomyError
            When an option is impossible.
        SequenceError
            When offsets do not part the letters, or mates are not as many.

        Examples
        --------
        See the class.
        """
        batch = (letters, offsets, mate_letters, mate_offsets)
        options = self.prepare(lambda: iter([batch]), **options)
        query = self._rule.query(options, detail=detail)
        return self._rule.calls(self._rule.top_lists(self._part, batch, query), query)

    def prepare(
        self, batches: Callable[[], Iterator[Sequence[HasArray | KeysLike | None]]], **options: Any
    ) -> dict[str, Any]:
        """Return options for `call`, after a first pass over the reads if needed.

        With ``cov_percentile`` the targets that reads cover least are found.

        Parameters
        ----------
        batches : callable
            Returns an iterator of arguments of `call`.
        **options
            As for `call`.
        """

        def answers(query: SketchQuery) -> Iterator[TopLists]:
            for batch in batches():
                yield from self._rule.top_lists(self._part, batch, query)

        return {**self._rule.prepare(answers, options)}

    def classify(
        self,
        reads: Paths,
        mates: Paths | None = None,
        *,
        interleaved: bool = False,
        name_check: bool = True,
        **options: Unpack[SketchCallOptions],
    ) -> Classification:
        """Classify the reads of files, lazily.

        Parameters
        ----------
        reads, mates, interleaved, name_check
            As for `Classification`.
        **options
            As for `call`, and ``batch_letters`` and ``progress`` of `Classification`.

        Raises
        ------
        SpecError, FileNotFoundError
            As `Classification`.
        """
        return Classification(
            self, reads, mates, interleaved=interleaved, name_check=name_check, **options
        )
