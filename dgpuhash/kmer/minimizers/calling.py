"""Call reads by the taxa of their minimizers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.backend import Backend, kernel_named, struct_named
from dgpuhash.kmer.calls import AMBIGUOUS, MATE_BORDER, Calls
from dgpuhash.kmer.databases.owners import part_numbers
from dgpuhash.kmer.minimizers.runs import MinimizerRuns
from dgpuhash.kmer.minimizers.settings import CallOptions
from dgpuhash.kmer.taxonomy.tree import Tree
from dgpuhash.tables import HashSet

_NUMBER = np.dtype(np.uint32)


@dataclass(slots=True)
class FoundRuns:
    """Minimizer runs of the first or second mates of reads, with their taxa.

    Attributes
    ----------
    offsets : array of int64
        Of the letters.
    places : array of int64
        Where each read's runs begin, and the last one's end.
    runs : MinimizerRuns
    taxa : array of uint32
        Numbers of the taxonomy, 0 of none.
    """

    offsets: Any
    places: Any
    runs: MinimizerRuns
    taxa: Any

    def packed(self, backend: Backend) -> bytes:
        """Return the runs as a kernel argument."""
        return backend.pack(
            struct_named("MateRuns"), offsets=self.offsets, places=self.places,
            minimizers=self.runs.minimizers, starts=self.runs.starts, kmers=self.runs.kmers,
            taxa=self.taxa,
        )  # fmt: skip


class TreeArrays:
    """A taxonomy's tree on a device.

    Parameters
    ----------
    backend : Backend
    tree : Tree
    """

    def __init__(self, backend: Backend, tree: Tree) -> None:
        self._made_of = backend, tree
        self.taxids: Any = backend.from_host(tree.taxids.astype(np.int64, copy=False))
        self._held = tuple(
            backend.from_host(array.astype(_NUMBER))
            for array in (tree.parents, tree.preorder, tree.sizes)
        )
        parents, places, sizes = self._held
        nodes = backend.pack(struct_named("Tree"), parents=parents, nodes=len(parents))
        self.packed: bytes = backend.pack(
            struct_named("TaxonTree"), tree=nodes, places=places, sizes=sizes
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # What is packed are addresses.
        return TreeArrays, self._made_of


def call_reads(
    backend: Backend,
    tree: TreeArrays,
    first: FoundRuns,
    second: FoundRuns | None,
    k: int,
    options: CallOptions,
) -> Calls:
    """Return the call of each read or pair, and the number of k-mers in its clade.

    Parameters
    ----------
    backend : Backend
    tree : TreeArrays
    first : FoundRuns
    second : FoundRuns or None
        Of as many second mates.
    k : int
    options : CallOptions
    """
    n = len(first.offsets) - 1
    rows = len(first.runs) + (0 if second is None else len(second.runs))
    calls = Calls(backend.empty(n, np.int64), backend.empty(n, np.uint32))
    backend.run(
        kernel_named("read_call"), n,
        **_mates(backend, first, second), tree=tree.packed, taxids=tree.taxids,
        memory=backend.empty(4 * rows, np.uint32), calls=calls.taxids, hits=calls.hits, k=k,
        confidence=float(options.confidence), least_groups=options.minimum_hit_groups,
        is_quick=int(options.quick), skips_ambiguous=int(options.ignore_ambiguous),
    )  # fmt: skip
    return calls


def with_details(
    backend: Backend,
    tree: TreeArrays,
    first: FoundRuns,
    second: FoundRuns | None,
    k: int,
    calls: Calls,
) -> Calls:
    """Return the calls with the runs of k-mers by taxon."""
    n = len(calls)
    fields = {
        **_mates(backend, first, second), "numbers": tree.taxids, "k": k,
        "ambiguous": AMBIGUOUS, "border": MATE_BORDER,
    }  # fmt: skip
    counts, offsets = backend.empty(n, np.int64), backend.zeros(n + 1, np.int64)
    backend.run(kernel_named("read_runs"), n, **fields, counts=counts)
    backend.xp.cumsum(counts, out=offsets[1:])
    rows = int(offsets[-1])
    taxids, kmers = backend.empty(rows, np.int64), backend.empty(rows, np.uint32)
    backend.run(kernel_named("read_runs"), n, **fields, places=offsets, taxids=taxids, kmers=kmers)
    return Calls(calls.taxids, calls.hits, offsets, taxids, kmers)


def _mates(backend: Backend, first: FoundRuns, second: FoundRuns | None) -> dict[str, bytes]:
    none = backend.pack(struct_named("MateRuns"))
    return {
        "first": first.packed(backend),
        "second": none if second is None else second.packed(backend),
    }


class Counting(ABC):
    """Options for counting reads' minimizers; equal neighbours in a read count once.

    Parameters
    ----------
    backend : Backend
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def add(self, found: FoundRuns) -> None:
        """Count the minimizers of the first or second mates of a batch."""
        xp, minimizers = self._backend.xp, found.runs.minimizers
        if not len(minimizers):
            return
        is_new = xp.ones(len(minimizers), bool)
        is_new[1:] = minimizers[1:] != minimizers[:-1]
        firsts = found.places[:-1]
        is_new[firsts[firsts < len(minimizers)]] = True
        rows = xp.flatnonzero(is_new & (found.taxa != 0))
        if len(rows):
            self._take(minimizers[rows], found.taxa[rows])

    @abstractmethod
    def _take(self, minimizers: Any, taxa: Any) -> None:
        """Count a non-empty array of minimizers with their taxon numbers."""


