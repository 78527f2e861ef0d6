"""Index of sketches: MetaCache's rule."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.errors import ShapeError
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.counts.tally import checked_letters
from dgpuhash.kmer.index_file import read_index, write_index
from dgpuhash.kmer.references import References, Targets, targets_of_letters
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.kmer.sketches.building import (
    batches_of_letters,
    batches_of_references,
    filled,
    table_settings,
)
from dgpuhash.kmer.sketches.calling import SketchCaller
from dgpuhash.kmer.sketches.contents import arrays_of, digests_of, sizes_of
from dgpuhash.kmer.sketches.settings import SketchSettings
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import HashSet, MultiMap

__all__ = ["SketchIndex"]

_LOCATION = np.dtype(np.uint64)
_OFFSET = np.dtype(np.int64)


class SketchIndex(SketchCaller):
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
            `SketchSettings` in ``dgpuhash.kmer.sketches.settings``.

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

    @classmethod
    def from_letters(
        cls,
        letters: Any,
        offsets: Any,
        taxids: Any = None,
        *,
        taxonomy: Taxonomy | str | os.PathLike[str] | None = None,
        names: Sequence[str] | None = None,
        **settings: Any,
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
        batches = batches_of_references(self._backend, references, settings)
        self._take(whole, references.targets, batches, notes)

    def add_letters(
        self,
        letters: Any,
        offsets: Any,
        taxids: Any = None,
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
    ) -> None:
        dropped, told = self._dropped.copy(), self._told
        table, found = filled(self._backend, self._table, batches, self._settings, dropped)
        targets = self._targets.join(targets)
        own = None if whole is None else whole.subset(np.unique(targets.taxids))
        self._table, self._dropped, self._targets = table, dropped, targets
        self._taxonomy, self._whole = own, whole
        self._told = {"found": told["found"] + found, "notes": [*told["notes"], *notes]}
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
        # A table with the same seed takes the features nearly in the order of its slots.
        told = {**self._told, "seed": self._table.spec.seed}
        write_index(
            path, rule=self.rule, settings=asdict(self._settings),
            arrays=arrays_of(self._backend, self._table, self._dropped),
            taxonomy=self._taxonomy, targets=self._targets, told=told, overwrite=overwrite,
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
        seed = saved.told.pop("seed")
        settings, arrays = SketchSettings(**saved.settings), saved.arrays
        made = cls(settings, saved.taxonomy, device)
        up = made._backend.from_host
        features = arrays.get("features", settings.feature)
        offsets = arrays.get("offsets", _OFFSET, len(features) + 1)
        locations = arrays.get("locations", _LOCATION)
        try:
            made._table = MultiMap.from_lists(
                up(features), up(offsets), up(locations), seed=seed,
                **table_settings(settings, made.device),
            )  # fmt: skip
        except ShapeError as error:
            arrays.check(False, str(error))
        made._dropped.insert(up(arrays.get("dropped", settings.feature)))
        made._targets, made._told = saved.targets, saved.told
        n = len(saved.targets.names)
        arrays.check(not len(locations) or int(locations.max()) >> 32 < n, "it has too few targets")
        return made


def _taxonomy_of(given: Taxonomy | str | os.PathLike[str] | None) -> Taxonomy | None:
    return given if given is None or isinstance(given, Taxonomy) else Taxonomy.read(given)
