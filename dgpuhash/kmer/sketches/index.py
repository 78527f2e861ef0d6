"""Index of sketches: MetaCache's rule."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.errors import ShapeError
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.index_file import read_index, write_index
from dgpuhash.kmer.references import References, Targets
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.kmer.sketches.building import filled, table_settings
from dgpuhash.kmer.sketches.candidates import TopLists, calls_of
from dgpuhash.kmer.sketches.contents import digests_of, sizes_of
from dgpuhash.kmer.sketches.coverage import Coverage
from dgpuhash.kmer.sketches.lineages import TargetLineages
from dgpuhash.kmer.sketches.reads import Batch, joined, top_lists_of
from dgpuhash.kmer.sketches.settings import CallOptions, SketchSettings
from dgpuhash.kmer.sketches.sketching import n_windows
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import HashSet, MultiMap

__all__ = ["SketchIndex"]

_LOCATION = np.dtype(np.uint64)
_OFFSET = np.dtype(np.int64)


class SketchIndex:
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

    rule: ClassVar[str] = "metacache"

    def __init__(
        self,
        settings: SketchSettings,
        taxonomy: Taxonomy | None = None,
        device: str | None = None,
    ) -> None:
        self._backend = backends.get(device)
        self._settings = settings
        # All taxa, and those of references.
        self._whole = self._taxonomy = taxonomy
        self._targets = Targets.none()
        self._table = MultiMap(
            settings.feature, _LOCATION, **table_settings(settings, self._backend.name)
        )
        self._dropped = HashSet(settings.feature, device=self._backend.name)
        self._told: dict[str, Any] = {"found": 0, "notes": []}

    @classmethod
    def build(
        cls,
        references: Paths | References,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None,
        accessions: Sequence[str | os.PathLike[str]] = (),
        allow_unplaced: int = 0,
        device: str | None = None,
        progress: Callable[[int], object] | None = None,
        **settings: Any,
    ) -> Self:
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
        table, found = filled(self._backend, self._table, references, settings, dropped)
        told = self._told
        self._table, self._dropped, self._targets = table, dropped, targets
        self._taxonomy, self._whole = own, whole
        self._told = {
            **told, "found": told["found"] + found, "notes": [*told["notes"], *notes]
        }  # fmt: skip
        self.__dict__.pop("_lineages", None)

    @property
    def settings(self) -> SketchSettings:
        """What the index was built with."""
        return self._settings

    @property
    def taxonomy(self) -> Taxonomy | None:
        """The taxonomy of the references."""
        return self._taxonomy

    @property
    def targets(self) -> Targets:
        """The references in the order of their numbers."""
        return self._targets

    @property
    def device(self) -> str:
        """Where the index is."""
        return self._backend.name

    @property
    def table(self) -> MultiMap:
        """The locations, ``target << 32 | window``, of each feature."""
        return self._table

    def __len__(self) -> int:
        return len(self._targets.names)

    def __repr__(self) -> str:
        table = self._table
        return (
            f"<SketchIndex: {len(self):,} sequences, {table.n_keys:,} features at "
            f"{len(table):,} places, {self._backend.name}>"
        )

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

    def stats(self) -> dict[str, Any]:
        """Return what was read and what is stored.

        Returns
        -------
        dict
            ``rule`` and the settings; ``targets``, their ``letters`` and ``windows``; ``found``
            features of windows; ``features`` and ``locations`` that are stored, and features that
            were ``dropped`` as overpopulated; ``longest_list``; ``nbytes`` of the table; ``notes``
            on the places of references.

        Examples
        --------
        >>> SketchIndex(SketchSettings()).stats()["locations"]
        0
        """
        return {
            "rule": self.rule,
            **asdict(self._settings),
            "targets": len(self),
            "letters": int(self._targets.lengths.sum()),
            "windows": int(self._windows().sum()),
            "found": self._told["found"],
            **sizes_of(self._table),
            "dropped": len(self._dropped),
            "notes": list(self._told["notes"]),
        }

    def digests(self) -> dict[str, str]:
        """Return SHA-256 sums of all features' lines, in the order of their bytes.

        Returns
        -------
        dict
            ``locations``: of lines ``feature -> (target,window)(target,window)...``, targets from
            0; ``features``: of lines ``feature -> number of locations``.
        """
        return digests_of(*map(self._backend.to_host, self._table.lists()))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the index to a file, whole or not at all.

        Parameters
        ----------
        path : path or fsspec URL
            By custom its name ends in ``.dgki``.
        overwrite : bool
            Whether it may be there already.

        Raises
        ------
        ExistsError
            When the file is there already.
        OSError
            When it cannot be written.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "none.dgki")
        >>> SketchIndex(SketchSettings(k=12)).save(path)
        >>> SketchIndex.load(path).settings.k
        12
        """
        features, offsets, locations = map(self._backend.to_host, self._table.lists())
        arrays = {
            "features": features,
            "offsets": offsets,
            "locations": locations,
            "dropped": self._backend.to_host(self._dropped.items()),
        }
        write_index(
            path, rule=self.rule, settings=asdict(self._settings), arrays=arrays,
            taxonomy=self._taxonomy, targets=self._targets, told=self._told, overwrite=overwrite,
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | None = None) -> Self:
        """Return the index that `save` wrote, on the CPU or another device.

        Raises
        ------
        FormatError, OSError
            When the file is no index of this rule, is damaged, or cannot be read.
        """
        saved = read_index(path, cls.rule)
        settings, arrays = SketchSettings(**saved.settings), saved.arrays
        made = cls(settings, saved.taxonomy, device)
        up = made._backend.from_host
        features = arrays.get("features", settings.feature)
        offsets = arrays.get("offsets", _OFFSET, len(features) + 1)
        locations = arrays.get("locations", _LOCATION)
        try:
            made._table = MultiMap.from_lists(
                up(features), up(offsets), up(locations), **table_settings(settings, made.device)
            )
        except ShapeError as error:
            arrays.check(False, str(error))
        made._dropped.insert(up(arrays.get("dropped", settings.feature)))
        made._targets, made._told = saved.targets, saved.told
        n = len(saved.targets.names)
        arrays.check(not len(locations) or int(locations.max()) >> 32 < n, "it has too few targets")
        return made

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

    def _windows(self) -> np.ndarray:
        """Return how many windows with k-mers each target has."""
        lengths = self._targets.lengths
        return n_windows(lengths, self._settings, least=self._settings.k)

    def _top_lists(
        self, batch: Batch, options: CallOptions, *, runs: bool = False
    ) -> Iterator[TopLists]:
        """Yield the top lists of some reads of a batch at a time."""
        return top_lists_of(
            self._backend, self._settings, self._table, self._lineages, batch, options, runs=runs
        )

    @cached_property
    def _lineages(self) -> TargetLineages:
        return TargetLineages(self._backend, self._taxonomy, self._targets.taxids)


def _taxonomy_of(given: Taxonomy | str | os.PathLike[str] | None) -> Taxonomy | None:
    return given if given is None or isinstance(given, Taxonomy) else Taxonomy.read(given)
