"""LocalIndex: k-mer index on one device, by either rule; base of indexes on workers."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dgpuhash import backend as backends
from dgpuhash.kmer.databases.estimate import Estimate
from dgpuhash.kmer.databases.estimators import memory_of
from dgpuhash.kmer.databases.merging import merge_indexes
from dgpuhash.kmer.databases.provenance import Step, provenance_of, step_after, steps_of
from dgpuhash.kmer.distributions import ReadDistribution, distribution_array, saved_distributions
from dgpuhash.kmer.index_file import read_index, write_index
from dgpuhash.kmer.masking import mask_on
from dgpuhash.kmer.references import References, Targets, targets_of_letters
from dgpuhash.kmer.rule import Batch, Part, Rows, Rule
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.typing import Device

if TYPE_CHECKING:
    from distributed import Client

    from dgpuhash.kmer.minimizers.settings import MinimizerSettings
    from dgpuhash.kmer.sketches.settings import SketchSettings

TaxonomyLike = Taxonomy | str | os.PathLike[str]


class IndexBase(ABC):
    """Base of indexes on one device and on workers."""

    rule: ClassVar[str]
    _rule_type: ClassVar[type[Rule]]
    _rule: Rule
    _whole: Taxonomy | None
    _notes: list[str]
    _steps: list[dict[str, Any]]
    # Of the references that there are; those of fewer are of no use.
    _distributions: dict[int, ReadDistribution]

    @property
    def settings(self) -> Any:
        """Settings of the index."""
        return self._rule.settings

    @property
    def targets(self) -> Targets:
        """References in the order of their numbers."""
        return self._rule.targets

    @property
    def taxonomy(self) -> Taxonomy | None:
        """Taxonomy of the references."""
        return self._rule.taxonomy

    @property
    def provenance(self) -> list[Step]:
        """Steps that made the index, in order: dates, versions, options, files."""
        return provenance_of(self._steps, self.targets)

    @abstractmethod
    def _batch_calls(self, batch: Batch, query: Any) -> Any:
        """Return the calls of reads on the host, as `Rule.call_here` does; thread-safe."""

    @abstractmethod
    def _sizes(self) -> list[Any]:
        """Return the sizes of parts with disjoint keys."""

    @property
    @abstractmethod
    def _found(self) -> int:
        """Number of keys given to all parts, if the rule counts them."""

    @property
    def _told(self) -> dict[str, Any]:
        """Header fields besides settings, taxonomy and targets."""
        return {
            **self._rule.told(self._found),
            "notes": list(self._notes),
            "steps": list(self._steps),
        }

    def _whole_of(self, taxonomy: TaxonomyLike | None) -> Taxonomy | None:
        """Return the taxonomy of further references; the present one by default."""
        if taxonomy is None:
            return self._whole or self.taxonomy
        return taxonomy if isinstance(taxonomy, Taxonomy) else Taxonomy.read(taxonomy)

    def _references(
        self, references: Paths | References, progress: Callable[[int], object] | None = None
    ) -> References:
        if isinstance(references, References):
            return references
        return References(
            references, order=self.settings.order, mask=self.settings.mask, known=self.targets,
            progress=progress,
        )  # fmt: skip


class LocalIndex(IndexBase):
    """Index on one device: a rule and one part with all keys.

    Parameters
    ----------
    settings : SketchSettings or MinimizerSettings
    taxonomy : Taxonomy, optional
    device : {"cpu", "cuda"}, optional
    """

    def __init__(
        self,
        settings: SketchSettings | MinimizerSettings,
        taxonomy: Taxonomy | None = None,
        device: Device | None = None,
    ) -> None:
        rule = self._rule_type(backends.get(device), settings, taxonomy, Targets.none())
        self._keep(rule, rule.empty(), taxonomy, [], [])

    @classmethod
    def _of(cls, *state: Any) -> Self:
        made = cls.__new__(cls)
        made._keep(*state)
        return made

    def _keep(
        self,
        rule: Rule,
        part: Part,
        whole: Taxonomy | None,
        notes: list[str],
        steps: list[dict[str, Any]],
    ) -> None:
        # All taxa, and beside the rule those of references.
        self._rule, self._part, self._whole = rule, part, whole
        self._notes, self._steps = notes, steps
        self._distributions = {}

    @property
    def device(self) -> Device:
        """Device of the index."""
        return self._rule.backend.name

    @property
    def _table(self) -> Any:
        return self._part.table

    @classmethod
    def _build(
        cls,
        references: Paths | References,
        *,
        taxonomy: TaxonomyLike | None,
        device: Device | None,
        settings: Mapping[str, Any],
        **others: Any,
    ) -> Self:
        made = cls(cls._rule_type.settings_of(**settings), None, device)
        made.add(references, taxonomy=taxonomy, **others)
        return made

    @classmethod
    def _built_of_letters(
        cls, letters: Any, *arrays: Any, settings: Mapping[str, Any], **others: Any
    ) -> Self:
        device = backends.get(None, letters).name
        made = cls(cls._rule_type.settings_of(**settings), None, device)
        made._add_letters(letters, *arrays, **others)
        return made

    @classmethod
    def _estimate(
        cls,
        references: Paths | References,
        *,
        quick: bool,
        device: Device | None,
        client: Client | None,
        mode: str,
        settings: Mapping[str, Any],
    ) -> Estimate:
        made, name = cls._rule_type.settings_of(**settings), backends.get(device).name
        estimator = cls._rule_type.estimator(name, made, memory=memory_of(client, mode, name))
        return estimator.estimate(references, quick=quick)

    def add(
        self,
        references: Paths | References,
        *,
        taxonomy: TaxonomyLike | None = None,
        accessions: Sequence[str | os.PathLike[str]] = (),
        allow_unplaced: int = 0,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Add the sequences in files; numbering continues after the last target.

        The result is that of one build of all files in this order.

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
            As for `build`; also when an id of a reference is there already, or, by minimizers, a
            taxon of the index has another parent now. The index is unchanged, unless a file turns
            out to be damaged after it was found sound.
        """
        whole = self._whole_of(taxonomy)
        references = self._references(references, progress)
        notes = references.place(whole, accessions, allow_unplaced=allow_unplaced).notes
        self._rule.estimator(self.device, self.settings).check(references, self._table.nbytes)
        rule = self._rule.with_targets(whole, references.targets)
        keys = rule.keys(references)
        self._take(rule, whole, keys, references.targets, notes, allow_unplaced=allow_unplaced)

    def _add_letters(
        self,
        letters: Any,
        offsets: Any,
        taxids: Any = None,
        *,
        taxonomy: TaxonomyLike | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        whole, first = self._whole_of(taxonomy), len(self.targets.names)
        letters, offsets = self._rule.checked_letters(letters, offsets)
        letters = mask_on(self._rule.backend, self.settings.mask, letters, offsets)
        edges = self._rule.backend.to_host(offsets)
        targets = targets_of_letters(whole, edges, taxids, names, self.targets)
        rule = self._rule.with_targets(whole, targets)
        self._take(rule, whole, rule.keys_of_letters(letters, offsets, first), targets)

    def _take(
        self,
        rule: Rule,
        whole: Taxonomy | None,
        keys: Iterable[Rows],
        targets: Targets,
        notes: Sequence[str] = (),
        **options: Any,
    ) -> None:
        step = step_after(self, len(targets.files), **options)
        room = rule.room(int(targets.lengths.sum()))
        part = rule.fold(self._part, keys, room, in_place=True)
        self._keep(rule, part, whole, [*self._notes, *notes], [*self._steps, step])

    def merge(self, *others: Self) -> Self:
        """Merge this index with others of different references.

        It is that of one build of all files in this order, as they are given; numbers of the
        second one's sequences go on behind the first one's. Features that one of them dropped as
        overpopulated stay dropped.

        Parameters
        ----------
        *others : index
            Of the same rule, settings and device.

        Raises
        ------
        SpecError
            When the rule, a setting or the device differs.
        TaxonomyError
            When a taxon has another parent, rank or name in one than in another.
        SequenceError
            When an id of a sequence is in two.
        """
        made: Self = merge_indexes(self, others)
        return made

    def _batch_calls(self, batch: Batch, query: Any) -> Any:
        """Return the calls of reads on the host, as `Rule.call_here` does."""
        return self._rule.call_here(self._part, batch, query)

    def _sizes(self) -> list[Any]:
        return [self._rule.size(self._part)]

    @property
    def _found(self) -> int:
        return self._part.found

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the index to a file atomically.

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
        """
        arrays, of_arrays = self._rule.saved_arrays(self._part)
        if self._distributions:
            arrays = {**arrays, **distribution_array(self._distributions)}
        write_index(
            path, rule=self.rule, settings=asdict(self.settings), arrays=arrays,
            taxonomy=self.taxonomy, targets=self.targets, told={**self._told, **of_arrays},
            overwrite=overwrite,
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: Device | None = None) -> Self:
        """Load a saved index onto the CPU or another device.

        Raises
        ------
        FormatError
            When the file is no index of this rule, or damaged.
        OSError
            When it is not there, or cannot be read.
        """
        with interpreting(path):
            saved = read_index(path, cls.rule)
            rule = cls._rule_type.of_saved(saved, device)
            part = rule.load(saved)
            steps = steps_of(saved.told, saved.targets)
            made = cls._of(rule, part, saved.taxonomy, list(saved.told["notes"]), steps)
            made._distributions = saved_distributions(saved)
            return made
