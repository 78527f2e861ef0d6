"""From reads to calls: their minimizers, what the index has of these, and what that says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import SequenceError
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.minimizers.calling import FoundRuns, TreeArrays, called, joined, with_details
from dgpuhash.kmer.minimizers.reads import Reads, slices
from dgpuhash.kmer.minimizers.runs import minimizer_runs
from dgpuhash.kmer.minimizers.seen import Counting
from dgpuhash.kmer.minimizers.settings import CallOptions, MinimizerSettings
from dgpuhash.kmer.sequences.batches import QUALITY_OFFSET
from dgpuhash.tables import HashMap


@dataclass(frozen=True, slots=True)
class Finder:
    """What is asked for the calls of reads.

    Attributes
    ----------
    backend : Backend
    settings : MinimizerSettings
    table : HashMap
        Of minimizers to numbers of the tree.
    tree : TreeArrays
    options : CallOptions
    """

    backend: Backend
    settings: MinimizerSettings
    table: HashMap
    tree: TreeArrays
    options: CallOptions

    def calls(
        self,
        first: Reads,
        second: Reads | None,
        *,
        detail: bool = False,
        seen: Counting | None = None,
    ) -> Calls:
        """Return the calls of reads, or of pairs.

        Raises
        ------
        SequenceError
            When there are other numbers of reads and mates.
        """
        if second is not None and len(second) != len(first):
            raise SequenceError(
                f"{len(first):,} reads and {len(second):,} mates; pass one mate of each read"
            )
        return joined(
            self.backend,
            [
                self._calls(one, other, detail=detail, seen=seen)
                for one, other in slices(self.backend, first, second)
            ],
        )

    def _calls(
        self, first: Reads, second: Reads | None, *, detail: bool, seen: Counting | None
    ) -> Calls:
        one, other = self._found(first), None if second is None else self._found(second)
        if seen is not None:
            for mates in (one,) if other is None else (one, other):
                seen.add(mates)
        k = self.settings.k
        calls = called(self.backend, self.tree, one, other, k, self.options)
        if not detail:
            return calls
        return with_details(self.backend, self.tree, one, other, k, calls)

    def _found(self, reads: Reads) -> FoundRuns:
        """Return the runs of reads, and the taxa of their minimizers."""
        backend = self.backend
        runs = minimizer_runs(
            backend, self.settings, reads.letters, reads.offsets, qualities=reads.qualities,
            least_quality=self.options.minimum_base_quality + QUALITY_OFFSET,
        )  # fmt: skip
        taxa, _ = self.table.find(runs.minimizers)
        places = backend.xp.searchsorted(runs.starts, reads.offsets.astype(np.uint32))
        return FoundRuns(reads.offsets, places.astype(np.int64, copy=False), runs, taxa)