class SeenMinimizers(Counting):
    """Exact counts of the minimizers of reads, total and distinct.

    `MinimizerIndex.seen_minimizers` makes it, and `MinimizerIndex.call` adds to it. Equal ones
    that follow each other in a read count once.

    Parameters
    ----------
    backend : Backend
    tree : Tree
    """

    def __init__(self, backend: Backend, tree: Tree) -> None:
        super().__init__(backend)
        self._tree = tree
        self._all, self._distinct = (np.zeros(len(tree.taxids), np.int64) for _ in range(2))
        self._seen = HashSet(np.uint64, device=backend.name)

    def __len__(self) -> int:
        return len(self._seen)

    def by_clade(self) -> tuple[np.ndarray, np.ndarray]:
        """Return by taxon number the total and distinct minimizers in each clade."""
        return self._tree.sums(self._all), self._tree.sums(self._distinct)

    def add_piece(self, taxa: np.ndarray, counts: np.ndarray, piece: SeenPiece) -> None:
        """Add the counts that a `SeenOfBatch` has of a batch."""
        self._all[taxa] += counts
        if len(piece.minimizers):
            self._distinct += self._counts(piece.taxa[self._seen.insert(piece.minimizers)])

    def _take(self, minimizers: Any, taxa: Any) -> None:
        self._all += self._counts(taxa)
        self._distinct += self._counts(taxa[self._seen.insert(minimizers)])

    def _counts(self, taxa: Any) -> np.ndarray:
        n = len(self._tree.taxids)
        if not len(taxa):
            return np.zeros(n, np.int64)
        counts = self._backend.to_host(self._backend.xp.bincount(taxa, minlength=n))
        return counts.astype(np.int64, copy=False)


class SeenPiece(NamedTuple):
    """Distinct minimizers, ascending, with their taxon numbers, on the host."""

    minimizers: np.ndarray
    taxa: np.ndarray


class SeenOfBatch(Counting):
    """Minimizers of the reads of one batch.

    Parameters
    ----------
    backend : Backend
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        xp = backend.xp
        self._minimizers, self._taxa = [xp.empty(0, np.uint64)], [xp.empty(0, np.uint32)]

    def _take(self, minimizers: Any, taxa: Any) -> None:
        self._minimizers.append(minimizers)
        self._taxa.append(taxa)

    def taxa(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the taxon numbers of all minimizers, and the count of each."""
        xp, host = self._backend.xp, self._backend.to_host
        taxa, counts = xp.unique(xp.concatenate(self._taxa), return_counts=True)
        return host(taxa), host(counts)

    def pieces(self, n: int) -> list[SeenPiece]:
        """Return the distinct minimizers for each of n owners."""
        xp, host = self._backend.xp, self._backend.to_host
        minimizers, rows = xp.unique(xp.concatenate(self._minimizers), return_index=True)
        minimizers, taxa = host(minimizers), host(xp.concatenate(self._taxa)[rows])
        owners = part_numbers(minimizers, n)
        return [SeenPiece(minimizers[own], taxa[own]) for own in (owners == at for at in range(n))]
