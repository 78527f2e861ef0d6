"""Index of sketches: MetaCache's rule."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.counts.tally import checked_letters
from dgpuhash.kmer.databases.distinct import DistinctSample
from dgpuhash.kmer.databases.estimate import Estimate
from dgpuhash.kmer.databases.estimators import SketchEstimator, memory_of
from dgpuhash.kmer.databases.provenance import step_after
from dgpuhash.kmer.options import SketchBuildOptions, SketchCallOptions, SketchOptions
from dgpuhash.kmer.references import References, Targets, targets_of_letters
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.kmer.sketches.building import (
    HELD_NBYTES,
    LOAD,
    are_few,
    batches_of_letters,
    batches_of_references,
    filled,
    sketches_of,
)
from dgpuhash.kmer.sketches.held import HeldSketches
from dgpuhash.kmer.sketches.settings import SketchSettings
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.typing import Device, HasArray, IndexMode, KeysLike

if TYPE_CHECKING:
    from typing import Unpack

    from distributed import Client

    from dgpuhash.kmer.sketches.on_workers import DistributedSketchIndex
    from dgpuhash.kmer.target_runs import TargetRun


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
        made = cls(SketchSettings.of(**settings), _taxonomy_of(taxonomy), device)
        made.add(
            references, accessions=accessions, allow_unplaced=allow_unplaced, progress=progress
        )
        return made

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
        """Return how large an index of the sequences in files will be, and whether it fits.

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
        made, name = SketchSettings.of(**settings), backends.get(device).name
        estimator = estimator_of(name, made, memory=memory_of(client, mode, name))
        return estimator.estimate(references, quick=quick)

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
        """Return an index of references in arrays, on their device.

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
        >>> letters = np.frombuffer(b"ACGTTGCAACGTAGCTAGCTTAGCATCGATTACG", np.uint8)
        >>> SketchIndex.from_letters(letters, [0, len(letters)])
        <SketchIndex: 1 sequences, 16 features at 16 places, cpu>
        """
        device = backends.get(None, letters).name
        made = cls(SketchSettings.of(**settings), _taxonomy_of(taxonomy), device)
        made.add_letters(letters, offsets, taxids, names=names)
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
        estimator_of(self.device, settings).check(references, self._table.nbytes)
        batches = batches_of_references(self._backend, references, settings)
        self._take(whole, references.targets, batches, notes, allow_unplaced=allow_unplaced)

    def add_letters(
        self,
        letters: HasArray,
        offsets: KeysLike,
        taxids: KeysLike | None = None,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """Add references in arrays of the index's device, as `add` does those of files.

        Parameters are those of `from_letters`; `taxonomy` may be None as for `add`.

        Raises
        ------
        SequenceError, TaxonomyError
            As `from_letters`; the index is unchanged.
        """
        whole = self._whole if taxonomy is None else _taxonomy_of(taxonomy)
        letters, offsets = checked_letters(self._backend, letters, offsets)
        edges = self._backend.to_host(offsets)
        targets = targets_of_letters(whole, edges, taxids, names, self._targets)
        batches = batches_of_letters(self._backend, self._settings, letters, edges, len(self))
        self._take(whole, targets, batches)

    def _take(
        self,
        whole: Taxonomy | None,
        targets: Targets,
        batches: Iterable[Any],
        notes: Sequence[str] = (),
        **options: Any,
    ) -> None:
        step = step_after(self, len(targets.files), **options)
        dropped, told = self._dropped.copy(), self._told
        rows = int(targets.lengths.sum()) * self._settings.sketch // self._settings.stride
        table, found = filled(
            self._backend, self._table, batches, self._settings, dropped,
            is_few=are_few(rows, self._table),
        )  # fmt: skip
        targets = self._targets.join(targets)
        own = None if whole is None else whole.subset(np.unique(targets.taxids))
        self._table, self._dropped, self._targets = table, dropped, targets
        self._taxonomy, self._whole = own, whole
        self._told = {
            "found": told["found"] + found,
            "notes": [*told["notes"], *notes],
            "steps": [*told["steps"], step],
        }
        self.__dict__.pop("_lineages", None)

    def classify(
        self,
        reads: Paths,
        mates: Paths | None = None,
        *,
        interleaved: bool = False,
        name_check: bool = True,
        **options: Unpack[SketchCallOptions],
    ) -> Classification:
        """Return the calls of the reads in files, made as they are asked for.

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


def _taxonomy_of(given: Taxonomy | str | os.PathLike[str] | None) -> Taxonomy | None:
    return given if given is None or isinstance(given, Taxonomy) else Taxonomy.read(given)


def estimator_of(device: Device, settings: SketchSettings, **given: Any) -> SketchEstimator:
    """Return what estimates the index that settings make."""
    return SketchEstimator(device, settings, _features, load=LOAD, held=HELD_NBYTES, **given)


def sampled_run(settings: SketchSettings, device: Device, run: TargetRun) -> DistinctSample:
    """Return a sample of the features of a run of targets."""
    return estimator_of(device, settings).sampled(run)


def _features(
    backend: Backend, settings: SketchSettings, references: References | TargetRun
) -> Iterator[Any]:
    batches = batches_of_references(backend, references, settings)
    for features, _ in sketches_of(backend, settings, batches):
        yield features
