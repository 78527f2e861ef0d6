"""Index of sketches: MetaCache's rule."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.kmer.sketches.building import Sketched, filled
from dgpuhash.kmer.sketches.candidates import TopLists, calls_of
from dgpuhash.kmer.sketches.coverage import Coverage
from dgpuhash.kmer.sketches.held import HeldSketches
from dgpuhash.kmer.sketches.reads import Batch, joined, top_lists_of
from dgpuhash.kmer.sketches.settings import CallOptions, SketchSettings
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy

if TYPE_CHECKING:
    from distributed import Client

    from dgpuhash.kmer.sketches.on_workers import DistributedSketchIndex

__all__ = ["SketchIndex"]


class SketchIndex(HeldSketches):
    """Features of reference sequences, and where they are: classifies reads as MetaCache does.

    References are cut into windows; the lowest distinct hashes of a window's k-mers are its
    features. A `MultiMap` has the locations of each feature: target and window.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> fasta = pathlib.Path(tempfile.mkdtemp(), "one.fa")
    >>> _ = fasta.write_text(">r\\nACGTTGCAACGTAGCTAGCTTAGCATCGATTACG\\n")
    >>> index = SketchIndex.build(fasta, taxonomy=None)
    >>> read = np.frombuffer(b"TTGCAACGTAGCTAGCTTAGCATC", np.uint8)
    >>> index.call(read, [0, len(read)]).taxids
    array([-1])
    """

    @overload
    @classmethod
    def build(
        cls,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None,
        client: None = None,
        **settings: Any,
    ) -> Self: ...
    @overload
    @classmethod
    def build(
        cls,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None,
        client: Client,
        mode: str = "auto",
        **settings: Any,
    ) -> DistributedSketchIndex: ...
    @classmethod
    def build(
        cls,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None,
        accessions: Sequence[str | os.PathLike[str]] = (),
        allow_unplaced: int = 0,
        device: str | None = None,
        client: Client | None = None,
        mode: str = "auto",
        progress: Callable[[int], object] | None = None,
        **settings: Any,
    ) -> Self | DistributedSketchIndex:
        """Return an index of the sequences in files.

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
            `SketchSettings` in `dgpuhash.kmer.sketches.settings`.

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
        made = cls(SketchSettings.of(**settings), _taxonomy_of(taxonomy), device)
        made.add(
            references, accessions=accessions, allow_unplaced=allow_unplaced, progress=progress
        )
        return made

    def add(
        self,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None = None,
        accessions: Sequence[str | os.PathLike[str]] = (),
        allow_unplaced: int = 0,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Add the sequences in files; their numbers go on behind those that are there.

        The result is that of one build of all files in this order. The index stays as it was where
        this fails.

        Parameters
        ----------
        references, accessions, allow_unplaced, progress
            As for `build`.
        taxonomy : Taxonomy or path, optional
            One that has all taxa of the index, too. None: that of `build`; of an index that was
            loaded, only the taxa that it has.

        Raises
        ------
        SequenceError, TaxonomyError, OSError
            As for `build`.
        """
        settings, whole = self._settings, self._whole
        if taxonomy is not None:
            whole = _taxonomy_of(taxonomy)
        if not isinstance(references, References):
            references = References(
                references, order=settings.order, mask=settings.mask, known=self._targets,
                progress=progress,
            )  # fmt: skip
        notes = references.place(whole, accessions, allow_unplaced=allow_unplaced).notes
        targets = self._targets.join(references.targets)
        own = None if whole is None else whole.subset(np.unique(targets.taxids))
        dropped = self._dropped.copy()
        sketched = Sketched(self._backend, references, settings)
        table = filled(self._backend, self._table, sketched, settings, dropped)
        told = self._told
        self._table, self._dropped, self._targets = table, dropped, targets
        self._taxonomy, self._whole = own, whole
        self._told = {
            **told, "found": told["found"] + sketched.found, "notes": [*told["notes"], *notes]
        }  # fmt: skip
        self.__dict__.pop("_lineages", None)

    def call(
        self,
        letters: Any,
        offsets: Any,
        mate_letters: Any = None,
        mate_offsets: Any = None,
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
            (0), ``cov_percentile`` (0): see `CallOptions` in `dgpuhash.kmer.sketches.settings`.
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
        kept = options.pop("kept", None)
        chosen = CallOptions.of(self._settings, **options)
        if chosen.cov_percentile and kept is None:
            kept = self.prepare(lambda: iter([batch]), **options)["kept"]
        backend, lineages = self._backend, self._lineages
        found = [
            calls_of(backend, top, lineages, chosen, kept=kept, detail=detail)
            for top in self._top_lists(batch, chosen)
        ]
        return joined(backend, found)

    def classify(
        self,
        reads: Paths,
        mates: Paths | None = None,
        *,
        interleaved: bool = False,
        **options: Any,
    ) -> Classification:
        """Return the calls of the reads in files, made as they are asked for.

        Parameters
        ----------
        reads, mates, interleaved
            As for `Classification`.
        **options
            As for `call`, and ``batch_letters`` and ``progress`` of `Classification`.

        Raises
        ------
        SpecError, FileNotFoundError
            As `Classification`.
        """
        return Classification(self, reads, mates, interleaved=interleaved, **options)

    def prepare(self, batches: Callable[[], Iterator[Batch]], **options: Any) -> dict[str, Any]:
        """Return options for `call`, after a first pass over all reads where they need one.

        With ``cov_percentile`` the targets that reads cover least are found.

        Parameters
        ----------
        batches : callable
            Returns an iterator of arguments of `call`.
        **options
            As for `call`.
        """
        chosen = CallOptions.of(self._settings, **options)
        if not chosen.cov_percentile:
            return options
        coverage = Coverage(self._backend, self._windows())
        for batch in batches():
            for top in self._top_lists(batch, chosen, runs=True):
                coverage.add(top, chosen)
        return {**options, "kept": coverage.kept(chosen.cov_percentile)}

    def _top_lists(
        self, batch: Batch, options: CallOptions, *, runs: bool = False
    ) -> Iterator[TopLists]:
        """Yield the top lists of some reads of a batch at a time."""
        return top_lists_of(
            self._backend, self._settings, self._table, self._lineages, batch, options, runs=runs
        )


def _taxonomy_of(given: Taxonomy | str | os.PathLike[str] | None) -> Taxonomy | None:
    return given if given is None or isinstance(given, Taxonomy) else Taxonomy.read(given)
