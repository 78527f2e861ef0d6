"""Reads classified by the sketches of references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.sketches.candidates import TopLists, calls_of
from dgpuhash.kmer.sketches.coverage import Coverage
from dgpuhash.kmer.sketches.lineages import TargetLineages
from dgpuhash.kmer.sketches.reads import Batch, joined, top_lists_of
from dgpuhash.kmer.sketches.settings import CallOptions, SketchSettings
from dgpuhash.kmer.sketches.sketching import n_windows
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import MultiMap

if TYPE_CHECKING:
    from dgpuhash.typing import HasArray, KeysLike


class SketchCaller:
    """What classifies batches: the part of an index that reads.

    Subclasses have the table, its settings, the taxonomy and the targets.
    """

    _backend: Backend
    _settings: SketchSettings
    _taxonomy: Taxonomy | None
    _targets: Targets
    _table: MultiMap

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
